"""Checks that compare the names, sizes and places of data files with commits, and of rings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from bucketlake.config.table_version import table_version
from bucketlake.errors import FormatError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.format.log_block import HeaderKey, read_log_blocks
from bucketlake.index.hashing_config import INITIAL_INSTANT
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.rings import StoredVersion, counts, metadata_path, stored_versions
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile
from bucketlake.model.grouping import grouped
from bucketlake.model.schema import PARTITION_PATH
from bucketlake.model.table_type import TableType
from bucketlake.read.clean_guard import CommittedFile, lost_files
from bucketlake.services.check.examination import Examination
from bucketlake.services.check.findings import Finding, FindingKind
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action


def _not_marked(table: Examination) -> Iterator[Finding]:
    """Find partitions without a marker: Spark silently reads no row of them."""
    for folder in sorted(_unmarked_partitions(table)):
        files = [file for file in table.files if file.partition_path == folder]
        slices = table.snapshot.live_slices(files)
        live = [path for file_slice in slices for path in file_slice.paths]
        if live:
            yield Finding(
                FindingKind.PARTITION_NOT_MARKED,
                f"{len(live)} files with committed rows are in a folder that readers do not treat "
                "as a partition",
                folder,
                tuple(live),
            )


def _unmarked_partitions(table: Examination) -> set[str]:
    """Return unmarked folders that should be partitions; exclude copies of partitions."""
    committed = {stat.partition_path for _, stat in table.committed.values()}
    files_of = grouped((file.partition_path, file) for file in table.files)
    unmarked = {path: files for path, files in files_of.items() if path not in table.marked}
    return {
        folder
        for folder, files in unmarked.items()
        if folder in committed or _is_partition(table, files)
    }


def _is_partition(table: Examination, files: list[DataFile]) -> bool:
    """Return whether the rows of a folder's files name the folder as their partition."""
    if not table.config.populate_meta_fields:
        return False  # Only the folder tells the partition.
    for file in files:
        if isinstance(file.name, BaseFileName):
            try:
                with BaseFileReader(table.storage, file.path) as reader:
                    for chunk in reader.iter_chunks([PARTITION_PATH], rows_max=1):
                        return bool(chunk[PARTITION_PATH][0].as_py() == file.partition_path)
            except FormatError:
                continue
    return False


def _missing(table: Examination) -> Iterator[Finding]:
    """Find files of live slices that commits name and that do not exist, also archived commits.

    The live slices are computed again on a newer timeline, because a clean or a rollback may have
    deleted a file after the first listing.
    """
    missing = {p for p in _lost(table, table.timeline) if table.storage.stat(p) is None}
    if not missing:
        return
    newer = load_timeline(table.opened)
    newer.recall(table.timeline)
    for path, found in sorted(_lost(table, newer).items()):
        if path in missing:
            yield Finding(
                FindingKind.FILE_MISSING,
                rows_lost_by(found.commit),
                found.file.partition_path,
                (path,),
            )


def _skipped(table: Examination) -> Iterator[Finding]:
    """Find missing base files that are not live any more: the next commit built on older ones.

    bucketlake's writes raise an error instead. Hudi's do not, unless it uses the metadata table.
    The log files of a compaction still have the rows of its base files.
    """
    bases = grouped(
        (stat.group, (instant, stat))
        for instant, stat in table.committed.values()
        if BaseFileName.from_file_name(stat.path.rpartition("/")[2]) is not None
    )
    is_merged = table.config.table_type is TableType.MERGE_ON_READ
    skipped = [
        (commit.requested_at, lost, skipper.requested_at)
        for held in bases.values()
        for (commit, lost), (skipper, stat) in pairwise(
            sorted(held, key=lambda written: written[0].requested_at)
        )
        if stat.previous_commit < commit.requested_at
        and not (is_merged and commit.action is Action.COMMIT)
        and table.storage.stat(lost.path) is None
    ]
    if not skipped:
        return
    slices = table.snapshot.live_slices(table.files)
    live = {held.group for held in slices}
    for commit, lost, skipper in skipped:
        if (lost.partition_path, lost.file_id) in live:
            yield Finding(
                FindingKind.FILE_MISSING,
                f"instant {commit} committed a file that is missing, and instant {skipper} was "
                "written without its rows",
                lost.partition_path,
                (lost.path,),
            )


def rows_lost_by(commit: InstantTime) -> str:
    """Return the meaning of a missing file."""
    return f"instant {commit} committed a file that is missing; its rows are lost"


