"""The active timeline: which instants a table has, which of them count, and what they wrote.

:func:`load_timeline` makes one listing and usually reads nothing else. A :class:`Timeline` is a
value: it can be pickled and restricted to a time. Methods that need commit metadata take the
storage, and the object caches what it has read. ``timeline/archive_reader.py`` reads instants older
than the active timeline. It is used for a commit that left the active timeline meanwhile, and for
the schema if no active commit has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bucketlake.config.paths_of_table import KEPT_FOLDER_FILE
from bucketlake.config.table_version import TimelineLayout
from bucketlake.errors import ObjectNotFoundError, TimelineError
from bucketlake.format.clustering_plan import (
    ClusteringPlan,
    decode_clustering_plan,
    decode_compaction_plan,
    has_clustering_plan,
)
from bucketlake.format.commit_metadata import changes_rows, decode_commit_metadata
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.kept import NewestValues, fields_alone
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage, at_once, names_and_times
from bucketlake.timeline.instant import UNDOING, Action, Instant, State, instant_from_ms
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.read_time import read_time

if TYPE_CHECKING:
    from bucketlake.format.archive_file import ArchivedInstant

_LISTED_AT_ONCE = 200  # Local disk and object stores return this many names in one piece.
_STORAGE_AHEAD_MS_MAX = 60_000  # How far the clock of the storage may be ahead.


@dataclass(frozen=True)
class Timeline:
    """The instants of a table from one listing, each in its latest state.

    Attributes
    ----------
    instants : tuple of Instant
        In timeline order: requested time, then action.
    folder : str
        Folder of the files.
    layout : TimelineLayout
        How files are named.
    start : InstantTime or None
        Smallest requested time of an instant that writes data, without writes that came too late.
        Older instants were archived, so they are completed. None if there is no such instant.
    history_folder : str
        Folder of the archive.
    legacy_completions : mapping of InstantTime to InstantTime
        Completion times of instants of before an upgrade: when their files were written.
    until : InstantTime or None
        Instants that were requested later are ignored; None for no limit.
    newest_written_ms : int or None
        When the greatest completion time was written down, according to storage, in milliseconds
        since 1970 UTC; None if there is none, or if a change of version wrote the files again.
    undone : frozenset of InstantTime
        Completed instants that are ignored; they may be older than the active timeline.
    """

    instants: tuple[Instant, ...]
    folder: str
    layout: TimelineLayout
    start: InstantTime | None
    history_folder: str
    legacy_completions: Mapping[InstantTime, InstantTime] = field(default_factory=dict)
    until: InstantTime | None = None
    newest_written_ms: int | None = None
    undone: frozenset[InstantTime] = frozenset()

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Return the completed instants, of all actions or of some, in order."""
        found = (instant for instant in self.instants if instant.state is State.COMPLETED)
        return tuple(instant for instant in found if not actions or instant.action in actions)

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """Return the requested and inflight instants, of all actions or of some, in order."""
        found = (instant for instant in self.instants if instant.state is not State.COMPLETED)
        return tuple(instant for instant in found if not actions or instant.action in actions)

    def savepoints(self) -> tuple[Instant, ...]:
        """Return the savepoints in order, also those that are not completed."""
        return tuple(found for found in self.instants if found.action is Action.SAVEPOINT)

    @property
    def is_undoing(self) -> bool:
        """Whether a rollback or a restore is pending."""
        return bool(self.pending(*UNDOING))

    def pending_changes(self) -> tuple[Instant, ...]:
        """Return what is pending. A savepoint does not count: it changes no file."""
        return tuple(found for found in self.pending() if found.action is not Action.SAVEPOINT)

    def completed_commits(self) -> tuple[Instant, ...]:
        """Return the completed instants that write data, also of table services, in order."""
        return tuple(self._commits.values())

    def find_completed(self, instant: InstantTime) -> Instant | None:
        """Return the completed commit with that requested time; None if there is none."""
        return self._commits.get(instant)

    def find(self, instant: InstantTime) -> Instant | None:
        """Return the instant that writes data and has that requested time, in any state.

        A savepoint has the time of its commit; it is not returned.
        """
        at_that_time = (found for found in self.instants if found.requested_at == instant)
        return next((found for found in at_that_time if found.action.writes_data), None)

    def pending_cleans(self) -> tuple[Instant, ...]:
        """Return the cleans that are planned and not completed."""
        return self.pending(Action.CLEAN)

    def pending_compactions(self) -> tuple[Instant, ...]:
        """Return the compactions and log compactions that are planned and not completed."""
        return self.pending(Action.COMPACTION, Action.LOG_COMPACTION)

    def pending_clusterings(self) -> tuple[Instant, ...]:
        """Return the clusterings that are planned and not completed."""
        return self.pending(Action.CLUSTERING)

    def is_completed(self, instant: InstantTime) -> bool:
        """Return whether files with the instant's time are committed.

        An instant older than the active timeline is completed, because archival never moves an
        instant that is later than a pending one.
        """
        if instant in self.undone or (self.until is not None and instant > self.until):
            return False
        return instant in self._commits or (self.start is not None and instant < self.start)

    def has_slice(self, instant: InstantTime) -> bool:
        """Return whether file slices of an instant count in layout 1, where log files name them.

        A pending compaction has slices, too: writes add log files to them.
        """
        return self.is_completed(instant) or instant in self._compactions

    def completion_time(self, instant: InstantTime) -> InstantTime | None:
        """Return when a commit completed; None if it is pending, or older than the timeline."""
        commit = self._commits.get(instant)
        if commit is None:
            return None
        return commit.completed_at or self.legacy_completions.get(instant)

    def newest_time(self) -> InstantTime | None:
        """Return the greatest requested or completion time of all instants."""
        requested = (instant.requested_at for instant in self.instants)
        completed = (instant.completed_at for instant in self.instants if instant.completed_at)
        return max((*requested, *completed, *self.legacy_completions.values()), default=None)

    def as_of(self, text: str) -> Timeline:
        """Return the timeline for a time-travel query: instants requested up to the time.

        Parameters
        ----------
        text : str
            ``yyyyMMddHHmmss[SSS]``, or a date without a zone as :func:`read_time` reads it.

        Raises
        ------
        ConfigError
            If the text is none of these.
        """
        until = read_time(text)
        if self.until is not None:
            until = min(until, self.until)
        kept = tuple(instant for instant in self.instants if instant.requested_at <= until)
        return replace(self, instants=kept, until=until, newest_written_ms=None)

    def without(self, undone: Collection[InstantTime]) -> Timeline:
        """Return the timeline as if some commits had not completed.

        Later cleans are also treated as not completed, because they may have deleted older files.
        """
        first = min(undone, default=None)

        def counts(instant: Instant) -> bool:
            if instant.action is Action.CLEAN:
                return first is None or instant.requested_at < first
            return instant.requested_at not in undone or not instant.action.writes_data

        instants = tuple(
            instant
            if counts(instant)
            else replace(instant, state=State.INFLIGHT, completed_at=None)
            for instant in self.instants
        )
        return replace(self, instants=instants, undone=self.undone.union(undone))

    def path_of(self, instant: Instant) -> str:
        """Return the path of an instant's file, relative to the table."""
        return f"{self.folder}/{instant.to_file_name(self.layout)}"

    def read_commit(self, storage: Storage, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed commit; the file is read once per Timeline object.

        Raises
        ------
        TimelineError
            If the commit was rolled back after the listing.
        FormatError
            If the file does not hold commit metadata.
        """
        known = self._read.get(instant)
        if known is None:
            known = self._read[instant] = self._read_commit(storage, instant)
        return known

    def read_commits(
        self, storage: Storage, instants: Sequence[Instant]
    ) -> list[tuple[Instant, CommitMetadata]]:
        """Return several completed commits with their metadata; see :meth:`read_commit`."""
        read = at_once(storage, partial(self.read_commit, storage), instants)
        return list(zip(instants, read, strict=True))

    def read_compaction_plan(self, storage: Storage, pending: Instant) -> list[FileSlice]:
        """Return the slices of a pending compaction; the plan has no file sizes, so they are 0.

        Raises
        ------
        ObjectNotFoundError
            If the plan was withdrawn after the listing.
        FormatError
            If the requested file does not hold a plan.
        UnsupportedFeatureError
            If a slice has a bootstrap file.
        """
        path = self.path_of(replace(pending, state=State.REQUESTED))
        return decode_compaction_plan(storage.read(path), path)

    def read_clustering_plan(self, storage: Storage, pending: Instant) -> ClusteringPlan:
        """Return the plan of a pending clustering; the plan has no file sizes, so they are 0.

        Raises
        ------
        ObjectNotFoundError
            If the plan was withdrawn after the listing.
        FormatError
            If the requested file does not hold a plan.
        UnsupportedFeatureError
            If a slice has a bootstrap file.
        """
        path = self.path_of(replace(pending, state=State.REQUESTED))
        return decode_clustering_plan(storage.read(path), path)

    def recall(self, earlier: Timeline) -> None:
        """Take over the metadata that an earlier load of this timeline has read."""
        self._read.update(earlier._read)

    def replaced_file_groups(self, storage: Storage) -> dict[tuple[str, FileId], InstantTime]:
        """Return the file groups that completed replace commits removed from the table.

        Returns
        -------
        dict
            The replacing instant, by partition path and file id.
        """
        replaced: dict[tuple[str, FileId], InstantTime] = {}
        commits = [i for i in self.completed_commits() if i.action is Action.REPLACE_COMMIT]
        for instant, commit in self.read_commits(storage, commits):
            for group in commit.replaced_groups:
                replaced.setdefault(group, instant.requested_at)
        return replaced

    def latest_schema(self, storage: Storage) -> str | None:
        """Return the table's Avro schema from the newest commit that may change it.

        None if no commit has one, including archived commits; then the schema with which the table
        was created is valid.
        """
        commit = self.schema_commit(storage)
        return None if commit is None else commit.schema_json

    def schema_instant(self, storage: Storage) -> Instant | None:
        """Return the newest active commit that has a schema and may change the table's schema."""
        for instant in reversed(self.completed_commits()):
            if _tells_schema(self.read_commit(storage, instant)):
                return instant
        return None

    def schema_commit(self, storage: Storage) -> CommitMetadata | None:
        """Return the newest commit that has a schema and may change it; also archived commits."""
        active = self.schema_instant(storage)
        if active is not None:
            return self.read_commit(storage, active)
        if self.start is None:
            return None
        from bucketlake.timeline.archive_reader import archived_commit, newest_archived

        found = newest_archived(storage, self.history_folder, self.until, _tells_archived_schema)
        return None if found is None else archived_commit(found)

    @cached_property
    def _commits(self) -> dict[InstantTime, Instant]:
        return {
            instant.requested_at: instant
            for instant in self.completed()
            if instant.action.writes_data
        }

    @cached_property
    def _compactions(self) -> frozenset[InstantTime]:
        return frozenset(found.requested_at for found in self.pending(Action.COMPACTION))

    @cached_property
    def _read(self) -> dict[Instant, CommitMetadata]:
        return {}

    # Without cached and derived values, so that tasks only receive the instants.
    __getstate__ = fields_alone

    def _read_commit(self, storage: Storage, instant: Instant) -> CommitMetadata:
        assert instant.state is State.COMPLETED, instant
        path = self.path_of(instant)
        try:
            return decode_commit_metadata(storage.read(path), path)
        except ObjectNotFoundError as error:
            archived = self._find_archived(storage, instant)
            if archived is not None:
                return archived
            problem = f"{path} is gone since the timeline was listed: it was rolled back"
            raise TimelineError(instant.requested_at, f"{problem}; read the table again") from error

    def _find_archived(self, storage: Storage, instant: Instant) -> CommitMetadata | None:
        """Return the metadata of a commit that was archived after the listing."""
        from bucketlake.timeline.archive_reader import archived_commit, find_archived

        at, action = instant.requested_at, instant.action.value
        found = find_archived(storage, self.history_folder, at, action)
        return None if found is None else archived_commit(found)


def planned_slices(storage: Storage, timeline: Timeline) -> list[FileSlice]:
    """Return the slices that pending compactions and clusterings rewrite.

    Raises
    ------
    FormatError, UnsupportedFeatureError
        If a plan cannot be read.
    """
    slices: list[FileSlice] = []
    for pending in timeline.pending_compactions():
        with suppress(ObjectNotFoundError):  # It was withdrawn since the listing.
            slices += timeline.read_compaction_plan(storage, pending)
    for pending in timeline.pending_clusterings():
        with suppress(ObjectNotFoundError):
            slices += timeline.read_clustering_plan(storage, pending).slices
    return slices


def planned_paths(storage: Storage, timeline: Timeline) -> set[str]:
    """Return the paths of the files of these slices."""
    return {path for held in planned_slices(storage, timeline) for path in held.paths}


def create_timeline(table: OpenTable) -> None:
    """Create the folders of a timeline, before the table exists.

    Hudi cannot read a table without a timeline folder, and in an object store a folder exists only
    while it holds an object. In the history folder Hudi ignores names that are not its own.
    """
    table.storage.put(f"{table.config.history_folder}/{KEPT_FOLDER_FILE}", b"")


def load_timeline(table: OpenTable) -> Timeline:
    """List the active timeline of a table.

    Names that are no instants are ignored: the folder of the old layout also holds other files, and
    both layouts may hold temporary files.
    """
    storage, folder = table.storage, table.config.timeline_folder
    while True:
        listed = storage.list_briefly(folder)
        timeline = _of_listing(table, listed)
        if timeline is None:
            listed = names_and_times(storage.list(folder, recursive=False))
            timeline = _of_listing(table, listed)
            assert timeline is not None, "this listing tells all times"
        if len(listed) < _LISTED_AT_ONCE or _still_begins(storage, timeline):
            return timeline if timeline.layout.names_clusterings else _named_anew(table, timeline)


def _still_begins(storage: Storage, timeline: Timeline) -> bool:
    """Return whether the first instant of the timeline still exists after the listing.

    A long listing comes in pieces, and an archival may run meanwhile. Then the listing may show the
    first instant but not later ones, which would look as if they never completed. An archival
    deletes the oldest instants first, so it is enough to check the first one.
    """
    first = timeline.find(timeline.start) if timeline.start is not None else None
    return first is None or storage.stat(timeline.path_of(first)) is not None


def _named_anew(table: OpenTable, timeline: Timeline) -> Timeline:
    """Return the timeline with pending clusterings that are named as replace commits.

    Only the requested file tells a clustering from an overwrite.
    """

    def named(instant: Instant) -> Instant:
        if instant.action is not Action.REPLACE_COMMIT or instant.state is State.COMPLETED:
            return instant
        path = timeline.path_of(replace(instant, state=State.REQUESTED))
        try:
            is_clustering = has_clustering_plan(table.storage.read(path), path)
        except ObjectNotFoundError:  # It ended since the listing.
            is_clustering = False
        return replace(instant, action=Action.CLUSTERING) if is_clustering else instant

    return replace(timeline, instants=tuple(map(named, timeline.instants)))


class _Named(NamedTuple):
    """An instant, and its sort key without the state."""

    instant: Instant
    place: tuple[str, str]


@lru_cache(maxsize=2**13)  # A commit lists its timelines several times.
def _named(file_name: str, layout: TimelineLayout) -> _Named | None:
    instant = Instant.from_file_name(file_name, layout)
    return None if instant is None else _Named(instant, instant.order[:2])


def _of_listing(table: OpenTable, listed: Mapping[str, int | None]) -> Timeline | None:
    """Return the timeline of some file names; None if a file was deleted before it told its time.

    Few files must tell when they were written: those of the newest completed instant, and those of
    instants of before an upgrade.
    """
    config, layout = table.config, table.config.layout
    highest: dict[tuple[str, str], Instant] = {}
    for file_name in listed:
        named = _named(file_name, layout)
        if named is not None:
            known = highest.get(named.place)
            if known is None or known.state < named.instant.state:
                highest[named.place] = named.instant
    instants = tuple(highest[place] for place in sorted(highest))
    legacy: dict[InstantTime, InstantTime] = {}
    for instant in instants:
        if instant.state is State.COMPLETED and instant.completed_at is None:
            at_ms = _written_ms(table, listed, instant.to_file_name(layout))
            if at_ms is None:
                return None
            legacy[instant.requested_at] = instant_from_ms(at_ms, config.timeline_timezone)
    newest = max((i.completed_at for i in instants if i.completed_at), default=None)
    first_ms: int | None = None  # When the first file with the newest time was written.
    for file_name in () if newest is None else _names_with(newest, listed, layout):
        at_ms = _written_ms(table, listed, file_name)
        if at_ms is None:
            return None
        first_ms = at_ms if first_ms is None else min(first_ms, at_ms)
    return Timeline(
        instants=instants,
        folder=config.timeline_folder,
        layout=layout,
        start=_start(table, instants),
        history_folder=config.history_folder,
        legacy_completions=legacy,
        newest_written_ms=None if first_ms is None else _own_time(table, first_ms),
    )


def _written_ms(table: OpenTable, listed: Mapping[str, int | None], file_name: str) -> int | None:
    """Return when a file of the timeline was written; None if it was deleted since the listing."""
    at_ms = listed[file_name]
    if at_ms is None:
        stored = table.storage.stat(f"{table.config.timeline_folder}/{file_name}")
        at_ms = None if stored is None else stored.modified_at_ms
    return at_ms


def _names_with(time: InstantTime, names: Iterable[str], layout: TimelineLayout) -> Iterator[str]:
    """Yield the names of instants that were requested or completed at a time."""
    for file_name in [name for name in names if time in name]:
        named = _named(file_name, layout)
        if named and time in (named.instant.requested_at, named.instant.completed_at):
            yield file_name


def _own_time(table: OpenTable, written_ms: int) -> int | None:
    """Return when a file was written; None if a change of version wrote it again."""
    moved_ms = table.config.timeline_moved_ms
    is_moved = moved_ms is not None and written_ms <= moved_ms + _STORAGE_AHEAD_MS_MAX
    return None if is_moved else written_ms


def _tells_schema(metadata: CommitMetadata) -> bool:
    return changes_rows(metadata) and metadata.schema_json is not None


def _tells_archived_schema(entry: ArchivedInstant) -> bool:
    from bucketlake.timeline.archive_reader import archived_commit

    commit = archived_commit(entry)
    return commit is not None and _tells_schema(commit)


def _start(table: OpenTable, instants: Sequence[Instant]) -> InstantTime | None:
    """Return the first time of the active timeline."""
    writes = sorted(
        (write for write in instants if write.action.writes_data),
        key=lambda write: write.requested_at,
    )
    if not writes:
        return None
    is_begun = any(write.state is State.COMPLETED for write in writes)
    if writes[0].state is State.COMPLETED or not is_begun:
        return writes[0].requested_at
    from bucketlake.timeline.archive_reader import commits_archived_after

    # An archival leaves a commit before each pending write that it sees. If there is no such
    # commit, the write came too late: it has no file yet, and ``create_requested`` rejects it.
    active = {write.requested_at for write in writes}
    return next(
        write.requested_at
        for write in writes
        if write.state is State.COMPLETED
        or commits_archived_after(table.storage, table.config.history_folder, write.requested_at)
        <= active
    )


# ---- The data files that commits of the active timeline wrote, by their write statistics ---------
#
# A read or write of a table without a metadata table compares them with the files that it lists. So
# this module reads the metadata of each commit once per process: the file of a completed instant
# never changes, and since table version 8 its name has the completion time, which no other instant
# has. Before that, the metadata is read again for each timeline.

WrittenFiles: TypeAlias = Mapping[str, Mapping[str, DataFile]]
"""Files by partition path and by path."""

_FILES_MAX = 200_000  # About 60 MB.


_Key: TypeAlias = tuple[str, InstantTime, InstantTime]  # Root, requested time, completion time.
_KNOWN: NewestValues[_Key, WrittenFiles] = NewestValues(
    _FILES_MAX, lambda files: sum(map(len, files.values()))
)
"""The files of the commits that this process read last."""


def written_files(
    storage: Storage, timeline: Timeline
) -> Iterator[tuple[InstantTime, WrittenFiles]]:
    """Yield the completed commits of a timeline, oldest first, with the files that they wrote.

    A commit that was rolled back after the timeline was listed is left out.

    Raises
    ------
    FormatError
        If the metadata of a commit cannot be read.
    """
    root, commits = storage.root, timeline.completed_commits()
    keys: list[_Key | None] = [
        None if i.completed_at is None else (root, i.requested_at, i.completed_at) for i in commits
    ]
    found = [None if key is None else _KNOWN.get(key) for key in keys]

    def read(place: int) -> None:
        with suppress(TimelineError):
            files = found[place] = files_of(timeline.read_commit(storage, commits[place]))
            key = keys[place]
            if key is not None:
                _KNOWN.put(key, files)

    at_once(storage, read, [i for i, files in enumerate(found) if files is None])
    for commit, files in zip(commits, found, strict=True):
        if files is not None:
            yield commit.requested_at, files


def files_of(commit: CommitMetadata) -> WrittenFiles:
    """Return the base and log files that a commit wrote."""
    return {
        partition: held
        for partition, stats in commit.write_stats.items()
        if (held := _files_in(partition, [stat.path for stat in stats]))
    }


def _files_in(partition: str, paths: Sequence[str]) -> dict[str, DataFile]:
    named = ((path, path.rpartition("/")[2]) for path in paths)
    files = ((path, DataFile.of_name(partition, name, 0)) for path, name in named)
    return {path: file for path, file in files if file is not None}
