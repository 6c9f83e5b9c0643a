"""Moving instants from the active timeline to the archive, in Hudi's form.

First a Parquet file of the instants, then a manifest that names it, then the version file; only
then do the instants leave the active timeline, completed files last. So an instant is at every
moment in one of the two timelines or in both, and whoever finds it in both takes it off the active
one.

Manifests are put if absent, each with the next number. Of several that change the archive one wins,
and the others look at the table again. So a number is also a way to say "not this instant":
:func:`keep_active` takes the next one, and every archival that was planned before it fails. No file
is written twice, since a name may be taken by somebody who is yet to be heard of.

Hudi's archivals know nothing of this. Beside one of them only the table lock protects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import AlreadyExistsError, FormatError, ObjectNotFoundError
from bucketlake.format.archive_file import (
    ArchivedInstant,
    ArchiveFile,
    decode_archive_file,
    encode_archive_file,
    encode_manifest,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.archive_reader import (
    VERSION_FILE,
    Manifest,
    archived_completion_times,
    manifest_numbers,
    manifest_path,
    newest_manifest,
    read_archive,
    read_archive_file,
    read_manifest,
)
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.markers import delete_markers

MERGED_FILES = 10
"""Files of one layer that are merged into one of the next."""

MANIFESTS_KEPT = 3
_MERGED_BYTES_MAX = 2**30

_REPLACING = {Action.REPLACE_COMMIT, Action.CLUSTERING}
_PLANS = {
    State.REQUESTED: {Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION} | _REPLACING,
    State.INFLIGHT: _REPLACING,
}

Place = tuple[InstantTime, str]
"""Requested time and action of a completed instant, which tell it apart in both timelines."""

InstantFiles = Mapping[Place, Sequence[tuple[Instant, str]]]
"""The files of instants in the active timeline, in order of their state."""


class Appended(Enum):
    """What became of a file of instants."""

    DONE = "done"
    OVERTAKEN = "overtaken"  # The archive was changed meanwhile; look at the table again.
    NAME_TAKEN = "name taken"  # By a file with other instants; archive fewer.


def instant_files(storage: Storage, config: TableConfig) -> InstantFiles:
    """List the files of the active timeline by instant."""
    found: dict[Place, list[tuple[Instant, str]]] = defaultdict(list)
    for stored in storage.list(config.timeline_folder, recursive=False):
        instant = Instant.from_file_name(stored.path.rpartition("/")[2])
        if instant is not None:
            place = instant.requested_at, instant.action.completes_as.value
            found[place].append((instant, stored.path))
    for files in found.values():
        # Of two completed files of one clean, which Hudi may leave, the later one counts.
        files.sort(key=lambda one: (one[0].state, one[0].completed_at or ""))
    return found


def read_entries(
    storage: Storage,
    files: InstantFiles,
    instants: Iterable[Instant],
    completion_times: Mapping[InstantTime, InstantTime],
) -> list[ArchivedInstant]:
    """Read completed instants as the archive keeps them.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    files : mapping
        From :func:`instant_files`.
    instants : iterable of Instant
        Which ones, in order.
    completion_times : mapping of InstantTime to InstantTime
        Of those whose file names tell none.

    Raises
    ------
    ObjectNotFoundError
        If one of them left the active timeline meanwhile.
    """
    entries = []
    for one in instants:
        held = files.get((one.requested_at, one.action.value), ())
        entries.append(
            ArchivedInstant(
                one.requested_at,
                one.completed_at or completion_times[one.requested_at],
                one.action.value,
                _completed_content(storage, one, held),
                _plan_content(storage, held),
            )
        )
    return entries


def append(
    storage: Storage,
    config: TableConfig,
    manifest: Manifest,
    entries: Sequence[ArchivedInstant],
) -> Appended:
    """Add instants to the archive as it was in a manifest.

    Parameters
    ----------
    storage, config
        The table.
    manifest : Manifest
        The newest one, from before the instants were chosen.
    entries : sequence of ArchivedInstant
        The instants, in order.
    """
    folder = config.history_folder
    name = ArchiveFile.name_of(entries[0].requested_at, entries[-1].requested_at, 0)
    file = _put_file(storage, folder, name, entries)
    if file is None:
        return Appended.NAME_TAKEN
    following = Manifest(manifest.number + 1, (*manifest.files, file))
    return Appended.DONE if _publish_manifest(storage, folder, following) else Appended.OVERTAKEN


def remove_archived(storage: Storage, config: TableConfig) -> None:
    """Take off the active timeline what is in the archive.

    Markers and heartbeats that were left go with it. The end of an archival, and of one that died.

    A write may have come with a time before that of a commit that is in the archive by now. Then
    the commits after it stay until it has ended, and the last one before it: readers take whatever
    is older than the first write that they find for committed, and Hudi's find no pending one.
    """
    files = instant_files(storage, config)
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
        for entry in read_archive(storage, config, since=min(completed)[0], with_metadata=False)
    }
    gone = sorted(place for place in completed if _holds(files[place], archived.get(place)))
    for state in (State.REQUESTED, State.INFLIGHT):
        for place in gone:
            _delete(storage, files[place], state)
    for place in gone:
        delete_markers(storage, place[0])
        delete_heartbeat(storage, place[0])
        _delete(storage, files[place], State.COMPLETED)


def _kept_from(files: InstantFiles) -> str:
    """Return the time of the first instant that stays because a write is pending."""
    newest = [held[-1][0] for held in files.values() if held[-1][0].action.writes_data]
    pending = [one.requested_at for one in newest if one.state is not State.COMPLETED]
    if not pending:
        return "~"  # After all digits.
    before = [one.requested_at for one in newest if one.requested_at < min(pending)]
    return max(before, default=min(pending))


def keep_active(storage: Storage, config: TableConfig, instant: InstantTime) -> bool:
    """Keep an instant out of the archive from now on, until the caller has ended its work.

    Every archival that was planned before fails. One that is planned later sees what the caller
    put on the timeline before it asked, and has to respect it.

    Returns
    -------
    bool
        False where the instant is in the archive already.
    """
    while True:
        manifest = newest_manifest(storage, config.history_folder)
        if archived_completion_times(storage, config, since=instant, until=instant):
            return False
        following = Manifest(manifest.number + 1, manifest.files)
        if _publish_manifest(storage, config.history_folder, following):
            _drop_old(storage, config.history_folder)
            return True


def merge_files(storage: Storage, config: TableConfig) -> None:
    """Merge the files of each layer that has too many, and drop what no recent manifest names."""
    folder = config.history_folder
    layer = 0
    while _merge_layer(storage, folder, layer):
        layer += 1
    _drop_old(storage, folder)


def _completed_content(
    storage: Storage, instant: Instant, held: Sequence[tuple[Instant, str]]
) -> bytes | None:
    for one, path in held:
        if one == instant:
            return storage.read(path) or None
    raise ObjectNotFoundError(instant.requested_at, "archive", "it left the active timeline")


def _plan_content(storage: Storage, held: Sequence[tuple[Instant, str]]) -> bytes | None:
    """Return the plan of an instant, as Hudi chooses it."""
    content = {
        one.state: storage.read(path)
        for one, path in held
        if one.action in _PLANS.get(one.state, ())
    }
    return content.get(State.INFLIGHT) or content.get(State.REQUESTED) or None


def _put_file(
    storage: Storage, folder: str, name: str, entries: Sequence[ArchivedInstant]
) -> ArchiveFile | None:
    """Put a file of instants, or find it there; None where another one has its name."""
    path, data = f"{folder}/{name}", encode_archive_file(entries)
    try:
        storage.put_if_absent(path, data)
    except AlreadyExistsError:
        # Of an archival that died before it was published, perhaps by a release that packs it
        # otherwise, or of one that is about to publish it.
        try:
            data = storage.read(path)
            is_same = decode_archive_file(data, path) == list(entries)
        except (FormatError, ObjectNotFoundError):
            is_same = False
        if not is_same:
            return None
    return ArchiveFile(name, len(data))


def _publish_manifest(storage: Storage, folder: str, manifest: Manifest) -> bool:
    """Put a manifest; False where it is not the newest one then.

    Who slept meanwhile may find its number free again, and is overtaken all the same.
    """
    path, content = manifest_path(folder, manifest.number), encode_manifest(manifest.files)
    try:
        storage.put_if_absent(path, content)
    except AlreadyExistsError:
        try:
            is_same = storage.read(path) == content  # A lost put of ours; or one that did the same.
        except ObjectNotFoundError:
            is_same = False
        if not is_same:
            return False
    return _write_version(storage, folder) == manifest.number


def _write_version(storage: Storage, folder: str) -> int:
    """Name the greatest manifest, and one that came meanwhile after it; return its number."""
    named = 0
    while (greatest := max(manifest_numbers(storage, folder), default=0)) > named:
        storage.put(f"{folder}/{VERSION_FILE}", str(greatest).encode())
        named = greatest
    return named


def _holds(files: Sequence[tuple[Instant, str]], completed_at: InstantTime | None) -> bool:
    """Tell whether an instant is the archived one; a name of before version 8 tells no time."""
    return completed_at is not None and any(
        one.state is State.COMPLETED and one.completed_at in (None, completed_at)
        for one, _ in files
    )


def _delete(storage: Storage, files: Sequence[tuple[Instant, str]], state: State) -> None:
    for one, path in files:
        if one.state is state:
            storage.delete(path)


def _merge_layer(storage: Storage, folder: str, layer: int) -> bool:
    """Merge the oldest files of a layer if it has too many; tell whether it was done."""
    manifest = newest_manifest(storage, folder)
    files = sorted((f for f in manifest.files if f.layer == layer), key=lambda one: one.name)
    merged = _fitting(files) if len(files) >= MERGED_FILES else []
    if len(merged) < 2:
        return False
    entries = {
        entry.order: entry for file in merged for entry in read_archive_file(storage, folder, file)
    }
    first, last = min(one.first for one in merged), max(one.last for one in merged)
    name = ArchiveFile.name_of(first, last, layer + 1)
    file = _put_file(storage, folder, name, [entries[order] for order in sorted(entries)])
    if file is None:
        return False
    kept = [one for one in manifest.files if one not in merged]
    return _publish_manifest(storage, folder, Manifest(manifest.number + 1, (*kept, file)))


def _fitting(files: Sequence[ArchiveFile]) -> list[ArchiveFile]:
    """Return the oldest neighbours that make a file of a bounded size."""
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
    """Drop all but the newest manifests, and before them the files that only they name."""
    numbers = sorted(manifest_numbers(storage, folder))
    old, recent = numbers[:-MANIFESTS_KEPT], numbers[-MANIFESTS_KEPT:]
    if not old:
        return
    with suppress(ObjectNotFoundError):  # Somebody else drops them.
        kept = {name for number in recent for name in _names(storage, folder, number)}
        for number in old:
            for name in _names(storage, folder, number) - kept:
                storage.delete(f"{folder}/{name}")
            storage.delete(manifest_path(folder, number))


def _names(storage: Storage, folder: str, number: int) -> set[str]:
    try:
        return {file.name for file in read_manifest(storage, folder, number)}
    except FormatError:  # Of a writer that died.
        return set()
