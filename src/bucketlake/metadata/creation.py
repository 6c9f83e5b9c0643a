"""Making a metadata table and its partitions, and deleting them.

Nothing of it is visible to readers before ``hoodie.properties`` of the data table lists the
partition. The caller does that, before and after these functions:

- Beside a new table: create the metadata table and initialise its partitions without entries, at
  the first instants (:func:`initial_instant`); then create the properties of the data table.
- Beside an existing table that others write to: initialise the partition without entries, at the
  next initial instant. List it as being built, so that writers maintain it. Take a turn in the
  order of commits, and initialise the partition again with the entries of the table at this turn.
  The instant of the turn is the instant of the entries, because later commits, and no others, have
  log files that are applied to it. Then list the partition as valid.

Each function can be repeated after a crash. Which entries an initialisation brings is decided once,
by the outcome of its instant in the folder of the metadata table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_version import TableVersion
from bucketlake.errors import AlreadyExistsError, CommitConflictError
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.format.properties import (
    PARTITION_METADATA_PREFIX,
    partition_marker_path,
    render_partition_metadata,
)
from bucketlake.metadata.changes import decide_inner
from bucketlake.metadata.log_files import (
    EntryEncoder,
    GroupEntries,
    base_file_name,
    base_file_stat,
    is_birth_log,
    open_file_group,
)
from bucketlake.metadata.metadata_table import (
    BUILD_OPERATION,
    inner_properties,
    inner_table,
    list_files_of,
)
from bucketlake.metadata.statistics.of_file import STATISTICS
from bucketlake.model.file_name import FileId, InstantTime, file_path
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.active import create_timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant, State, is_initial
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import claim_rollback, read_outcome
from bucketlake.timeline.table_properties import create_properties
from bucketlake.timeline.transitions import instant_path, put_pending

_INITIAL_DIGITS = 17
_USUAL_SHARDS = {MetadataPartition.COLUMN_STATS: 2}  # As in Hudi; other partitions have one.


def create_metadata_table(table: OpenTable) -> None:
    """Create an empty metadata table; if it exists, nothing happens.

    Parameters
    ----------
    table : OpenTable
        The data table. If an earlier metadata table was taken off, its folder must be deleted.
    """
    inner = inner_table(table)
    create_timeline(inner)
    with suppress(AlreadyExistsError):  # Created before a crash, or by another process.
        create_properties(inner.storage, inner_properties(table.config))


def initial_instant(number: int) -> InstantTime:
    """Return the instant of an initialisation that is not on the clock, counted from 0.

    >>> initial_instant(2)
    '00000000000000002'
    """
    return InstantTime(f"{number:0{_INITIAL_DIGITS}d}")


def next_initial_instant(table: OpenTable) -> InstantTime:
    """Return the first initial instant that the metadata table has not used."""
    inner = inner_table(table)
    used = [i.requested_at for i in load_timeline(inner).instants]
    # The time of a compaction continues that of a build.
    numbers = [int(instant[:_INITIAL_DIGITS]) for instant in used if is_initial(instant)]
    return initial_instant(max(numbers, default=table.config.layout.first_build - 1) + 1)


def claim_initial_instant(table: OpenTable) -> InstantTime:
    """Put an initial instant that nobody has used on the timeline of the metadata table."""
    inner = inner_table(table)
    while True:
        instant = next_initial_instant(table)
        requested = Instant(instant, Action.DELTA_COMMIT, State.REQUESTED)
        with suppress(AlreadyExistsError):
            inner.storage.put_if_absent(instant_path(inner.config, requested), b"")
            return instant


def withdraw_initialisations(table: OpenTable) -> None:
    """Forbid the pending initialisations of other builds, whose files then never count.

    A build calls this after its turn, before it deletes old files. A build that was overtaken puts
    its instant on the timeline before it looks whether it was overtaken.
    """
    inner = inner_table(table)
    for pending in load_timeline(inner).pending():
        if is_initial(pending.requested_at):
            claim_rollback(inner.storage, pending.requested_at)


def known_partitions(rules: TableVersion) -> list[MetadataPartition]:
    """Return the partitions that a metadata table may have in a table version."""
    return [
        partition
        for partition in MetadataPartition
        if partition is not MetadataPartition.PARTITION_STATS or rules.has_partition_statistics
    ]


def usual_partitions(rules: TableVersion) -> list[MetadataPartition]:
    """Return what a metadata table has if nobody chooses, as in Hudi."""
    return [
        partition
        for partition in known_partitions(rules)
        if partition is MetadataPartition.FILES
        or (partition in STATISTICS and rules.builds_statistics)
    ]


def usual_file_groups(partition: MetadataPartition) -> list[FileId]:
    """Return the file groups of a new partition, as many as Hudi makes.

    The record-level index has another number of file groups, which its builder chooses.
    """
    assert partition is not MetadataPartition.RECORD_INDEX, partition
    shards = range(_USUAL_SHARDS.get(partition, 1))
    return [MetadataFileId(partition, shard).to_file_id() for shard in shards]


def initialise_partitions(
    table: OpenTable,
    partitions: Mapping[MetadataPartition, Mapping[FileId, GroupEntries]],
    *,
    instant: InstantTime,
    completed_at: InstantTime,
    built: Sequence[WriteStat] = (),
) -> None:
    """Write the entries of partitions as base files, and commit them on the metadata table.

    One call writes all partitions of an instant, because the instant is committed once. The entries
    count from the instant on: they replace entries of earlier instants, and log files of instants
    that completed later are applied to them.

    Parameters
    ----------
    table : OpenTable
        The data table.
    partitions : mapping of MetadataPartition to mapping of FileId to GroupEntries
        All file groups of each partition with their entries; a file group may have none. An earlier
        initialisation of a partition, if its folder was not deleted, had the same file groups. A
        partition whose files are all in ``built`` has no groups here.
    instant : InstantTime
        An initial instant, or the instant of a turn in the order of commits.
    completed_at : InstantTime
        Completion time, if no earlier attempt has decided it.
    built : sequence of WriteStat
        Base files of the instant that tasks wrote.

    Raises
    ------
    CommitConflictError
        If another process withdrew this initialisation.
    CommitOutcomeUnknownError
        If storage failed while the outcome was claimed.
    """
    inner = inner_table(table)
    for partition, groups in partitions.items():
        begin_initialisation(inner, partition, groups, instant)
    stats = []
    if read_outcome(inner.storage, instant) is None:
        stats = [
            _put_base_file(inner, partition, file_id, entries, instant, named)
            for partition, groups in partitions.items()
            if (named := built_slice(inner, partition, instant))
            for file_id, entries in groups.items()
            if len(entries.keys)
        ]
    complete_initialisation(inner, [*partitions], [*stats, *built], instant, completed_at)


def begin_initialisation(
    table: OpenTable, partition: str, file_ids: Iterable[FileId], instant: InstantTime
) -> str:
    """Put an initialisation on the timeline of the metadata table, and open its file groups.

    Returns
    -------
    str
        Path of the inflight file. A task that writes a base file for the instant looks for it.
    """
    if read_outcome(table.storage, instant) is None:  # Otherwise it may be completed, or archived.
        put_pending(table, instant, Action.DELTA_COMMIT)
        marker = render_partition_metadata(instant, partition)
        if is_initial(instant):  # A build begins; the marker of an earlier build may be there.
            table.storage.put(partition_marker_path(partition), marker)
        else:
            with suppress(AlreadyExistsError):
                table.storage.put_if_absent(partition_marker_path(partition), marker)

        def open_group(file_id: FileId) -> None:
            open_file_group(table.storage, partition, file_id, instant)

        # In layout 1, the entries of a build belong to the slices that it opened before.
        if is_initial(instant) or not table.config.layout.logs_name_slices:
            at_once(table.storage, open_group, list(file_ids))
    inflight = Instant(instant, Action.DELTA_COMMIT, State.INFLIGHT)
    return instant_path(table.config, inflight)


def complete_initialisation(
    table: OpenTable,
    partitions: Sequence[str],
    stats: Iterable[WriteStat],
    instant: InstantTime,
    completed_at: InstantTime,
) -> None:
    """Commit the base files of an initialisation, or those that an earlier attempt committed.

    Parameters
    ----------
    table : OpenTable
        The metadata table.
    partitions : sequence of str
        The partitions; the commit names those without a base file, too.
    stats : iterable of WriteStat
        All base files of the instant.
    instant, completed_at : InstantTime
        As for :func:`initialise_partitions`.

    Raises
    ------
    CommitConflictError, CommitOutcomeUnknownError
        As :func:`initialise_partitions`.
    """
    files = dict.fromkeys(partitions, ()) | by_partition(stats)
    inflight = Instant(instant, Action.DELTA_COMMIT, State.INFLIGHT)
    if not decide_inner(table, inflight, completed_at, CommitMetadata(BUILD_OPERATION, files)):
        names = ", ".join(partitions)
        problem = f"another process withdrew the initialisation of {names}; begin it again"
        raise CommitConflictError(instant, problem)


def built_slice(table: OpenTable, partition: str, instant: InstantTime) -> InstantTime:
    """Return the instant in the names of the base files of a build.

    In timeline layout 1, log files name their slices. Writers maintain a partition from before its
    build on, so the base files get the instant that opened the file groups. The log files of
    commits that the base files include are applied again, which changes nothing.
    """
    if is_initial(instant) or not table.config.layout.logs_name_slices:
        return instant
    files = list_files_of(table.storage, partition)
    opened = (file.name.instant for file in files if is_birth_log(file.name))
    return max(opened, default=instant)


def files_of_partitions(storage: Storage, partitions: Iterable[str]) -> list[str]:
    """Return the paths of the files of partitions, without those that make a folder a partition."""
    return [
        stored.path
        for partition in partitions
        for stored in storage.list(f"{METADATA_TABLE_FOLDER}/{partition}")
        if not stored.name.startswith(PARTITION_METADATA_PREFIX)
    ]


def delete_metadata_table(storage: Storage) -> None:
    """Delete the whole metadata table, which the properties do not list any more."""
    storage.delete_folder(METADATA_TABLE_FOLDER)


def _put_base_file(
    table: OpenTable,
    partition: str,
    file_id: FileId,
    entries: GroupEntries,
    instant: InstantTime,
    named: InstantTime,
) -> WriteStat:
    encoder = EntryEncoder.of(table.config, instant)
    data = encoder.base_file(partition, entries.keys, entries.values)
    name = base_file_name(file_id, named)
    table.storage.put(file_path(partition, name.to_file_name()), data)
    return base_file_stat(name, partition, len(entries.keys), len(data))
