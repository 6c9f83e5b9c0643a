"""Repairing a table: fixing findings of the doctor without losing a committed row.

The steps have a fixed order, because one step can reveal findings for a later step; after each step
the doctor runs again. Data files are moved to quarantine, not deleted. Objects younger than the
given age are not changed, because they may belong to a living writer.

A record-level index has one place for each key. So a partition with a key that is stored twice is
rewritten first, and the index is built after that. But writes to a table under a record-level index
need it, also this one. So an index that is missing is first built with one of the places of such a
key; the rewrite replaces all entries of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from bucketlake.actions.conflict import retried
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import (
    HOODIE_FOLDER,
    METADATA_TABLE_FOLDER,
    PROPERTIES_FILE,
    QUARANTINE_FOLDER,
)
from bucketlake.config.recorded_entries import RECORDED, mended, parse_recorded
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import LAYOUT_1, NEWEST_VERSION, OLDEST_VERSION
from bucketlake.errors import (
    AlreadyExistsError,
    ConfigError,
    FormatError,
    IndexStateError,
    KeyTwiceError,
    MissingFileError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.archive_file import ArchivedInstant
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.properties import (
    parse_properties,
    partition_marker_path,
    render_partition_metadata,
)
from bucketlake.index.setting import TableIndex, require_index, resolve_index
from bucketlake.metadata.file_listing import list_partitions_as
from bucketlake.model.field_path import fields_at
from bucketlake.model.file_name import InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.result import NONE_TEXT, Shown
from bucketlake.model.schema import COMMIT_SEQNO, COMMIT_TIME
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.check.doctor import CatalogCheck, diagnose
from bucketlake.services.check.findings import (
    MIN_AGE_SECONDS,
    Finding,
    FindingKind,
    Findings,
    Remedy,
)
from bucketlake.services.check.metadata_checks import partition_to_rebuild
from bucketlake.services.metadata.rebuild import build_metadata_table, drop_metadata_table
from bucketlake.slices.file_system_view import data_file
from bucketlake.storage.base import Storage, StoredObject, clear_staging
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import archived_commit, newest_archived
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import UNDOING, WRITES, instant_from_ms, system_now_ms
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.markers import delete_markers, read_markers
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import (
    recover_table_properties,
    replace_properties,
    restore_properties,
    table_at,
)
from bucketlake.write.ingest import rewrite_partitions
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from bucketlake.write.tombstones import forget_tombstones

_RECORD_INDEX = MetadataPartition.RECORD_INDEX

_FORBIDS_REWRITE = {  # Findings of a partition, or of the whole table.
    FindingKind.UNREADABLE,
    FindingKind.PENDING_OF_HUDI,
    FindingKind.RULES_OUT_OF_STEP,
    FindingKind.PLAN_BROKEN,
    FindingKind.FILE_MISSING,
    FindingKind.FILE_SIZE_DIFFERS,
    FindingKind.FILE_CORRUPT,
    FindingKind.SCHEMA_UNFIT,
    FindingKind.KEYS_UNLIKE_COLUMNS,
    FindingKind.PARTITION_NOT_MARKED,
    FindingKind.FILE_NOT_COMMITTED,
    FindingKind.ORPHAN_SHOWN,
}

_FORBIDS_BUILD = {  # Of an index, which reads all files.
    FindingKind.FILE_MISSING,
    FindingKind.FILE_SIZE_DIFFERS,
    FindingKind.FILE_CORRUPT,
}

_OF_ENTRIES = {FindingKind.INDEX_ENTRIES_WRONG, FindingKind.INDEX_ENTRIES_DEAD}

_KEEPS_FROM_REWRITE = (
    IndexStateError,  # Rows belong to another partition.
    FormatError,  # A file cannot be read, and the doctor did not read files.
    MissingFileError,
    ConfigError,  # The index is unknown.
    UnsupportedFeatureError,  # The index is not supported.
)

_KEEPS_FROM_BUILD = (
    FormatError,  # A data file cannot be read.
    MissingFileError,
    ObjectNotFoundError,  # A data file is missing.
)


@dataclass(frozen=True, slots=True)
class RepairReport(Shown):
    """What a repair fixes or has fixed.

    Attributes
    ----------
    repaired : tuple of Finding
        Repaired findings.
    left : tuple of Finding
        Findings that remain, because a person must decide, or a writer is running.
    quarantine : str or None
        Folder to which files were moved; None if no file was moved.
    commits : tuple of InstantTime
        Commits that rewrote partitions.
    checked, not_checked : tuple of str
        As of :class:`~bucketlake.services.check.findings.Findings`. Only what is checked is
        repaired.
    """

    repaired: tuple[Finding, ...] = field(metadata={NONE_TEXT: "nothing"})
    left: tuple[Finding, ...] = field(metadata={NONE_TEXT: "no findings"})
    quarantine: str | None = None
    commits: tuple[InstantTime, ...] = ()
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """How many findings are repaired and left, in words."""
        if not self.repaired and not self.left:
            return "no findings"
        return f"{len(self.repaired)} repaired, {len(self.left)} left"


def repair(
    storage: Storage,
    given: TableIndex | None,
    *,
    keys: bool = False,
    files: bool = False,
    min_age_seconds: int = MIN_AGE_SECONDS,
    dry_run: bool = False,
    catalog: CatalogCheck | None = None,
    engine: Engine = HERE,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> RepairReport:
    """Repair a table, or return what that would do.

    Parameters
    ----------
    storage, given, keys, files, min_age_seconds, catalog, now_ms
        As for :func:`~bucketlake.services.check.doctor.diagnose`.
    dry_run : bool
        Whether to change nothing.
    engine : Engine
        Builds shards of a record-level index on an engine.
    lock : TableLock
        Held while properties change, and while commits are published.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be read, or cannot be written and the repair needs a write.
    CommitConflictError
        If the repair was in conflict with another writer several times.
    """

    def look(*, keys: bool) -> Findings:
        return diagnose(
            storage,
            given,
            keys=keys,
            files=files,
            min_age_seconds=min_age_seconds,
            catalog=catalog,
            now_ms=now_ms,
        )

    found = look(keys=keys)
    if dry_run:
        mendable = tuple(finding for finding in found if finding.remedy is not Remedy.NOTHING)
        return RepairReport(
            mendable,
            tuple(finding for finding in found if finding not in mendable),
            checked=found.checked,
            not_checked=found.not_checked,
        )
    clear_staging(storage, now_ms() - min_age_seconds * 1000)
    work = _Repair(storage, given, min_age_seconds * 1000, lock, now_ms, engine, catalog)
    tried: dict[Finding, None] = {}
    for remedies, step in (
        ({Remedy.RECOVER}, work.recover_properties),
        ({Remedy.DROP_METADATA}, work.drop_metadata_table),
        ({Remedy.SETTLE, Remedy.DELETE}, work.settle),
        ({Remedy.MARK, Remedy.QUARANTINE, Remedy.DELETE, Remedy.STORE_RING}, work.tidy_up),
        ({Remedy.FORGET}, work.forget_deletes),
        # A build lists the partitions that are marked, and the rewrite uses the index.
        ({Remedy.REBUILD_METADATA}, work.rebuild_metadata_table),
        ({Remedy.REWRITE}, work.rewrite),
        ({Remedy.REBUILD_METADATA}, work.rebuild_metadata_table),
        ({Remedy.SYNC}, lambda _: work.sync()),
    ):
        if any(finding.remedy in remedies for finding in found):
            step(found)
            tried.update(dict.fromkeys(finding for finding in found if finding.remedy in remedies))
            found = look(keys=keys or work.met_key_twice)
    repaired = tuple(finding for finding in tried if finding not in found)
    return RepairReport(
        repaired,
        tuple(found),
        work.quarantine,
        tuple(work.commits),
        found.checked,
        found.not_checked,
    )


@dataclass
class _Repair:
    """One repair: its steps, and their results."""

    storage: Storage
    given: TableIndex | None
    min_age_ms: int
    lock: TableLock
    now_ms: Callable[[], int]
    engine: Engine
    catalog: CatalogCheck | None
    met_key_twice: bool = False  # A build did.
    quarantine: str | None = None
    commits: list[InstantTime] = field(default_factory=list)

    def recover_properties(self, found: Sequence[Finding]) -> None:
        is_broken = any(one.kind is FindingKind.PROPERTIES_BROKEN for one in found)
        with self.lock.held(self.storage):
            recover_table_properties(self.storage)
            loses_metadata = mend_properties(self.storage, self.now_ms) if is_broken else None
        if loses_metadata:
            self.drop_metadata_table(found)

    def drop_metadata_table(self, found: Sequence[Finding]) -> None:  # noqa: ARG002
        drop_metadata_table(table_at(self.storage, self.lock, self.now_ms))

    def rebuild_metadata_table(self, found: Sequence[Finding]) -> None:
        """Build partitions of the metadata table again."""
        mended = [one for one in found if one.remedy is Remedy.REBUILD_METADATA]
        if any(one.kind in _FORBIDS_BUILD for one in found):  # Writes can still use the index.
            mended = [one for one in mended if one.kind not in _OF_ENTRIES]
        partitions = {*map(partition_to_rebuild, mended)}
        if any(one.kind is FindingKind.KEYS_TWICE for one in found) and not self.met_key_twice:
            self.met_key_twice = True
            partitions.discard(_RECORD_INDEX)  # After the rewrite.
        if partitions:
            self._build(sorted(partitions))

    def _build(self, partitions: Sequence[str], *, keeps_one: bool = False) -> None:
        index = self._index()
        try:
            build_metadata_table(
                table_at(self.storage, self.lock, self.now_ms),
                partitions,
                is_partitioned=None if index is None else index.partitioned,
                keeps_one=keeps_one,
                engine=self.engine,
            )
        except KeyTwiceError:  # The finding remains, unless a rewrite comes before the next build.
            if self.met_key_twice and not (index is not None and index.finds_keys):
                # The kind allows a key in several partitions, and a global index does not.
                with self.lock.held(self.storage):
                    list_partitions_as(self.storage, lost=[_RECORD_INDEX])
            self.met_key_twice = True
        except _KEEPS_FROM_BUILD:
            return  # The finding remains.

    def _index(self) -> TableIndex | None:
        table = table_at(self.storage)
        return resolve_index(table, load_timeline(table), self.given)

    def settle(self, found: Sequence[Finding]) -> None:
        """Finish or roll back pending actions, and delete files of late tasks by their markers."""
        kinds = {finding.kind for finding in found}
        table = self._writable()
        if not kinds & {FindingKind.PENDING_DEAD, FindingKind.LEFTOVER_MARKERS}:
            return
        if FindingKind.PENDING_OF_HUDI not in kinds and not self._may_be_at_work(table):
            settle_failed_writes(table, load_timeline(table))

    def tidy_up(self, found: Sequence[Finding]) -> None:
        """Mark partitions, move stray files to quarantine, delete leftovers, store first rings."""
        table = self._writable()
        for finding in found:
            if finding.kind is FindingKind.LEFTOVER_MARKERS:
                self._delete_markers(finding)
            elif finding.remedy is Remedy.MARK:
                self._mark(finding)
            elif finding.remedy is Remedy.STORE_RING:
                self._store_ring(table, finding)
            elif finding.remedy in (Remedy.QUARANTINE, Remedy.DELETE):
                for path in finding.files:
                    stored = self.storage.stat(path)
                    if stored is None or self.now_ms() - stored.modified_at_ms < self.min_age_ms:
                        continue  # Another process was faster, or is running.
                    if finding.remedy is Remedy.QUARANTINE:
                        self._keep_copy(path)
                    self.storage.delete(path)

    def forget_deletes(self, found: Sequence[Finding]) -> None:
        """Put empty files in the place of lost files of remembered deletes."""
        table = self._writable()
        ordering = fields_at(load_snapshot(table).readable_schema, table.config.ordering_fields)
        for finding in found:
            if finding.remedy is Remedy.FORGET:
                forget_tombstones(self.storage, finding.files[0], ordering)

    def rewrite(self, found: Sequence[Finding]) -> None:
        """Rewrite partitions with keys in wrong buckets or duplicate keys."""
        table = self._writable()
        if self._may_be_at_work(table):
            return
        broken = {finding.partition for finding in found if finding.kind in _FORBIDS_REWRITE}
        partitions = {finding.partition for finding in found if finding.remedy is Remedy.REWRITE}
        if None in broken:
            return
        index = self._index()
        chosen = sorted(path for path in partitions - broken if path is not None)
        together = [[path] for path in chosen]
        if index is not None and index.has_global_keys:  # A key may be in several.
            together = [] if partitions & broken else [chosen]
        if index is not None and index.finds_keys and any(map(_is_without_index, found)):
            if partitions & broken:
                return  # Writes would change only one of the rows with a key.
            self._build([_RECORD_INDEX], keeps_one=True)
        for paths in together:
            with suppress(*_KEEPS_FROM_REWRITE):  # The finding remains.
                self._rewrite(table, paths)

    def sync(self) -> None:
        assert self.catalog is not None
        self.catalog.mend(load_snapshot(table_at(self.storage)))

    def _rewrite(self, table: OpenTable, partitions: Sequence[str]) -> None:
        def once() -> InstantTime | None:
            target = open_target(table, self.given)
            rows = _rows_of(target.snapshot, partitions)
            return rewrite_partitions(target, partitions, ArrowSource(rows)).instant

        instant = retried(once)
        if instant is not None:
            self.commits.append(instant)

    def _writable(self) -> OpenTable:
        table = table_at(self.storage, self.lock, self.now_ms)
        check_writable(table.config, self.storage.root)
        return table

    def _may_be_at_work(self, table: OpenTable) -> bool:
        """Return whether a young write without a heartbeat is pending, which may still be running.

        Hudi's writers have no heartbeat by default, and settling would roll them back.
        """
        oldest = instant_from_ms(self.now_ms() - self.min_age_ms, table.config.timeline_timezone)
        return any(
            instant.requested_at > oldest
            and not is_alive(self.storage, instant.requested_at, self.now_ms)
            for instant in load_timeline(table).pending(*WRITES, *UNDOING)
        )

    def _delete_markers(self, finding: Finding) -> None:
        """Delete markers, unless they name existing files of an instant that is not completed."""
        [folder] = finding.files
        instant = InstantTime(folder.rpartition("/")[2])
        completed = load_timeline(self._writable()).is_completed(instant)
        marked = read_markers(self.storage, instant)
        if completed or all(self.storage.stat(m.data_path) is None for m in marked):
            delete_markers(self.storage, instant)

    def _mark(self, finding: Finding) -> None:
        files = (data_file(StoredObject(path, 0, 0)) for path in finding.files)
        instant = min(file.name.instant for file in files if file is not None)
        assert finding.partition is not None
        with suppress(AlreadyExistsError):
            self.storage.put_if_absent(
                partition_marker_path(finding.partition),
                render_partition_metadata(instant, finding.partition),
            )

    def _store_ring(self, table: OpenTable, finding: Finding) -> None:
        timeline = load_timeline(table)
        layout = require_index(table, timeline, self.given).layout()
        assert finding.partition is not None
        layout.pinned([finding.partition], creates=True)

    def _keep_copy(self, path: str) -> None:
        if self.quarantine is None:
            self.quarantine = f"{QUARANTINE_FOLDER}/{instant_from_ms(self.now_ms(), 'UTC')}"
        self.storage.put_if_absent(f"{self.quarantine}/{path}", self.storage.read(path))


def _is_without_index(finding: Finding) -> bool:
    """Return whether a finding says that writes cannot use the record-level index."""
    kinds = (FindingKind.INDEX_MISSING, FindingKind.METADATA_INDEX_BROKEN)
    return finding.kind in kinds and partition_to_rebuild(finding) == _RECORD_INDEX


def _rows_of(snapshot: Snapshot, partitions: Sequence[str]) -> pa.Table:
    """Return the rows of partitions in order of their commits.

    So if several rows have the same key and ordering value, the latest row stays.
    """
    reader = SliceReader.of_snapshot(snapshot)
    names = snapshot.schema.names
    schema = pa.schema([reader.schema.field(n) for n in (*names, COMMIT_TIME, COMMIT_SEQNO)])
    chunks = [
        chunk
        for file_slice in snapshot.partition_slices(partitions)
        for chunk in reader.read(file_slice, schema.names)
    ]
    rows = pa.concat_tables(chunks) if chunks else schema.empty_table()
    order = [(COMMIT_TIME, "ascending"), (COMMIT_SEQNO, "ascending")]
    return rows.sort_by(order).select(names)


# ---- Mending ``hoodie.properties``: a damaged byte by its checksum, else by what commits record --


def mend_properties(storage: Storage, now_ms: Callable[[], int]) -> bool | None:
    """Restore the file: a changed byte, or lost and changed entries; a cut line is dropped.

    Returns
    -------
    bool or None
        Whether the metadata table must be removed, because the file had lost which of its
        partitions are valid. None if nothing was changed, because no commit records the entries.
    """
    if restore_properties(storage):
        return False
    try:
        data = storage.read(PROPERTIES_FILE)
    except ObjectNotFoundError:
        data = b""
    current = parse_properties(data[: data.rfind(b"\n") + 1])
    recorded = _newest_record(storage, current)
    if recorded is None:
        return None
    entries = mended(current, recorded)
    lost_list = (
        keys.CHECKSUM not in current
        and keys.METADATA_PARTITIONS not in current
        and bool(storage.list_folders(METADATA_TABLE_FOLDER))
    )
    if lost_list:
        entries[keys.METADATA_PARTITIONS] = MetadataPartition.FILES
    replace_properties(storage, entries, now_ms=now_ms)
    return lost_list


def _newest_record(storage: Storage, current: dict[str, str]) -> dict[str, str] | None:
    """Return the entries in the newest commit that has them."""
    folder = current.get(keys.TIMELINE_PATH, "timeline")
    has_folder = next(iter(storage.list(f"{HOODIE_FOLDER}/{folder}")), None) is not None
    places = TableConfig(  # Only the folders of the timeline are true.
        "",
        TableType.COPY_ON_WRITE,
        KeySpec((), (), KeyGenerator.NON_PARTITION),
        MergeMode.COMMIT_TIME,
        version=NEWEST_VERSION if has_folder else OLDEST_VERSION,
        timeline_path=folder,
        history_path=current.get(keys.HISTORY_PATH, "history"),
        archive_folder=current.get(keys.ARCHIVE_FOLDER, LAYOUT_1.archive_folder),
    )
    timeline = load_timeline(opened_table(storage, places))
    for instant in reversed(timeline.completed_commits()):
        found = parse_recorded(timeline.read_commit(storage, instant).extra.get(RECORDED))
        if found is not None:
            return found

    entry = newest_archived(
        storage, places.history_folder, None, lambda e: _record_in(e) is not None
    )
    return None if entry is None else _record_in(entry)


def _record_in(entry: ArchivedInstant) -> dict[str, str] | None:
    commit = archived_commit(entry)
    return None if commit is None else parse_recorded(commit.extra.get(RECORDED))
