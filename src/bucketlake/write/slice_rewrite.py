"""Rewriting stored file slices into new base files, for a resize or a compaction.

A resize makes new file groups of the rows of some groups of a hash ring (RFC-42): a split has one
old group and several new ones, a merge has several old groups and one new one. A compaction merges
the rows of a slice into a new base file of its group. Both run in tasks, which may run twice or
late: the names and rows of the files follow from the plan, and they are published by put-if-absent
while the action is pending, as in ``write/group_writer.py``. Rows keep the time of the commit that
wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.flow.stage import Rows
from bucketlake.format.base_file import BaseFileEncoder, BaseFileReader, encode_base_file
from bucketlake.format.hashing_metadata import QUANTILE_COUNT, NodeStats
from bucketlake.hashing.ring import Ring
from bucketlake.hashing.xx_hash import RING_SIZE
from bucketlake.index.ring_engine import CONSISTENT, RingEngine
from bucketlake.index.ring_state import file_id_of_node
from bucketlake.metadata.statistics.of_file import short_base_file_statistics
from bucketlake.model.file_name import BaseFileName, InstantTime, file_path
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import FILE_NAME, META_NAMES, RECORD_KEY
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.slice_reader import SliceReader
from bucketlake.timeline.data_file import put_data_files
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.write.group_writer import CHUNK_ROWS, WRITE_TOKEN
from bucketlake.write.record_index.key_changes import Change

if TYPE_CHECKING:  # Most resizes do not maintain a record-level index.
    from bucketlake.write.record_index.index_writer import IndexTask


@dataclass(frozen=True, slots=True)
class ResizeJob:
    """A group of a resize plan.

    Attributes
    ----------
    slices : tuple of FileSlice
        The slices whose rows are moved.
    ring : Ring
        The new nodes.
    start : int
        Hash value after which the range of all of them begins.
    """

    slices: tuple[FileSlice, ...]
    ring: Ring
    start: int

    @property
    def size_bytes(self) -> int:
        """Bytes that are read."""
        return sum(file_slice.size_bytes for file_slice in self.slices)


@dataclass(frozen=True, slots=True)
class ResizeResult:
    """What a task did to one group of a plan; it travels to the driver.

    Attributes
    ----------
    stats : tuple of WriteStat
        The new base files.
    distributions : mapping of str to NodeStats
        How the keys lie in the new nodes, by file id prefix; empty if an earlier attempt wrote the
        files.
    """

    stats: tuple[WriteStat, ...]
    distributions: Mapping[str, NodeStats]


@dataclass(frozen=True, slots=True)
class Resizer:
    """What all tasks of one resize share; a small picklable value.

    Attributes
    ----------
    reader : SliceReader
        Merges slices.
    instant : InstantTime
        Instant of the resize.
    schema : pa.Schema
        Data schema of the new files, without meta columns.
    inflight : str
        Path of the inflight file, which says that the resize is pending.
    hash_fields : tuple of str
        Record key fields that choose the node; empty for all of them.
    indexed : pa.Schema or None
        Columns whose statistics the metadata table has
        (``metadata/statistics/of_file.py``).
    index : IndexTask or None
        Maintains the record-level index; None if the resize does not maintain one.
    engine : RingEngine
        The engine of the rings.
    """

    reader: SliceReader
    instant: InstantTime
    schema: pa.Schema
    inflight: str
    hash_fields: tuple[str, ...] = ()
    indexed: pa.Schema | None = None
    index: IndexTask | None = None
    engine: RingEngine = CONSISTENT

    def run(self, job: ResizeJob) -> Iterator[ResizeResult | Rows]:
        """Run a job; the keys of its rows go on to the shards of the index."""
        result = self.resize(job)
        yield result
        if self.index is not None:
            changed = self.index.collector()
            for stat in result.stats:
                for keys in self._keys(stat):
                    changes = np.full(len(keys), Change.NEW, np.int8)
                    changed.add(stat.partition_path, stat.file_id, keys, changes)
            yield changed.rows()

    def resize(self, job: ResizeJob) -> ResizeResult:
        """Write the base file of each new node that gets rows, unless another attempt has."""
        partition, ring = job.slices[0].partition_path, job.ring
        names = [self._name(prefix) for prefix in ring.prefixes]
        storage = self.reader.storage
        distributions: dict[str, NodeStats] = {}
        if not all(storage.stat(file_path(partition, name)) is not None for name in names):
            distributions = self._write(job, partition, names)
        found = (
            self._stat(partition, prefix, name)
            for prefix, name in zip(ring.prefixes, names, strict=True)
        )
        stats = tuple(stat for stat in found if stat is not None)
        return ResizeResult(stats, distributions)

    def _keys(self, stat: WriteStat) -> Iterator[pa.Array]:
        with BaseFileReader(self.reader.storage, stat.path, stat.file_size_bytes) as reader:
            for chunk in reader.iter_chunks([RECORD_KEY], rows_max=CHUNK_ROWS):
                yield chunk[RECORD_KEY].combine_chunks().cast(pa.string())

    def _name(self, prefix: str) -> str:
        return BaseFileName(file_id_of_node(prefix), WRITE_TOKEN, self.instant).to_file_name()

    def _write(self, job: ResizeJob, partition: str, names: Sequence[str]) -> dict[str, NodeStats]:
        encoders = [BaseFileEncoder(self.schema) for _ in names]
        seen: list[list[npt.NDArray[np.int32]]] = [[] for _ in names]
        for chunk in self._rows(job):
            hashes = self.engine.hash_keys(chunk[RECORD_KEY], self.hash_fields)
            positions = job.ring.locate(hashes)
            for position, (encoder, name) in enumerate(zip(encoders, names, strict=True)):
                rows = np.flatnonzero(positions == position)
                if len(rows):
                    encoder.write(_named(chunk.take(pa.array(rows)), name))
                    seen[position].append(hashes[rows])
        for encoder, name in zip(encoders, names, strict=True):
            if encoder.row_count:
                marker = Marker(partition, name, MarkerType.CREATE)
                data = encoder.finish().data
                put_data_files(self.reader.storage, self.instant, self.inflight, [(marker, data)])
        return {
            prefix: distribution_of(np.concatenate(hashes), job.start)
            for prefix, hashes in zip(job.ring.prefixes, seen, strict=True)
            if hashes
        }

    def _rows(self, job: ResizeJob) -> Iterator[pa.Table]:
        columns = [*META_NAMES, *self.schema.names]
        for file_slice in job.slices:
            yield from self.reader.read(file_slice, columns)

    def _stat(self, partition: str, prefix: str, name: str) -> WriteStat | None:
        path = file_path(partition, name)
        if self.reader.storage.stat(path) is None:
            return None  # No row belongs to the node.
        with BaseFileReader(self.reader.storage, path) as reader:
            return WriteStat(
                file_id=file_id_of_node(prefix),
                path=path,
                partition_path=partition,
                record_count=reader.row_count,
                insert_count=reader.row_count,
                file_size_bytes=reader.size_bytes,
                opens_group=True,
                statistics=short_base_file_statistics(reader, self.indexed),
            )


def distribution_of(hashes: npt.NDArray[np.int32], start: int) -> NodeStats:
    """Return how keys lie in a range of the ring (RFC-42, "hash distribution statistics").

    Parameters
    ----------
    hashes : ndarray of int32, shape (n_keys,)
        Hashes of the keys, at least one.
    start : int
        Hash value after which the range begins; it may wrap around the end of the ring.
    """
    distances = np.sort((hashes.astype(np.int64) - start - 1) % RING_SIZE)
    places = len(hashes) * np.arange(1, QUANTILE_COUNT + 1) // (QUANTILE_COUNT + 1)
    points = (distances[places] + start + 1) % RING_SIZE
    return NodeStats(len(hashes), tuple(points.tolist()))


def _named(rows: pa.Table, file_name: str) -> pa.Table:
    place = rows.column_names.index(FILE_NAME)
    return rows.set_column(place, FILE_NAME, pa.repeat(file_name, rows.num_rows))


# ---- Compacting one file slice: merging its rows into a new base file of the file group ----------


def compact_slice(
    reader: SliceReader,
    instant: InstantTime,
    schema: pa.Schema,
    inflight: str,
    indexed: pa.Schema | None,
    file_slice: FileSlice,
    *,
    key_filter: bool = False,
) -> Iterator[WriteStat]:
    """Write the new base file of a slice, unless another attempt has written it.

    Parameters
    ----------
    reader, instant, schema, inflight, indexed
        As for :class:`Resizer`, of the compaction.
    file_slice : FileSlice
        The slice.
    key_filter : bool
        Whether the new file gets a key filter; see ``Layout.looks_up``.
    """
    storage, partition = reader.storage, file_slice.partition_path
    name = BaseFileName(file_slice.file_id, WRITE_TOKEN, instant).to_file_name()
    path = file_path(partition, name)
    if storage.stat(path) is None:
        merged = reader.read(file_slice, [*META_NAMES, *schema.names])
        rows = (_named(chunk, name) for chunk in merged)
        written = encode_base_file(rows, schema, key_filter=key_filter)
        kind = MarkerType.CREATE if file_slice.base_file is None else MarkerType.MERGE
        marker = Marker(partition, name, kind)
        put_data_files(storage, instant, inflight, [(marker, written.data)])
    base = file_slice.base_file
    with BaseFileReader(storage, path) as made:
        stat = WriteStat(
            file_id=file_slice.file_id,
            path=path,
            partition_path=partition,
            previous_commit=file_slice.instant,
            previous_base_file=base.name.to_file_name() if base is not None else None,
            record_count=made.row_count,
            file_size_bytes=made.size_bytes,
            statistics=short_base_file_statistics(made, indexed),
        )
    yield stat
