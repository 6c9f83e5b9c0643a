"""Hash rings in storage: which version of a partition's ring counts, and its life (RFC-42).

Each partition has a folder of versions, ``<instant>.hashing_meta`` or, for the directories of
extendible hashing, ``<instant>.extendible_meta`` in another folder. The first version has fourteen
zeros for an instant and follows from the partition and the number of buckets, so that all writers
make the same. A resize or an overwrite writes the next version before it commits. The version
counts once the commit is completed; its ``<instant>.commit`` file tells that to Hudi when the
timeline does not any more.

Hudi looks at base files to decide whether a version counts whose instant is not on the active
timeline. It may then take the version of a rolled-back resize, and writes keys twice. Here the
timeline, the outcome object and the archive decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bucketlake.config.paths_of_table import EXTENSION_FOLDER, require_data_partition
from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError
from bucketlake.format.hashing_metadata import HashingMetadata
from bucketlake.format.json_fields import parse_checked, parsing, render_checked
from bucketlake.hashing.ring import ChildNode
from bucketlake.index.hashing_config import INITIAL_INSTANT, instants_in
from bucketlake.index.ring_engine import CONSISTENT, ENGINES, RingEngine, engine_of_ring
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.model.grouping import grouped
from bucketlake.storage.base import Storage, StoredObject, at_once
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action
from bucketlake.timeline.outcome import is_rolled_back

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
    engine : RingEngine
        The engine of the ring.
    """

    partition_path: str
    instant: InstantTime
    stored: StoredObject
    marker: str | None = None
    engine: RingEngine = CONSISTENT


def first_version(
    partition_path: str, initial_count: int, engine: RingEngine = CONSISTENT
) -> HashingMetadata:
    """Return the ring that a partition begins with."""
    ring = engine.first_ring(partition_path, initial_count)
    return HashingMetadata(partition_path, INITIAL_INSTANT, initial_count, 0, ring)


def engines_of(storage: Storage) -> list[RingEngine]:
    """Return the engines of which a table has rings."""
    return [engine for engine in ENGINES if has_rings(storage, engine)]


def has_rings(storage: Storage, engine: RingEngine = CONSISTENT) -> bool:
    """Return whether a table has rings of an engine, whoever made them."""
    return next(iter(storage.list(engine.folder)), None) is not None


def load_ring(
    storage: Storage, timeline: Timeline, partition_path: str, engine: RingEngine = CONSISTENT
) -> HashingMetadata | None:
    """Return the version of a partition's ring that counts as of a timeline; None without one.

    Raises
    ------
    FormatError, HashingMetadataError
        If it is broken.
    """
    found = find_version(storage, timeline, partition_path, engine)
    return None if found is None else read_ring(storage, partition_path, found[0], engine)


def find_version(
    storage: Storage, timeline: Timeline, partition_path: str, engine: RingEngine
) -> tuple[InstantTime, bool] | None:
    """Return the version that counts, and whether Hudi knows that without the timeline."""
    versions, markers = _listed(storage, partition_path, engine)
    for instant in sorted(versions, reverse=True):
        if _counts(storage, timeline, instant, instant in markers):
            return instant, instant == INITIAL_INSTANT or instant in markers
    return None


def read_ring(
    storage: Storage, partition_path: str, instant: InstantTime, engine: RingEngine
) -> HashingMetadata:
    """Return one version of a partition's ring."""
    path = metadata_path(partition_path, instant, engine)
    metadata = engine.decode(storage.read(path), path)
    if metadata.partition_path != partition_path:
        found = f"the ring of partition {metadata.partition_path!r}"
        expected = f"the ring of partition {partition_path!r}"
        raise engine.error(path, expected, found)
    return metadata


def create_ring(storage: Storage, metadata: HashingMetadata) -> bool:
    """Store the first version of a ring; return False if another ring is stored.

    It stays if the write that needs it is rolled back.
    """
    engine = engine_of_ring(metadata.ring)
    path = metadata_path(metadata.partition_path, metadata.instant, engine)
    with suppress(AlreadyExistsError):
        storage.put_if_absent(path, engine.encode(metadata))
        return True
    return engine.decode(storage.read(path), path).ring == metadata.ring


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
        engine = engine_of_ring(metadata.ring)
        with suppress(AlreadyExistsError):
            path = metadata_path(metadata.partition_path, instant, engine)
            storage.put_if_absent(path, engine.encode(metadata))

    at_once(storage, save, versions.values())
    # A rollback first forbids the commit and then reads the note. Whatever it does not find is
    # deleted here.
    if is_rolled_back(storage, instant):
        undo_rings(storage, instant, versions)


