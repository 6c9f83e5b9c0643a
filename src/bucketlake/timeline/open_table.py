"""A table that is open: where it lies, its properties, its clock, and its lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bucketlake.config.table_config import TableConfig
from bucketlake.storage.base import Storage
from bucketlake.timeline.instant import InstantClock, system_now_ms, table_clock
from bucketlake.timeline.locks import NO_LOCK, TableLock


@dataclass(frozen=True, slots=True)
class OpenTable:
    """What every action needs of a table; nothing in it changes while a call runs.

    The metadata table inside a table is one, too (``metadata/metadata_table.py``).

    Attributes
    ----------
    storage : Storage
        The folder of the table.
    config : TableConfig
        Its properties, as read when it was opened.
    clock : InstantClock
        Source of new times.
    lock : TableLock
        Held while an action checks for conflicts and publishes.
    """

    storage: Storage
    config: TableConfig
    clock: InstantClock
    lock: TableLock

    def __reduce__(self) -> tuple[Callable[..., OpenTable], tuple[Storage, TableConfig]]:
        """Pickle without clock and lock: tasks publish nothing."""
        return opened_table, (self.storage, self.config)

    def with_config(self, config: TableConfig) -> OpenTable:
        """Return the table with other properties, such as those that it will have."""
        return replace(self, config=config)

    def without_lock(self) -> OpenTable:
        """Return the table for an action inside another one that holds the lock already."""
        return replace(self, lock=NO_LOCK)


def opened_table(
    storage: Storage,
    config: TableConfig,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> OpenTable:
    """Return a table with the clock that all users of this process share.

    Parameters
    ----------
    storage, config
        As for :class:`OpenTable`.
    lock : TableLock
        The lock that other programs use on the table.
    now_ms : callable
        Milliseconds since 1970 UTC.
    """
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    return OpenTable(storage, config, clock, lock)
