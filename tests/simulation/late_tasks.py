"""Sources that keep the tasks of their writes, so that the tasks can run again, late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from bucketlake.write.batch_source import TaskResult, WriteTask
from bucketlake.write.record_index.located_arrow import LocatedArrow
from bucketlake.write.record_index.placed import PlacedTask

from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.storage.subfolder import Subfolder
from bucketlake.write.arrow_source import ArrowSource
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.record_index.group_plan import GroupPlan
from bucketlake.write.record_index.index_writer import IndexWriter
from bucketlake.write.record_index.locate import LocateTask
from bucketlake.write.record_index.lookups import LookupPlan
from bucketlake.write.write_plan import WritePlan


@dataclass(frozen=True)
class LateTasks:
    """The tasks of a write.

    Attributes
    ----------
    instant : InstantTime
        Instant of the write.
    run : callable
        Runs the tasks again on a storage: that of their own process may be dead.
    """

    instant: InstantTime
    run: Callable[[Storage], object]


class RememberingSource(ArrowSource):
    """An Arrow source in one thread that keeps its tasks."""

    def __init__(self, rows: pa.Table, kept: list[LateTasks]) -> None:
        super().__init__(rows, threads=1)
        self._kept = kept

    def write_slots(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        run = partial(_write_again, self._rows, plan, task)
        self._kept.append(LateTasks(task.writer.instant, run))
        return super().write_slots(plan, task)

    def locate(self, plan: LookupPlan, task: LocateTask) -> Any:
        return _Remembered(super().locate(plan, task), self._kept)


class _Remembered:
    """Located records that keep the tasks of their second stage."""

    def __init__(self, located: Any, kept: list[LateTasks]) -> None:
        self._located, self._kept = located, kept
        self.results = located.results
        self.close = located.close

    def write(self, plan: GroupPlan, task: PlacedTask) -> Any:
        again = LocatedArrow([*self._located.lookups], 1)
        run = partial(_write_located_again, again, plan, task)
        self._kept.append(LateTasks(task.writer.instant, run))
        return self._located.write(plan, task)


def _write_again(rows: pa.Table, plan: WritePlan, task: WriteTask, storage: Storage) -> object:
    index = task.index
    if index is not None:
        index = replace(index, writer=_index_on(storage, index.writer))
    moved = replace(task, writer=_writer_on(storage, task.writer), index=index)
    return ArrowSource(rows, threads=1).write_slots(plan, moved)


def _write_located_again(
    located: LocatedArrow, plan: GroupPlan, task: PlacedTask, storage: Storage
) -> object:
    writer, index_writer = _writer_on(storage, task.writer), _index_on(storage, task.index_writer)
    return located.write(plan, replace(task, writer=writer, index_writer=index_writer))


def _writer_on(storage: Storage, writer: GroupWriter) -> GroupWriter:
    stored_keys = replace(writer.stored_keys, storage=storage)
    return replace(writer, storage=storage, stored_keys=stored_keys)


def _index_on(storage: Storage, writer: IndexWriter) -> IndexWriter:
    inner = Subfolder(storage, writer.index.table.storage.folder)
    logs = replace(writer.logs, storage=storage, metadata=inner)
    return replace(
        writer, index=RecordIndexReader(replace(writer.index.table, storage=inner)), logs=logs
    )
