"""Upgrading and downgrading a table: to another table version, in place.

The properties of the table decide its version, and they are replaced as one: in the same step the
metadata table leaves them, because its form follows the version. From then on readers list the
storage. The metadata table is then built anew, as for any table. The properties name its partitions
until that is done, so that a call after a crash goes on.

Up to table version 7 the timeline has another layout. Then the whole timeline is written in the
other layout before the properties change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from bucketlake.actions.cleaner import carry_out_clean
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.actions.rollback import delete_files
from bucketlake.actions.transact import beating_turn
from bucketlake.actions.turns import head
from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import unstorable_merges
from bucketlake.config.paths_of_table import VERSION_CHANGE_FILE
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import (
    COMPLETION_TIMES,
    DROPPABLE,
    LAYOUT_1,
    TableVersion,
    check_version,
    table_version,
    version_of_other_layout,
)
from bucketlake.errors import CommitConflictError, ConfigError, TimelineError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import TableIndex, resolve_index
from bucketlake.index.stored_setting import store_key_rule
from bucketlake.metadata.creation import delete_metadata_table, known_partitions
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.names import one_of
from bucketlake.model.result import Shown
from bucketlake.model.table_type import TableType
from bucketlake.read.handle import Handle
from bucketlake.read.snapshot import Snapshot, is_spelling_open, load_snapshot, stored_keys_are_bare
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.commit_order import Head, last_turn
from bucketlake.timeline.instant import WRITES, Action, State
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.other_layout import (
    Move,
    TimelinePlace,
    copy_timeline,
    delete_timeline,
    mark_move,
    read_move,
    require_one_archive,
    require_one_timeline,
)
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.timeline.table_properties import (
    read_table_config,
    reopened,
    update_table_properties,
)
from bucketlake.write.batch_schema import require_known_types
from bucketlake.write.key_rule_check import telling_keys


@dataclass(frozen=True, slots=True)
class VersionReport(Shown):
    """What an upgrade or downgrade changes or has changed.

    Attributes
    ----------
    version : int
        Table version afterwards.
    version_before : int
        Table version before.
    readers : str
        The releases of Hudi that read the table afterwards.
    built : tuple of str
        Partitions of the metadata table that are built anew.
    dropped : tuple of str
        Partitions of the metadata table that the table does not have afterwards.
    compacted : int
        File slices whose log files are compacted first.
    """

    version: int
    version_before: int
    readers: str
    built: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    compacted: int = 0


def put_in_version(
    handle: Handle, to: int, drop: Sequence[str], engine: Engine, *, is_upgrade: bool, dry_run: bool
) -> VersionReport:
    """Upgrade or downgrade a table, or return what that does; see :func:`change_version`."""
    check_version(to, "to")
    table = handle.open()
    version = table.config.version
    if to != version and is_upgrade == (to < version):
        step = f"use table.upgrade(to={to}) (bucketlake upgrade --to {to} --run)"
        if to < version:
            step = step.replace("upgrade", "downgrade")
        raise ConfigError("to", to, f"the table has version {version}; {step}")
    if dry_run:
        return plan_version_change(table, to, drop, handle.index)
    return change_version(table, to, drop=drop, given=handle.index, engine=engine)


def plan_version_change(
    table: OpenTable, to: int, drop: Sequence[str] = (), given: TableIndex | None = None
) -> VersionReport:
    """Return what a change of the version does.

    ``given`` is the index of a table that stores none.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written in either version.
    ConfigError
        If bucketlake does not write this version, or the version lacks what the table uses; the
        error names it.
    InputError
        The same for the type of a column.
    TimelineError
        If an action is pending that the change cannot end.
    """
    check_version(to)
    for name in drop:
        if name not in DROPPABLE:
            raise ConfigError("drop", name, one_of(name, DROPPABLE))
    config, root = table.config, table.storage.root
    check_writable(config.in_version(config.version), root)  # The metadata table is built anew.
    rules, target = table_version(to), config.in_version(to)
    there = f"{root} in version {to}"
    check_writable(TableConfig.from_properties(target.to_properties()), there)
    snapshot = load_snapshot(table)
    _require_known(snapshot, rules)
    _require_same_keys(snapshot, to)
    _require_whole_keys(snapshot, target, given)
    compacted = 0
    if target.layout != config.layout:
        compacted = require_movable(snapshot, target, drop)
    held = config.written_metadata_partitions | _unbuilt(config)
    dropped = frozenset(_unknown_partitions(table, rules, held))
    return VersionReport(
        version=to,
        version_before=config.version,
        readers=rules.releases,
        built=tuple(sorted(held - dropped)),
        dropped=tuple(sorted(held & dropped)),
        compacted=compacted,
    )


def change_version(
    table: OpenTable,
    to: int,
    *,
    drop: Sequence[str] = (),
    given: TableIndex | None = None,
    engine: Engine = HERE,
) -> VersionReport:
    """Change the version of a table; see :func:`plan_version_change`.

    Parameters
    ----------
    table : OpenTable
        The table; its lock is held while the timeline and the properties change.
    to : int
        The version.
    drop : sequence of str
        What may be lost, of :data:`DROPPABLE`.
    given : TableIndex, optional
        The index of a table that stores none.
    engine : Engine
        Compacts slices, and builds a record-level index.

    Raises
    ------
    CommitConflictError
        If another process builds or removes the metadata table meanwhile, or writes to a table
        whose timeline moves.
    """
    storage = table.storage
    plan = plan_version_change(table, to, drop, given)
    is_moved = read_move(storage) is not None  # By a call that died.
    if plan.version_before == to:
        plan = replace(plan, built=plan.built if _unbuilt(table.config) else (), dropped=())
        if not plan.built and not is_moved:
            return plan
    with table.lock.held(storage) as require_held:
        free = table.without_lock()
        if is_moved:
            end_move(free)
        if plan.version_before != to:
            _change(free, plan, drop, engine, require_held)
    if plan.built:
        _build(reopened(table), plan, engine)
    elif not read_table_config(storage).written_metadata_partitions:
        delete_metadata_table(storage)
    with table.lock.held(storage):
        update_table_properties(storage, _without_unbuilt, now_ms=table.clock.now_ms)
        end_move(reopened(table.without_lock()))
    return plan


def _build(table: OpenTable, plan: VersionReport, engine: Engine) -> None:
    """Build the metadata table in the form of the version that the table has now."""
    definitions = read_index_definitions(table)
    # Before Hudi defined its indexes, the record-level index was one of the whole table.
    is_defined = MetadataPartition.RECORD_INDEX in definitions
    partitioned = None if is_defined else False
    build_metadata_table(table, plan.built, is_partitioned=partitioned, engine=engine)


def _change(
    table: OpenTable,
    plan: VersionReport,
    drop: Sequence[str],
    engine: Engine,
    require_held: LockCheck,
) -> None:
    """Replace the properties, with the timeline if its layout changes.

    The caller holds the lock of the table. Raise CommitConflictError if another process writes to
    it.
    """
    storage, target = table.storage, table.config.in_version(plan.version)
    if target.layout == table.config.layout:
        settle_failed_writes(table, load_timeline(table))
        _put_version(table, plan)
        return
    if target.layout is not LAYOUT_1:
        store_key_rule(storage, None)  # There is one rule from now on.
    source, place = TimelinePlace.of(table.config), TimelinePlace.of(target)
    look = partial(_settled_head, table, target, drop, engine)
    # From this turn on, writers of the old layout do not commit.
    with beating_turn(table, look=look, layout=target.layout.number) as (instant, _):
        mark_move(storage, Move(source, place))
        delete_timeline(storage, place)
        copy_timeline(table, table.with_config(target))
        require_held()
        _put_version(table, plan, instant)


def _put_version(
    table: OpenTable, plan: VersionReport, moved_in: InstantTime | None = None
) -> None:
    """Put the properties of the new version.

    ``moved_in`` is the turn in which the timeline moved. Raise CommitConflictError if it is the
    last one no more: another writer took this process for dead.
    """
    storage, now_ms = table.storage, table.clock.now_ms
    further = {keys.UNBUILT_PARTITIONS: ",".join(plan.built)} if plan.built else {}
    if moved_in is not None:
        further[keys.TIMELINE_MOVED] = str(now_ms())

    def change(entries: dict[str, str]) -> Mapping[str, str]:
        config = TableConfig.from_properties(entries)
        turn = None if moved_in is None else last_turn(storage)
        if moved_in is not None and (turn is None or turn.instant != moved_in):
            raise CommitConflictError(
                moved_in, "another writer took this change of the version for dead; repeat it"
            )
        if config.version == plan.version:
            return entries
        changed = config.in_version(plan.version)
        return replace(changed, extra={**config.extra, **further}).to_properties()

    update_table_properties(storage, change, now_ms=now_ms)


def _require_known(snapshot: Snapshot, rules: TableVersion) -> None:
    """Raise an error that names what a table uses and a version lacks."""
    config = snapshot.config
    index = resolve_index(snapshot.table, snapshot.timeline, None)
    if index is not None and index.first_version > rules.number:
        version = rules.number
        raise ConfigError(
            "index",
            index,
            f"readers know it since version {index.first_version}, and no conversion leads from it "
            f"to an index that version {version} has: make a new table with create_table(..., "
            f"index=SimpleBucket(4), version={version}) (bucketlake create --buckets 4 "
            f"--table-version {version}), and write the rows of this one to it with bulk_insert",
        )
    for key, value, problem in unstorable_merges(
        rules, config.ordering_fields, config.delete_field, config.partial_update_mode
    ):
        raise ConfigError(key, value, f"the table {snapshot.storage.root} uses it, and {problem}")
    schema = snapshot.schema_or_none
    if schema is not None:
        require_known_types(rules, schema, snapshot.storage.root)


def _require_same_keys(snapshot: Snapshot, to: int) -> None:
    """Raise ConfigError if writers of the version would spell the keys in another way."""
    config = snapshot.config
    is_open = is_spelling_open(replace(config, version=to, initial_version=to))
    if not is_open and not is_spelling_open(config):
        return
    is_bare = stored_keys_are_bare(snapshot)
    if is_bare is not None and is_bare is not is_open:
        field = config.key_spec.record_key_fields[0]
        held, asked = ("without", "with") if is_bare else ("with", "without")
        raise ConfigError(
            "to",
            to,
            f"the keys of the table are stored {held} the name of their field ({field}:VALUE), and "
            f"writers of version {to} would store them once more {asked} it; write the rows to a "
            "new table instead",
        )


def _require_whole_keys(snapshot: Snapshot, target: TableConfig, given: TableIndex | None) -> None:
    """Raise ConfigError if stored keys are in buckets where Hudi 1 does not look for them."""
    index = resolve_index(snapshot.table, snapshot.timeline, given)
    layout = None if index is None else index.layout()
    rule = None if layout is None else layout.two_rules
    if target.layout is LAYOUT_1 or layout is None or rule is None or rule.stated is False:
        return
    told = telling_keys(layout, snapshot, snapshot.all_slices())
    split = next((found for found in told if found[2] is not rule.splits), None)
    if split is not None:
        key, path, _ = split
        raise ConfigError(
            "to",
            target.version,
            f"{path} holds record key {key!r} where it belongs if a key "
            f"{(rule if rule.splits else rule.other).text}, and writers of version "
            f"{target.version} would store it once more in another bucket; write the rows to a new "
            f"table instead: create_table(..., version={target.version}), then bulk_insert",
        )


def _unbuilt(config: TableConfig) -> frozenset[str]:
    """Return the partitions of the metadata table that a change before has not built yet."""
    return frozenset(filter(None, config.extra.get(keys.UNBUILT_PARTITIONS, "").split(",")))


def _without_unbuilt(entries: dict[str, str]) -> Mapping[str, str]:
    return {key: text for key, text in entries.items() if key != keys.UNBUILT_PARTITIONS}


def _unknown_partitions(
    table: OpenTable, rules: TableVersion, held: frozenset[str]
) -> Iterator[str]:
    """Yield the partitions of the metadata table that cannot be built in a version."""
    yield from held - {partition.value for partition in known_partitions(rules)}
    index = read_index_definitions(table).get(MetadataPartition.RECORD_INDEX)
    if index is not None and index.is_partitioned and not rules.has_partitioned_index:
        yield MetadataPartition.RECORD_INDEX


# ---- Moving a table's timeline into another layout, for a change of version ----------------------
#
# The steps:
#
# 1. What is pending is ended, and what must not be pending raises an error. Log files are
#    compacted, because the layouts name them in different ways. Those of layout 1 may stay: in
#    layout 2 they keep their slices, but the commits that wrote them cannot be undone any more.
# 2. A turn in the order of commits says that the layout changes. From then on writers of the old
#    layout raise CommitConflictError before they commit (``actions/turns.py``).
# 3. The timeline and the archive are written in the other layout, where nobody looks
#    (``timeline/other_layout.py``), after a mark that names both places.
# 4. The properties are changed: this decides.
# 5. The old timeline and archive are deleted, then the mark.
#
# If the process dies before step 4, the table is as it was, also for writers: the next turn undoes
# step 2. The next change of version deletes what was written. If it dies after step 4, the next
# change deletes the rest of the old timeline.

_ATTEMPTS = 10
_NEXT_STEPS = {
    Action.CLUSTERING: (
        "complete it with table.resize() (bucketlake resize --run) if it is a resize, or let the "
        "job of Hudi that planned it finish"
    ),
    Action.LOG_COMPACTION: "let the job of Hudi that planned it finish",
    Action.INDEXING: "let the job of Hudi that planned it finish",
}
"""What to do about pending actions that a change does not end."""


def require_movable(snapshot: Snapshot, target: TableConfig, drop: Sequence[str]) -> int:
    """Check that the timeline of a table can move; return how many slices are compacted before.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    target : TableConfig
        The properties of the table after the change.
    drop : sequence of str
        What may be lost.

    Raises
    ------
    UnsupportedFeatureError
        If the table has two timelines.
    TimelineError
        If an action is pending that the change cannot end.
    ConfigError
        If the order of commits would change, and the caller did not allow it.
    """
    table, timeline = snapshot.table, snapshot.timeline
    require_one_timeline(table, timeline)
    require_one_archive(table)
    for pending in timeline.pending():
        if pending.action in _NEXT_STEPS:
            raise TimelineError(
                pending.requested_at,
                f"this {pending.action.value} is pending, and would not be after a change of the "
                f"version: {_NEXT_STEPS[pending.action]}",
            )
    _require_same_order(table, timeline, target, drop)
    _require_no_savepoint(snapshot)
    return len(_to_compact(snapshot))


def end_move(table: OpenTable) -> None:
    """Delete what a change of version left behind: the old timeline, or the one that it began.

    Raises
    ------
    CommitConflictError
        If the process of the change is at work.
    """
    move = read_move(table.storage)
    if move is None:
        return
    with ExitStack() as stack:
        if move.source.layout == table.config.layout:
            # Not decided. After this turn, a process that slept cannot decide any more.
            stack.enter_context(beating_turn(table, layout=table.config.layout.number))
        else:
            _take_back_late_writes(table)
        delete_timeline(table.storage, move.left_by(table.config.layout))
        table.storage.delete(VERSION_CHANGE_FILE)


def _take_back_late_writes(table: OpenTable) -> None:
    """Roll back what began after the change had looked for writes, and cannot commit any more.

    Archived instants look committed, so its files must not outlive its instant.
    """
    before = table.config.in_version(version_of_other_layout(table.config.layout))
    for late in load_timeline(table.with_config(before)).pending(*WRITES):
        if claim_rollback(table.storage, late.requested_at).is_rollback:
            delete_files(table, late.requested_at)


def _settled_head(
    table: OpenTable, target: TableConfig, drop: Sequence[str], engine: Engine
) -> Head:
    """Return the table as it is when nothing is pending, and nothing is to be compacted."""
    for _ in range(_ATTEMPTS):
        now = head(table)
        pending = now.timeline.pending_changes()
        if not pending and not _to_compact(load_snapshot(table, now.timeline)):
            _require_same_order(table, now.timeline, target, drop)
            return now
        timeline = settle_failed_writes(table, now.timeline)
        for clean in timeline.pending_cleans():
            carry_out_clean(table, clean.requested_at)
        if table.config.table_type is TableType.MERGE_ON_READ:
            compact(table, CompactionLimits(), engine)
    problem = "is pending" if pending else "has commits with log files"
    instant = pending[0].requested_at if pending else now.timeline.newest_time() or ""
    raise CommitConflictError(
        instant, f"{problem}: other processes write to the table; change its version without them"
    )


def _to_compact(snapshot: Snapshot) -> list[FileSlice]:
    """Return the slices with log files, which readers of the older layout take for others."""
    return [] if snapshot.config.layout.logs_name_slices else _with_log_files(snapshot)


def _with_log_files(snapshot: Snapshot) -> list[FileSlice]:
    if snapshot.config.table_type is not TableType.MERGE_ON_READ:
        return []
    return [found for found in snapshot.all_slices() if found.log_files]


def _require_no_savepoint(snapshot: Snapshot) -> None:
    """Raise TimelineError if a savepoint would have to be restored among old log files.

    A log file of layout 1 may have rows of several commits, so those of one cannot be deleted.
    """
    if not snapshot.config.layout.logs_name_slices or not _with_log_files(snapshot):
        return
    for savepoint in snapshot.timeline.savepoints():
        at = savepoint.requested_at
        raise TimelineError(
            at,
            "after the change, this savepoint could not be restored, because the table has log "
            f"files of version {snapshot.config.version}: compact the table before, or delete "
            f"the savepoint with table.delete_savepoint('{at}') "
            f"(bucketlake savepoint TABLE {at} --delete)",
        )


def _require_same_order(
    table: OpenTable, timeline: Timeline, target: TableConfig, drop: Sequence[str]
) -> None:
    """Raise ConfigError if commits would count in another order without completion times.

    Table services change no row, so their order does not matter.
    """
    if target.layout.has_completion_times:
        return
    is_merged = table.config.table_type is TableType.MERGE_ON_READ
    writes = {action.value for action in WRITES} - ({"commit"} if is_merged else set())
    times = {
        entry.requested_at: entry.completed_at
        for entry in read_archive(table, with_metadata=False)
        if entry.action in writes
    }
    for commit in timeline.completed_commits():
        completed_at = timeline.completion_time(commit.requested_at)
        if commit.action.value in writes and completed_at is not None:
            times[commit.requested_at] = completed_at
    for savepoint in timeline.savepoints():
        at = savepoint.requested_at
        if savepoint.state is State.COMPLETED and at in times:
            taken_at = savepoint.completed_at or times[at]
            late = [t for t, ended in times.items() if t < at and ended > taken_at]
            if late:
                raise ConfigError(
                    "to",
                    target.version,
                    f"commit {late[0]} began before the savepoint {at} and completed after it, so "
                    "a restore would keep it; delete the savepoint first with "
                    f"table.delete_savepoint('{at}') (bucketlake savepoint PATH {at} --delete)",
                )
    if COMPLETION_TIMES in drop:
        return
    if is_merged:
        _require_none_overtaken(table, timeline, drop)
    newest, newest_at = "", ""
    for at in sorted(times):
        if times[at] < newest_at:
            raise ConfigError(
                "drop",
                tuple(drop),
                f"commit {at} completed before commit {newest}, which began earlier, and without "
                "completion times commits count in the order in which they began: a reader that "
                "goes on from a completion time may miss rows. If there is none, give "
                f"drop={COMPLETION_TIMES!r} (--drop {COMPLETION_TIMES})",
            )
        newest, newest_at = at, times[at]


def _require_none_overtaken(table: OpenTable, timeline: Timeline, drop: Sequence[str]) -> None:
    """Raise ConfigError if a compaction completed before a write to its slices that began earlier.

    Without completion times, the log files of the write belong to the slices before it.
    """
    commits = timeline.read_commits(table.storage, timeline.completed_commits())
    compactions = [(made.requested_at, commit) for made, commit in commits if commit.compacted]
    for write, commit in commits:
        began_at, ended_at = write.requested_at, timeline.completion_time(write.requested_at)
        for at, compaction in compactions:
            is_overtaken = ended_at is not None and began_at < at < ended_at
            written = {stat.group for stat in commit.stats}  # Groups that it removed lose no rows.
            if is_overtaken and not written.isdisjoint(compaction.file_groups):
                raise ConfigError(
                    "drop",
                    tuple(drop),
                    f"compaction {at} overtook commit {began_at}, which began before it and "
                    "completed after it; without completion times, a read as of a time from "
                    f"{at} up to the next compaction misses rows of this commit. If there is no "
                    f"such read, give drop={COMPLETION_TIMES!r} (--drop {COMPLETION_TIMES})",
                )
