"""Building the shards of a record-level index in Spark tasks.

The first tasks read the keys of file slices and cut them into pieces by shard. A shuffle sends each
piece to the task that owns its shard, which writes the shard's base file.
"""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from bucketlake.metadata.record_index.shards import Shard
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.services.metadata.index_builder import IndexBuilder, KeyBatch
from bucketlake.services.metadata.index_plan import IndexBuildPlan
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import facts_of
from bucketlake.spark.pieces import pack, unpack
from bucketlake.spark.placement import values_for_tasks
from bucketlake.spark.read import in_tasks
from bucketlake.spark.reports import (
    REPORT_FIELD,
    Batches,
    BatchFunction,
    collect,
    noting,
    reporting,
)
from bucketlake.spark.session_settings import SHUFFLE_SETTINGS, changed_settings
from bucketlake.write.write_plan import spread

_TASK_KEYS = 2_000_000  # A larger shard has a task of its own.
_TASKS_LEAST = 8  # Fewer only if there are fewer shards.

_PIECES = pa.schema(
    [
        pa.field("task", pa.int32()),
        pa.field("shard", pa.int32()),  # Position among the missing shards of the plan.
        pa.field("value", pa.binary()),
        pa.field("deleted", pa.bool_()),
        pa.field("piece", pa.binary()),
    ]
)
_KEYS = pa.schema([pa.field("key", pa.string())])
_RESULTS = pa.schema([pa.field("result", pa.string()), REPORT_FIELD])


def build_in(spark: SparkSession, builder: IndexBuilder, plan: IndexBuildPlan) -> list[WriteStat]:
    """Build shards in tasks of a session."""
    slices = plan.slices
    read = in_tasks(spark, [s.to_text() for s in slices], [s.size_bytes for s in slices])
    wanted = -(-sum(plan.key_counts) // _TASK_KEYS)
    task_count = max(1, min(len(plan.missing), max(_TASKS_LEAST, wanted)))
    tasks = np.array(spread(plan.key_counts, task_count), np.int32)
    values = values_for_tasks(task_count)[tasks]
    packed = map_in_arrow(read, _packing(builder, plan.missing, values), _PIECES)
    shuffled = packed.repartition(task_count, "task")
    built = map_in_arrow(shuffled, _building(builder, plan.missing), _RESULTS)
    with changed_settings(spark, SHUFFLE_SETTINGS):
        results = collect(built)
    return [WriteStat.from_facts(json.loads(row.result)) for row in results]


def _packing(
    builder: IndexBuilder, shards: tuple[Shard, ...], values: npt.NDArray[np.int32]
) -> BatchFunction:
    """Pack the keys of slices; the keys of other shards are dropped."""

    def pack_keys(batches: Batches) -> Batches:
        numbers = {shard: number for number, shard in enumerate(shards)}
        for text in (text for batch in batches for text in facts_of(batch.column("facts"))):
            for shard, batch in builder.keys_by_shard(FileSlice.from_text(text)):
                if shard in numbers:
                    yield _piece_rows(batch, numbers[shard], int(values[numbers[shard]]))

    return noting(pack_keys)


def _piece_rows(batch: KeyBatch, shard: int, task: int) -> pa.RecordBatch:
    rows = pa.Table.from_arrays([batch.keys], schema=_KEYS)
    _, pieces = pack(rows, np.zeros(len(batch.keys), np.int32))
    count = len(pieces)
    columns = [
        pa.repeat(pa.scalar(task, pa.int32()), count),
        pa.repeat(pa.scalar(shard, pa.int32()), count),
        pa.repeat(pa.scalar(batch.value, pa.binary()), count),
        pa.repeat(batch.deleted, count),
        pieces,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PIECES)


def _building(builder: IndexBuilder, shards: tuple[Shard, ...]) -> BatchFunction:
    def build(batches: Batches) -> Batches:
        held: dict[int, list[KeyBatch]] = defaultdict(list)
        for batch in batches:
            names = ("shard", "value", "deleted")
            facts = (batch.column(name).to_pylist() for name in names)
            pieces = unpack(batch.column("piece"))
            for number, value, deleted, keys in zip(*facts, pieces, strict=True):
                held[number].append(KeyBatch(keys.column("key"), value, deleted))
        for number in sorted(held):
            stat = builder.build_shard(shards[number], held.pop(number))
            if stat is not None:
                text = json.dumps(stat.to_facts())
                yield pa.RecordBatch.from_pylist([{"result": text}], _RESULTS)

    return reporting(build, _RESULTS)
