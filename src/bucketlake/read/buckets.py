"""Lists the file groups of a table, and finds the file of a record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import BucketLakeError, ConfigError, UnsupportedFeatureError
from bucketlake.format.commit_metadata import changes_rows
from bucketlake.format.metadata_record.bounds import has_bounds
from bucketlake.index.bucket_layout import bucket_numbers
from bucketlake.index.kinds import IndexKind
from bucketlake.index.layout import Layout
from bucketlake.index.setting import needed_index
from bucketlake.metadata.record_index.locations import KeyLocations, RecordIndexReader
from bucketlake.model.field_path import fields_at
from bucketlake.model.file_name import FileId, Group, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped, summed
from bucketlake.model.keys import key_text, values_by_field
from bucketlake.model.names import did_you_mean
from bucketlake.model.result import Shown, ShownList
from bucketlake.model.schema import COMMIT_TIME, FILE_NAME, RECORD_KEY
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.read.pruning.by_record_index import (
    ask_record_index,
    groups_of_records,
    require_shards,
)
from bucketlake.read.pruning.by_statistics import ColumnBounds, bounds_of_slices
from bucketlake.read.pruning.prune import slices_of_keys
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, with_stored_spelling
from bucketlake.storage.base import at_once
from bucketlake.timeline.instant import Instant


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
    of_partition = summed((held.partition_path, held.size_bytes) for held in slices)
    return Buckets(
        (_bucket(held, numbers.get(held.file_id), layout, growth, of_partition) for held in slices),
        partition_sizes(snapshot, index, slices, numbers, growth),
        growth.sizes,
    )


def locate_key(
    snapshot: Snapshot, index: IndexKind | None, key: str | Mapping[str, Any], partition: str | None
) -> list[RecordLocation]:
    """Find a record by its key; see ``Table.locate``."""
    text = key if isinstance(key, str) else _key_text(key, snapshot)
    keys, virtual = [text], snapshot.virtual_keys
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
    slices = [file_slice for file_slice in live if file_slice.group in groups]
    # If a file group is not live, its entry says nothing about the key.
    return slices if len(slices) == len(groups) else None


def _slices_by_bucket(
    snapshot: Snapshot, index: IndexKind | None, keys: Sequence[str], partition: str | None
) -> list[FileSlice]:
    """Return the slices that may hold a key: those of its buckets, or all without an index."""
    slices = snapshot.all_slices() if partition is None else snapshot.partition_slices([partition])
    if index is None:
        return slices
    return slices_of_keys(index.layout(), slices, keys, snapshot.stored_keys)


def _bucket(
    file_slice: FileSlice,
    number: int | None,
    layout: Layout | None,
    growth: Growth,
    partition_bytes: Mapping[str, int],
) -> Bucket:
    base, group = file_slice.base_file, file_slice.group
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
    return key_text(spec, values, snapshot.readable_schema)


# ---- The size of each partition, and how evenly its buckets are filled: the skew (RFC-29) --------
#
# One task writes or compacts a bucket, so a write waits for the task of its largest bucket. No
# engine cures that. What can be done is to tell it: the largest bucket as a multiple of the mean,
# and the value of the hash fields that fills it, where statistics of columns tell that value.

SKEW_FACTOR = 2.0
"""A partition is skewed if its largest bucket has so many times the mean of its buckets."""

SKEW_BYTES_MIN = 1_000_000
"""Smaller buckets are never skewed, because they cost a task nothing that matters."""

_LOOKUPS_MAX = 20  # Partitions whose statistics are read; the largest of the skewed ones.
_GUIDE = "docs/how-to/see-your-table.md#skew"


@dataclass(frozen=True, slots=True)
class PartitionSizes(Shown):
    """The size of a partition, and how evenly its buckets are filled.

    Attributes
    ----------
    partition_path : str
        Partition, empty in a table without partitions.
    file_groups : int
        Number of file groups.
    rows : int or None
        Rows of its file groups, as in :class:`Bucket`; None if one of them is unknown.
    size_bytes, log_bytes : int
        Size of all files, and of the log files among them.
    share : float
        Share of the table's bytes, from 0 to 1.
    growth_bytes : int
        Bytes that the partition gained during the last ten writes.
    written : int
        Records that these writes inserted, updated or deleted.
    buckets : int or None
        Number of buckets, including buckets without records. None if no hash chooses the bucket:
        then the largest file group is compared with the mean file group.
    largest_bucket : int or None
        The bucket with most bytes; None if it has no number.
    max_over_mean : float
        Bytes of the largest bucket, divided by the mean of all buckets.
    hot_value : str or None
        The value of the hash fields that all rows of the largest bucket have, such as
        ``device=d7``. None if there are several, or if the table has no statistics that tell.
    is_skewed : bool
        Whether the largest bucket has at least twice the mean, and at least 1 MB. Never where no
        hash chooses the bucket, because then the size of a file group is limited.
    """

    partition_path: str
    file_groups: int
    rows: int | None
    size_bytes: int
    log_bytes: int
    share: float
    growth_bytes: int
    written: int
    buckets: int | None
    largest_bucket: int | None
    max_over_mean: float
    hot_value: str | None = None
    is_skewed: bool = False

    @property
    def skew(self) -> str | None:
        """What the skew is and what to do about it, in a sentence; None without skew."""
        if not self.is_skewed:
            return None
        where = f"partition {self.partition_path}" if self.partition_path else "the table"
        of_mean = f"{self.max_over_mean:g} times the mean of {self.buckets:,} buckets"
        fact = f"{where}: bucket {self.largest_bucket} has {of_mean}"
        if self.hot_value is not None:
            return (
                f"{fact}, and all its rows have {self.hot_value}; no split divides them: choose "
                f"hash fields with more values, see {_GUIDE}"
            )
        return f"{fact}, and each write waits for its task; see {_GUIDE}"


def partition_sizes(
    snapshot: Snapshot,
    index: IndexKind | None,
    slices: Sequence[FileSlice],
    numbers: Mapping[FileId, int],
    growth: Growth,
) -> list[PartitionSizes]:
    """Return the sizes of all partitions, the most skewed first.

    Parameters
    ----------
    snapshot : Snapshot
        The pinned table.
    index : IndexKind or None
        Its index, if it is known.
    slices : sequence of FileSlice
        Its live slices.
    numbers : mapping of FileId to int
        The buckets of file groups.
    growth : Growth
        What its commits say about the file groups.
    """
    layout = None if index is None else index.layout()
    held = grouped((file_slice.partition_path, file_slice) for file_slice in slices)
    total_bytes = _size_of(slices)
    before, written = _by_partition(growth.bytes_before), _by_partition(growth.written)
    found, largest = [], {}
    for path, own in held.items():
        buckets, fullest = _fullest(path, own, numbers, layout)
        largest[path] = fullest
        size_bytes, largest_bytes = _size_of(own), _size_of(fullest)
        ratio = largest_bytes * (buckets or len(own)) / max(size_bytes, 1)
        is_large = largest_bytes >= SKEW_BYTES_MIN and ratio >= SKEW_FACTOR
        rows = [growth.rows.get(file_slice.group) for file_slice in own]
        known = [count for count in rows if count is not None]
        found.append(
            PartitionSizes(
                partition_path=path,
                file_groups=len(own),
                rows=sum(known) if len(known) == len(rows) else None,
                size_bytes=size_bytes,
                log_bytes=sum(file_slice.log_bytes for file_slice in own),
                share=round(size_bytes / max(total_bytes, 1), 4),
                growth_bytes=size_bytes - before[path],
                written=written[path],
                buckets=buckets,
                largest_bucket=numbers.get(fullest[0].file_id),
                max_over_mean=round(ratio, 2),
                is_skewed=is_large and buckets is not None,
            )
        )
    found.sort(key=lambda sizes: (not sizes.is_skewed, -sizes.size_bytes, sizes.partition_path))
    return _with_hot_values(snapshot, index, found, largest)


def _by_partition(of_groups: Mapping[Group, int]) -> Counter[str]:
    return summed((path, number) for (path, _), number in of_groups.items())


def _size_of(slices: Iterable[FileSlice]) -> int:
    return sum(file_slice.size_bytes for file_slice in slices)


def _fullest(
    path: str, slices: Sequence[FileSlice], numbers: Mapping[FileId, int], layout: Layout | None
) -> tuple[int | None, list[FileSlice]]:
    """Return the bucket count of a partition, and the slices of its largest bucket.

    Without a hash there is no count, and each file group is compared.
    """
    by_hash = layout is not None and not layout.locates
    known = numbers if by_hash else {}
    buckets = grouped((known.get(held.file_id, held.file_id), held) for held in slices)
    fullest = max(buckets.values(), key=_size_of)
    count = layout.slot_count(path) if layout is not None and by_hash else None
    return count, fullest


def _with_hot_values(
    snapshot: Snapshot,
    index: IndexKind | None,
    partitions: Iterable[PartitionSizes],
    largest: Mapping[str, Sequence[FileSlice]],
) -> list[PartitionSizes]:
    found = [*partitions]
    skewed = [sizes for sizes in found if sizes.is_skewed][:_LOOKUPS_MAX]
    fields = () if index is None else tuple(index.hash_fields or ())
    if not skewed or not fields or {*fields} >= {*snapshot.config.key_spec.record_key_fields}:
        return found  # A value of the whole key is one row.
    columns = fields_at(snapshot.readable_schema, fields)
    if len(columns) < len(fields) or not all(has_bounds(field.type) for field in columns):
        return found
    slices = [held for sizes in skewed for held in largest[sizes.partition_path]]
    try:
        bounds = bounds_of_slices(snapshot, columns, slices)
    except BucketLakeError:  # The doctor says what is wrong with the metadata table.
        return found
    values: dict[str, set[str | None]] = defaultdict(set)
    for place, held in enumerate(slices):
        single = [_single_value(name, own, place) for name, own in (bounds or {}).items()]
        texts = [text for text in single if text is not None]
        is_single = len(texts) == len(fields)
        values[held.partition_path].add(", ".join(texts) if is_single else None)
    hot = {path: next(iter(own)) for path, own in values.items() if len(own) == 1}
    return [replace(sizes, hot_value=hot.get(sizes.partition_path)) for sizes in found]


def _single_value(name: str, bounds: ColumnBounds, place: int) -> str | None:
    """Return a column and its only value in a slice; None if there may be several values."""
    low, high = bounds.minima[place].as_py(), bounds.maxima[place].as_py()
    is_single = low is not None and low == high and not bounds.may_be_null[place]
    return f"{name}={low}" if is_single else None


# ---- How a table grew: its rows and bytes after each commit of the active timeline ---------------
#
# The metadata of the commits says what each of them wrote. It is replayed in the order of
# completion, without a look into a data file. A file group that is older than the timeline counts
# with its first known size until a commit writes to it. The last point is the listed state itself.

RECENT_COMMITS = 10
"""Commits that count as recent: enough for a mean, few enough to be of today."""


@dataclass(frozen=True, slots=True)
class TableSize(Shown):
    """The size of a table after a commit.

    Attributes
    ----------
    instant : InstantTime
        The commit.
    completed_at : InstantTime
        Its completion time.
    rows : int or None
        Rows of base files, and those that log files are known to insert. None if those of a file
        group are unknown, see :class:`Bucket`.
    size_bytes : int
        Size of base files and log files.
    log_bytes : int
        Size of the log files alone.
    file_groups : int
        Number of file groups.
    """

    instant: InstantTime
    completed_at: InstantTime
    rows: int | None
    size_bytes: int
    log_bytes: int
    file_groups: int


@dataclass(frozen=True, slots=True)
class Growth:
    """How a table grew.

    Attributes
    ----------
    sizes : tuple of TableSize
        After each commit, by completion time.
    bytes_before : mapping of Group to int
        Bytes of each file group before the newest ``RECENT_COMMITS`` writes.
    written : mapping of Group to int
        Records that these writes inserted, updated or deleted in each file group.
    rows : mapping of Group to int
        Rows of each live file group, if its commits are on the active timeline.
    """

    sizes: tuple[TableSize, ...]
    bytes_before: Mapping[Group, int]
    written: Mapping[Group, int]
    rows: Mapping[Group, int]


@dataclass(frozen=True, slots=True)
class _GroupState:
    """A file group during the replay; the logs are (completed_at, bytes, inserted rows)."""

    rows: int | None
    base_bytes: int
    logs: tuple[tuple[InstantTime, int, int], ...] = ()

    @property
    def log_bytes(self) -> int:
        return sum(size for _, size, _ in self.logs)

    @property
    def size_bytes(self) -> int:
        return self.base_bytes + self.log_bytes

    @property
    def rows_with_logs(self) -> int | None:
        return None if self.rows is None else self.rows + sum(rows for *_, rows in self.logs)


_Commit: TypeAlias = tuple[Instant, InstantTime, CommitMetadata]


def table_growth(snapshot: Snapshot, slices: Sequence[FileSlice]) -> Growth:
    """Replay the commits of a pinned table, whose live slices are known."""
    commits = _commits(snapshot)
    writes = [place for place, (*_, commit) in enumerate(commits) if changes_rows(commit)]
    recent = writes[-RECENT_COMMITS:]
    rows = _rows_of_groups(slices, (stat for *_, commit in commits for stat in commit.stats))
    replay = _Replay(_older_groups(commits, slices))
    sizes: list[TableSize] = []
    before: dict[Group, int] = {}
    written: dict[Group, int] = {}
    for place, (instant, completed_at, commit) in enumerate(commits):
        if recent and place == recent[0]:
            before = {group: held.size_bytes for group, held in replay.groups.items()}
        replay.apply(instant, completed_at, commit)
        if place in recent:
            for stat in commit.stats:
                group = stat.group
                count = stat.insert_count + stat.update_count + stat.delete_count
                written[group] = written.get(group, 0) + count
        sizes.append(replay.size_after(instant, completed_at))
    if sizes:
        sizes[-1] = _listed_size(sizes[-1], slices, rows)
    return Growth(tuple(sizes), before, written, rows)


def _commits(snapshot: Snapshot) -> list[_Commit]:
    """Return the commits that can be read, by completion time; the doctor names the others."""
    timeline, storage = snapshot.timeline, snapshot.storage

    def read(instant: Instant) -> _Commit | None:
        try:
            commit = timeline.read_commit(storage, instant)
        except BucketLakeError:
            return None
        at = instant.requested_at
        return instant, timeline.completion_time(at) or at, commit

    found = at_once(storage, read, timeline.completed_commits())
    commits = [commit for commit in found if commit is not None]
    return sorted(commits, key=lambda each: (each[1], each[0].requested_at))


def _rows_of_groups(slices: Iterable[FileSlice], stats: Iterable[WriteStat]) -> dict[Group, int]:
    known = {stat.path: stat for stat in stats}
    found = {}
    for held in slices:
        base = held.base_file
        logs = (known[file.path] for file in held.log_files if file.path in known)
        added = sum(stat.insert_count for stat in logs)
        if base is None and added:
            found[held.group] = added
        elif base is not None and base.path in known:  # Otherwise its commit is archived.
            found[held.group] = known[base.path].record_count + added
    return found


def _older_groups(
    commits: Sequence[_Commit], slices: Iterable[FileSlice]
) -> dict[Group, _GroupState]:
    """Return the file groups that were there before the first commit, with what is known of them.

    That is their first known base file: of a commit, or else the listed one.
    """
    older: dict[Group, _GroupState | None] = {}
    opened: set[Group] = set()
    for *_, commit in commits:
        for stat in commit.stats:
            group = stat.group
            if group in opened or older.get(group) is not None:
                continue
            if stat.opens_group and group not in older:
                opened.add(group)
            elif stat.path and not stat.is_log:
                rows = stat.record_count - stat.insert_count + stat.delete_count
                older[group] = _GroupState(max(rows, 0), stat.file_size_bytes)
            else:
                older[group] = None
    for held in slices:
        group = held.group
        if group not in opened and older.get(group) is None:
            older[group] = _GroupState(None, held.base_file.size_bytes if held.base_file else 0)
    return {group: state for group, state in older.items() if state is not None}


class _Replay:
    """The file groups of a table while its commits are replayed, and their sums."""

    def __init__(self, groups: dict[Group, _GroupState]) -> None:
        self.groups: dict[Group, _GroupState] = {}
        self._rows = self._unknown = self._size_bytes = self._log_bytes = 0
        for group, held in groups.items():
            self._set(group, held)

    def apply(self, instant: Instant, completed_at: InstantTime, commit: CommitMetadata) -> None:
        for group in commit.replaced_groups:
            self._set(group, None)
        for stat in commit.stats:
            if not stat.path:
                continue  # Nothing was written.
            group = stat.group
            held = self.groups.get(group)
            if stat.is_log:
                # Without a base file, a log file may tell nothing about its rows.
                before = held or _GroupState(0 if stat.insert_count else None, 0)
                log = completed_at, stat.file_size_bytes, stat.insert_count
                self._set(group, replace(before, logs=(*before.logs, log)))
            else:
                # A compaction leaves the log files that were written after its plan.
                logs = () if held is None else held.logs
                later = tuple(log for log in logs if log[0] > instant.requested_at)
                self._set(group, _GroupState(stat.record_count, stat.file_size_bytes, later))

    def size_after(self, instant: Instant, completed_at: InstantTime) -> TableSize:
        return TableSize(
            instant.requested_at,
            completed_at,
            None if self._unknown else self._rows,
            self._size_bytes,
            self._log_bytes,
            len(self.groups),
        )

    def _set(self, group: Group, state: _GroupState | None) -> None:
        old = self.groups.pop(group, None)
        for held, sign in ((old, -1), (state, 1)):
            if held is not None:
                rows = held.rows_with_logs
                self._rows += sign * (rows or 0)
                self._unknown += sign * (rows is None)
                self._size_bytes += sign * held.size_bytes
                self._log_bytes += sign * held.log_bytes
        if state is not None:
            self.groups[group] = state


def _listed_size(
    last: TableSize, slices: Sequence[FileSlice], rows: Mapping[Group, int]
) -> TableSize:
    return TableSize(
        last.instant,
        last.completed_at,
        sum(rows.values()) if len(rows) == len(slices) else None,
        sum(held.size_bytes for held in slices),
        sum(held.log_bytes for held in slices),
        len(slices),
    )
