"""Lists the file groups of a table, and finds the file of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.index.bucket_layout import bucket_numbers
from bucketlake.index.kinds import IndexKind
from bucketlake.index.layout import Layout
from bucketlake.index.setting import needed_index
from bucketlake.metadata.record_index.locations import KeyLocations, RecordIndexReader
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.keys import key_text, values_by_field
from bucketlake.model.names import did_you_mean
from bucketlake.model.schema import COMMIT_TIME, FILE_NAME, RECORD_KEY
from bucketlake.model.shown import Shown, ShownList
from bucketlake.read.growth import Growth, TableSize, table_growth
from bucketlake.read.key_spelling import with_stored_spelling
from bucketlake.read.partition_sizes import PartitionSizes, partition_sizes
from bucketlake.read.pruning.by_keys import slices_of_keys
from bucketlake.read.pruning.by_record_index import (
    ask_record_index,
    group_of,
    groups_of_records,
    require_shards,
)
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.read.stored_keys import StoredKeyReader
from bucketlake.read.virtual_keys import VirtualKeys


@dataclass(frozen=True, slots=True)
class Bucket(Shown):
    """A live file group.

    Attributes
    ----------
    partition_path : str
        Partition, empty in a table without partitions.
    bucket_id : int or None
        Bucket; None if the file group belongs to none. On a hash ring or in a directory it is
        the position of the bucket, and a resize may change it.
    file_id : FileId
        The file group.
    instant : InstantTime
        Commit that wrote the newest slice.
    path : str or None
        Base file, relative to the table; None if there are only log files.
    size_bytes : int
        Size of base and log files.
    log_files : int
        Number of log files, which wait for a compaction.
    log_bytes : int
        Size of the log files.
    rows : int or None
        Rows of the base file, and those that log files are known to insert. Log files of a bucket
        index count after their compaction, because nobody has looked up their keys. None if the
        commit of the base file is archived, or if there is no base file and the log files do not
        tell.
    share : float
        Share of the bytes of the partition, from 0 to 1.
    growth_bytes : int
        Bytes that the file group gained during the last ten writes; all of its bytes if it is new.
    written : int
        Records that these writes inserted, updated or deleted in it.
    hash_range : tuple of (int, int) or None
        For a hash ring: the hash values of the bucket, after the first number and up to the second.
        The range passes the end of the ring if the first number is not the smaller one. None for
        other index kinds.
    hash_suffix : str or None
        For a directory of extendible hashing: the last bits of the hash values of the bucket, as
        many as its local depth, such as ``01``; ``*`` for all hash values. None for other index
        kinds.
    """

    partition_path: str
    bucket_id: int | None
    file_id: FileId
    instant: InstantTime
    path: str | None
    size_bytes: int
    log_files: int
    log_bytes: int
    rows: int | None
    share: float
    growth_bytes: int
    written: int
    hash_range: tuple[int, int] | None = None
    hash_suffix: str | None = None


class Buckets(ShownList[Bucket]):
    """The live file groups of a table, by partition and bucket.

    Attributes
    ----------
    partitions : list of PartitionSizes
        The size of each partition, and how evenly its buckets are filled; the most skewed first.
    growth : list of TableSize
        The size of the table after each commit of the active timeline.
    """

    def __init__(
        self,
        found: Iterable[Bucket],
        partitions: Iterable[PartitionSizes],
        growth: Iterable[TableSize],
    ) -> None:
        super().__init__(found)
        self.partitions = ShownList(partitions)
        self.growth = ShownList(growth)


@dataclass(frozen=True, slots=True)
class RecordLocation(Shown):
    """The location of a record.

    Attributes
    ----------
    record_key : str
        The record key as stored, or as the table would store it.
    partition_path : str
        Partition, empty in a table without partitions.
    bucket_id : int or None
        Bucket; None if the file group belongs to no bucket index.
    file_id : FileId
        The file group.
    path : str
        The base or log file that holds the record, relative to the table.
    committed_at : InstantTime or None
        Instant that last wrote the record; None if the record is in a base file of a table without
        meta columns.
    """

    record_key: str
    partition_path: str
    bucket_id: int | None
    file_id: FileId
    path: str
    committed_at: InstantTime | None


def list_buckets(snapshot: Snapshot, index: IndexKind | None) -> Buckets:
    """Return all live file groups; without an index, buckets are read from the file ids."""
    slices = snapshot.all_slices()
    layout = None if index is None else index.layout()
    numbers = bucket_numbers(layout, slices)
    growth = table_growth(snapshot, slices)
    of_partition: Counter[str] = Counter()
    for held in slices:
        of_partition[held.partition_path] += held.size_bytes
    return Buckets(
        (_bucket(held, numbers.get(held.file_id), layout, growth, of_partition) for held in slices),
        partition_sizes(snapshot, index, slices, numbers, growth),
        growth.sizes,
    )


def locate_key(
    snapshot: Snapshot,
    index: IndexKind | None,
    key: str | Mapping[str, Any],
    partition: str | None,
) -> list[RecordLocation]:
    """Find a record by its key; see ``Table.locate``."""
    text = key if isinstance(key, str) else _key_text(key, snapshot)
    keys, virtual = [text], VirtualKeys.of_snapshot(snapshot)
    if virtual is not None:
        canonical = virtual.canonical(pa.array(keys))
        text = canonical[0].as_py()
        keys = [spelled[0].as_py() for spelled in virtual.spellings(canonical)]
    slices = _slices_by_record_index(snapshot, index, keys, partition)
    if slices is None:
        slices = _slices_by_bucket(snapshot, index, keys, partition)
    numbers = bucket_numbers(None if index is None else index.layout(), slices)
    reader = SliceReader.of_snapshot(snapshot)
    found = (
        _find(reader, file_slice, text, numbers.get(file_slice.file_id)) for file_slice in slices
    )
    return ShownList(location for location in found if location is not None)


def record_locations(snapshot: Snapshot, partition: str) -> pa.Table:
    """Return the index entries of one partition; see ``Table.record_locations``."""

    def read(reader: RecordIndexReader) -> KeyLocations:
        require_shards(snapshot, reader, [partition])
        return reader.read_partition(partition)

    found, reason = ask_record_index(snapshot, read, [partition])
    if found is None:
        feature = f"a listing of record locations ({reason})"
        next_step = (
            "build the index with table.rebuild_metadata_table(['record_index']) (bucketlake "
            "metadata PATH --rebuild --partition record_index --run)"
        )
        if needed_index(snapshot.storage, snapshot.timeline) is not None:
            next_step = f"the next upsert builds the index; to have it now, {next_step}"
        raise UnsupportedFeatureError(feature, snapshot.storage.root, next_step)
    return found.to_table()


def _slices_by_record_index(
    snapshot: Snapshot, index: IndexKind | None, keys: Sequence[str], partition: str | None
) -> list[FileSlice] | None:
    """Return the slices that hold a key; None if the table has no index that tells it."""
    partitions = None if partition is None else [partition]
    found, _ = groups_of_records(snapshot, index, keys, partitions)
    if found is None:
        return None
    groups = {group for group in found.groups if partition in (None, group[0])}
    live = snapshot.partition_slices(sorted({path for path, _ in groups}))
    slices = [file_slice for file_slice in live if group_of(file_slice) in groups]
    # If a file group is not live, its entry says nothing about the key.
    return slices if len(slices) == len(groups) else None


def _slices_by_bucket(
    snapshot: Snapshot, index: IndexKind | None, keys: Sequence[str], partition: str | None
) -> list[FileSlice]:
    """Return the slices that may hold a key: those of its buckets, or all without an index."""
    slices = snapshot.all_slices() if partition is None else snapshot.partition_slices([partition])
    if index is None:
        return slices
    return slices_of_keys(index.layout(), slices, keys, StoredKeyReader.of_snapshot(snapshot))


def _bucket(
    file_slice: FileSlice,
    number: int | None,
    layout: Layout | None,
    growth: Growth,
    partition_bytes: Mapping[str, int],
) -> Bucket:
    base, group = file_slice.base_file, group_of(file_slice)
    hash_range = suffix = None
    if layout is not None and number is not None:
        hash_range = layout.hash_range(file_slice.partition_path, number)
        suffix = layout.hash_suffix(file_slice.partition_path, number)
    return Bucket(
        file_slice.partition_path,
        number,
        file_slice.file_id,
        file_slice.instant,
        base.path if base else None,
        file_slice.size_bytes,
        len(file_slice.log_files),
        file_slice.log_bytes,
        growth.rows.get(group),
        round(file_slice.size_bytes / max(partition_bytes[file_slice.partition_path], 1), 4),
        file_slice.size_bytes - growth.bytes_before.get(group, 0),
        growth.written.get(group, 0),
        hash_range,
        None if suffix is None else suffix.text,
    )


def _find(
    reader: SliceReader, file_slice: FileSlice, text: str, number: int | None
) -> RecordLocation | None:
    for chunk in reader.read(file_slice, [RECORD_KEY, COMMIT_TIME, FILE_NAME]):
        place = pc.index(chunk[RECORD_KEY], text).as_py()
        if place >= 0:
            time = chunk[COMMIT_TIME][place].as_py()
            committed_at = None if time is None else InstantTime(time)
            return RecordLocation(
                text,
                file_slice.partition_path,
                number,
                file_slice.file_id,
                _path(file_slice, chunk[FILE_NAME][place].as_py(), committed_at),
                committed_at,
            )
    return None


def _path(file_slice: FileSlice, file_name: str, committed_at: InstantTime | None) -> str:
    """Return the file of a record; rows of log files store the file id instead of a file name."""
    base = file_slice.base_file
    if base is not None and (file_name != file_slice.file_id or not file_slice.log_files):
        return base.path
    # Before table version 8, log files have the instant of their base file; then use the newest.
    own = [file for file in file_slice.log_files if file.name.instant == committed_at]
    return (own or file_slice.log_files)[-1].path


def _key_text(values: Mapping[str, Any], snapshot: Snapshot) -> str:
    config = with_stored_spelling(snapshot).config
    spec, foreign = config.key_spec, config.foreign_key_generator
    if foreign is not None:
        allowed = f"only {foreign} can make keys from values; give the key as it is stored"
        raise ConfigError("key", dict(values), allowed)
    given = values_by_field(values, spec.record_key_fields)
    absent = [name for name in spec.record_key_fields if name not in given]
    if absent:
        raise ConfigError(
            "key",
            dict(values),
            f"give a value for {absent[0]!r} too{did_you_mean(absent[0], values)}",
        )
    return key_text(spec, values, snapshot.schema)
