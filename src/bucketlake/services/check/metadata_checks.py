"""Checks of the metadata table: whether it is whole, and says what the table holds.

Files and file groups of all its partitions are checked at each run. Its files are read only on
request, and so are the keys of the table, which are compared with the record-level index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import FormatError, MetadataTableError
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.metadata.entry_reader import read_all
from bucketlake.metadata.file_listing import listed_files, lists_files
from bucketlake.metadata.log_files import is_birth_log
from bucketlake.metadata.metadata_table import (
    BUILD_OPERATION,
    MetadataTable,
    list_files_of,
    load_metadata_table,
    metadata_file,
    skipped_commits,
)
from bucketlake.metadata.record_index.locations import KeyLocations, RecordIndexReader
from bucketlake.metadata.rewrite import merge_of
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.read.clean_guard import read_clean
from bucketlake.services.check.examination import Examination
from bucketlake.services.check.file_checks import rows_lost_by, stray_kind
from bucketlake.services.check.findings import Finding, FindingKind
from bucketlake.services.metadata.needed_index import why_index_is_missing
from bucketlake.services.metadata.rebuild import builder_at_work
from bucketlake.timeline.active import load_timeline

_FILES, _RECORD_INDEX = MetadataPartition.FILES, MetadataPartition.RECORD_INDEX
_MAINTAINED = frozenset(MetadataPartition)


def partition_to_rebuild(finding: Finding) -> str:
    """Return the partition of the metadata table whose build mends a finding."""
    match finding.kind:
        case FindingKind.METADATA_LISTS_DELETED:
            return _FILES
        case FindingKind.METADATA_INDEX_BROKEN | FindingKind.METADATA_BUILD_DEAD:
            return finding.files[0].removeprefix(f"{METADATA_TABLE_FOLDER}/").partition("/")[0]
    return _RECORD_INDEX


def _metadata_table(table: Examination) -> Iterator[Finding]:
    """Find what readers of the metadata table would not see, or would look for in vain."""
    if not table.config.metadata_partitions:
        return
    try:
        found = _load(table)
        skipped = skipped_commits(found)
        compared = not skipped and lists_files(table.config)
        lost, unlisted, deleted = _differences(table, found) if compared else ({}, [], [])
    except (MetadataTableError, FormatError) as error:
        place = error.path if isinstance(error, FormatError) else METADATA_TABLE_FOLDER
        if not place.startswith(METADATA_TABLE_FOLDER):
            raise  # A file of the data table, for example a commit.
        problem = f"the metadata table cannot be used: {error.problem}"
        yield Finding(FindingKind.METADATA_TABLE_BROKEN, problem, files=(place,))
        return
    if skipped:
        yield Finding(
            FindingKind.METADATA_TABLE_SKIPPED,
            f"{len(skipped)} commits from {skipped[0]} on are not in the metadata table, and "
            "readers that use it do not see their rows",
            files=(METADATA_TABLE_FOLDER,),
        )
    for path, file in lost.items():
        if file.name.instant not in table.active:
            yield Finding(
                FindingKind.FILE_MISSING,
                rows_lost_by(file.name.instant),
                file.partition_path,
                (path,),
            )
    differing = sorted([*unlisted, *(p for p in lost if lost[p].name.instant in table.active)])
    if differing:
        yield Finding(
            FindingKind.METADATA_TABLE_BROKEN,
            f"{len(differing)} live files, such as {differing[0]}, are either in storage or in "
            "the list of the metadata table, but not in both",
            files=tuple(differing),
        )
    if deleted:
        yield Finding(
            FindingKind.METADATA_LISTS_DELETED,
            f"the metadata table lists {len(deleted)} files, such as {deleted[0]}, that storage "
            "has not; readers look for them when no instant of the timeline is older",
            files=tuple(deleted),
        )


def _differences(
    table: Examination, found: MetadataTable
) -> tuple[dict[str, DataFile], list[str], list[str]]:
    """Compare the list of files with storage.

    Returns
    -------
    dict of str to DataFile
        The live files of the list that do not exist, but for those of a commit. If a commit of the
        timeline names such a file, the list is right and the file is missing: without the list,
        readers would take an older version of it.
    list of str
        The live files of storage that the list lacks, but for strays.
    list of str
        The files, live ones excepted, that only the list has.
    """

    def absent_of(paths: Set[str]) -> set[str]:
        return {path for path in paths - table.objects.keys() if table.storage.stat(path) is None}

    listed, live = _listed(table, found)
    lost: dict[str, DataFile] = {}
    if absent := absent_of(live - table.committed.keys()):
        # A clean may have deleted files after the timeline was listed.
        newer = load_timeline(table.opened)
        newer.recall(table.timeline)
        now = replace(table, timeline=newer)
        files, still = _listed(now, _load(now))
        lost = {path: files[path] for path in sorted(absent & still)}
    shown = {path for file_slice in table.slices for path in file_slice.paths} - listed.keys()
    unlisted = [
        file.path
        for file in table.files
        if file.path in shown
        and stray_kind(table, file) is None
        and table.storage.stat(file.path) is not None  # A clean may have deleted it meanwhile.
    ]
    missing = listed.keys() - table.objects.keys() - live
    for clean in table.timeline.pending_cleans() if missing else ():
        missing.difference_update(read_clean(table.storage, table.timeline, clean).paths)
    return lost, unlisted, sorted(absent_of(missing))


def _listed(table: Examination, found: MetadataTable) -> tuple[dict[str, DataFile], set[str]]:
    """Return the files of the list by path, and the paths of those that are live."""
    listed = {file.path: file for file in listed_files(found)}
    live = table.snapshot.live_slices(listed.values())
    return listed, {path for file_slice in live for path in file_slice.paths}


def _indexes(table: Examination) -> Iterator[Finding]:
    """Find partitions of the metadata table whose file groups or files are missing."""
    for found, name in _indexes_of(table):
        try:
            found.slices(name)
            missing = _missing_files(found, name)
        except MetadataTableError as error:
            yield _broken(name, error.problem)
            continue
        if name == _RECORD_INDEX:
            yield from _without_shards(table, found)
        if missing:
            problem = f"{len(missing)} of its files, such as {missing[0]}, are missing"
            yield _broken(name, problem, *missing)


def _not_built(table: Examination) -> Iterator[Finding]:
    """Find the index that the table's kind needs and nobody builds, and builds that died."""
    kind, missing = table.index, None
    if kind is not None and kind.finds_keys:
        missing = why_index_is_missing(table.opened, table.timeline, kind)
    died = {*table.config.metadata_partitions_inflight} & _MAINTAINED
    if not (missing or died) or builder_at_work(table.opened) is not None:
        return
    if missing is not None:
        yield Finding(
            FindingKind.INDEX_MISSING,
            f"the table's kind, {kind!r}, needs a record-level index: {missing}; the next write "
            "builds it",
            files=(f"{METADATA_TABLE_FOLDER}/{_RECORD_INDEX}",),
        )
        died -= {_RECORD_INDEX}
    for name in sorted(died):
        yield Finding(
            FindingKind.METADATA_BUILD_DEAD,
            f"partition {name} of the metadata table is being built, but its process died; "
            "readers do not use it, and each write maintains it",
            files=(f"{METADATA_TABLE_FOLDER}/{name}",),
        )


