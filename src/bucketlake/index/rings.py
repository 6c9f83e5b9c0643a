"""Hash rings in storage: which version of a partition's ring counts, and its life (RFC-42).

Each partition has a folder of versions, ``<instant>.hashing_meta``. The first version has fourteen
zeros for an instant and follows from the partition and the number of buckets, so that all writers
make the same. A resize or an overwrite writes the next version before it commits. The version
counts once the commit is completed; its ``<instant>.commit`` file tells that to Hudi when the
timeline does not any more.

Hudi looks at base files to decide whether a version counts whose instant is not on the active
timeline. It may then take the version of a rolled-back resize, and writes keys twice. Here the
timeline, the outcome object and the archive decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from bucketlake.config.layout import EXTENSION_FOLDER, HOODIE_FOLDER
from bucketlake.errors import (
    AlreadyExistsError,
    FormatError,
    HashingMetadataError,
    ObjectNotFoundError,
)
from bucketlake.format.checked_json import parse_checked, render_checked
from bucketlake.format.hashing_metadata import (
    HashingMetadata,
    decode_hashing_metadata,
    encode_hashing_metadata,
)
from bucketlake.hashing.ring import ChildNode, initial_ring
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import find_archived
from bucketlake.timeline.instant import Action
from bucketlake.timeline.outcome import is_rolled_back

RINGS_FOLDER = f"{HOODIE_FOLDER}/.bucket_index/consistent_hashing_metadata"
FIRST_VERSION = InstantTime("00000000000000")
_METADATA = ".hashing_meta"
_MARKER = ".commit"
_NOTES_FOLDER = f"{EXTENSION_FOLDER}/rings"
_VERSIONS_KEPT = 2


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of a ring in storage, whether it counts or not.

    Attributes
    ----------
    partition_path : str
        The partition.
    instant : InstantTime
        The commit that brought it; for the first version, fourteen zeros.
    stored : StoredObject
        Its file.
    marker : str or None
        Path of the file that tells Hudi that it counts; None if there is none.
    """

    partition_path: str
    instant: InstantTime
    stored: StoredObject
    marker: str | None = None


def first_version(partition_path: str, initial_count: int) -> HashingMetadata:
    """Return the ring that a partition begins with."""
    ring = initial_ring(partition_path, initial_count)
    return HashingMetadata(partition_path, FIRST_VERSION, initial_count, 0, ring)


def has_rings(storage: Storage) -> bool:
    """Return whether a table has rings, whoever made them."""
    return next(iter(storage.list(RINGS_FOLDER)), None) is not None


def load_ring(storage: Storage, timeline: Timeline, partition_path: str) -> HashingMetadata | None:
    """Return the version of a partition's ring that counts as of a timeline; None without one.

    Raises
    ------
    FormatError, HashingMetadataError
        If it is broken.
    """
    found = find_version(storage, timeline, partition_path)
    return None if found is None else read_ring(storage, partition_path, found[0])


def find_version(
    storage: Storage, timeline: Timeline, partition_path: str
) -> tuple[InstantTime, bool] | None:
    """Return the version that counts, and whether Hudi knows that without the timeline."""
    versions, markers = _listed(storage, partition_path)
    for instant in sorted(versions, reverse=True):
        if _counts(storage, timeline, instant, instant in markers):
            return instant, instant == FIRST_VERSION or instant in markers
    return None


def read_ring(storage: Storage, partition_path: str, instant: InstantTime) -> HashingMetadata:
    """Return one version of a partition's ring."""
    path = metadata_path(partition_path, instant)
    metadata = decode_hashing_metadata(storage.read(path), path)
    if metadata.partition_path != partition_path:
        found = f"the ring of partition {metadata.partition_path!r}"
        raise HashingMetadataError(path, f"the ring of partition {partition_path!r}", found)
    return metadata