def _lost(table: Examination, timeline: Timeline) -> dict[str, CommittedFile]:
    snapshot = replace(table.snapshot, timeline=timeline)
    return lost_files(
        table.opened,
        timeline,
        table.files,
        snapshot.live_slices(table.files),
        None,
        snapshot.live_slices,
        with_archive=True,
    )


def _sizes(table: Examination) -> Iterator[Finding]:
    for path, (instant, stat) in sorted(table.committed.items()):
        stored = table.objects.get(path)
        if stored is not None and stored.size_bytes != stat.file_size_bytes > 0:
            yield Finding(
                FindingKind.FILE_SIZE_DIFFERS,
                f"instant {instant.requested_at} committed {stat.file_size_bytes} bytes, but the "
                f"file has {stored.size_bytes}",
                stat.partition_path,
                (path,),
            )


def _strays(table: Examination) -> Iterator[Finding]:
    """Find data files that no commit wrote."""
    partitions = table.marked | _unmarked_partitions(table)
    for file in sorted(table.files, key=lambda file: file.path):
        if file.partition_path not in partitions or not table.is_old(table.objects[file.path]):
            continue
        kind = stray_kind(table, file)
        # A rollback may have deleted the file meanwhile.
        if kind is not None and table.storage.stat(file.path) is not None:
            yield Finding(
                kind,
                f"{_STRAY[kind]} (instant {file.name.instant})",
                file.partition_path,
                (file.path,),
            )


_STRAY = {
    FindingKind.ORPHAN_FILE: (
        "a file of no commit, which readers will treat as committed once the timeline has moved on"
    ),
    FindingKind.ORPHAN_SHOWN: (
        "a file of no commit, which readers treat as committed: it is older than the timeline"
    ),
    FindingKind.FILE_NOT_COMMITTED: (
        "a file with the time of a commit that does not name it, and readers show its rows"
    ),
}


def stray_kind(table: Examination, file: DataFile) -> FindingKind | None:
    """Return the finding of a data file that no commit wrote; None if a commit may have."""
    if isinstance(file.name, LogFileName):
        if file.name.suffix:
            return None  # Commits do not name its path.
        if table.timeline.layout.logs_name_slices:
            return _stray_log(table, file, file.name.writer)
        made_as = table_version(table.config.initial_version or table.config.version)
        if made_as.layout.logs_name_slices:
            return None  # Its name may have the instant of its slice, from before an upgrade.
    instant, start = file.name.instant, table.timeline.start
    if instant in table.active:
        is_stray = table.timeline.is_completed(instant) and file.path not in table.committed
        return FindingKind.FILE_NOT_COMMITTED if is_stray else None
    if start is None or instant > start:
        # The instant may have been archived meanwhile.
        return None if instant in table.archived else FindingKind.ORPHAN_FILE
    # Older instants may have been removed from the archive.
    may_be_archived = instant in table.archived or instant < min(table.archived, default="")
    return None if may_be_archived else FindingKind.ORPHAN_SHOWN


def _stray_log(
    table: Examination, file: DataFile, writer: InstantTime | None
) -> FindingKind | None:
    """Return the finding of a log file whose name has the instant of its slice.

    Only files of bucketlake name their writer. Hudi may reuse that token for a file of its own, and
    cancels the blocks of a failed write in another file.
    """
    start = table.timeline.start
    if (
        writer is None
        or (start is not None and writer < start)
        or writer in table.active
        or writer in table.archived
        or file.path in table.committed
    ):
        return None
    group = file.partition_path, file.name.file_id
    beside = (other for other in table.files if (other.partition_path, other.name.file_id) == group)
    logs = (other.path for other in beside if isinstance(other.name, LogFileName))
    blocks = (block for path in logs for block in read_log_blocks(table.storage, path))
    targets = (block.headers.get(HeaderKey.TARGET_INSTANT_TIME) for block in blocks)
    return None if writer in targets else FindingKind.ORPHAN_FILE


