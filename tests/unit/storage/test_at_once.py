"""Requests that do not wait for each other."""

from __future__ import annotations

import threading

import pytest

from bucketlake.storage.base import at_once
from bucketlake.storage.memory import MemoryStorage
from tests.waiting import SECONDS_MAX


class Remote(MemoryStorage):
    """Memory that is far away."""

    @property
    def requests_at_once(self) -> int:
        return 4


@pytest.fixture
def remote() -> Remote:
    storage = Remote("far away")
    for number in range(9):
        storage.put(f"{number}", b"%d" % number)
    return storage


def test_as_many_are_under_way_as_the_storage_likes(remote: Remote) -> None:
    together = threading.Barrier(4, timeout=SECONDS_MAX)

    def request(path: str) -> bytes:
        together.wait()  # Broken, and an error, unless four come.
        return remote.read(path)

    assert at_once(remote, request, "01234567") == [b"%d" % n for n in range(8)]


def test_local_requests_are_made_one_by_one_where_they_are_asked_for() -> None:
    storage = MemoryStorage.fresh()
    asked = at_once(storage, lambda path: (path, threading.get_ident()), "abc")
    assert asked == [(path, threading.get_ident()) for path in "abc"]


@pytest.mark.parametrize("items", ["", "1"])
def test_few_need_no_thread(remote: Remote, items: str) -> None:
    assert at_once(remote, lambda _: threading.get_ident(), items) == [
        threading.get_ident() for _ in items
    ]


def test_an_error_is_raised_and_what_had_not_begun_is_not_asked_for(remote: Remote) -> None:
    asked = []

    def request(path: str) -> bytes:
        asked.append(path)
        if path == "0":
            raise ValueError(path)
        threading.Event().wait(0.2)
        return remote.read(path)

    with pytest.raises(ValueError, match="0"):
        at_once(remote, request, "0" + "12345678" * 20)
    assert len(asked) < 100


def test_how_many_are_answered_is_told(remote: Remote) -> None:
    told: list[int] = []
    at_once(remote, remote.read, "01234567", told.append)
    assert told == [1, 2, 3, 4, 5, 6, 7, 8]
