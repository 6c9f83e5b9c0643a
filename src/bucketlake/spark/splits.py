"""Splits: what a task of the data source reads, and reading it.

A split has some files and slices of a read plan. Small ones share a split, because each Python task
costs time. Tasks import this module, not ``data_source.py``, which can open tables.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bucketlake.errors import naming_table
from bucketlake.flow.spread import spread
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import cast_table
from bucketlake.read.arrow_reader import PlannedRows
from bucketlake.read.read_plan import ReadPlan
from bucketlake.spark.facts import task_count
from bucketlake.spark.late_pandas import postpone_pandas
from bucketlake.spark.workers import spare_modules
from bucketlake.storage.base import Storage

_BATCH_ROWS = 65_536  # Spark holds a batch whole, in Python and in Java.


@dataclass(frozen=True)
class Split(InputPartition):
    """Files and slices for one task.

    Attributes
    ----------
    how : bytes
        How they are read, pickled and compressed: each split of a plan carries it.
    jobs : tuple of DataFile or FileSlice
        What is read.
    """

    how: bytes
    jobs: tuple[DataFile | FileSlice, ...]


def splits_of(plan: ReadPlan, storage: Storage, target: pa.Schema) -> list[Split]:
    """Divide a plan into splits.

    Parameters
    ----------
    plan : ReadPlan
        The plan, with the columns of ``target`` in their order.
    storage : Storage
        The table's storage.
    target : pa.Schema
        Names and types of the batches.

    Raises
    ------
    UnsupportedFeatureError
        If only Spark can evaluate the condition of the plan.
    """
    how = zlib.compress(pickle.dumps((PlannedRows.of_plan(storage, plan), target)))
    jobs = plan.jobs
    sizes = [job.size_bytes for job in jobs]
    count = task_count(sizes)
    by_split: list[list[DataFile | FileSlice]] = [[] for _ in range(count)]
    for job, place in zip(jobs, spread(sizes, count), strict=True):
        by_split[place].append(job)
    return [Split(how, tuple(held)) for held in by_split if held]


def batches_of(split: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split; of any other partition, which Spark makes for none, nothing."""
    if not isinstance(split, Split):
        return
    postpone_pandas()
    rows, target = pickle.loads(zlib.decompress(split.how))
    with naming_table(rows.storage.root):
        for job in split.jobs:
            for chunk in rows.of(job):
                found = rows.returned([chunk]).rename_columns(target.names)
                whole = cast_table(found, target, where=f"table {rows.storage.root}")
                yield from whole.to_batches(max_chunksize=_BATCH_ROWS)
    spare_modules()