def _without_shards(table: Examination, found: MetadataTable) -> Iterator[Finding]:
    try:
        live = {file_slice.partition_path for file_slice in table.slices}
        RecordIndexReader(found).require_shards(live)
    except MetadataTableError as error:
        yield _broken(_RECORD_INDEX, error.problem)


def _missing_files(found: MetadataTable, name: str) -> list[str]:
    """Return the files that the slices of a partition need by the commits of the metadata table.

    Commits before the build of the partition name files that the build deleted.
    """
    stored = {file.path: file for file in list_files_of(found.storage, name)}
    opened: dict[str, str] = {}
    for file in stored.values():
        if is_birth_log(file.name):
            group, at = file.name.file_id, found.completion_time(file.name.instant)
            opened[group] = max(opened.get(group, ""), at or "")
    counted = [i for i in found.timeline.completed_commits() if found.counts(i.requested_at)]
    commits = found.timeline.read_commits(found.storage, counted)
    builds = (
        instant.completed_at or ""
        for instant, commit in commits
        if commit.operation == BUILD_OPERATION and name in commit.write_stats
    )
    built_at = max(builds, default="")  # Empty if the partition was made with the table.
    named: dict[str, DataFile] = {}
    for instant, commit in commits:
        completed_at = instant.completed_at or ""
        for stat in commit.write_stats.get(name, ()):
            written = metadata_file(name, stat.path.rpartition("/")[2], stat.file_size_bytes)
            opened_at = opened.get(stat.file_id)
            if written is None:
                continue
            if found.timeline.layout.logs_name_slices:
                # A build opens its slices before its turn, with a time of no clock.
                is_deleted = completed_at < built_at and written.name.instant != opened_at
            else:
                is_deleted = completed_at < (opened_at or built_at)
            if not is_deleted:
                named[written.path] = written
    versions = found.versions([*(named | stored).values()]).values()
    needed = {file.path for newest, *_ in versions for file in newest.files}
    return sorted(f"{found.storage.folder}/{path}" for path in needed - stored.keys())


def check_metadata_files(table: Examination) -> Iterator[Finding]:
    """Read all entries of the metadata table; find damaged files."""
    for found, name in _indexes_of(table):
        try:
            for entries in read_all(found, name):
                merge_of(MetadataPartition(name))(entries)
            if name == _RECORD_INDEX:
                for held in found.slices(name):
                    RecordIndexReader(found).read_slice(held)
        except FormatError as error:
            yield _broken(name, error.problem, error.path)
        except MetadataTableError:
            continue  # Found by another check.


