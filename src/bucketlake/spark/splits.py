"""Splits: what a task of the data source reads, and reading it.

A split has some files and slices of a read plan, or states of file groups to compare. Small ones
share a split, because each Python task costs time. Tasks import this module, not
``data_source.py``, which can open tables.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bucketlake.errors import naming_table
from bucketlake.flow.spread import spread
from bucketlake.model.cast import cast_table
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.read.arrow_reader import PlannedRows
from bucketlake.read.change_plan import ComparedStates
from bucketlake.read.change_reader import ChangesToRead
from bucketlake.read.read_plan import ReadPlan
from bucketlake.spark.facts import task_count
from bucketlake.spark.workers import begin_task, end_task
from bucketlake.storage.base import Storage

Job: TypeAlias = DataFile | FileSlice | ComparedStates

_BATCH_ROWS = 65_536  # Spark holds a batch whole, in Python and in Java.
_SPLIT_BYTES_LEAST = 4 * 2**20  # About 50 ms of reading; a task of its own costs more.


@dataclass(frozen=True)
class Split(InputPartition):
    """Work for one task.

    Attributes
    ----------
    how : bytes
        How it is read, pickled and compressed: each split of a plan carries it.
    jobs : tuple of DataFile, FileSlice or ComparedStates
        What is read.
    """

    how: bytes
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class _Reading:
    """How splits are read: what reads a job, the schema of the batches, the table's address."""

    tables: Callable[[Any], Iterator[pa.Table]]
    target: pa.Schema
    root: str


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
    rows = PlannedRows.of_plan(storage, plan)
    return _splits(_Reading(rows.tables, target, storage.root), plan.jobs)


def splits_of_changes(planned: ChangesToRead, target: pa.Schema) -> list[Split]:
    """Divide a plan of changes into splits; the parameters are those of :func:`splits_of`."""
    reader = planned.reader
    return _splits(_Reading(reader.read, target, reader.reader.storage.root), planned.plans)


def _splits(how: _Reading, jobs: Sequence[Job]) -> list[Split]:
    packed = zlib.compress(pickle.dumps(how))
    sizes = [job.size_bytes for job in jobs]
    count = min(task_count(sizes), max(1, -(-sum(sizes) // _SPLIT_BYTES_LEAST)))
    by_split: list[list[Job]] = [[] for _ in range(count)]
    for job, place in zip(jobs, spread(sizes, count), strict=True):
        by_split[place].append(job)
    return [Split(packed, tuple(held)) for held in by_split if held]


def batches_of(split: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split; of any other partition, which Spark makes for none, nothing."""
    if not isinstance(split, Split):
        return
    begin_task()
    how: _Reading = pickle.loads(zlib.decompress(split.how))
    with naming_table(how.root):
        for job in split.jobs:
            for found in how.tables(job):
                named = found.rename_columns(how.target.names)
                whole = cast_table(named, how.target, where=f"table {how.root}")
                batches = whole.to_batches(max_chunksize=_BATCH_ROWS)
                yield from (batch for batch in batches if batch.num_rows)
    end_task()
