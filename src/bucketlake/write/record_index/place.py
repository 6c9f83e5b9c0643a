"""Placing located records: the second stage of a write under a record-level index.

Each slot of the plan is a file group, and a task owns some of them
(``write/record_index/group_plan.py``). The writer of the slots is that of all index kinds. In the
same stage, other rows bring changed keys to the tasks that write the log files of the index
(``write/record_index/index_writer.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.flow.stage import Int32Array, Rows, in_task_order
from bucketlake.write.record_index.group_plan import GroupPlan
from bucketlake.write.record_index.index_writer import (
    PLACED_ENTRIES,
    IndexWriter,
    ShardPlan,
    ShardResult,
    placed_entries,
)
from bucketlake.write.record_index.locate import ENTRIES, LOCATED, LOOKUP, PLACE, RANK, Routes
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.tag import with_numbers
from bucketlake.write.write_plan import SlotPlan, SlotResult


@dataclass(frozen=True, slots=True)
class PlaceStage:
    """Writes the located records of a task; a picklable value that all tasks of a write share.

    Attributes
    ----------
    task : WriteTask
        Writes file groups.
    index_writer : IndexWriter
        Writes the entries of shards.
    routes : Routes
        Give each located record its slot.
    slot_tasks, shard_tasks : ndarray of int32
        The tasks of the slots and of the shards of the plan.
    shard_of_lookup : ndarray of int32
        For each lookup, the position of its shard in the plan; -1 if no entry changes.
    schema : pa.Schema
        Columns of the records, without hidden columns.
    """

    task: WriteTask
    index_writer: IndexWriter
    routes: Routes
    slot_tasks: Int32Array
    shard_tasks: Int32Array
    shard_of_lookup: Int32Array
    schema: pa.Schema

    @classmethod
    def of(
        cls, plan: GroupPlan, task: WriteTask, index_writer: IndexWriter, schema: pa.Schema
    ) -> PlaceStage:
        """Return the stage that carries out a plan."""
        return cls(
            task,
            index_writer,
            plan.routes,
            np.array([slot.task for slot in plan.write.slots], np.int32),
            np.array([shard.task for shard in plan.shards], np.int32),
            np.array(plan.shard_of_lookup, np.int32),
            schema,
        )

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Send records to the tasks of their slots, and keys to those of their shards."""
        if rows.channel == LOCATED:
            slots = self.routes.slots(rows.table)
            table = rows.table.drop_columns([LOOKUP, PLACE, RANK])
            return in_task_order(self.slot_tasks[slots], slots, with_numbers(table, slots))
        shards = self.shard_of_lookup[rows.table[LOOKUP].to_numpy()]
        entries = placed_entries(rows.table, self.routes, shards)
        return in_task_order(self.shard_tasks[shards], shards, entries)

    def run(
        self, plans: Sequence[SlotPlan | ShardPlan], received: dict[str, pa.Table]
    ) -> Iterator[TaskResult]:
        """Write the shards and the slots of a task."""
        yield from self._shards(received, [p for p in plans if isinstance(p, ShardPlan)])
        yield from self._slots(received, [p for p in plans if isinstance(p, SlotPlan)])

    def _shards(
        self, received: Mapping[str, pa.Table], plans: Sequence[ShardPlan]
    ) -> Iterator[ShardResult]:
        if plans:
            entries = received.get(ENTRIES, PLACED_ENTRIES.empty_table())
            yield from self.index_writer.write(plans, entries)

    def _slots(
        self, received: dict[str, pa.Table], plans: Sequence[SlotPlan]
    ) -> Iterator[SlotResult]:
        if plans:
            rows_of = self.task.rows_of
            yield from self.task.write(
                plans, rows_of(received, LOCATED, self.schema), is_distinct=True
            )
