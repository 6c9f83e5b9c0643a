"""A table whose commits name files that nobody wrote: the commit protocol reads no rows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.actions.commit import CommitPlan, PendingWrite, begin_write, commit_write
from bucketlake.config.table_config import TableConfig
from bucketlake.index.bucket_hash import bucket_text
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.instant import Action, Instant, InstantClock, State
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import read_outcome
from bucketlake.timeline.transitions import create_requested, to_inflight

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string())])
AHEAD = InstantTime("20991231235959000")
"""A time that no clock of a test reaches: an instant that no timeline has took a turn at it."""


@dataclass(frozen=True)
class BareTable:
    """A table, and the steps of its writers one by one."""

    storage: Storage
    config: TableConfig
    clock: InstantClock

    @classmethod
    def at(cls, path: str, **settings: Any) -> BareTable:
        """Create the table, partitioned by ``p``; by default without a metadata table."""
        made = bl.create_table(
            path, schema=SCHEMA, record_key=["id"], partition_by=["p"],
            index=bl.SimpleBucket(8), **{"metadata_table": False} | settings,
        )  # fmt: skip
        return cls(open_storage(path), made.config(), InstantClock("UTC"))

    def over(self, storage: Storage) -> BareTable:
        """Return the same table through another view of its storage."""
        return replace(self, storage=storage)

    @property
    def opened(self) -> OpenTable:
        """The table, as the functions of this room take it."""
        return OpenTable(self.storage, self.config, self.clock, NO_LOCK)

    def timeline(self) -> Timeline:
        return load_timeline(self.opened)

    def begin(
        self, operation: Operation = Operation.UPSERT, lock: TableLock = NO_LOCK
    ) -> AbstractContextManager[PendingWrite]:
        """Begin a write that pins the table as it is now."""
        timeline = self.timeline()
        return begin_write(replace(self.opened, lock=lock), timeline, operation)

    def commit(
        self, *buckets: int, operation: Operation = Operation.UPSERT, **plan: Any
    ) -> InstantTime:
        """Commit a write to some buckets; return its instant."""
        with self.begin(operation) as write:
            commit_write(write, CommitPlan(files_of(write, *buckets), **plan))
        return write.instant

    def leave(self, action: Action, content: bytes = b"") -> Instant:
        """Leave an instant of a writer that died: it is inflight, without a heartbeat."""
        instant = self.clock.next_instant(self.timeline())
        create_requested(self.opened, instant, action, content)
        return to_inflight(self.opened, instant, action)

    def take(self, instant: InstantTime) -> None:
        """Take the next turn for an instant."""
        assert take_turn(self.storage, instant, last_turn(self.storage))

    def decided(self, instant: InstantTime) -> str | None:
        """Return how an instant was decided; None if it was not."""
        outcome = read_outcome(self.storage, instant)
        return None if outcome is None else "rollback" if outcome.is_rollback else "commit"

    def is_completed(self, instant: InstantTime) -> bool:
        return self.timeline().find_completed(instant) is not None

    def state_of(self, instant: InstantTime) -> State | None:
        found = (one for one in self.timeline().instants if one.requested_at == instant)
        return next((one.state for one in found), None)


def group_of(bucket: int) -> FileId:
    return FileId(f"{bucket_text(bucket)}-0000-4000-8000-000000000000-0")


def files_of(write: PendingWrite, *buckets: int, partition: str = "x") -> list[WriteStat]:
    """Return a file of a write for each of some buckets; the write opens their groups."""
    names = {bucket: f"{group_of(bucket)}_0-0-0_{write.instant}.parquet" for bucket in buckets}
    return [
        WriteStat(group_of(bucket), f"{partition}/{name}", partition, opens_group=True)
        for bucket, name in names.items()
    ]