def publish_rings(
    storage: Storage,
    instant: InstantTime,
    partitions: Iterable[str],
    engine: RingEngine = CONSISTENT,
) -> None:
    """Tell Hudi that the versions of a completed commit count, whatever is archived later."""

    def publish(path: str) -> None:
        storage.put(_marker_path(path, instant, engine), b"")

    at_once(storage, publish, sorted(set(partitions)))


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
    instants = grouped((path, at) for at, partitions in commits.items() for path in partitions)

    for engine in engines_of(storage):

        def publish(path: str, engine: RingEngine = engine) -> None:
            versions, markers = _listed(storage, path, engine)
            for instant in {*instants[path]} & versions - markers:
                storage.put(_marker_path(path, instant, engine), b"")

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
        for engine in ENGINES:
            _delete(storage, path, instant, engine)

    at_once(storage, undo, sorted(paths))
    storage.delete(_note_path(instant))


def forget_old_rings(
    storage: Storage, timeline: Timeline, partitions: Iterable[str], earliest: InstantTime
) -> None:
    """Delete versions that no reader of a retained commit needs (RFC-42).

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

    def forget(path: str, engine: RingEngine) -> None:
        versions, markers = _listed(storage, path, engine)
        counting = sorted(
            instant
            for instant in versions
            if _counts(storage, timeline, instant, instant in markers)
        )
        before = [instant for instant in counting if instant < earliest]
        old = before[: min(len(before) - 1, len(counting) - _VERSIONS_KEPT)] if before else []
        for instant in old:
            _delete(storage, path, instant, engine)

    paths = sorted(set(partitions))
    for engine in engines_of(storage):
        at_once(storage, partial(forget, engine=engine), paths)


def _delete(storage: Storage, path: str, instant: InstantTime, engine: RingEngine) -> None:
    """Delete a version; the marker first, because Hudi fails on a marker without a version."""
    storage.delete(_marker_path(path, instant, engine))
    storage.delete(metadata_path(path, instant, engine))


def metadata_path(
    partition_path: str, instant: InstantTime, engine: RingEngine = CONSISTENT
) -> str:
    """Return the path of a version, relative to the table."""
    return file_path(_folder(partition_path, engine), f"{instant}{engine.ending}")


def stored_versions(storage: Storage) -> list[StoredVersion]:
    """Return all versions of all rings; the cost follows the table."""
    return [version for engine in ENGINES for version in _stored_versions(storage, engine)]


def _stored_versions(storage: Storage, engine: RingEngine) -> list[StoredVersion]:
    found: list[StoredVersion] = []
    files = {stored.path: stored for stored in storage.list(engine.folder)}
    for path, stored in files.items():
        folder, _, name = path.rpartition("/")
        if name.endswith(engine.ending):
            partition = folder.removeprefix(engine.folder).removeprefix("/")
            instant = InstantTime(name.removesuffix(engine.ending))
            marker = _marker_path(partition, instant, engine)
            known = marker if marker in files else None
            found.append(StoredVersion(partition, instant, stored, known, engine))
    return found


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


def _marker_path(partition_path: str, instant: InstantTime, engine: RingEngine) -> str:
    return file_path(_folder(partition_path, engine), f"{instant}{_MARKER}")


def _note_path(instant: InstantTime) -> str:
    return f"{_NOTES_FOLDER}/{instant}.json"


def noted_instants(storage: Storage) -> set[InstantTime]:
    """Return the commits of bucketlake that brought versions, also commits that are pending."""
    return {*instants_in(storage, _NOTES_FOLDER, ".json")}


def _noted(storage: Storage, instant: InstantTime) -> list[str]:
    path = _note_path(instant)
    try:
        data = storage.read(path)
    except ObjectNotFoundError:
        return []
    with parsing(path, "partition paths as a JSON array", data):
        names = [str(partition) for partition in parse_checked(data, path)["partitions"]]
    for name in names:
        require_data_partition(name, path)
    return names


def _folder(partition_path: str, engine: RingEngine) -> str:
    return f"{engine.folder}/{partition_path}" if partition_path else engine.folder


def _listed(
    storage: Storage, partition_path: str, engine: RingEngine
) -> tuple[set[InstantTime], set[InstantTime]]:
    """Return the versions and the markers of a partition."""
    versions, markers = set(), set()
    for stored in storage.list(_folder(partition_path, engine), recursive=False):
        name = stored.path.rpartition("/")[2]
        if name.endswith(engine.ending):
            versions.add(InstantTime(name.removesuffix(engine.ending)))
        elif name.endswith(_MARKER):
            markers.add(InstantTime(name.removesuffix(_MARKER)))
    return versions, markers


def _counts(storage: Storage, timeline: Timeline, instant: InstantTime, is_marked: bool) -> bool:
    """Return whether the commit that brought a version is completed; the first has none."""
    from bucketlake.timeline.archive_reader import find_archived

    if instant == INITIAL_INSTANT:
        return True
    if not timeline.is_completed(instant):
        return False
    if timeline.find_completed(instant) is not None:
        return True
    if is_rolled_back(storage, instant):
        return False
    if is_marked:
        return True
    action = Action.REPLACE_COMMIT.value
    return find_archived(storage, timeline.history_folder, instant, action) is not None
