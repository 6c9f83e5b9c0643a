"""Planning the build of a record-level index: how many shards, and which of them are missing.

An attempt that was interrupted is continued: shards whose base file exists are not built again, and
its shards keep their number. The attempts may see different states of the table. Writers maintain
the index since before the first attempt, and their entries are newer than the base files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketlake.format.base_file import BaseFileReader
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.metadata.creation import built_slice
from bucketlake.metadata.record_index.shards import (
    GLOBAL_LIMITS,
    PARTITIONED_LIMITS,
    IndexShards,
    Shard,
    ShardLimits,
    ShardRule,
)
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.snapshot import Snapshot
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.timeline.open_table import OpenTable

RECORD_INDEX = MetadataPartition.RECORD_INDEX

_SAMPLED_FILES = 256
_ROW_BYTES = 100  # Of a table without base files.


@dataclass(frozen=True, slots=True)
class IndexBuildPlan:
    """What has to be built.

    Attributes
    ----------
    instant : InstantTime
        Instant of the metadata table that builds the index.
    slice_instant : InstantTime
        The instant in the names of base files (``built_slice``).
    shards : IndexShards
        All shards of the index.
    missing : tuple of Shard
        Shards without a base file of the instant.
    key_counts : tuple of int
        Number of keys of each missing shard, estimated.
    slices : tuple of FileSlice
        Live slices that may have keys of missing shards.
    written : tuple of WriteStat
        Base files of an earlier attempt.
    """

    instant: InstantTime
    slice_instant: InstantTime
    shards: IndexShards
    missing: tuple[Shard, ...]
    key_counts: tuple[int, ...]
    slices: tuple[FileSlice, ...]
    written: tuple[WriteStat, ...] = ()

    @property
    def file_ids(self) -> list[FileId]:
        """The file groups of the index."""
        return [shard.file_id for shard in self.shards.shards()]


def plan_index(
    snapshot: Snapshot,
    table: OpenTable,
    instant: InstantTime,
    *,
    is_partitioned: bool,
    limits: ShardRule | None = None,
    opened: IndexShards | None = None,
) -> IndexBuildPlan:
    """Plan the build of an index; the cost is that of listing the table, and of some footers.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    table : OpenTable
        Its metadata table.
    instant : InstantTime
        Instant of the metadata table that builds the index.
    is_partitioned : bool
        Whether each data partition gets shards of its own.
    limits : ShardRule, optional
        Number of shards; by default as in Hudi.
    opened : IndexShards, optional
        Shards that writers use already, because the index is listed as being built. Data partitions
        without shards get as many as a writer would open.

    Raises
    ------
    InputError
        If a partitioned index cannot name the shards of a data partition, because its path has a
        dot.
    """
    slices = snapshot.all_slices()
    set_of = [file_slice.partition_path if is_partitioned else "" for file_slice in slices]
    key_counts = _key_counts(snapshot.storage, slices, set_of)
    if is_partitioned and opened is not None:
        # Partitions without shards are newer than the first step of the build. A writer that opens
        # their shards at the same time opens the least number.
        limits = ShardLimits(PARTITIONED_LIMITS.least, PARTITIONED_LIMITS.least)
    elif limits is None:
        limits = PARTITIONED_LIMITS if is_partitioned else GLOBAL_LIMITS
    named = built_slice(table, RECORD_INDEX, instant)
    attempt = _earlier_attempt(table.storage, named)
    counts = {} if is_partitioned else {"": 0}
    for path, key_count in sorted({**counts, **key_counts}.items()):
        wanted = limits.shard_count(key_count)
        counts[path] = (opened.count(path) if opened else 0) or attempt.shard_count(path, wanted)
    shards = IndexShards(None, counts) if is_partitioned else IndexShards(counts[""])
    missing = [s for s in shards.shards() if s.file_id not in attempt.file_ids]
    incomplete = {shard.data_partition or "" for shard in missing}
    return IndexBuildPlan(
        instant,
        named,
        shards,
        tuple(missing),
        tuple(
            key_counts.get(shard.data_partition or "", 0)
            // shards.count(shard.data_partition or "")
            for shard in missing
        ),
        tuple(s for s, path in zip(slices, set_of, strict=True) if path in incomplete),
        attempt.written,
    )


def stat_of_base_file(path: str, entry_count: int, size_bytes: int) -> WriteStat:
    """Return what the commit of a build says about a base file."""
    name = BaseFileName.from_file_name(path.rpartition("/")[2])
    assert name is not None, path
    return WriteStat(
        file_id=name.file_id,
        path=path,
        partition_path=RECORD_INDEX,
        record_count=entry_count,
        insert_count=entry_count,
        file_size_bytes=size_bytes,
        opens_group=True,
    )


def stat_of_stored(storage: Storage, stored: StoredObject) -> WriteStat:
    """Return the same for a base file of an earlier attempt."""
    reader = HFileReader.open(storage, stored.path, stored.size_bytes)
    return stat_of_base_file(stored.path, reader.entry_count, stored.size_bytes)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What an earlier attempt left."""

    opened: Mapping[str, int]  # By data partition, the number of the last shard and one more.
    written: tuple[WriteStat, ...]

    @property
    def file_ids(self) -> set[FileId]:
        """The shards with a base file."""
        return {stat.file_id for stat in self.written}

    def shard_count(self, path: str, wanted: int) -> int:
        """Return the number of shards of a data partition, or of a global index.

        The attempt opened all shards before it wrote a base file.
        """
        opened = self.opened.get(path, 0)
        facts = (MetadataFileId.from_file_id(file_id) for file_id in self.file_ids)
        has_files = any(fact and (fact.data_partition or "") == path for fact in facts)
        return opened if has_files else max(opened, wanted)


