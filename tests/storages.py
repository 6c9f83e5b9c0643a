"""Memory storages with given content, for tests that look at objects rather than at tables."""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.table_properties import update_table_properties
from tests.faulty_storage import Effect, Fault, FaultyStorage, Moment


def memory_of(objects: Mapping[str, bytes] | None = None) -> MemoryStorage:
    """Make a storage that holds these objects."""
    storage = MemoryStorage.fresh()
    for path, data in (objects or {}).items():
        storage.put(path, data)
    return storage


def objects_of(storage: Storage) -> dict[str, bytes]:
    """Return all that a storage holds, by path."""
    return {stored.path: storage.read(stored.path) for stored in storage.list("")}


def failing(
    inner: Storage, *changes: int, lands: bool, effect: Effect = Effect.ERROR
) -> FaultyStorage:
    """Make a view of a storage on which changes of these numbers (from 1) fail.

    Parameters
    ----------
    lands : bool
        Whether they take effect all the same.
    effect : Effect
        What the caller sees.
    """
    moment = Moment.AFTER if lands else Moment.BEFORE
    faults = [Fault(change, moment, effect) for change in changes]
    return FaultyStorage(inner, faults, reads_count=False)


def set_properties(storage: Storage, entries: Mapping[str, str]) -> None:
    """Set entries of a table's properties; an empty one is removed."""

    def change(held: dict[str, str]) -> dict[str, str]:
        return {key: value for key, value in {**held, **entries}.items() if value}

    update_table_properties(storage, change)
