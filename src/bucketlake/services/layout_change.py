"""Moving a table's timeline into another layout, for a change of version.

The steps:

1. What is pending is ended, and what must not be pending raises an error. Log files are compacted,
   because the layouts name them in different ways. Those of layout 1 may stay: in layout 2 they
   keep their slices, but the commits that wrote them cannot be undone any more.
2. A turn in the order of commits says that the layout changes. From then on writers of the old
   layout raise CommitConflictError before they commit (``actions/turns.py``).
3. The timeline and the archive are written in the other layout, where nobody looks
   (``timeline/other_layout.py``), after a mark that names both places.
4. The properties are changed: this decides.
5. The old timeline and archive are deleted, then the mark.

If the process dies before step 4, the table is as it was, also for writers: the next turn undoes
step 2. The next change of version deletes what was written. If it dies after step 4, the next
change deletes the rest of the old timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from bucketlake.actions.cleaner import carry_out_clean
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.actions.turns import head
from bucketlake.config.paths_of_table import VERSION_CHANGE_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import TimelineLayout
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConfigError,
    TimelineError,
)
from bucketlake.flow.stage import Engine
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.table_type import TableType
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.commit_order import Head, last_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import WRITES, Action
from bucketlake.timeline.locks import Check
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

COMPLETION_TIMES = "completion_times"
"""What a downgrade to a layout without completion times may lose, in the words of callers."""

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


def move_timeline(
    table: OpenTable,
    target: TableConfig,
    decide: Callable[[Check], None],
    *,
    drop: Sequence[str],
    engine: Engine,
    require_held: Check,
) -> None:
    """Write the timeline in the layout of other properties, and have the caller put these.

    Parameters
    ----------
    table : OpenTable
        The table; the caller holds its lock.
    target : TableConfig
        The properties.
    decide : callable
        Puts the properties. It gets a check, which raises CommitConflictError if another writer
        took this process for dead.
    drop : sequence of str
        What may be lost.
    engine : Engine
        Compacts slices.
    require_held : callable
        Raises if the lock is lost.

    Raises
    ------
    CommitConflictError
        If another process writes to the table.
    """
    storage = table.storage
    source, place = TimelinePlace.of(table.config), TimelinePlace.of(target)
    look = partial(_settled_head, table, target, drop, engine)
    with _turn(table, target.layout, look) as instant:

        def require_own_turn() -> None:
            turn = last_turn(storage)
            if turn is None or turn.instant != instant:
                raise CommitConflictError(
                    instant, "another writer took this change of the version for dead; repeat it"
                )

        mark_move(storage, Move(source, place))
        delete_timeline(storage, place)
        copy_timeline(table, table.with_config(target))
        require_held()
        decide(require_own_turn)


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
            stack.enter_context(_turn(table, table.config.layout, partial(head, table)))
        delete_timeline(table.storage, move.left_by(table.config.layout))
        table.storage.delete(VERSION_CHANGE_FILE)


@contextmanager
def _turn(
    table: OpenTable, layout: TimelineLayout, look: Callable[[], Head]
) -> Iterator[InstantTime]:
    """Take a turn since which the timeline has a layout; give its instant.

    Its heartbeat ends with the body.
    """
    with ExitStack() as stack:
        while True:
            now = look()
            instant = now.next_instant()
            with suppress(AlreadyExistsError), ExitStack() as attempt:
                attempt.enter_context(beating(table.storage, instant))
                if now.take(instant, layout=layout.number):
                    stack.push(attempt.pop_all())
                    break
        yield instant


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
    for savepoint in snapshot.timeline.instants:
        if savepoint.action is Action.SAVEPOINT:
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
    for savepoint in timeline.completed():
        at = savepoint.requested_at
        if savepoint.action is Action.SAVEPOINT and at in times:
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
