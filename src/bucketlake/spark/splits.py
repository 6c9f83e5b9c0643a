"""Splits: what a task of the data source reads, and reading it.

A split has some files and slices of a read plan, or states of file groups to compare. Small ones
share a split, because each Python task costs time. Tasks import this module, not
``data_source.py``, which can open tables; what only planning needs is imported where it is used.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bucketlake.errors import naming_table
from bucketlake.model.cast import cast_table
from bucketlake.spark.workers import begin_task, end_task

if TYPE_CHECKING:
    from bucketlake.model.file_slice import DataFile, FileSlice
    from bucketlake.read.change_plan import ComparedStates
    from bucketlake.read.change_reader import ChangesToRead
    from bucketlake.read.read_plan import ReadPlan
    from bucketlake.storage.base import Storage

    Job = DataFile | FileSlice | ComparedStates

FORMAT = "bucketlake"

_BATCH_ROWS = 65_536  # Spark holds a batch whole, in Python and in Java.
_SPLIT_BYTES_LEAST = 4 * 2**20  # About 50 ms of reading; a task of its own costs more.
_ROWS_BYTES_MOST = 2**20  # Spark keeps the splits of a DataFrame in the driver.


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


@dataclass(frozen=True)
class ReadSplit(InputPartition):
    """Rows that planning has read, so that no worker must import what reads tables.

    Attributes
    ----------
    stream : bytes
        The rows as a stream of Arrow.
    """

    stream: bytes


@dataclass(frozen=True, slots=True)
class _Reading:
    """How splits are read: what reads a job, the schema of the batches, the table's address."""

    tables: Callable[[Any], Iterator[pa.Table]]
    target: pa.Schema
    root: str


def splits_of(plan: ReadPlan, storage: Storage, target: pa.Schema) -> Sequence[InputPartition]:
    """Divide a plan into splits; the few rows of a condition on small files are read at once.

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
    from bucketlake.read.arrow_reader import PlannedRows

    rows = PlannedRows.of_plan(storage, plan)
    splits = _splits(_Reading(rows.tables, target, storage.root), plan.jobs)
    if plan.predicate is None or sum(job.size_bytes for job in plan.jobs) > _SPLIT_BYTES_LEAST:
        return splits
    return [_read(split, target) for split in splits]


def _read(split: Split, target: pa.Schema) -> InputPartition:
    """Return the rows of a split, or the split if they are many."""
    rows, size = [], 0
    for batch in _rows_of(split):
        rows.append(batch)
        size += batch.nbytes
        if size > _ROWS_BYTES_MOST:
            return split
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, target) as stream:
        stream.write_table(pa.Table.from_batches(rows, target))
    return ReadSplit(sink.getvalue().to_pybytes())


def splits_of_changes(planned: ChangesToRead, target: pa.Schema) -> Sequence[InputPartition]:
    """Divide a plan of changes into splits; the parameters are those of :func:`splits_of`."""
    reader = planned.reader
    return _splits(_Reading(reader.read, target, reader.reader.storage.root), planned.plans)


def _splits(how: _Reading, jobs: Sequence[Job]) -> list[Split]:
    from bucketlake.flow.stage import spread
    from bucketlake.spark.facts import task_count

    packed = zlib.compress(pickle.dumps(how))
    sizes = [job.size_bytes for job in jobs]
    count = min(task_count(sizes), max(1, -(-sum(sizes) // _SPLIT_BYTES_LEAST)))
    by_split: list[list[Job]] = [[] for _ in range(count)]
    for job, place in zip(jobs, spread(sizes, count), strict=True):
        by_split[place].append(job)
    return [Split(packed, tuple(held)) for held in by_split if held]


def batches_of(split: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split; of any other partition, which Spark makes for none, nothing."""
    begin_task()
    if isinstance(split, ReadSplit):
        yield from pa.ipc.open_stream(split.stream)
    elif isinstance(split, Split):
        yield from _rows_of(split)
    end_task()


def _rows_of(split: Split) -> Iterator[pa.RecordBatch]:
    how: _Reading = pickle.loads(zlib.decompress(split.how))
    with naming_table(how.root):
        for job in split.jobs:
            for found in how.tables(job):
                named = found.rename_columns(how.target.names)
                whole = cast_table(named, how.target, where=f"table {how.root}")
                batches = whole.to_batches(max_chunksize=_BATCH_ROWS)
                yield from (batch for batch in batches if batch.num_rows)


class SplitReader(DataSourceReader):
    """What tasks get of a reader: it reads splits, and knows nothing else."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        return batches_of(partition)

    def __reduce__(self) -> tuple[type[SplitReader], tuple[()]]:
        return SplitReader, ()


class NamedSource(DataSource):
    """What tasks get of a data source: its name."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT
