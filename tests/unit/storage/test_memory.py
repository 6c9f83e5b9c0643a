"""Memory: shared by name, and the same in every run."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Iterator

import pytest

from bucketlake.errors import StorageError
from bucketlake.storage import memory
from bucketlake.storage.memory import MemoryStorage, forget


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.node.name
    forget(request.node.name)


def test_handles_of_one_name_share_objects_even_when_no_handle_is_kept(name: str) -> None:
    MemoryStorage(name).put("a", b"1")
    gc.collect()
    assert MemoryStorage(name).read("a") == b"1"


def test_forgotten_name_is_empty(name: str) -> None:
    MemoryStorage(name).put("a", b"1")
    forget(name)
    forget(name)
    assert list(MemoryStorage(name).list("")) == []


def test_fresh_storages_share_nothing_and_vanish_with_their_last_handle() -> None:
    one, other = MemoryStorage.fresh(), MemoryStorage.fresh()
    one.put("a", b"1")
    assert list(other.list("")) == []
    names = {one.root.removeprefix("memory://"), other.root.removeprefix("memory://")}
    assert names <= set(memory._fresh_shelves)
    del one, other
    gc.collect()
    assert not names & set(memory._fresh_shelves)


def test_default_clock_gives_each_write_its_own_time_and_every_run_the_same() -> None:
    def times() -> list[int]:
        storage = MemoryStorage.fresh()
        for path in "abc":
            storage.put(path, b"1")
        return [stored.modified_at_ms for stored in storage.list("")]

    assert times() == times() == [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002]


def test_clock_that_is_handed_in_tells_the_times_to_all_handles(name: str) -> None:
    other = MemoryStorage(name)
    MemoryStorage(name, clock=lambda: 42)
    other.put_if_absent("a", b"1")
    assert next(other.list("")).modified_at_ms == 42


def test_listing_shows_the_objects_at_the_time_of_the_call() -> None:
    storage = MemoryStorage.fresh()
    storage.put("a", b"1")
    listing = storage.list("")
    storage.put("b", b"1")
    assert [stored.path for stored in listing] == ["a"]


def test_content_does_not_change_with_the_buffer_it_came_from() -> None:
    storage, data = MemoryStorage.fresh(), bytearray(b"1")
    storage.put("a", data)
    data[:] = b"2"
    assert storage.read("a") == b"1"


def test_handle_that_reaches_another_process_is_refused_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = pickle.dumps(MemoryStorage(name))
    process_id = os.getpid()
    monkeypatch.setattr(memory.os, "getpid", lambda: process_id + 1)
    with pytest.raises(StorageError, match=f"only in process {process_id}"):
        pickle.loads(pickled)
