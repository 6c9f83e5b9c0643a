"""Sources that keep the tasks of their writes, so that the tasks can run again, late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bucketlake.flow.stage import Flow, GroupName, Stage, TaskPlan
from bucketlake.index.layout import SlotPlan
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage, Subfolder
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.record_index.by_shard import ShardStage
from bucketlake.write.record_index.group_plan import PlaceStage
from bucketlake.write.record_index.index_writer import IndexWriter
from bucketlake.write.record_index.locate import LocateStage
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.tag import Tagger
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

    def pack(self, tagger: Tagger) -> PackedRecords:
        packed = super().pack(tagger)
        return _Remembering(packed.flow, packed.schema, packed.engine, self._kept)


@dataclass(frozen=True)
class _Remembering(PackedRecords):
    """Packed records that keep the tasks of their write."""

    kept_tasks: list[LateTasks]

    def write(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        write = super().write

        def again(storage: Storage) -> object:
            return write(plan, _task_on(storage, task))

        self.kept_tasks.append(LateTasks(task.writer.instant, again))
        return write(plan, task)

    def write_by_shard(
        self, stage: ShardStage, plans: Sequence[TaskPlan], task_count: int
    ) -> list[Any]:
        write = super().write_by_shard

        def again(storage: Storage) -> object:
            inner = Subfolder(storage, stage.finder.index.table.storage.folder)
            index = RecordIndexReader(replace(stage.finder.index.table, storage=inner))
            records = replace(stage.records, task=_task_on(storage, stage.records.task))
            moved = replace(
                stage,
                records=records,
                finder=replace(stage.finder, index=index),
                index_writer=_index_on(storage, stage.index_writer),
            )
            return write(moved, plans, task_count)

        self.kept_tasks.append(LateTasks(stage.records.task.writer.instant, again))
        return write(stage, plans, task_count)

    def locate(self, lookups: Sequence[SlotPlan], stage: LocateStage) -> Flow:
        return _Located(super().locate(lookups, stage), self.kept_tasks)


class _Located:
    """Located records that keep the tasks of their second stage, and stay for them."""

    def __init__(self, flow: Flow, late: list[LateTasks]) -> None:
        self._flow, self._late = flow, late
        self.results = flow.results

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,
        tasks: Mapping[GroupName, int] | None = None,
    ) -> Flow:
        assert isinstance(stage, PlaceStage), stage
        placing: PlaceStage = stage

        def again(storage: Storage) -> object:
            moved = replace(
                placing,
                task=_task_on(storage, placing.task),
                index_writer=_index_on(storage, placing.index_writer),
            )
            return self._flow.then(moved, plans, task_count, tasks).results()

        self._late.append(LateTasks(stage.task.writer.instant, again))
        return self._flow.then(stage, plans, task_count, tasks)

    def kept(self) -> Flow:
        return self

    def close(self) -> None:
        pass


def _task_on(storage: Storage, task: WriteTask) -> WriteTask:
    index = task.index
    if index is not None:
        index = replace(index, writer=_index_on(storage, index.writer))
    return replace(task, writer=_writer_on(storage, task.writer), index=index)


def _writer_on(storage: Storage, writer: GroupWriter) -> GroupWriter:
    stored_keys = replace(writer.stored_keys, storage=storage)
    return replace(writer, storage=storage, stored_keys=stored_keys)


def _index_on(storage: Storage, writer: IndexWriter) -> IndexWriter:
    inner = Subfolder(storage, writer.index.table.storage.folder)
    index = RecordIndexReader(replace(writer.index.table, storage=inner))
    return replace(writer, index=index, storage=storage)
