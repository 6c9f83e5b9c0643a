"""Upkeep of the metadata table: what an action on the timeline does for it beside its own files.

The metadata table lists the files of the data table, and holds statistics and an index of its keys.
Readers trust it, so each action that changes data files also writes a delta commit of the same
instant there. Before the action takes its turn, its driver writes the log files of that delta
commit; nobody reads them before the action is decided. The outcome of the action contains the
content of the delta commit, so that any process can publish it (``actions/completion.py``).

Partitions of the metadata table that an action cannot maintain are taken off the list of valid
partitions before the action is visible; a stale partition would hide rows. Another process may turn
the metadata table on or off meanwhile, so the properties are read again before an action takes its
turn. Whether a table ever had a metadata table is in the last turn (``timeline/commit_order.py``);
if not, nothing is read.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from bucketlake.actions.metadata_withdrawal import (
    is_due_after_commit,
    settle_compactions,
    withdraw_compactions,
)
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER, PROPERTIES_FILE
from bucketlake.errors import MetadataTableWarning
from bucketlake.format.avro.tree import understood_columns
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.rollback_metadata import RollbackPlan
from bucketlake.index.setting import needed_index
from bucketlake.index.stored_setting import latest_version
from bucketlake.metadata.changes import (
    MetadataChange,
    begin_change,
    publish_change,
    undo_change,
    write_change,
)
from bucketlake.metadata.file_listing import list_partitions_as
from bucketlake.metadata.metadata_table import MetadataTable, open_metadata_table
from bucketlake.metadata.record_index.definition_file import (
    columns_with_statistics,
    statistics_version,
)
from bucketlake.metadata.statistics.of_file import (
    STATISTICS,
    NamedStatistics,
    indexed_columns,
    statistics_by_partition,
    with_statistics,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.grouping import grouped
from bucketlake.model.schema import without_meta
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.commit_order import Head, last_turn
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import read_table_config

_MAINTAINED = frozenset(MetadataPartition)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedCommit:
    """A delta commit of the metadata table whose log files are written.

    Attributes
    ----------
    content : bytes
        For ``Publication.metadata_commit``.
    is_compaction_next : bool
        Whether a compaction of the metadata table is due after the commit, as far as the timeline
        told when the log files were written.
    """

    content: bytes
    is_compaction_next: bool


def prepare_commit(
    head: Head,
    instant: InstantTime,
    commit: CommitMetadata,
    index_files: Sequence[WriteStat] | None = None,
    copies: Mapping[str, str] = MappingProxyType({}),
    shown: Sequence[WriteStat] = (),
) -> PreparedCommit | None:
    """Write the log files of the metadata table for a commit, before it takes its turn.

    Parameters
    ----------
    head : Head
        The table after the last turn, after which the commit takes its own.
    instant : InstantTime
        Requested time of the commit.
    commit : CommitMetadata
        The files of the commit; compactions and resizes are commits too.
    index_files : sequence of WriteStat or None
        Log files of the record index that tasks wrote; None if the commit cannot maintain it.
    copies : mapping of str to str
        Paths of copies of log files that the commit is still to make, and the paths of the files.
    shown : sequence of WriteStat
        Files of earlier commits that readers see from this commit on. They are listed again.

    Returns
    -------
    PreparedCommit or None
        None if the table has no metadata table.
    """
    table, turn = head.table, head.turn
    if not (
        table.config.written_metadata_partitions or (turn is not None and turn.metadata_changed)
    ):
        return None
    keeps_index = commit.compacted or index_files is not None
    now = _maintained(table, () if keeps_index else (MetadataPartition.RECORD_INDEX,))
    if now is None:
        return None
    statistics = _statistics(now, commit, copies)
    if MetadataPartition.RECORD_INDEX not in now.config.written_metadata_partitions:
        index_files = None  # Another process took the index off.
    change = MetadataChange.of_commit(commit, statistics, index_files or (), shown)
    if statistics:
        change = replace(change, statistics_version=statistics_version(now))
    metadata, content = _written(now, head.timeline, instant, change)
    return PreparedCommit(content, is_due_after_commit(metadata.timeline))


def prepare_deletion(
    table: OpenTable,
    timeline: Timeline,
    instant: InstantTime,
    deleted: Mapping[str, Sequence[str]],
    cannot: frozenset[str] = frozenset(),
) -> bytes | None:
    """Write the log files of the metadata table for an action that deletes files.

    Parameters
    ----------
    table : OpenTable
    timeline : Timeline
        The newest timeline.
    instant : InstantTime
        Requested time of the action.
    deleted : mapping of str to sequence of str
        Names of the deleted files, by partition path.
    cannot : set of str
        Partitions of the metadata table that the action cannot maintain.

    Returns
    -------
    bytes or None
        For ``Publication.metadata_commit``; None if the table has no metadata table.
    """
    now = _maintained(table, cannot)
    if now is None:
        return None
    has_statistics = STATISTICS & now.config.written_metadata_partitions
    columns = columns_with_statistics(now) if has_statistics else ()
    change = MetadataChange(deleted=deleted, columns=columns)
    return _written(now, timeline, instant, change)[1]


def prepare_undoing(
    table: OpenTable, timeline: Timeline, instant: InstantTime, undone: Sequence[RollbackPlan]
) -> bytes | None:
    """Write the log files of the metadata table for a rollback or restore.

    What an undone instant wrote there is deleted with the instant. If a compaction of the metadata
    table already includes it, its files are listed as deleted; its entries of the record index
    cannot be told from others, so the index is taken off. If the kind of the table needs it, the
    service or the next write builds it again (``services/metadata/needed_index.py``), so nobody is
    warned.

    Parameters
    ----------
    table, timeline
        The table.
    instant : InstantTime
        Requested time of the rollback or restore.
    undone : sequence of RollbackPlan
        What it undoes.

    Returns
    -------
    bytes or None
        As :func:`prepare_deletion`.
    """
    now = _maintained(table, ())
    if now is None:
        return None
    withdraw_compactions(now)
    metadata = open_metadata_table(now, timeline)
    is_compacted = any(metadata.may_include(plan.instant) for plan in undone)
    deleted: dict[str, list[str]] = defaultdict(list)
    for plan in undone:
        for partition, names in plan.files.items():
            deleted[partition] += names
    cannot = frozenset({MetadataPartition.RECORD_INDEX} if is_compacted else ())
    if cannot and _stays_needed(table.storage, timeline, {plan.instant for plan in undone}):
        list_partitions_as(table.storage, lost=cannot)
    return prepare_deletion(table, timeline, instant, deleted, cannot)


def _stays_needed(storage: Storage, timeline: Timeline, undone: Collection[InstantTime]) -> bool:
    """Return whether the kind needs a record-level index, and is not undone itself."""
    conversion = latest_version(storage, timeline)
    is_undone = conversion is not None and conversion[0] in undone
    return needed_index(storage, timeline) is not None and not is_undone


def record_deletion(table: OpenTable, timeline: Timeline, paths: Sequence[str]) -> None:
    """Record in the metadata table that files were deleted by an instant that will not complete.

    Later commits listed the files, and entries count in the order of instants, so the delta commit
    has a new instant. The data timeline does not have it, so it counts from the next commit on. The
    caller removes the pending instant after this.
    """
    parts = (path.rpartition("/") for path in paths)
    deleted = grouped((partition, name) for partition, _, name in parts)
    instant = table.clock.next_instant(timeline)
    content = prepare_deletion(table, timeline, instant, deleted) if deleted else None
    if content is not None:
        # A compaction of the metadata table takes a turn, and is on no timeline that is read here.
        completed_at = Head(table, last_turn(table.storage), timeline).next_instant()
        publish_change(table, instant, completed_at, content)


def take_back_metadata(table: OpenTable, instant: InstantTime) -> None:
    """Delete what an undone instant wrote to the metadata table; its data files go after that."""
    if table.storage.stat(f"{METADATA_TABLE_FOLDER}/{PROPERTIES_FILE}") is not None:
        undo_change(table, instant)


def _written(
    table: OpenTable, timeline: Timeline, instant: InstantTime, change: MetadataChange
) -> tuple[MetadataTable, bytes]:
    """Write the log files of a change; return the metadata table and the delta commit."""
    metadata = open_metadata_table(table, timeline)
    if metadata.timeline.layout.logs_name_slices:
        begin_change(metadata, instant)  # A compaction of now on sees it, or is seen here.
        metadata = replace(metadata, timeline=settle_compactions(table))
    inflight = table.config.metadata_partitions_inflight
    return metadata, write_change(metadata, instant, change, inflight=inflight)


def _statistics(
    table: OpenTable, commit: CommitMetadata, copies: Mapping[str, str]
) -> dict[str, list[NamedStatistics]]:
    """Return the statistics of the files of a commit, by partition path.

    A task that began before the metadata table had statistics sent none; then files are read.
    """
    if not table.config.written_metadata_partitions & STATISTICS:
        return {}
    stats = commit.stats
    if any(stat.statistics is None for stat in stats) and commit.schema_json is not None:
        columns = indexed_columns(table, without_meta(understood_columns(commit.schema_json)[0]))
        stats = with_statistics(table.storage, stats, columns, copies)
    return statistics_by_partition(stats)


def _maintained(table: OpenTable, cannot: Collection[str]) -> OpenTable | None:
    """Return the table with its properties of now, without partitions that cannot be maintained.

    None if the table has no metadata table.
    """
    while True:
        config = read_table_config(table.storage)
        names = config.written_metadata_partitions
        if not names:
            return None
        lost = {name for name in names if name not in _MAINTAINED or name in cannot}
        if not lost:
            return table.with_config(config)
        _take_off(table.storage, lost)


def _take_off(storage: Storage, lost: Collection[str]) -> None:
    names = ", ".join(sorted(lost))
    warnings.warn(
        f"partitions {names} of the metadata table of {storage.root} are taken off, because "
        "this action does not maintain them; table.rebuild_metadata_table() (bucketlake metadata "
        "--rebuild --run) builds them again",
        MetadataTableWarning,
        stacklevel=2,
    )
    list_partitions_as(storage, lost=lost)
