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
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.hfile.writer import encode_hfile
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    commit_schema_json,
    record_schema_json,
    without_value_type_field,
)
from bucketlake.format.partition_metadata import (
    PARTITION_METADATA_PREFIX,
    partition_marker_path,
    render_partition_metadata,
)
from bucketlake.metadata.inner_table import inner_properties, inner_table
from bucketlake.metadata.metadata_table import BASE_EXTENSION, BUILD_OPERATION, list_files_of
from bucketlake.metadata.slices.log_files import (
    WRITE_TOKEN,
    GroupEntries,
    created_ms,
    is_birth_log,
    open_file_group,
)
from bucketlake.metadata.statistics.measured_columns import STATISTICS
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, file_path
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import create_timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant, State, is_initial
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication, claim_commit, claim_rollback, read_outcome
from bucketlake.timeline.table_properties import create_properties
from bucketlake.timeline.transitions import instant_path, publish_completed

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


def initialise_partition(
    table: OpenTable,
    partition: MetadataPartition,
    groups: Mapping[FileId, GroupEntries],
    *,
    instant: InstantTime,
    completed_at: InstantTime,
) -> None:
    """Write the entries of one partition; see :func:`initialise_partitions`."""
    initialise_partitions(table, {partition: groups}, instant=instant, completed_at=completed_at)


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
        initialisation of a partition, if its folder was not deleted, had the same file groups.
    instant : InstantTime
        An initial instant, or the instant of a turn in the order of commits.
    completed_at : InstantTime
        Completion time, if no earlier attempt has decided it.
    built : sequence of WriteStat
        Base files of the instant that tasks wrote, in other partitions.

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
    names = ", ".join([*partitions, *dict.fromkeys(stat.partition_path for stat in built)])
    complete_initialisation(inner, names, [*stats, *built], instant, completed_at)


def begin_initialisation(
    table: OpenTable, partition: str, file_ids: Iterable[FileId], instant: InstantTime
) -> str:
    """Put an initialisation on the timeline of the metadata table, and open its file groups.

    Returns
    -------
    str
        Path of the inflight file. A task that writes a base file for the instant looks for it.
    """
    pending = [Instant(instant, Action.DELTA_COMMIT, s) for s in (State.REQUESTED, State.INFLIGHT)]
    paths = [instant_path(table.config, each) for each in pending]
    if read_outcome(table.storage, instant) is None:  # Otherwise it may be completed, or archived.
        for path in paths:
            with suppress(AlreadyExistsError):
                table.storage.put_if_absent(path, b"")
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
    return paths[-1]


def complete_initialisation(
    table: OpenTable,
    partition: str,
    stats: Iterable[WriteStat],
    instant: InstantTime,
    completed_at: InstantTime,
) -> None:
    """Commit the base files of an initialisation, or those that an earlier attempt committed.

    Parameters
    ----------
    table : OpenTable
        The metadata table.
    partition : str
        The partition or partitions, for messages.
    stats : iterable of WriteStat
        All base files of the instant.
    instant, completed_at : InstantTime
        As for :func:`initialise_partitions`.

    Raises
    ------
    CommitConflictError, CommitOutcomeUnknownError
        As :func:`initialise_partitions`.
    """
    schema_json = commit_schema_json(has_value_types=table.config.rules.has_value_types)
    commit = CommitMetadata(BUILD_OPERATION, by_partition(stats), {"schema": schema_json})
    content = encode_commit_metadata(commit, table.config.layout)
    publication = Publication(completed_at, Action.DELTA_COMMIT, content)
    outcome = claim_commit(table.storage, instant, publication)
    if outcome.publication is None:
        problem = f"another process withdrew the initialisation of {partition}; begin it again"
        raise CommitConflictError(instant, problem)
    inflight = Instant(instant, Action.DELTA_COMMIT, State.INFLIGHT)
    publish_completed(table, inflight, outcome.publication)


def base_file_name(file_id: FileId, instant: InstantTime) -> BaseFileName:
    """Return the name of a base file of the metadata table."""
    return BaseFileName(file_id, WRITE_TOKEN, instant, BASE_EXTENSION)


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
        if not stored.path.rpartition("/")[2].startswith(PARTITION_METADATA_PREFIX)
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
    has_value_types, values = table.config.rules.has_value_types, entries.values
    if not has_value_types:
        values = without_value_type_field(partition, values)
    data = encode_hfile(
        entries.keys,
        values,
        record_schema_json(has_value_types=has_value_types),
        created_at_ms=created_ms(instant, table.config.timeline_timezone),
    )
    name = base_file_name(file_id, named).to_file_name()
    table.storage.put(file_path(partition, name), data)
    return WriteStat(
        file_id=file_id,
        path=file_path(partition, name),
        partition_path=partition,
        record_count=len(entries.keys),
        insert_count=len(entries.keys),
        file_size_bytes=len(data),
        opens_group=True,
    )
