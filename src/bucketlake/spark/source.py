"""A Spark DataFrame as the source of a write.

Two jobs: one counts the records of each file group and passes only key and partition columns
through Python; the other sends each record to the task that owns its file group and writes there.
What a task needs to know of its groups comes to it as rows of the same shuffle. How errors of tasks
reach the driver is told in ``spark/reports.py``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.
from pyspark.sql import types as T  # noqa: N812

from bucketlake.errors import InputError
from bucketlake.model.write_stat import WriteStat
from bucketlake.spark.placement import values_for_tasks
from bucketlake.spark.reports import (
    REPORT_FIELD,
    Batches,
    BatchFunction,
    collect,
    noting,
    reporting,
)
from bucketlake.spark.schema import arrow_from_spark, schema_of, spark_from_arrow
from bucketlake.spark.spool import Spool
from bucketlake.write.plan import NO_TASK, GroupPlan, Placement, WritePlan
from bucketlake.write.source import GroupCounts, WriteTask
from bucketlake.write.tag import GROUP_COUNTS, Tagger, count_groups

TASK_FIELD = "_bucketlake_task"
GROUP_FIELD = "_bucketlake_group"  # A GroupPlan as text in control rows, null in records.

_COUNTS = GROUP_COUNTS.append(REPORT_FIELD)
_STATS = pa.schema([pa.field("stat", pa.string()), REPORT_FIELD])


class SparkSource:
    """Records of a DataFrame.

    Parameters
    ----------
    df : DataFrame
        The records.
    spool : Spool
        Keeps an input that may change between two evaluations.
    """

    def __init__(self, df: DataFrame, spool: Spool) -> None:
        self._given = df
        self._spool = spool
        self._stable: DataFrame | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return schema_of(self._given).names

    @property
    def schema(self) -> pa.Schema:
        """Schema of the DataFrame in Arrow's types; InputError where a column has none."""
        for name in (TASK_FIELD, GROUP_FIELD):
            if name in self.names:
                raise InputError(f"column {name!r}", "bucketlake uses the name", "rename it")
        return arrow_from_spark(schema_of(self._given))

    def keep(self, columns: list[str]) -> None:
        """Leave all columns out but these."""
        self._given = self._given.select(*columns)

    @property
    def tasks_wanted(self) -> int:
        """The session's number of shuffle partitions."""
        return int(self._given.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)

    def count_groups(self, tagger: Tagger) -> GroupCounts:
        """Count the records of each file group, in a job over key and partition columns."""
        keys = self._rows().select(*tagger.columns)
        counts: dict[tuple[str, int], int] = defaultdict(int)
        for row in collect(keys.mapInArrow(_counting(tagger), spark_from_arrow(_COUNTS))):
            counts[row.partition_path, row.bucket_id] += row.records
        return dict(counts)

    def write_groups(self, plan: WritePlan, task: WriteTask) -> list[WriteStat]:
        """Send each record to its task and write there."""
        rows = self._rows()
        values = values_for_tasks(plan.task_count)
        placed = _placed(rows, task.tagger, _TaskOf(task.tagger, plan.placement(), values))
        shuffled = placed.union(_control_rows(rows, plan, values)).repartition(
            plan.task_count, TASK_FIELD
        )
        stats = collect(shuffled.mapInArrow(_writing(task), spark_from_arrow(_STATS)))
        return [WriteStat(**json.loads(row.stat)) for row in stats]

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
            counted = count_groups(tagger.tag(batch))
            no_report = pa.nulls(counted.num_rows, REPORT_FIELD.type)
            yield counted.append_column(REPORT_FIELD.name, no_report)

    return reporting(count, _COUNTS)


@dataclass(frozen=True, slots=True)
class _TaskOf:
    """Gives each record the value that leads it to its task."""

    tagger: Tagger
    placement: Placement
    values: npt.NDArray[np.int32]

    def of(self, columns: pa.RecordBatch) -> pa.Array:
        """Return a value per record; one of a group that is left alone may go anywhere."""
        tasks = self.placement.place(self.tagger.tag(columns))
        return pa.array(self.values[np.where(tasks == NO_TASK, 0, tasks)])


def _placed(rows: DataFrame, tagger: Tagger, task: _TaskOf) -> DataFrame:
    """Add the columns by which rows are sent to tasks."""
    no_group = F.lit(None).cast(T.StringType())
    if hasattr(F, "arrow_udf"):  # From PySpark 4.1 on only key columns need pass through Python.

        def task_of(*columns: pa.Array) -> pa.Array:
            return task.of(pa.RecordBatch.from_arrays(list(columns), tagger.columns))

        value = F.arrow_udf(task_of, T.IntegerType())(*tagger.columns)
        return rows.withColumn(TASK_FIELD, value).withColumn(GROUP_FIELD, no_group)

    def place(batches: Batches) -> Batches:
        for batch in batches:
            yield batch.append_column(TASK_FIELD, task.of(batch))

    schema = T.StructType(list(rows.schema.fields)).add(TASK_FIELD, T.IntegerType())
    return rows.mapInArrow(noting(place), schema).withColumn(GROUP_FIELD, no_group)


def _writing(task: WriteTask) -> BatchFunction:
    def write(batches: Batches) -> Batches:
        records, groups = _split(batches)
        if not groups:
            return
        rows = pa.Table.from_batches(records).combine_chunks()
        del records
        for stat in task.write(groups, rows, None):
            yield pa.RecordBatch.from_pylist([{"stat": json.dumps(asdict(stat))}], _STATS)

    return reporting(write, _STATS)


def _split(batches: Batches) -> tuple[list[pa.RecordBatch], list[GroupPlan]]:
    """Take the records and the plans of groups apart."""
    records: list[pa.RecordBatch] = []
    groups: list[GroupPlan] = []
    for batch in batches:
        group = batch.column(GROUP_FIELD)
        held = batch.drop_columns([TASK_FIELD, GROUP_FIELD])
        if group.null_count < len(group):
            groups.extend(GroupPlan.from_text(text) for text in group.drop_null().to_pylist())
            held = held.filter(group.is_null())
        records.append(held)
    return records, groups


def _control_rows(rows: DataFrame, plan: WritePlan, values: np.ndarray) -> DataFrame:
    facts = rows.sparkSession.createDataFrame(
        [(int(values[g.task]), g.to_text()) for g in plan.groups],
        f"{TASK_FIELD} int, {GROUP_FIELD} string",
    )
    nulls = [F.lit(None).cast(f.dataType).alias(f.name) for f in rows.schema.fields]
    return facts.select(*nulls, TASK_FIELD, GROUP_FIELD)