def _earlier_attempt(storage: Storage, instant: InstantTime) -> _Attempt:
    opened: dict[str, int] = {}
    written = []
    for stored in storage.list(RECORD_INDEX, recursive=False):
        file_name = stored.path.rpartition("/")[2]
        name = LogFileName.from_file_name(file_name) or BaseFileName.from_file_name(file_name)
        facts = None if name is None else MetadataFileId.from_file_id(name.file_id)
        if name is None or facts is None or name.instant != instant:
            continue
        path = facts.data_partition or ""
        opened[path] = max(opened.get(path, 0), facts.shard + 1)
        if isinstance(name, BaseFileName):
            written.append(stored)
    stats = at_once(storage, lambda stored: stat_of_stored(storage, stored), written)
    return _Attempt(opened, tuple(stats))


def estimated_keys(storage: Storage, slices: Sequence[FileSlice]) -> int:
    """Estimate the number of keys of some slices; the cost is that of some footers."""
    return sum(_key_counts(storage, slices, [""] * len(slices)).values())


def _key_counts(
    storage: Storage, slices: Sequence[FileSlice], set_of: Sequence[str]
) -> dict[str, int]:
    """Estimate the number of keys of each data partition, or of the table.

    Footers have the rows of base files. If there are many files, some are sampled; log files are
    assumed to have rows as large as those of base files.
    """
    bases = [file_slice.base_file for file_slice in slices if file_slice.base_file is not None]
    sampled = bases[:: -(-len(bases) // _SAMPLED_FILES) or 1]

    def rows_of(path: str) -> int:
        with telling_what_is_gone(storage), BaseFileReader(storage, path) as reader:
            return reader.row_count

    paths = [file.path for file in sampled]
    rows = dict(zip(paths, at_once(storage, rows_of, paths), strict=True))
    row_bytes = sum(file.size_bytes for file in sampled) / max(sum(rows.values()), 1)
    counts: dict[str, float] = defaultdict(float)
    for file_slice, path in zip(slices, set_of, strict=True):
        for file in file_slice.files:
            estimated = file.size_bytes / (row_bytes or _ROW_BYTES)
            counts[path] += rows.get(file.path, estimated)
    return {path: int(count) for path, count in counts.items()}
