"""What an action of the data table changes in the metadata table.

A commit, clean or rollback of the data table has a delta commit with the same instant here. Its log
files are written before the action takes its turn in the order of commits: nobody reads them before
the action is decided, so the step can be repeated with other content. The outcome of the action
contains the completed delta commit, and any process can publish it, before the instant of the data
table. An action that is undone loses its log files and its delta commit before the instant of the
data table goes.

``write/`` decides when each step happens, and which partitions an action cannot maintain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import NEWEST_STATISTICS
from bucketlake.errors import CommitConflictError
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import commit_schema_json
from bucketlake.metadata.file_listing import FileNames, FileSizes, entries_of_files
from bucketlake.metadata.log_files import EntryEncoder, GroupEntries, put_log_file
from bucketlake.metadata.metadata_table import MetadataTable, inner_table
from bucketlake.metadata.own_logs import OwnLogs, files_of_action
from bucketlake.metadata.statistics.merged import (
    StatisticsOfFiles,
    entries_of_statistics,
)
from bucketlake.metadata.statistics.of_file import STATISTICS
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.storage.base import at_once
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication, claim_commit
from bucketlake.timeline.transitions import (
    instant_path,
    publish_completed,
    put_pending,
    remove_pending,
)

UPDATE_OPERATION = "UPSERT_PREPPED"
"""Operation of the commits that follow the data table."""

_ACTION = Action.DELTA_COMMIT
_OVERWRITES = frozenset({Operation.INSERT_OVERWRITE.value, Operation.INSERT_OVERWRITE_TABLE.value})


@dataclass(frozen=True, slots=True, eq=False)
class MetadataChange:
    """What an action changes.

    Attributes
    ----------
    written : mapping of data partition to mapping of file name to size
        Files that the action wrote.
    deleted : mapping of data partition to file names
        Files that the action deletes.
    listed : collection of str or None
        Data partitions that a commit touched, for the list of partitions, also if it wrote no file
        there; None for an action that is no commit.
    emptied : collection of str
        Data partitions without any file after the action.
    statistics : mapping of data partition to sequence of NamedStatistics
        Statistics of the written files.
    overwritten : collection of str
        Data partitions of which the action replaces all rows.
    columns : sequence of str
        Columns whose statistics of the deleted files are removed.
    statistics_version : str
        Index version in which the metadata table stores statistics.
    side_files : sequence of WriteStat
        Log files of the metadata table that tasks of the action wrote.
    """

    written: FileSizes = field(default_factory=dict)
    deleted: FileNames = field(default_factory=dict)
    listed: Collection[str] | None = None
    emptied: Collection[str] = ()
    statistics: StatisticsOfFiles = field(default_factory=dict)
    overwritten: Collection[str] = ()
    columns: Sequence[str] = ()
    statistics_version: str = NEWEST_STATISTICS
    side_files: Sequence[WriteStat] = ()

    @classmethod
    def of_commit(
        cls,
        commit: CommitMetadata,
        statistics: StatisticsOfFiles | None = None,
        side_files: Sequence[WriteStat] = (),
        shown: Sequence[WriteStat] = (),
    ) -> Self:
        """Return the change of a commit, delta commit, replace commit, compaction or clustering.

        File groups that a commit replaces keep their files until a clean. A deletion of partitions
        lists none, as in Hudi. The files of ``shown`` are those of earlier commits.
        """
        written: dict[str, dict[str, int]] = defaultdict(dict)
        for stat in [*commit.stats, *shown]:
            for path, size_bytes in stat.file_sizes.items():
                written[stat.partition_path][path.rpartition("/")[2]] = size_bytes
        return cls(
            written=dict(written),
            listed=list(written),
            statistics=statistics or {},
            overwritten=list(written) if commit.operation in _OVERWRITES else (),
            side_files=side_files,
        )


def write_change(
    metadata: MetadataTable,
    instant: InstantTime,
    change: MetadataChange,
    *,
    inflight: Collection[str] = (),
) -> bytes:
    """Write the log files of an action, before it takes its turn.

    The delta commit is then inflight on the timeline of the metadata table. The call can be
    repeated, also with another change. The completion time of the action must be later than the
    floor of the last turn in the order of commits, read after this call: a compaction may have
    taken a turn without seeing these log files (``actions/metadata_compaction.py``).

    Parameters
    ----------
    metadata : MetadataTable
        The metadata table.
    instant : InstantTime
        Requested time of the action.
    change : MetadataChange
        What the action changes.
    inflight : collection of str
        Partitions that are being built; writers maintain them too.

    Returns
    -------
    bytes
        Content of the completed delta commit, for :func:`publish_change`.

    Raises
    ------
    CommitConflictError
        If the instant is older than the timeline of the metadata table: readers would treat it as
        archived. No instant is archived before an earlier one that is pending, so this action was
        put on the data timeline with a time of long ago.
    MetadataTableError
        If file groups of a partition are missing.
    """
    begin_change(metadata, instant)
    names = [MetadataPartition(name) for name in dict.fromkeys([*metadata.partitions, *inflight])]
    changed = [*_entries(names, change)]
    listed = at_once(metadata.storage, metadata.file_groups, [name for name, _ in changed])
    by_group = [
        (name, groups[shard], own)
        for (name, entries), groups in zip(changed, listed, strict=True)
        for shard, own in entries.by_shard(len(groups))
    ]
    logs = OwnLogs(metadata, instant)
    side_files = [logs.in_newest_slice(stat) for stat in change.side_files]
    encoder = EntryEncoder.of(metadata.config, instant)

    def put(found: tuple[MetadataPartition, FileId, GroupEntries]) -> WriteStat:
        partition, file_id, entries = found
        name = logs.name(partition, file_id)
        return put_log_file(metadata.storage, partition, name, entries, encoder)

    stats = [*at_once(metadata.storage, put, by_group), *side_files]
    logs.delete_others(names, stats)
    return _encoded(metadata.config, CommitMetadata(UPDATE_OPERATION, by_partition(stats)))


def begin_change(metadata: MetadataTable, instant: InstantTime) -> None:
    """Put an action on the timeline of the metadata table; :func:`write_change` does it, too.

    In timeline layout 1 the caller does it before it looks for compactions, see
    ``actions/metadata_compaction.py``.

    Raises
    ------
    CommitConflictError
        As :func:`write_change`.
    """
    if metadata.timeline.start is not None and instant < metadata.timeline.start:
        problem = "is older than the timeline of the metadata table; write again"
        raise CommitConflictError(instant, problem)
    put_pending(metadata.table, instant, _ACTION)


def publish_change(
    table: OpenTable, instant: InstantTime, completed_at: InstantTime, content: bytes
) -> None:
    """Complete the delta commit of a decided action; any process may do it again.

    Parameters
    ----------
    table : OpenTable
        The data table.
    instant, completed_at : InstantTime
        Requested time and completion time of the action.
    content : bytes
        From :func:`write_change`, as the outcome of the action has it.

    Raises
    ------
    CommitConflictError
        If the metadata table has no trace of the instant: another writer undid the action, or the
        metadata table was deleted or built again.
    StorageError
        If storage fails, so that the completed file may or may not exist.
    """
    inner = inner_table(table)
    inflight = Instant(instant, _ACTION, State.INFLIGHT)
    publish_completed(
        inner, inflight, Publication(completed_at, _ACTION, content), outcomes=table.storage
    )


def decide_inner(
    inner: OpenTable, pending: Instant, completed_at: InstantTime, commit: CommitMetadata
) -> bool:
    """Decide and complete an instant that only the metadata table has.

    Parameters
    ----------
    inner : OpenTable
        The metadata table.
    pending : Instant
        The inflight instant.
    completed_at : InstantTime
        Its completion time, if no earlier attempt decided it.
    commit : CommitMetadata
        Its files, if no earlier attempt decided it.

    Returns
    -------
    bool
        False if another process withdrew the instant.

    Raises
    ------
    CommitOutcomeUnknownError
        If storage failed while the outcome was claimed.
    """
    content = _encoded(inner.config, commit)
    publication = Publication(completed_at, pending.action.completes_as, content)
    outcome = claim_commit(inner.storage, pending.requested_at, publication)
    if outcome.publication is None:
        return False
    publish_completed(inner, pending, outcome.publication)
    return True


def undo_change(table: OpenTable, instant: InstantTime) -> None:
    """Delete what an action wrote to the metadata table; repeating it does no harm.

    The action must be forbidden before, and the instant of the data table must go after. The files
    are found by their names, so they need no markers; a file that a late task writes afterwards is
    found by the next clean of the metadata table. If base files already include the action, they
    still do.

    Parameters
    ----------
    table : OpenTable
        The data table.
    instant : InstantTime
        Requested time of the action.
    """
    inner = inner_table(table)
    files = files_of_action(inner, instant)
    at_once(inner.storage, inner.storage.delete, [file.path for file in files])
    # The delta commit stays until its files are gone. Readers ignore it, because its instant is
    # pending in the data table.
    for found in load_timeline(inner).completed():
        if found.requested_at == instant and found.action is _ACTION:
            inner.storage.delete(instant_path(inner.config, found))
    remove_pending(inner, instant, _ACTION)


def _entries(
    partitions: Collection[MetadataPartition], change: MetadataChange
) -> Iterator[tuple[MetadataPartition, GroupEntries]]:
    """Yield the partitions for which the driver writes entries, each with its entries."""
    entries: dict[MetadataPartition, GroupEntries] = {}  # Tasks write those of the record index.
    if MetadataPartition.FILES in partitions:
        files = change.written, change.deleted, change.listed, change.emptied
        entries[MetadataPartition.FILES] = entries_of_files(*files)
    if not STATISTICS.isdisjoint(partitions):
        entries |= entries_of_statistics(
            change.statistics,
            change.deleted,
            change.columns,
            change.overwritten,
            version=change.statistics_version,
        )
    for partition in partitions:
        if partition in entries and len(entries[partition]):
            yield partition, entries[partition]


def _encoded(config: TableConfig, commit: CommitMetadata) -> bytes:
    """Return the content of a completed commit of the metadata table."""
    schema_json = commit_schema_json(has_value_types=config.rules.has_value_types)
    return encode_commit_metadata(replace(commit, extra={"schema": schema_json}), config.layout)
