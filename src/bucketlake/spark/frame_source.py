"""A Spark DataFrame as the source of a write.

A write has two jobs. The first counts the records of each slot and passes only key and partition
columns through Python. The second sends each record to the task that owns its slot, which writes
it. The plans of a task's slots are sent as rows of the same shuffle. If the table has a
record-level index, the second job goes on with its shards (``spark/index_entry_tasks.py``).
``spark/reports.py`` brings errors of tasks to the driver.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from bucketlake.errors import IndexStateError
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.placement import values_for_tasks
from bucketlake.spark.reports import (
    REPORT_FIELD,
    Batches,
    BatchFunction,
    collect,
    noting,
    reporting,
)
from bucketlake.spark.sending import SENT, packing, received, sent_plans
from bucketlake.spark.session_settings import SHUFFLE_SETTINGS, changed_settings
from bucketlake.spark.spark_schema import arrow_from_spark, nested_columns, schema_of
from bucketlake.spark.spool import Spool
from bucketlake.spark.warm_up import start_workers
from bucketlake.write.batch_source import SlotCounts, TaskResult, WriteTask
from bucketlake.write.counted import INPUT_CHANGED, STABLE_INPUT
from bucketlake.write.tag import SLOT_COUNTS, Tagger
from bucketlake.write.write_plan import NO_TASK, Placement, SlotPlan, SlotResult, WritePlan

if TYPE_CHECKING:  # Most writes do not need the record-level index.
    from bucketlake.write.record_index.index_writer import IndexTask
    from bucketlake.write.record_index.locate import LocateTask
    from bucketlake.write.record_index.lookups import LookupPlan
    from bucketlake.write.record_index.placed import LocatedRecords

_TASKS_USUAL = 200

_COUNTS = SLOT_COUNTS.append(REPORT_FIELD)
_RESULTS = pa.schema([pa.field("result", pa.string()), REPORT_FIELD])


class SparkSource:
    """Records of a DataFrame.

    Parameters
    ----------
    df : DataFrame
        The records.
    spool : Spool
        Stores a copy of an input that may change between two evaluations.
    """

    def __init__(self, df: DataFrame, spool: Spool) -> None:
        self._given = df
        self._spool = spool
        self._stable: DataFrame | None = None
        start_workers(df.sparkSession)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return schema_of(self._given).names

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the DataFrame; raises InputError if a column's type is not supported."""
        return arrow_from_spark(schema_of(self._given))

    def is_empty(self) -> bool:
        """Return whether the DataFrame has no rows, by a small job."""
        return bool(self._given.isEmpty())

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._given = self._given.select(nested_columns(paths, self.names))

    @property
    def tasks_wanted(self) -> int:
        """The session's number of shuffle partitions, or Spark's default if it is not a number."""
        text = self._given.sparkSession.conf.get("spark.sql.shuffle.partitions") or ""
        return int(text) if text.isdigit() else _TASKS_USUAL  # Some platforms allow "auto".

    def count_slots(self, tagger: Tagger) -> SlotCounts:
        """Count the records of each slot, in a job over key and partition columns."""
        keys = self._rows().select(nested_columns(tagger.columns, self.names))
        counts: dict[tuple[str, int], int] = defaultdict(int)
        for row in collect(map_in_arrow(keys, _counting(tagger), _COUNTS)):
            counts[row.partition_path, row.slot] += row.records
        return dict(counts)

    def write_slots(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        """Send each record to its task, which writes it."""
        rows = self._rows()
        values = values_for_tasks(plan.task_count)
        packed = map_in_arrow(rows, noting(_packing(task, plan.placement(), values)), SENT)
        slots = sent_plans(rows.sparkSession, plan.slots, plan.task_count)
        shuffled = packed.union(slots).repartition(plan.task_count, "task")
        with changed_settings(rows.sparkSession, SHUFFLE_SETTINGS):
            if task.index is not None:
                return _written_with_index(shuffled, plan, task, task.index, self.schema)
            written = map_in_arrow(shuffled, _writing(task, self.schema), _RESULTS)
            results = collect(written)
        return [SlotResult.from_text(row.result) for row in results]

    def locate(self, plan: LookupPlan, task: LocateTask) -> LocatedRecords:
        """Send each record to the task of its lookup, and keep the located records."""
        from bucketlake.spark.located_frame import LocatedFrame

        return LocatedFrame.of(self._rows(), self.schema, plan, task)

    def close(self) -> None:
        """Drop the spooled copy, if there is one."""
        self._spool.drop()

    def _rows(self) -> DataFrame:
        if self._stable is None:
            self._stable = self._spool.stable(self._given)
        return self._stable


def _counting(tagger: Tagger) -> BatchFunction:
    def count(batches: Batches) -> Batches:
        for batch in batches:
            counted = tagger.count(batch)
            no_report = pa.nulls(counted.num_rows, REPORT_FIELD.type)
            yield counted.append_column(REPORT_FIELD.name, no_report)

    return reporting(count, _COUNTS)


def _packing(task: WriteTask, placement: Placement, values: npt.NDArray[np.int32]) -> BatchFunction:
    """Pack the records of each task; drop keys to delete whose slots do not exist."""

    def place(rows: pa.Table) -> npt.NDArray[np.int32]:
        places = placement.place(task.tagger.tag(rows))
        if not task.deletes_by_key and (places == NO_TASK).any():
            raise IndexStateError(
                "the first pass over the input counted every record for a slot of the plan",
                f"{(places == NO_TASK).sum()} records belong to other slots: {INPUT_CHANGED}",
                STABLE_INPUT,
            )
        return places

    return packing(place, values)


def _writing(task: WriteTask, schema: pa.Schema) -> BatchFunction:
    def write(batches: Batches) -> Batches:
        slots, rows = received(batches, SlotPlan.from_text, schema)
        if not slots:
            return
        for result in task.write(slots, rows, None):
            yield pa.RecordBatch.from_pylist([{"result": result.to_text()}], _RESULTS)

    return reporting(write, _RESULTS)


def _written_with_index(
    shuffled: DataFrame, plan: WritePlan, task: WriteTask, index: IndexTask, schema: pa.Schema
) -> list[TaskResult]:
    """Write the slots of the plan, and then its shards of the record-level index."""
    from bucketlake.spark.index_entry_tasks import packed_keys, result_row, with_index

    def write(batches: Batches) -> Batches:
        slots, rows = received(batches, SlotPlan.from_text, schema)
        changed = index.collector()
        for result in task.write(slots, rows, None, changed=changed) if slots else ():
            yield result_row(result.to_text())
        yield from packed_keys(index, changed)

    results, shards = with_index(shuffled.sparkSession, shuffled, write, plan.shards, index)
    return [*map(SlotResult.from_text, results), *shards]