def create_ring(storage: Storage, metadata: HashingMetadata) -> bool:
    """Store the first version of a ring; return False if another ring is stored.

    It stays if the write that needs it is rolled back.
    """
    path = metadata_path(metadata.partition_path, metadata.instant)
    with suppress(AlreadyExistsError):
        storage.put_if_absent(path, encode_hashing_metadata(metadata))
        return True
    return decode_hashing_metadata(storage.read(path), path).ring == metadata.ring


def save_rings(
    storage: Storage, instant: InstantTime, versions: Mapping[str, HashingMetadata]
) -> None:
    """Save the versions that a commit brings, before it is decided; repeating it does no harm.

    A note of the partitions comes first, so that a rollback finds the versions.
    """
    if not versions:
        return
    storage.put(_note_path(instant), render_checked({"partitions": sorted(versions)}))

    def save(metadata: HashingMetadata) -> None:
        with suppress(AlreadyExistsError):
            path = metadata_path(metadata.partition_path, instant)
            storage.put_if_absent(path, encode_hashing_metadata(metadata))

    at_once(storage, save, versions.values())
    # A rollback first forbids the commit and then reads the note. Whatever it does not find is
    # deleted here.
    if is_rolled_back(storage, instant):
        undo_rings(storage, instant, versions)


def publish_rings(storage: Storage, instant: InstantTime, partitions: Iterable[str]) -> None:
    """Tell Hudi that the versions of a completed commit count, whatever is archived later."""
    at_once(
        storage, lambda path: storage.put(_marker_path(path, instant), b""), sorted(set(partitions))
    )


def publish_before_archival(
    storage: Storage, commits: Mapping[InstantTime, Collection[str]]
) -> None:
    """Publish the versions of completed commits that leave the timeline, if there are any.

    Otherwise Hudi would return to an earlier ring once it does not find the commit.

    Parameters
    ----------
    storage : Storage
    commits : mapping of InstantTime to partition paths
        The commits that may have brought versions, with their partitions.
    """
    instants: dict[str, set[InstantTime]] = defaultdict(set)
    for instant, partitions in commits.items():
        for path in partitions:
            instants[path].add(instant)

    def publish(path: str) -> None:
        versions, markers = _listed(storage, path)
        for instant in instants[path] & versions - markers:
            storage.put(_marker_path(path, instant), b"")

    at_once(storage, publish, sorted(instants))


def forget_notes(storage: Storage, instants: Iterable[InstantTime]) -> None:
    """Delete the notes of commits that are archived: they cannot be rolled back any more."""
    at_once(storage, lambda instant: storage.delete(_note_path(instant)), sorted(instants))


def undo_rings(storage: Storage, instant: InstantTime, partitions: Iterable[str] = ()) -> None:
    """Delete the versions of a commit that is rolled back.

    ``partitions`` are those that a plan on the timeline names; others are in the commit's note.
    """
    paths = {*partitions, *_noted(storage, instant)}

    def undo(path: str) -> None:
        storage.delete(_marker_path(path, instant))  # Hudi fails on a marker without a version.
        storage.delete(metadata_path(path, instant))

    at_once(storage, undo, sorted(paths))
    storage.delete(_note_path(instant))


def forget_old_rings(
    storage: Storage, timeline: Timeline, partitions: Iterable[str], earliest: InstantTime
) -> int:
    """Delete versions that no reader of a retained commit needs; return how many (RFC-42).

    The newest version before the earliest retained commit stays, which a rollback of that commit
    needs, and so do later versions. Two versions stay in any case; so do versions that do not
    count, or not yet.

    Parameters
    ----------
    storage, timeline
        The table.
    partitions : iterable of str
        Partitions in which to look.
    earliest : InstantTime
        The earliest retained commit.
    """

    def forget(path: str) -> int:
        versions, markers = _listed(storage, path)
        counting = sorted(
            instant
            for instant in versions
            if _counts(storage, timeline, instant, instant in markers)
        )
        before = [instant for instant in counting if instant < earliest]
        old = before[: min(len(before) - 1, len(counting) - _VERSIONS_KEPT)] if before else []
        for instant in old:
            storage.delete(_marker_path(path, instant))  # Hudi fails on a marker without a version.
            storage.delete(metadata_path(path, instant))
        return len(old)

    return sum(at_once(storage, forget, sorted(set(partitions))))


