"""Checks of a table's data files by their names, sizes and places, against what commits say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from bucketlake.errors import FormatError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.layout import Damage
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile
from bucketlake.model.schema import PARTITION_PATH
from bucketlake.read.file_system_view import data_file
from bucketlake.services.examination import Examination
from bucketlake.services.findings import Finding, FindingKind
from bucketlake.storage.base import StoredObject
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import read_archive


def _not_marked(table: Examination) -> Iterator[Finding]:
    """Find partitions without their marker: Spark reads no row of them, and says nothing."""
    for folder in sorted(_unmarked_partitions(table)):
        files = [file for file in table.files if file.partition_path == folder]
        live = [path for one in table.snapshot.live_slices(files) for path in one.paths]
        if live:
            yield Finding(
                FindingKind.PARTITION_NOT_MARKED,
                f"{len(live)} files with committed rows lie in a folder that readers do not take "
                "for a partition",
                folder,
                tuple(live),
            )


def _unmarked_partitions(table: Examination) -> set[str]:
    """Return folders of data files that should be partitions, and are no copies of some."""
    told = {stat.partition_path for _, stat in table.committed.values()}
    unmarked: dict[str, list[DataFile]] = defaultdict(list)
    for file in table.files:
        if file.partition_path not in table.marked:
            unmarked[file.partition_path].append(file)
    return {
        folder for folder, files in unmarked.items() if folder in told or _says_so(table, files)
    }


def _says_so(table: Examination, files: list[DataFile]) -> bool:
    """Tell whether the rows of a folder's files are of that partition."""
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
    """Find files of live slices, as commits tell them, that are not there.

    Looked for again after the look at storage, on a newer timeline: a file that is gone then, and
    live still, is missing.
    """
    listed = _live_by_commits(table, table.timeline).keys() - table.objects.keys()
    gone = {path for path in listed if table.storage.stat(path) is None}
    if not gone:
        return
    newer = load_timeline(table.storage, table.config)
    newer.recall(table.timeline)
    live = _live_by_commits(table, newer)
    for path in sorted(gone & live.keys()):
        yield Finding(
            FindingKind.FILE_MISSING,
            f"instant {live[path].name.instant} committed a file that is gone, and its rows with "
            "it",
            live[path].partition_path,
            (path,),
        )


def _live_by_commits(table: Examination, timeline: Timeline) -> dict[str, DataFile]:
    stats = (
        stat
        for one in timeline.completed_commits()
        for stat in timeline.read_commit(table.storage, one).stats
    )
    named = (data_file(StoredObject(stat.path, stat.file_size_bytes, 0)) for stat in stats)
    # Where two commits tell of one file, as up to table version 6, it is one file.
    files = {file.path: file for file in named if file is not None}
    live = replace(table.snapshot, timeline=timeline).live_slices(files.values())
    return {path: files[path] for one in live for path in one.paths}


def _sizes(table: Examination) -> Iterator[Finding]:
    for path, (instant, stat) in sorted(table.committed.items()):
        stored = table.objects.get(path)
        if stored is not None and stored.size_bytes != stat.file_size_bytes > 0:
            yield Finding(
                FindingKind.FILE_SIZE_DIFFERS,
                f"instant {instant.requested_at} committed {stat.file_size_bytes} bytes, and "
                f"{stored.size_bytes} are there",
                stat.partition_path,
                (path,),
            )


def _strays(table: Examination) -> Iterator[Finding]:
    """Find data files that no commit wrote."""
    history = _History(table)
    partitions = table.marked | _unmarked_partitions(table)
    for file in sorted(table.files, key=lambda one: one.path):
        if file.partition_path not in partitions or not table.is_old(table.objects[file.path]):
            continue
        kind = _stray_kind(table, history, file)
        # One that is gone by now was of a write that was rolled back meanwhile.
        if kind is not None and table.storage.stat(file.path) is not None:
            yield Finding(
                kind,
                f"{_STRAY[kind]} (instant {file.name.instant})",
                file.partition_path,
                (file.path,),
            )


_STRAY = {
    FindingKind.ORPHAN_FILE: (
        "a file of no commit, which readers will take for one once the timeline has moved on"
    ),
    FindingKind.ORPHAN_SHOWN: (
        "a file of no commit, which readers take for one since it is older than the timeline"
    ),
    FindingKind.FILE_NOT_COMMITTED: (
        "a file with the time of a commit that does not name it, and readers show its rows"
    ),
}


def _stray_kind(table: Examination, history: _History, file: DataFile) -> FindingKind | None:
    if isinstance(file.name, LogFileName) and (
        table.timeline.layout_version == 1 or file.name.suffix
    ):
        return None  # Named by its base file; or not told in commits by its path.
    instant, start = file.name.instant, table.timeline.start
    if instant in history.active:
        is_stray = table.timeline.is_completed(instant) and file.path not in table.committed
        return FindingKind.FILE_NOT_COMMITTED if is_stray else None
    if start is None or instant > start:
        # Of one that was archived meanwhile the timeline could not tell.
        return None if history.is_archived(instant) else FindingKind.ORPHAN_FILE
    return None if history.may_hold(instant) else FindingKind.ORPHAN_SHOWN


class _History:
    """Knows the instants of the timeline, and which older ones may have been commits."""

    def __init__(self, table: Examination) -> None:
        self._table = table
        self.active = {i.requested_at for i in table.timeline.instants if i.action.writes_data}

    def is_archived(self, instant: InstantTime) -> bool:
        return instant in self._archived

    def may_hold(self, instant: InstantTime) -> bool:
        if self._table.config.layout_version == 1:
            return True  # An archive of that form is not read here.
        # What is older than the archive may have been taken off it.
        return instant in self._archived or instant < min(self._archived, default="")

    @cached_property
    def _archived(self) -> set[InstantTime]:
        if self._table.config.layout_version == 1:
            return set()
        entries = read_archive(self._table.storage, self._table.config, with_metadata=False)
        return {one.requested_at for one in entries}


def _groups(table: Examination) -> Iterator[Finding]:
    """Find file groups that contradict the layout."""
    if table.index is None:
        return
    for found in table.index.layout().damaged_groups(table.slices):
        paths = tuple(path for one in found.slices for path in one.paths)
        yield Finding(_DAMAGE[found.damage], found.problem, found.partition_path, paths)


_DAMAGE = {
    Damage.UNKNOWN_GROUP: FindingKind.BUCKET_UNKNOWN,
    Damage.SURPLUS_GROUPS: FindingKind.BUCKET_TWICE,
}


FILE_CHECKS: tuple[Callable[[Examination], Iterator[Finding]], ...] = (
    _not_marked,
    _missing,
    _sizes,
    _strays,
    _groups,
)