def _logs_of_other_commits(table: Examination) -> Iterator[Finding]:
    """Find live log files whose names have the instant of an earlier delta commit.

    Hudi's UPDATE, DELETE and MERGE write such names where a file group has no base file. Readers
    order log files by the names, so the changes of the later commit may lose. Copies for a resize
    have the instant of the resize, which is no delta commit.
    """
    if table.timeline.layout.logs_name_slices:
        return  # Names have the instants of base files.
    live = {path for held in table.slices if not held.base_file for path in held.paths}
    for path, (commit, stat) in sorted(table.committed.items()):
        name = LogFileName.from_file_name(path.rpartition("/")[2])
        if path not in live or name is None or name.writer is not None:
            continue
        if commit.completed_at == commit.requested_at:
            continue  # It was committed before an upgrade, when names had the slice's instant.
        if name.instant != commit.requested_at and table.is_delta_commit(name.instant):
            yield Finding(
                FindingKind.LOG_OF_OTHER_COMMIT,
                f"instant {commit.requested_at} committed a log file with the name of instant "
                f"{name.instant}; its changes may lose against those of the earlier commit",
                stat.partition_path,
                (path,),
            )


def _groups(table: Examination) -> Iterator[Finding]:
    """Find file groups that contradict the layout."""
    if table.index is None:
        return
    for found in table.index.layout().damaged_groups(table.placed):
        paths = tuple(path for file_slice in found.slices for path in file_slice.paths)
        kind = FindingKind.BUCKET_TWICE if found.is_surplus else FindingKind.BUCKET_UNKNOWN
        yield Finding(kind, found.problem, found.partition_path, paths)


# ---- Hash rings (RFC-42): whether they can be read, and each version is of a commit --------------
#
# Hudi may take a version of no commit for the ring of its partition, and then writes keys twice. A
# partition with rows and no ring at all is written by the ring that it would begin with.


def _broken_rings(table: Examination) -> Iterator[Finding]:
    """Find rings that cannot be read."""
    for partition, error in sorted(table.broken_rings.items()):
        problem = (
            error.problem
            if isinstance(error, FormatError)
            else f"expected {error.expected}, but {error.held}"
        )
        yield Finding(
            FindingKind.UNREADABLE,
            f"{problem}; no bucket of the partition can be found, and writes fail",
            partition,
            (error.path,),
        )


def _rings_of_no_commit(table: Examination) -> Iterator[Finding]:
    """Find versions of no commit: Hudi may use them nevertheless."""
    suspects = [v for v in stored_versions(table.storage) if _is_stray_ring(table, v)]
    if not suspects:
        return
    newer = load_timeline(table.opened)
    known = {instant.requested_at for instant in newer.instants}
    for version in suspects:
        if version.instant in known or counts(table.storage, newer, version):
            continue  # Its writer began after the first listing, or it was archived meanwhile.
        path = metadata_path(version.partition_path, version.instant, version.engine)
        if table.storage.stat(path) is not None:  # A rollback may have deleted it meanwhile.
            yield Finding(
                FindingKind.RING_OF_NO_COMMIT,
                f"a version of the {version.engine.ring_word} has the instant {version.instant}, "
                "but there is no such commit; "
                + (
                    "Hudi may write by it, and then keys occur twice"
                    if version.engine is CONSISTENT
                    else "no program writes by it"
                ),
                version.partition_path,
                (path,) if version.marker is None else (version.marker, path),
            )


def _is_stray_ring(table: Examination, version: StoredVersion) -> bool:
    known = any(instant.requested_at == version.instant for instant in table.timeline.instants)
    if known or not table.is_old(version.stored):
        return False
    return not counts(table.storage, table.timeline, version)


def _without_ring(table: Examination) -> Iterator[Finding]:
    """Find partitions with rows that have no ring, and whose file groups fit the first one."""
    kind = table.index.resized if table.index is not None else None
    if kind is None:
        return
    layout = kind.layout()
    for partition in sorted({file_slice.partition_path for file_slice in table.placed}):
        if not layout.state(partition).is_stored:
            yield Finding(
                FindingKind.RING_MISSING,
                _text_without_ring(layout, partition),
                partition,
                (metadata_path(partition, INITIAL_INSTANT, layout.engine),),
            )


def _text_without_ring(layout: RingLayout, partition: str) -> str:
    engine, count = layout.engine, layout.slot_count(partition)
    if engine is CONSISTENT:
        return (
            "the hash ring of the partition is missing; bucketlake takes the ring that a "
            f"partition begins with, of {count} nodes, and a writer of Hudi makes one of its own "
            "number of buckets"
        )
    return (
        f"the {engine.ring_word} of the partition is missing; bucketlake takes the one that a "
        f"partition begins with, of {count} {engine.bucket_word}s"
    )


FILE_CHECKS: tuple[Callable[[Examination], Iterator[Finding]], ...] = (
    _not_marked,
    _missing,
    _skipped,
    _sizes,
    _strays,
    _logs_of_other_commits,
    _groups,
    _broken_rings,
    _rings_of_no_commit,
    _without_ring,
)
