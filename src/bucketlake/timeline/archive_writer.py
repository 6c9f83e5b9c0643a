"""Moving instants from the active timeline to the archive, in Hudi's form.

In timeline layout 1 a file with the instants is added to the archive. In layout 2 the writer puts a
Parquet file with the instants, then a manifest that names it, then the version file. Then, in both
layouts, the instants are deleted from the active timeline, completed files last. So an instant is
always in at least one timeline. If it is in both, the next archival deletes the active one.

Manifests are put if absent, each with the next number. If several writers change the archive at
once, one wins, and the others read the table again. A number can also keep an instant active:
:func:`keep_active` takes the next number, so every archival that was planned before fails. No file
is overwritten, because another writer may be about to publish a file with the same name.

Which instants are moved is handed in (:func:`move_oldest`): the data table and the metadata table
need others. The active timeline has no gaps, because readers treat everything older than it as
committed; so an instant that is needed stays with all later ones.

Hudi's archival does not use these numbers. Only the table lock protects from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final, TypeAlias

from bucketlake.config.paths_of_table import ARCHIVAL_FOLDER
from bucketlake.errors import AlreadyExistsError, FormatError, ObjectNotFoundError
from bucketlake.format.archive_file import (
    ArchivedInstant,
    ArchivedState,
    ArchiveFile,
    archive_log_name,
    decode_archive_file,
    decode_archive_log,
    encode_archive_file,
    encode_archive_log,
    encode_manifest,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.grouping import grouped
from bucketlake.model.retention import ArchivalLimits
from bucketlake.storage.base import Storage, StoredObject, numbered_objects, put_or_find
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import (
    VERSION_FILE,
    Manifest,
    archived_completion_times,
    log_numbers,
    manifest_numbers,
    manifest_path,
    newest_manifest,
    read_archive,
    read_archive_file,
    read_manifest,
)
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import Action, Instant, State, instant_from_ms
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import old_commits

MERGED_FILES = 10
"""Number of files of a layer that are merged into one file of the next layer."""

MANIFESTS_KEPT = 3
_MERGED_BYTES_MAX = 2**30

_REPLACING = {Action.REPLACE_COMMIT, Action.CLUSTERING}
_PLANS = {
    State.REQUESTED: {Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION} | _REPLACING,
    State.INFLIGHT: _REPLACING,
}

ArchivePlace = tuple[InstantTime, str]
"""Requested time and action of a completed instant, which identify it in both timelines."""

InstantFiles = Mapping[ArchivePlace, Sequence[tuple[Instant, StoredObject]]]
"""The files of active instants, sorted by state."""


Stops: TypeAlias = Iterable[tuple[InstantTime, str]]
"""Instants that stay with all later ones, and why."""


class Appended(Enum):
    """The result of adding a file to the archive."""

    DONE = "done"
    OVERTAKEN = "overtaken"  # Another writer changed the archive meanwhile; read the table again.
    NAME_TAKEN = "name taken"  # A file with other instants has the name; archive fewer instants.


def oldest_instants(
    timeline: Timeline,
    limits: ArchivalLimits,
    most: int | None,
    stops: Callable[[Sequence[Instant]], Stops],
    goes_along: Callable[[Instant], bool],
) -> tuple[tuple[Instant, ...], str | None]:
    """Return the instants to move, and why further ones stay although there are too many.

    Parameters
    ----------
    timeline : Timeline
    limits : ArchivalLimits
        How many commits stay.
    most : int or None
        Greatest number of commits to move.
    stops : callable
        Returns the stops among some commits, the oldest ones.
    goes_along : callable
        Whether an instant that is no commit is moved with the commits around it, as in Hudi.
    """
    commits = timeline.completed_commits()
    over = len(commits) > limits.keep_max
    wanted = len(commits) - limits.keep_min if over else 0
    if most is not None:
        wanted = min(wanted, most)
    if wanted <= 0:
        return (), None
    count = wanted
    reason: str | None = None
    for stop, why in stops(commits[:wanted]):
        before = sum(commit.requested_at < stop for commit in commits[:count])
        if before < count:
            count, reason = before, why
    moved = commits[: without_overlap(timeline, commits, count)]
    if len(moved) < count:
        reason = f"instant {commits[len(moved)].requested_at} overlaps with an instant that stays"
    if not moved:
        return (), reason
    along = [
        instant
        for instant in timeline.completed()
        if goes_along(instant) and instant.requested_at < moved[-1].requested_at
    ]
    return tuple(sorted([*moved, *along], key=lambda instant: instant.order)), reason


def move_oldest(
    table: OpenTable,
    choose: Callable[[int | None], tuple[Timeline, Sequence[Instant]]],
    require_held: LockCheck,
) -> None:
    """Move instants to the archive, and drop what only they needed; the caller holds the lock.

    Parameters
    ----------
    table : OpenTable
    choose : callable
        Loads the timeline, and returns it with the instants to move; gets the greatest number of
        commits to move, if there is one. It is called again if another archival was faster.
    require_held : callable
        Raises if the lock of the table is lost.
    """
    most: int | None = None
    appended: Appended | None = None
    while appended is not Appended.DONE:
        manifest = newest_state(table)
        remove_archived(table)  # Finishes an archival that died or was faster.
        # Loaded after the manifest: a change that affects the choice also changes the manifest.
        timeline, instants = choose(most)
        if not instants:
            break
        with suppress(ObjectNotFoundError):  # Another archival was faster.
            files = instant_files(table)
            data = encode_instants(table, files, instants, timeline.legacy_completions)
            require_held()
            appended = append(table, manifest, instants, data)
            if appended is Appended.NAME_TAKEN:
                most = sum(instant.action.writes_data for instant in instants) - 1
    else:
        remove_archived(table)
    start = load_timeline(table).start
    if start is not None:
        for path in [*old_commits(table.storage, start)]:
            table.storage.delete(path)
    merge_files(table)


def instant_files(table: OpenTable) -> InstantFiles:
    """Return the files of the active timeline, grouped by instant."""
    listed = table.storage.list(table.config.timeline_folder, recursive=False)
    named = ((Instant.from_file_name(own.name, table.config.layout), own) for own in listed)
    found = grouped(
        ((instant.requested_at, instant.action.completes_as.value), (instant, stored))
        for instant, stored in named
        if instant is not None
    )
    for files in found.values():
        # Hudi may leave two completed files of one clean; the later one counts.
        files.sort(key=lambda pair: (pair[0].state, pair[0].completed_at or ""))
    return found


def newest_state(table: OpenTable) -> Manifest:
    """Return the state of the archive that :func:`append` follows.

    A caller that plans an archival loads the timeline afterwards. In layout 1 the state is only the
    last number of a log file or claim, after the log file of the last claim is put.
    """
    if table.config.layout.has_tree_archive:
        return newest_manifest(table.storage, table.config.history_folder)
    claims = _claims(table.storage)
    if claims:
        _carry_out(table, max(claims))
    return Manifest(max([*claims, _last_log(table)]))


def encode_instants(
    table: OpenTable,
    files: InstantFiles,
    instants: Sequence[Instant],
    completion_times: Mapping[InstantTime, InstantTime],
) -> bytes:
    """Read completed instants and encode them as a file of the archive.

    Parameters
    ----------
    table : OpenTable
    files : mapping
        From :func:`instant_files`.
    instants : sequence of Instant
        The instants, in order.
    completion_times : mapping of InstantTime to InstantTime
        Completion times of instants without one in their file names.

    Raises
    ------
    ObjectNotFoundError
        If an instant left the active timeline meanwhile.
    """
    held = [files.get((instant.requested_at, instant.action.value), ()) for instant in instants]
    for instant, of_instant in zip(instants, held, strict=True):
        if all(found != instant for found, _ in of_instant):
            gone = "it left the active timeline"
            raise ObjectNotFoundError(instant.requested_at, "archive", gone)
    if table.config.layout.has_tree_archive:
        entries = (
            _entry(table.storage, instant, of_instant, completion_times)
            for instant, of_instant in zip(instants, held, strict=True)
        )
        return encode_archive_file([*entries])
    zone = table.config.timeline_timezone
    states = [
        ArchivedState(
            instant.requested_at,
            instant.action.value,
            instant.state.name,
            instant_from_ms(stored.modified_at_ms, zone),
            table.storage.read(stored.path),
        )
        for files_of_one in held
        for instant, stored in files_of_one
    ]
    return encode_archive_log(states)


def without_overlap(timeline: Timeline, commits: Sequence[Instant], count: int) -> int:
    """Return how many of the first commits completed before the first other one was requested.

    Only these are archived. So an incremental read can see from the active timeline whether it also
    needs the archive.

    Parameters
    ----------
    timeline : Timeline
        The timeline.
    commits : sequence of Instant
        All its completed commits.
    count : int
        Number of commits to archive at most; fewer than all.
    """
    pending = [instant.requested_at for instant in timeline.pending() if instant.action.writes_data]
    while count:
        first = min([commits[count].requested_at, *pending])
        if all((timeline.completion_time(o.requested_at) or "") < first for o in commits[:count]):
            break
        count -= 1
    return count


def append(
    table: OpenTable, manifest: Manifest, instants: Sequence[Instant], data: bytes
) -> Appended:
    """Add instants to the archive, following a state of it.

    Parameters
    ----------
    table : OpenTable
    manifest : Manifest
        From :func:`newest_state`, before the instants were chosen.
    instants : sequence of Instant
        The instants, in order.
    data : bytes
        They as a file, from :func:`encode_instants`.
    """
    if not table.config.layout.has_tree_archive:
        is_added = claim_log(table, manifest.number + 1, data)
        return Appended.DONE if is_added else Appended.OVERTAKEN
    folder = table.config.history_folder
    name = ArchiveFile.name_of(instants[0].requested_at, instants[-1].requested_at, 0)
    file = _put_file(table.storage, folder, name, data)
    if file is None:
        return Appended.NAME_TAKEN
    following = Manifest(manifest.number + 1, (*manifest.files, file))
    is_added = _publish_manifest(table.storage, folder, following)
    return Appended.DONE if is_added else Appended.OVERTAKEN


def remove_archived(table: OpenTable) -> None:
    """Delete instants from the active timeline that are in the archive.

    This also deletes leftover markers and heartbeats. It finishes an archival, also of a dead
    writer.

    A pending write may have a time before that of an archived commit. Then the commits after the
    write, and the last commit before it, stay until the write has ended. Otherwise readers would
    treat the write as committed, because it is older than the active timeline.
    """
    files = instant_files(table)
    kept_from = _kept_from(files)
    completed = [
        place
        for place, held in files.items()
        if held[-1][0].state is State.COMPLETED and place[0] < kept_from
    ]
    if not completed:
        return
    archived = {
        entry.order: entry.completed_at
        for entry in read_archive(table, since=min(completed)[0], with_metadata=False)
    }
    gone = sorted(place for place in completed if _holds(files[place], archived.get(place)))
    for state in (State.REQUESTED, State.INFLIGHT):
        for place in gone:
            _delete(table.storage, files[place], state)
    for place in gone:
        delete_markers(table.storage, place[0])
        delete_heartbeat(table.storage, place[0])
        _delete(table.storage, files[place], State.COMPLETED)


def _kept_from(files: InstantFiles) -> str:
    """Return the time of the first instant that stays because of a pending write."""
    newest = [held[-1][0] for held in files.values() if held[-1][0].action.writes_data]
    pending = [instant.requested_at for instant in newest if instant.state is not State.COMPLETED]
    if not pending:
        return "~"  # Greater than all digits.
    before = [instant.requested_at for instant in newest if instant.requested_at < min(pending)]
    return max(before, default=min(pending))


def keep_active(table: OpenTable, instant: InstantTime) -> bool:
    """Keep an instant out of the archive until the caller has ended its work.

    Every archival that was planned before fails. A later archival sees the plan that the caller put
    on the timeline before this call, and must respect it.

    Returns
    -------
    bool
        False if the instant is already archived.
    """
    while True:
        manifest = newest_state(table)
        if archived_completion_times(table, since=instant, until=instant):
            return False
        if not table.config.layout.has_tree_archive:
            if claim_log(table, manifest.number + 1, KEEPING):
                return True
            continue
        following = Manifest(manifest.number + 1, manifest.files)
        if _publish_manifest(table.storage, table.config.history_folder, following):
            _drop_old(table.storage, table.config.history_folder)
            return True


def merge_files(table: OpenTable) -> None:
    """Merge files of layers with too many files; delete files that no recent manifest names.

    Log files of layout 1 are not merged; Hudi 1 does not either.
    """
    if not table.config.layout.has_tree_archive:
        return
    folder = table.config.history_folder
    layer = 0
    while _merge_layer(table.storage, folder, layer):
        layer += 1
    _drop_old(table.storage, folder)


def _entry(
    storage: Storage,
    instant: Instant,
    held: Sequence[tuple[Instant, StoredObject]],
    completion_times: Mapping[InstantTime, InstantTime],
) -> ArchivedInstant:
    path = next(stored.path for found, stored in held if found == instant)
    return ArchivedInstant(
        instant.requested_at,
        instant.completed_at or completion_times[instant.requested_at],
        instant.action.value,
        storage.read(path) or None,
        _plan_content(storage, held),
    )


def _plan_content(storage: Storage, held: Sequence[tuple[Instant, StoredObject]]) -> bytes | None:
    """Return the content of the file that Hudi archives as the plan of an instant."""
    content = {
        found.state: storage.read(stored.path)
        for found, stored in held
        if found.action in _PLANS.get(found.state, ())
    }
    return content.get(State.INFLIGHT) or content.get(State.REQUESTED) or None


def _put_file(storage: Storage, folder: str, name: str, data: bytes) -> ArchiveFile | None:
    """Put a file with instants unless the same file exists; None if another file has its name."""
    path = f"{folder}/{name}"
    try:
        storage.put_if_absent(path, data)
    except AlreadyExistsError:
        # The file comes from an archival that died before its manifest, perhaps of another release
        # with other compression, or from an archival that is about to publish it.
        try:
            entries, data = decode_archive_file(data, path), storage.read(path)
            is_same = decode_archive_file(data, path) == entries
        except (FormatError, ObjectNotFoundError):
            is_same = False
        if not is_same:
            return None
    return ArchiveFile(name, len(data))


def _publish_manifest(storage: Storage, folder: str, manifest: Manifest) -> bool:
    """Put a manifest; return whether it is then the newest one.

    A writer that slept may find its number free again; a newer manifest then exists.
    """
    path, content = manifest_path(folder, manifest.number), encode_manifest(manifest.files)
    if not put_or_find(storage, path, content):
        return False
    return _write_version(storage, folder) == manifest.number


def _write_version(storage: Storage, folder: str) -> int:
    """Write the greatest manifest number to the version file, until none is newer; return it."""
    named = 0
    while (greatest := max(manifest_numbers(storage, folder), default=0)) > named:
        storage.put(f"{folder}/{VERSION_FILE}", str(greatest).encode())
        named = greatest
    return named


def _holds(files: Sequence[tuple[Instant, StoredObject]], completed_at: InstantTime | None) -> bool:
    """Return whether an instant is the archived one; old names contain no completion time."""
    return completed_at is not None and any(
        found.state is State.COMPLETED and found.completed_at in (None, completed_at)
        for found, _ in files
    )


def _delete(storage: Storage, files: Sequence[tuple[Instant, StoredObject]], state: State) -> None:
    for found, stored in files:
        if found.state is state:
            storage.delete(stored.path)


def _merge_layer(storage: Storage, folder: str, layer: int) -> bool:
    """Merge the oldest files of a layer if it has too many; return whether files were merged."""
    manifest = newest_manifest(storage, folder)
    files = sorted((f for f in manifest.files if f.layer == layer), key=lambda file: file.name)
    merged = _fitting(files) if len(files) >= MERGED_FILES else []
    if len(merged) < 2:
        return False
    entries = {
        entry.order: entry for file in merged for entry in read_archive_file(storage, folder, file)
    }
    first, last = min(file.first for file in merged), max(file.last for file in merged)
    name = ArchiveFile.name_of(first, last, layer + 1)
    data = encode_archive_file([entries[order] for order in sorted(entries)])
    file = _put_file(storage, folder, name, data)
    if file is None:
        return False
    kept = [file for file in manifest.files if file not in merged]
    return _publish_manifest(storage, folder, Manifest(manifest.number + 1, (*kept, file)))


def _fitting(files: Sequence[ArchiveFile]) -> list[ArchiveFile]:
    """Return the oldest adjacent files that fit into one file of limited size."""
    chosen: list[ArchiveFile] = []
    left = _MERGED_BYTES_MAX
    for file in files:
        if file.size_bytes > left:
            if len(chosen) > 1:
                break
            chosen, left = [], _MERGED_BYTES_MAX
            if file.size_bytes > left:
                continue
        chosen.append(file)
        left -= file.size_bytes
        if len(chosen) == MERGED_FILES:
            break
    return chosen


def _drop_old(storage: Storage, folder: str) -> None:
    """Delete all but the newest manifests; first delete the files that only old ones name."""
    numbers = sorted(manifest_numbers(storage, folder))
    old, recent = numbers[:-MANIFESTS_KEPT], numbers[-MANIFESTS_KEPT:]
    if not old:
        return
    with suppress(ObjectNotFoundError):  # Another writer deletes them at the same time.
        kept = {name for number in recent for name in _names(storage, folder, number)}
        for number in old:
            for name in _names(storage, folder, number) - kept:
                storage.delete(f"{folder}/{name}")
            storage.delete(manifest_path(folder, number))


def _names(storage: Storage, folder: str, number: int) -> set[str]:
    try:
        return {file.name for file in read_manifest(storage, folder, number)}
    except FormatError:  # An incomplete manifest of a dead writer.
        return set()


# ---- Adding log files to an archive of timeline layout 1, also if several processes do it at once
#
# An archival first claims the next number: it puts an object with the content of the log file, if
# absent, into bucketlake's own folder. The claim decides that the instants are archived. Then the
# log file of that number is put, by the archival, or if it died, by whoever wants the next number.
# So an archive has no file that was not claimed, and no instant twice. A claim without content
# keeps instants active: every archival that was planned before finds its number taken.
#
# Why claims: a log file counts as soon as it exists. Hudi stops reading an archive at a file that
# has nothing new, so neither an empty file nor one that repeats instants could take a number.
#
# Hudi's archival takes the number after the greatest log file, without a claim. Only the table lock
# protects from it. If it took a claimed number, the claim is void and its instants stay active.

KEEPING: Final = b""
"""Content of a claim that archives nothing."""

_CLAIMS_KEPT = 3  # The newest one is needed; a slow archival may look for its own.


def claim_log(table: OpenTable, number: int, content: bytes) -> bool:
    """Claim a number, and put its log file unless the content is ``KEEPING``.

    Returns
    -------
    bool
        False if another writer changed the archive since :func:`newest_state`.
    """
    storage, path = table.storage, _claim_path(number)
    if not put_or_find(storage, path, content):
        return False
    # A writer that slept may find its number free again; there is a greater number then.
    if max(*_claims(storage), _last_log(table), number) > number:
        return False
    is_put = _carry_out(table, number)
    for old in sorted(_claims(storage))[:-_CLAIMS_KEPT]:
        storage.delete(_claim_path(old))
    return is_put


def _carry_out(table: OpenTable, number: int) -> bool:
    """Put the log file of the last claim; return False if a file of Hudi has its number.

    Raises
    ------
    FormatError
        If the claim is damaged.
    """
    storage = table.storage
    with suppress(ObjectNotFoundError):
        content = storage.read(_claim_path(number))
        decode_archive_log(content, _claim_path(number), ())  # Raises an error if it is damaged.
        path = f"{table.config.history_folder}/{archive_log_name(number)}"
        if content == KEEPING:
            return True
        if _last_log(table) < number:
            return put_or_find(storage, path, content)
        return storage.read(path) == content
    return False


def _claims(storage: Storage) -> list[int]:
    return numbered_objects(storage, ARCHIVAL_FOLDER)


def _claim_path(number: int) -> str:
    return f"{ARCHIVAL_FOLDER}/{number}"


def _last_log(table: OpenTable) -> int:
    return max(log_numbers(table.storage, table.config.history_folder), default=0)
