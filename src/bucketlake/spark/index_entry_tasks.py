"""Sending changed keys of a write to the tasks of their shards of the record-level index.

The tasks that write file groups return results and packed keys in the same rows. A second shuffle
of the same job sends the keys to the tasks of their shards, which write the log files of the index
and pass the results on. A lost task runs again and gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import facts_of
from bucketlake.spark.pieces import chunks, pack, unpack
from bucketlake.spark.placement import values_for_tasks
from bucketlake.spark.reports import REPORT_FIELD, Batches, BatchFunction, collect, reporting
from bucketlake.spark.sending import sent_plans
from bucketlake.write.record_index.index_writer import IndexTask, ShardPlan, ShardResult
from bucketlake.write.record_index.key_changes import KEY_CHANGES, SHARD, ChangedKeys

_WRITTEN = pa.schema(
    [
        pa.field("task", pa.int32()),  # The task of the piece; null in rows with results.
        pa.field("piece", pa.binary()),  # Packed changed keys.
        pa.field("facts", pa.string()),  # Plans of shards as text.
        pa.field("result", pa.string()),  # A result of the first stage as text.
        REPORT_FIELD,
    ]
)
_RESULTS = pa.schema(
    [pa.field("result", pa.string()), pa.field("shard", pa.string()), REPORT_FIELD]
)


def with_index(
    spark: SparkSession,
    work: DataFrame,
    write: BatchFunction,
    shards: Sequence[ShardPlan],
    index: IndexTask,
) -> tuple[list[str], list[ShardResult]]:
    """Run the tasks of a write, and then those of its shards, in one job.

    Parameters
    ----------
    spark : SparkSession
        The session.
    work : DataFrame
        The rows of the tasks.
    write : callable
        Runs a task: yields rows of :func:`result_row`, and of :func:`packed_keys` at the end.
    shards : sequence of ShardPlan
        The shards.
    index : IndexTask
        Maintains the index.

    Returns
    -------
    list of str
        The results of the tasks, as text.
    list of ShardResult
        A result for each shard.
    """
    tasks = max((shard.task for shard in shards), default=0) + 1
    done = map_in_arrow(work, reporting(write, _WRITTEN), _WRITTEN)
    nothing = [F.lit(None).cast("string").alias(name) for name in ("result", REPORT_FIELD.name)]
    plans = sent_plans(spark, shards, tasks).select("task", "piece", "facts", *nothing)
    sent = done.union(plans).repartition(tasks, "task")
    rows = collect(map_in_arrow(sent, _writing(index), _RESULTS))
    return (
        [row.result for row in rows if row.result is not None],
        [ShardResult.from_text(row.shard) for row in rows if row.shard is not None],
    )


def result_row(result: str) -> pa.RecordBatch:
    """Return the row of a result."""
    return pa.RecordBatch.from_pylist([{"result": result}], _WRITTEN)


def packed_keys(index: IndexTask, changed: ChangedKeys) -> Iterator[pa.RecordBatch]:
    """Pack the changed keys of a task for the tasks of their shards."""
    tasks = index.placement.tasks
    values = values_for_tasks(int(tasks.max(initial=0)) + 1)
    for rows in chunks(iter(changed.table().to_batches())):
        owners, pieces = pack(rows, tasks[rows[SHARD].to_numpy()])
        nothing = pa.nulls(len(owners), pa.string())
        columns = [pa.array(values[owners]), pieces, nothing, nothing, nothing]
        yield pa.RecordBatch.from_arrays(columns, schema=_WRITTEN)


def _writing(index: IndexTask) -> BatchFunction:
    def write(batches: Batches) -> Batches:
        keys: list[pa.RecordBatch] = []
        plans: list[ShardPlan] = []
        for batch in batches:
            keys += unpack(batch.column("piece"))
            plans += map(ShardPlan.from_text, facts_of(batch.column("facts")))
            results, reports = batch.column("result"), batch.column(REPORT_FIELD.name)
            told = pc.or_(results.is_valid(), reports.is_valid())
            nothing = pa.nulls(batch.num_rows, pa.string())
            passed = pa.RecordBatch.from_arrays([results, nothing, reports], schema=_RESULTS)
            yield passed.filter(told)
        if plans:
            changes = pa.Table.from_batches(keys, KEY_CHANGES)
            for result in index.writer.write_changes(plans, changes):
                yield pa.RecordBatch.from_pylist([{"shard": result.to_text()}], _RESULTS)

    return reporting(write, _RESULTS)