def metadata_path(partition_path: str, instant: InstantTime) -> str:
    """Return the path of a version, relative to the table."""
    return file_path(_folder(partition_path), f"{instant}{_METADATA}")


def stored_versions(storage: Storage) -> list[StoredVersion]:
    """Return all versions of all rings; the cost follows the table."""
    found: list[StoredVersion] = []
    markers: set[str] = set()
    for stored in storage.list(RINGS_FOLDER):
        folder, _, name = stored.path.rpartition("/")
        partition = folder.removeprefix(RINGS_FOLDER).removeprefix("/")
        if name.endswith(_METADATA):
            instant = InstantTime(name.removesuffix(_METADATA))
            found.append(StoredVersion(partition, instant, stored))
        elif name.endswith(_MARKER):
            markers.add(stored.path)
    return [
        replace(version, marker=marker)
        if (marker := _marker_path(version.partition_path, version.instant)) in markers
        else version
        for version in found
    ]


def counts(storage: Storage, timeline: Timeline, version: StoredVersion) -> bool:
    """Return whether a version counts, or did until the next one."""
    return _counts(storage, timeline, version.instant, version.marker is not None)


def ring_after(
    metadata: HashingMetadata, children: Collection[ChildNode], instant: InstantTime
) -> HashingMetadata:
    """Return the version that a resize makes of a ring."""
    return HashingMetadata(
        metadata.partition_path,
        instant,
        metadata.initial_count,
        metadata.sequence_number + 1,
        metadata.ring.with_children(children),
    )


def _marker_path(partition_path: str, instant: InstantTime) -> str:
    return file_path(_folder(partition_path), f"{instant}{_MARKER}")


def _note_path(instant: InstantTime) -> str:
    return f"{_NOTES_FOLDER}/{instant}.json"


def noted_instants(storage: Storage) -> set[InstantTime]:
    """Return the commits of bucketlake that brought versions, also commits that are pending."""
    names = (stored.path.rpartition("/")[2] for stored in storage.list(_NOTES_FOLDER))
    return {InstantTime(name.removesuffix(".json")) for name in names}


def _noted(storage: Storage, instant: InstantTime) -> list[str]:
    path = _note_path(instant)
    try:
        data = storage.read(path)
    except ObjectNotFoundError:
        return []
    try:
        held = parse_checked(data, path)
        # Earlier releases wrote the array alone, without a checksum.
        partitions = held["partitions"] if isinstance(held, dict) else held
        return [str(partition) for partition in partitions]
    except (ValueError, KeyError, TypeError):
        raise FormatError(path, "partition paths as a JSON array", repr(data[:80])) from None


def _folder(partition_path: str) -> str:
    return f"{RINGS_FOLDER}/{partition_path}" if partition_path else RINGS_FOLDER


def _listed(storage: Storage, partition_path: str) -> tuple[set[InstantTime], set[InstantTime]]:
    """Return the versions and the markers of a partition."""
    versions, markers = set(), set()
    for stored in storage.list(_folder(partition_path), recursive=False):
        name = stored.path.rpartition("/")[2]
        if name.endswith(_METADATA):
            versions.add(InstantTime(name.removesuffix(_METADATA)))
        elif name.endswith(_MARKER):
            markers.add(InstantTime(name.removesuffix(_MARKER)))
    return versions, markers


def _counts(storage: Storage, timeline: Timeline, instant: InstantTime, is_marked: bool) -> bool:
    """Return whether the commit that brought a version is completed; the first has none."""
    if instant == FIRST_VERSION:
        return True
    if not timeline.is_completed(instant):
        return False
    if timeline.find_completed(instant) is not None:
        return True
    if is_rolled_back(storage, instant):
        return False
    if is_marked or timeline.history_folder is None:
        return True
    action = Action.REPLACE_COMMIT.value
    return find_archived(storage, timeline.history_folder, instant, action) is not None