@dataclass(frozen=True)
class IndexEntries:
    """The entries of the record-level index, to compare them with the keys of the table."""

    table: Examination
    index: RecordIndexReader

    @classmethod
    def of(cls, table: Examination) -> IndexEntries | None:
        """Return the entries; None without a valid index, or if other checks find it broken."""
        needed = {_FILES, _RECORD_INDEX}
        if not (
            needed <= {*table.config.metadata_partitions} and table.config.populate_meta_fields
        ):
            return None
        try:
            found = _load(table)
            index = RecordIndexReader(found)
            index.require_shards({file_slice.partition_path for file_slice in table.slices})
        except (MetadataTableError, FormatError):
            return None
        return cls(table, index)

    @property
    def partitions(self) -> set[str]:
        """The data partitions that may have entries."""
        if self.index.shards.is_partitioned:
            return {*self.index.shards.counts}
        try:
            return {location.partition_path for location in self._everything.locations}
        except MetadataTableError:
            return set()

    def compared(
        self, partition: str, slices: Sequence[FileSlice], keys: Sequence[pa.ChunkedArray]
    ) -> Iterator[Finding]:
        """Compare the entries of a data partition with the keys of its slices."""
        try:
            entries = self._entries(partition)
        except MetadataTableError:  # A damaged file, which another check finds.
            return
        groups = {file_slice.file_id: number for number, file_slice in enumerate(slices)}
        group_of_location = np.array(
            [groups.get(location.file_id, _DEAD) for location in entries.locations], np.int64
        )
        group_of_entry = group_of_location[entries.codes]
        stored = pa.chunked_array([a for held in keys for a in held.chunks], pa.string())
        stored_in = np.repeat(np.arange(len(slices)), [len(held) for held in keys])
        at = pc.index_in(stored, value_set=entries.keys).fill_null(-1).to_numpy()
        wrong = np.flatnonzero(np.append(group_of_entry, _DEAD)[at] != stored_in)
        dead = np.flatnonzero(
            (group_of_entry == _DEAD)
            & ~pc.is_in(entries.keys, value_set=stored.combine_chunks()).to_numpy(False)
        )
        if not (len(wrong) or len(dead)) or self._is_outdated():
            return
        place = (f"{METADATA_TABLE_FOLDER}/{_RECORD_INDEX}",)
        if len(wrong):
            yield Finding(
                FindingKind.INDEX_ENTRIES_WRONG,
                f"the record-level index has no entry, or that of another file group, for "
                f"{len(wrong)} keys, such as {stored[int(wrong[0])].as_py()!r}; lookups do not "
                "find them, and an upsert would write them twice",
                partition,
                place,
            )
        if len(dead):
            yield Finding(
                FindingKind.INDEX_ENTRIES_DEAD,
                f"{len(dead)} entries of the record-level index, such as that of "
                f"{entries.keys[int(dead[0])].as_py()!r}, name file groups that are not live; "
                "upserts of Hudi fail on such entries",
                partition,
                place,
            )

    def _entries(self, partition: str) -> KeyLocations:
        """Return the entries of a data partition that lookups find: those in their shards."""
        if self.index.shards.is_partitioned:
            return self._of_shards(partition)
        return self._everything.of_partition(partition).found

    @cached_property
    def _everything(self) -> KeyLocations:
        return self._of_shards(None)

    def _of_shards(self, partition: str | None) -> KeyLocations:
        slices = self.index.slices.get(partition, [])
        parts = []
        for number, held in enumerate(slices):
            found = self.index.read_slice(held)
            own = np.flatnonzero(shards_of_keys(found.keys, len(slices)) == number)
            parts.append(found.take(own))
        return KeyLocations.concat(parts)

    def _is_outdated(self) -> bool:
        """Return whether commits were completed since, which a compaction may have included."""
        now = load_timeline(self.table.opened)
        return now.newest_time() != self.table.timeline.newest_time()


_DEAD = -1


def _load(table: Examination) -> MetadataTable:
    return load_metadata_table(table.opened, table.timeline)


def _indexes_of(table: Examination) -> Iterator[tuple[MetadataTable, str]]:
    """Yield the valid partitions that bucketlake builds, except the list of files."""
    names = [n for n in table.config.metadata_partitions if n in _MAINTAINED and n != _FILES]
    if not names:
        return
    try:
        found = _load(table)
    except (MetadataTableError, FormatError):
        return  # Found by another check.
    for name in names:
        yield found, name


def _broken(name: str, problem: str, *files: str) -> Finding:
    return Finding(
        FindingKind.METADATA_INDEX_BROKEN,
        f"partition {name} of the metadata table cannot be used: {problem}",
        files=files or (f"{METADATA_TABLE_FOLDER}/{name}",),
    )


METADATA_CHECKS = (_metadata_table, _indexes, _not_built)
