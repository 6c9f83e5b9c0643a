from __future__ import annotations

import threading

import pytest

from bucketlake.flow.call import doing, work_in_words


def test_work_is_told_from_the_whole_to_the_step_and_ends() -> None:
    assert work_in_words() == ""
    with doing("upsert trips"), doing("20261127101112123", "writing"):
        assert work_in_words() == "upsert trips · 20261127101112123 · writing"
    with pytest.raises(KeyError), doing("upsert trips"):
        raise KeyError
    assert work_in_words() == ""


def test_each_thread_tells_its_own_work() -> None:
    told = []
    with doing("upsert trips"):
        thread = threading.Thread(target=lambda: told.append(work_in_words()))
        thread.start()
        thread.join()
    assert told == [""]
