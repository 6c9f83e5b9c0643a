"""What is repeated in a thread."""

from __future__ import annotations

import threading

from bucketlake.storage.waiting import repeating
from tests.waiting import wait_until


def test_what_returns_false_is_not_repeated() -> None:
    threads: list[threading.Thread] = []

    def act() -> bool:
        threads.append(threading.current_thread())
        return len(threads) < 3

    with repeating(act, 0.001, "acts"):
        wait_until(lambda: threads and not threads[0].is_alive())
    assert len(threads) == 3
