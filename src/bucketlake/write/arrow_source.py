"""Arrow tables as the source of a write: without an engine, the tasks are threads."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import stored_type
from bucketlake.model.field_path import columns_at
from bucketlake.write.batch_source import SlotCounts, TaskResult, WriteTask, written_in_threads
from bucketlake.write.tag import TaggedRecords, Tagger
from bucketlake.write.write_plan import SlotPlan, SlotResult, WritePlan

if TYPE_CHECKING:  # Most writes do not need the record-level index.
    from bucketlake.write.record_index.key_changes import ChangedKeys
    from bucketlake.write.record_index.locate import LocateTask
    from bucketlake.write.record_index.lookups import LookupPlan
    from bucketlake.write.record_index.placed import LocatedRecords


class ArrowSource:
    """Records of an Arrow table; its row order decides between equal ordering values."""

    def __init__(self, rows: pa.Table, threads: int | None = None) -> None:
        self._rows = _selectable(rows)
        self._threads = threads or _cpu_count()
        self._tagged: TaggedRecords | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self._rows.column_names
        return names

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._rows.schema

    def is_empty(self) -> bool:
        """Return whether the table has no rows."""
        return len(self._rows) == 0

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._rows = columns_at(self._rows, paths)

    @property
    def tasks_wanted(self) -> int:
        """A small multiple of the number of threads."""
        return 4 * self._threads

    def count_slots(self, tagger: Tagger) -> SlotCounts:
        """Count the records of each slot."""
        # The placement and the tasks use the locations again.
        self._tagged = tagger.tag_first(self._rows)
        counts = self._tagged.counts()
        names, slots, records = (column.to_pylist() for column in counts.columns)
        return dict(zip(zip(names, slots, strict=True), records, strict=True))

    def write_slots(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        """Write the slots of the plan in several threads."""
        tagged = self._tagged or task.tagger.tag(self._rows)
        rows_of_task = _split(tagged, plan)
        slots_of_task: dict[int, list[SlotPlan]] = defaultdict(list)
        for slot in plan.slots:
            slots_of_task[slot.task].append(slot)

        def run(number: int, changed: ChangedKeys | None) -> list[SlotResult]:
            chosen = rows_of_task[number]
            rows, own = self._rows.take(pa.array(chosen)), tagged.take(chosen)
            return list(task.write(slots_of_task[number], rows, chosen, own, changed))

        numbers = sorted(slots_of_task)
        return written_in_threads(run, numbers, plan.shards, task.index, self._threads)

    def locate(self, plan: LookupPlan, task: LocateTask) -> LocatedRecords:
        """Locate all records in several threads, and keep them in memory."""
        from bucketlake.write.record_index.located_arrow import LocatedArrow

        return LocatedArrow.of(self._rows, self._tagged, plan, task, self._threads)

    def close(self) -> None:
        """Do nothing: the source keeps nothing."""


def _split(tagged: TaggedRecords, plan: WritePlan) -> dict[int, np.ndarray]:
    numbers = plan.placement().place(tagged)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(plan.task_count + 1))
    return {i: order[bounds[i] : bounds[i + 1]] for i in range(plan.task_count)}


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _selectable(rows: pa.Table) -> pa.Table:
    """Return the rows in layouts of which Arrow can select rows.

    Arrow cannot select from views, as polars makes them, and not from run-end encoded columns. The
    text of a column of JSON may be a view.
    Other columns keep their type, which later steps check and cast in chunks.
    """
    fields = list(rows.schema)
    for number, field in enumerate(fields):
        if any(layout in str(field.type) for layout in ("_view", "run_end_encoded", ".json")):
            fields[number] = field.with_type(stored_type(field.type, field.name, "the records"))
            column = rows.select([number])
            column = cast_table(column, pa.schema([fields[number]]), where="the records")
            rows = rows.set_column(number, fields[number], column.column(0))
    return rows
