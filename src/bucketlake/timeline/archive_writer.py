"""Moving instants from the active timeline to the archive, in Hudi's form.

In timeline layout 1 ``timeline/archive_log_writer.py`` adds a file to the archive. In layout 2 the
writer here puts a Parquet file with the instants, then a manifest that names it, then the version
file. Then, in both layouts, the instants are deleted from the active timeline, completed files
last. So an instant is always in at least one timeline. If it is in both, the next archival deletes
the active one.

Manifests are put if absent, each with the next number. If several writers change the archive at
once, one wins, and the others read the table again. A number can also keep an instant active:
:func:`keep_active` takes the next number, so every archival that was planned before fails. No file
is overwritten, because another writer may be about to publish a file with the same name.

Hudi's archival does not use these numbers. Only the table lock protects from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from bucketlake.errors import AlreadyExistsError, FormatError, ObjectNotFoundError
from bucketlake.format.archive_file import (
    ArchivedInstant,
    ArchiveFile,
    decode_archive_file,
    encode_archive_file,
    encode_manifest,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_files import (
    VERSION_FILE,
    Manifest,
    manifest_numbers,
    manifest_path,
    newest_manifest,
    read_archive_file,
    read_manifest,
)
from bucketlake.timeline.archive_log_writer import (
    KEEPING,
    claim_log,
    encode_files,
    last_log_number,
)
from bucketlake.timeline.archive_reader import archived_completion_times, read_archive
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.open_table import OpenTable

MERGED_FILES = 10
"""Number of files of a layer that are merged into one file of the next layer."""

MANIFESTS_KEPT = 3
_MERGED_BYTES_MAX = 2**30

_REPLACING = {Action.REPLACE_COMMIT, Action.CLUSTERING}
_PLANS = {
    State.REQUESTED: {Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION} | _REPLACING,
    State.INFLIGHT: _REPLACING,
}

Place = tuple[InstantTime, str]
"""Requested time and action of a completed instant, which identify it in both timelines."""

InstantFiles = Mapping[Place, Sequence[tuple[Instant, StoredObject]]]
"""The files of active instants, sorted by state."""


@dataclass(frozen=True, slots=True)
class EncodedInstants:
    """Instants as a file of the archive.

    Attributes
    ----------
    first, last : InstantTime
        Requested times of the first and the last instant.
    data : bytes
        The file.
    """

    first: InstantTime
    last: InstantTime
    data: bytes


class Appended(Enum):
    """The result of adding a file to the archive."""

    DONE = "done"
    OVERTAKEN = "overtaken"  # Another writer changed the archive meanwhile; read the table again.
    NAME_TAKEN = "name taken"  # A file with other instants has the name; archive fewer instants.


def instant_files(table: OpenTable) -> InstantFiles:
    """Return the files of the active timeline, grouped by instant."""
    found: dict[Place, list[tuple[Instant, StoredObject]]] = defaultdict(list)
    for stored in table.storage.list(table.config.timeline_folder, recursive=False):
        name = stored.path.rpartition("/")[2]
        instant = Instant.from_file_name(name, table.config.layout)
        if instant is not None:
            place = instant.requested_at, instant.action.completes_as.value
            found[place].append((instant, stored))
    for files in found.values():
        # Hudi may leave two completed files of one clean; the later one counts.
        files.sort(key=lambda pair: (pair[0].state, pair[0].completed_at or ""))
    return found


def newest_state(table: OpenTable) -> Manifest:
    """Return the state of the archive that :func:`append` follows.

    A caller that plans an archival loads the timeline afterwards. In layout 1 the state is only a
    number.
    """
    if not table.config.layout.has_tree_archive:
        return Manifest(last_log_number(table))
    return newest_manifest(table.storage, table.config.history_folder)


def encode_instants(
    table: OpenTable,
    files: InstantFiles,
    instants: Sequence[Instant],
    completion_times: Mapping[InstantTime, InstantTime],
) -> EncodedInstants:
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
        data = encode_archive_file([*entries])
    else:
        data = encode_files(table, held)
    return EncodedInstants(instants[0].requested_at, instants[-1].requested_at, data)


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


def append(table: OpenTable, manifest: Manifest, encoded: EncodedInstants) -> Appended:
    """Add instants to the archive, following a state of it.

    Parameters
    ----------
    table : OpenTable
    manifest : Manifest
        From :func:`newest_state`, before the instants were chosen.
    encoded : EncodedInstants
        The instants.
    """
    if not table.config.layout.has_tree_archive:
        is_added = claim_log(table, manifest.number + 1, encoded.data)
        return Appended.DONE if is_added else Appended.OVERTAKEN
    folder = table.config.history_folder
    name = ArchiveFile.name_of(encoded.first, encoded.last, 0)
    file = _put_file(table.storage, folder, name, encoded.data)
    if file is None:
        return Appended.NAME_TAKEN
    following = Manifest(manifest.number + 1, (*manifest.files, file))
    return (
        Appended.DONE if _publish_manifest(table.storage, folder, following) else Appended.OVERTAKEN
    )


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
    try:
        storage.put_if_absent(path, content)
    except AlreadyExistsError:
        try:
            is_same = (
                storage.read(path) == content
            )  # Our own put without response, or an equal one.
        except ObjectNotFoundError:
            is_same = False
        if not is_same:
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
