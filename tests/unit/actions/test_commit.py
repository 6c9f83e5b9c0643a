"""The steps of a commit, one by one: checks, saves, turn, decision, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bucketlake.actions.commit import (
    CommitPlan,
    CommitView,
    PendingWrite,
    begin_write,
    commit_write,
)
from bucketlake.actions.rollback import rollback_plan, undo
from bucketlake.actions.transact import Decision, publish
from bucketlake.actions.turns import head
from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER
from bucketlake.errors import CommitConflictError, LockError
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.index.conflict_keys import (
    ConflictKey,
    key_of_slot,
    looked_at_keys,
)
from bucketlake.model.file_name import FileId, InstantTime, LogFileName
from bucketlake.model.position import Batch, Origin
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import CommitMetadata, LogCopy, WriteStat, by_partition
from bucketlake.storage.base import Storage
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.heartbeat import appended_by, delete_heartbeat, is_alive
from bucketlake.timeline.instant import Action, State
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.outcome import OutcomeKind, claim_rollback
from bucketlake.timeline.transitions import remove_pending
from tests.fake_time import FakeTime
from tests.meanwhile import PUTS, meanwhile
from tests.unit.actions.bare_table import AHEAD, BareTable, files_of, group_of


@pytest.fixture
def table(new_path: Callable[[], str]) -> BareTable:
    return BareTable.at(new_path())


def complete(
    table: BareTable, action: Action, operation: str, *buckets: int, **facts: Any
) -> InstantTime:
    """Complete a table service that wrote to some buckets."""
    pending = table.leave(action, b"plan")
    stats = [WriteStat(group_of(n), f"x/{group_of(n)}_0-0-0_1.parquet", "x") for n in buckets]
    content = encode_commit_metadata(CommitMetadata(operation, by_partition(stats), **facts))
    now = head(table.opened)
    publish(now, Decision(pending, content, None), lambda: None)
    return pending.requested_at


def log_of(write: PendingWrite, bucket: int) -> WriteStat:
    """Return a log file of a write, in a group that was there."""
    name = LogFileName(group_of(bucket), write.instant, 1, "1-0-1").to_file_name()
    return WriteStat(group_of(bucket), f"x/{name}", "x", write.instant)


def metadata_of(table: BareTable, instant: InstantTime) -> CommitMetadata:
    timeline = table.timeline()
    found = timeline.find_completed(instant)
    assert found is not None
    return timeline.read_commit(table.storage, found)


@contextmanager
def refused(table: BareTable, write: PendingWrite, words: str) -> Iterator[None]:
    """Assert that a write is in conflict, and that nothing of it was decided."""
    turn = last_turn(table.storage)
    with pytest.raises(CommitConflictError, match=words) as caught:
        yield
    assert caught.value.instant == write.instant
    assert table.decided(write.instant) is not OutcomeKind.COMMIT
    assert not table.is_completed(write.instant)
    assert last_turn(table.storage) == turn, "a write that is refused takes no turn"


@pytest.mark.parametrize(
    ("operation", "table_type", "action"),
    [
        (Operation.UPSERT, "copy_on_write", Action.COMMIT),
        (Operation.UPSERT, "merge_on_read", Action.DELTA_COMMIT),
        (Operation.DELETE, "merge_on_read", Action.DELTA_COMMIT),
        (Operation.INSERT_OVERWRITE, "copy_on_write", Action.REPLACE_COMMIT),
        (Operation.INSERT_OVERWRITE_TABLE, "merge_on_read", Action.REPLACE_COMMIT),
    ],
)
def test_a_write_begins_inflight_with_a_heartbeat_and_completes_as_its_action(
    new_path: Callable[[], str], operation: Operation, table_type: str, action: Action
) -> None:
    table = BareTable.at(new_path(), table_type=table_type)
    with table.begin(operation) as write:
        found = table.timeline().find(write.instant)
        assert found is not None
        assert (found.action, found.state, write.action) == (action, State.INFLIGHT, action)
        assert is_alive(table.storage, write.instant, table.clock.now_ms)
        assert write.pinned.find(write.instant) is None
        assert write.begun.find(write.instant) is not None
        completed_at = commit_write(write, CommitPlan(files_of(write, 1)))
    completed = table.timeline().find_completed(write.instant)
    assert completed is not None
    assert (completed.action, completed.completed_at) == (action, completed_at)
    assert not is_alive(table.storage, write.instant, table.clock.now_ms)
    turn = last_turn(table.storage)
    assert turn is not None
    assert turn.instant == write.instant
    assert metadata_of(table, write.instant).operation == operation.value


def test_a_commit_completes_after_the_instants_of_all_turns(table: BareTable) -> None:
    table.take(AHEAD)
    with table.begin() as write:
        assert commit_write(write, CommitPlan(files_of(write, 1))) > AHEAD


def test_a_write_whose_instant_is_gone_does_not_commit(table: BareTable) -> None:
    with table.begin() as write:
        remove_pending(table.opened, write.instant, write.action)
        with refused(table, write, "no longer on the timeline"):
            commit_write(write, CommitPlan(files_of(write, 1)))


def test_a_write_whose_instant_another_process_completed_does_not_commit_again(
    table: BareTable,
) -> None:
    with table.begin() as write:
        commit_write(write, CommitPlan(files_of(write, 1)))
        before, turn = table.timeline().instants, last_turn(table.storage)
        with pytest.raises(CommitConflictError, match="no longer on the timeline"):
            commit_write(write, CommitPlan(files_of(write, 2)))
    assert table.timeline().instants == before
    assert last_turn(table.storage) == turn


def test_a_write_that_was_rolled_back_before_its_decision_does_not_commit(
    table: BareTable,
) -> None:
    with table.begin() as write:
        claim_rollback(table.storage, write.instant)
        with pytest.raises(CommitConflictError, match="rolled it back"):
            commit_write(write, CommitPlan(files_of(write, 1)))
    assert not table.is_completed(write.instant)


@pytest.mark.parametrize("action", [Action.ROLLBACK, Action.RESTORE])
def test_nothing_commits_while_something_is_being_undone(table: BareTable, action: Action) -> None:
    with table.begin() as write:
        undoing = table.leave(action, b"plan")
        with refused(table, write, f"{action.value} {undoing.requested_at} is under way"):
            commit_write(write, CommitPlan(files_of(write, 1)))


def test_a_write_on_a_commit_that_was_rolled_back_does_not_commit(table: BareTable) -> None:
    base = table.commit(1)
    with table.begin() as write:
        timeline = table.timeline()
        found = timeline.find_completed(base)
        assert found is not None
        undo(
            table.opened,
            rollback_plan(table.storage, timeline, found),
            Action.COMMIT,
        )
        with refused(table, write, f"instant {base} was rolled back meanwhile"):
            commit_write(write, CommitPlan(files_of(write, 2)))


def test_a_write_with_the_instant_of_a_build_does_not_commit(table: BareTable) -> None:
    """Both would write log files of one name to the metadata table."""
    with table.begin() as write:
        assert take_turn(table.storage, write.instant, None, changes_metadata=True)
        with refused(table, write, "a build of the metadata table has the same instant"):
            commit_write(write, CommitPlan(files_of(write, 1)))


def test_a_write_before_a_savepoint_does_not_commit_after_it(new_path: Callable[[], str]) -> None:
    """Commits of table version 6 count in the order in which they began."""
    table = BareTable.at(new_path(), version=6)
    with table.begin() as write:
        savepoint = table.leave(Action.SAVEPOINT).requested_at
        with refused(table, write, f"savepoint {savepoint} of a later commit was made meanwhile"):
            commit_write(write, CommitPlan(files_of(write, 1)))


def test_of_two_writes_to_a_bucket_the_second_does_not_commit(table: BareTable) -> None:
    with table.begin() as write:
        other = table.commit(1, 2)
        with refused(table, write, f"instant {other} changed bucket 2 of partition 'x'"):
            commit_write(write, CommitPlan(files_of(write, 2, 3)))


def test_writes_to_other_buckets_and_partitions_commit_both(table: BareTable) -> None:
    with table.begin() as write:
        table.commit(1)
        commit_write(write, CommitPlan([*files_of(write, 2), *files_of(write, 1, partition="y")]))
    assert table.is_completed(write.instant)


def test_a_blind_append_follows_one_that_it_did_not_know(table: BareTable) -> None:
    """Unless that one was requested later."""
    with table.begin() as first, table.begin() as second:
        logs = [[log_of(write, 1)] for write in (first, second)]
        commit_write(first, CommitPlan(logs[0], appends=True))
        commit_write(second, CommitPlan(logs[1], appends=True))
    with table.begin() as first, table.begin() as second:
        commit_write(second, CommitPlan([log_of(second, 1)], appends=True))
        with refused(table, first, f"instant {second.instant} changed bucket 1"):
            commit_write(first, CommitPlan([log_of(first, 1)], appends=True))


def test_what_a_write_replaces_is_what_it_touched(table: BareTable) -> None:
    with table.begin(Operation.INSERT_OVERWRITE) as write:
        table.commit(4)
        with refused(table, write, "changed bucket 4"):
            commit_write(write, CommitPlan(files_of(write, 1), {"x": (group_of(4),)}))
    with table.begin() as write:
        replacing = table.commit(
            1, operation=Operation.INSERT_OVERWRITE, replaced={"x": (group_of(5),)}
        )
        with refused(table, write, f"instant {replacing} changed bucket 5"):
            commit_write(write, CommitPlan(files_of(write, 5)))


def test_a_bucket_that_a_write_looked_at_is_in_conflict_like_one_that_it_wrote(
    table: BareTable,
) -> None:
    """A delete that found nothing promises that the keys are absent after it."""
    with table.begin(Operation.DELETE) as write:
        other = table.commit(1)
        with refused(table, write, f"instant {other} changed bucket 1 of partition 'x'"):
            commit_write(write, CommitPlan(looked_at={key_of_slot("x", 1)}))
    with table.begin(Operation.DELETE) as write:
        table.commit(1)
        commit_write(write, CommitPlan(looked_at={key_of_slot("x", 2), key_of_slot("y", 1)}))
    assert table.is_completed(write.instant)


def test_a_commit_says_where_it_looked_without_writing(table: BareTable) -> None:
    looked_at = {key_of_slot("x", 1), key_of_slot("x", 2), key_of_slot("y", 7)}
    at = table.commit(1, operation=Operation.DELETE, looked_at=looked_at)
    expected = looked_at - {key_of_slot("x", 1)}
    assert looked_at_keys(metadata_of(table, at), "it") == expected


def test_the_rule_of_the_layout_says_what_a_commit_touched(table: BareTable) -> None:
    def one(partition: str, _: FileId) -> ConflictKey:
        return partition, "all of it"

    with table.begin() as write:
        table.commit(1)
        with refused(table, write, "changed file group all of it of partition 'x'"):
            commit_write(write, CommitPlan(files_of(write, 2), group_key=one))


def test_a_write_planned_before_a_conversion_does_not_commit(table: BareTable) -> None:
    with table.begin() as write:
        other = table.commit(extra={"bucketlake.conversion": "SIMPLE"})
        with refused(table, write, f"instant {other} converted the table"):
            commit_write(write, CommitPlan(files_of(write, 1)))


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_compaction_is_a_conflict_only_where_a_clean_came_after_it(
    new_path: Callable[[], str], cleaned: bool
) -> None:
    """Then a write that was planned before may have missed the file group."""
    table = BareTable.at(new_path(), table_type="merge_on_read")
    with table.begin() as write:
        complete(table, Action.COMPACTION, "compact", 1, compacted=True)
        if cleaned:
            at = table.clock.next_instant(table.timeline())
            table.storage.put(f".hoodie/timeline/{at}_{at}.clean", b"")
        if cleaned:
            with refused(table, write, "changed bucket 1"):
                commit_write(write, CommitPlan(files_of(write, 1)))
        else:
            commit_write(write, CommitPlan(files_of(write, 1)))
            assert table.is_completed(write.instant)


def test_a_clean_alone_is_no_conflict(table: BareTable) -> None:
    with table.begin() as write:
        at = table.clock.next_instant(table.timeline())
        table.storage.put(f".hoodie/timeline/{at}_{at}.clean", b"")
        commit_write(write, CommitPlan(files_of(write, 1)))
    assert table.is_completed(write.instant)


@pytest.mark.parametrize("is_served", [False, True])
def test_the_commit_of_a_resize_is_no_conflict_for_a_write_that_serves_it(
    table: BareTable, is_served: bool
) -> None:
    with table.begin() as write:
        resize = complete(table, Action.CLUSTERING, "CLUSTER", 1)
        plan = CommitPlan(files_of(write, 1), served={resize: set()} if is_served else {})
        if is_served:
            commit_write(write, plan)
            assert table.is_completed(write.instant)
        else:
            with refused(table, write, f"instant {resize} changed bucket 1"):
                commit_write(write, plan)


@pytest.mark.parametrize("is_completed", [False, True])
def test_after_a_resize_writes_to_the_new_buckets_are_in_conflict(
    table: BareTable, is_completed: bool
) -> None:
    with table.begin() as write:
        resize = InstantTime("20240101000000000")
        if is_completed:
            resize = complete(table, Action.CLUSTERING, "CLUSTER", 1)
        other = table.commit(6)
        plan = CommitPlan(files_of(write, 1), served={resize: {key_of_slot("x", 6)}})
        if is_completed:
            with refused(table, write, f"instant {other} changed bucket 6"):
                commit_write(write, plan)
        else:
            commit_write(write, plan)
            assert table.is_completed(write.instant)


def test_checks_come_first_then_saves_and_then_the_turn(table: BareTable) -> None:
    table.commit(1)
    turn = last_turn(table.storage)
    seen: list[str] = []

    def step(name: str) -> Callable[[CommitView], None]:
        def note(view: CommitView) -> None:
            seen.append(name)
            assert view.write is write
            assert view.turn == last_turn(table.storage) == turn
            assert [instant for instant, _ in view.since] == []
            assert view.timeline.find(write.instant) is not None

        return note

    with table.begin() as write:
        commit_write(
            write,
            CommitPlan(
                files_of(write, 2),
                checks=(step("first check"), step("second check")),
                saves=(step("first save"), step("second save")),
            ),
        )
    assert seen == ["first check", "second check", "first save", "second save"]


def test_a_check_that_fails_saves_nothing_and_takes_no_turn(table: BareTable) -> None:
    saved: list[CommitView] = []

    def check(view: CommitView) -> None:
        assert [instant for instant, _ in view.since] == [other]
        raise CommitConflictError(view.write.instant, "the check failed")

    with table.begin() as write:
        other = table.commit(5)
        with refused(table, write, "the check failed"):
            commit_write(
                write, CommitPlan(files_of(write, 1), checks=(check,), saves=(saved.append,))
            )
    assert saved == []


def test_a_commit_checks_again_where_another_writer_took_the_turn(table: BareTable) -> None:
    views: list[CommitView] = []

    def overtake(view: CommitView) -> None:
        views.append(view)
        if len(views) == 1:
            table.commit(2)

    with table.begin() as write:
        commit_write(write, CommitPlan(files_of(write, 1), saves=(overtake,)))
    assert [len(view.since) for view in views] == [0, 1]
    turns = [last_turn(table.storage), views[1].turn]
    assert [turn.number for turn in turns if turn is not None] == [2, 1]
    with table.begin() as write:
        views.clear()
        with pytest.raises(CommitConflictError, match="changed bucket 2"):
            commit_write(write, CommitPlan(files_of(write, 2), saves=(overtake,)))
    assert not table.is_completed(write.instant)


def marker_of(table: BareTable, partition: str) -> str:
    return table.storage.read(f"{partition}/.hoodie_partition_metadata").decode()


def test_a_partition_is_marked_before_its_first_commit_and_once(table: BareTable) -> None:
    with table.begin() as first:
        plan = CommitPlan([*files_of(first, 1, partition="a/b"), *files_of(first, 1)])
        commit_write(first, replace(plan, saves=(lambda _: marker_of(table, "a/b") and None,)))
    assert f"commitTime={first.instant}" in marker_of(table, "a/b")
    assert "partitionDepth=2" in marker_of(table, "a/b")
    assert "partitionDepth=1" in marker_of(table, "x")
    table.commit(2)
    assert f"commitTime={first.instant}" in marker_of(table, "x")


def test_a_partition_with_stored_groups_is_not_looked_up(table: BareTable) -> None:
    """Their commit marked it, and a request for each partition is slow."""
    with table.begin() as write:
        opened, stored = files_of(write, 1, 2)
        later = files_of(write, 1, partition="y")
        commit_write(write, CommitPlan([opened, replace(stored, opens_group=False), *later]))
    assert table.storage.stat("x/.hoodie_partition_metadata") is None
    assert f"commitTime={write.instant}" in marker_of(table, "y")


def test_a_marker_that_another_writer_puts_first_stays(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "x/.hoodie_partition_metadata"

    class Late(type(table.storage)):  # type: ignore[misc]
        def stat(self, asked: str) -> object:
            return None if asked == path else super().stat(asked)

    table.storage.put(path, b"of another")
    late = table.over(Late(table.storage.root.removeprefix("memory://")))
    late.commit(1)
    assert marker_of(table, "x") == "of another"


def test_a_commit_has_the_files_the_groups_and_the_words_of_its_plan(table: BareTable) -> None:
    batch = Batch("q", 7)
    with table.begin(Operation.INSERT_OVERWRITE) as write:
        files = files_of(write, 1, 2)
        plan = CommitPlan(
            files, {"y": (group_of(3),)}, extra={"word": "said"}, origin=Origin(batch)
        )
        commit_write(write, plan)
    made = metadata_of(table, write.instant)
    assert [stat.path for stat in made.stats] == [stat.path for stat in files]
    assert made.replaced_file_ids == {"y": (group_of(3),)}
    assert made.extra["word"] == "said"
    assert write.instant in made.extra["bucketlake.batches"]
    with table.begin() as write, refused(table, write, "batch 7 of query 'q' was committed"):
        commit_write(write, CommitPlan(files_of(write, 4), origin=Origin(batch)))
    assert "7" in metadata_of(table, table.commit(5)).extra["bucketlake.batches"]


@dataclass(frozen=True)
class NotedLock:
    """A lock that notes when it is taken, looked at and given up, and may be lost."""

    noted: list[str] = field(default_factory=list)
    is_lost: bool = False

    @contextmanager
    def held(self, storage: Storage) -> Iterator[LockCheck]:
        def check() -> None:
            self.noted.append("held?")
            if self.is_lost:
                raise LockError("the lock", "another writer", None)

        assert storage.root.startswith("memory:")
        self.noted.append("taken")
        try:
            yield check
        finally:
            self.noted.append("given up")


def test_the_lock_is_held_from_the_checks_to_the_publication(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = NotedLock()
    with table.begin(lock=lock) as write:
        meanwhile(monkeypatch, lambda: lock.noted.append("published"), PUTS, ".hoodie/timeline/")
        commit_write(
            write,
            CommitPlan(files_of(write, 1), checks=(lambda _: lock.noted.append("checked"),)),
        )
    assert lock.noted == ["taken", "checked", "held?", "published", "given up"]


def test_a_write_that_lost_its_lock_is_not_decided(table: BareTable) -> None:
    lock = NotedLock(is_lost=True)
    with table.begin(lock=lock) as write, pytest.raises(LockError):
        commit_write(write, CommitPlan(files_of(write, 1)))
    assert table.decided(write.instant) is None
    assert lock.noted == ["taken", "held?", "given up"]


def test_a_blind_append_waits_for_the_one_before_it_without_the_lock(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one needs the lock to commit."""
    before = table.leave(Action.DELTA_COMMIT).requested_at
    told = b'{"process": "of another machine", "appends": {"x": ["00000001"]}}'
    table.storage.put(f"{HEARTBEAT_FOLDER}/{before}", told)
    lock = NotedLock()

    def look() -> None:
        lock.noted.append("waited")
        delete_heartbeat(table.storage, before)

    FakeTime(look).installed(monkeypatch)
    opened = replace(table.opened, lock=lock)
    slots = {key_of_slot("x", 1)}
    with begin_write(opened, table.timeline(), Operation.UPSERT, slots) as write:
        assert write.appended == slots == appended_by(table.storage, write.instant)
        commit_write(write, CommitPlan(files_of(write, 1)))
    assert lock.noted == ["waited", "taken", "held?", "given up"]


def test_copies_for_a_resize_are_made_between_the_turn_and_the_decision(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no resize completes meanwhile, and the commit names its copies."""
    table = BareTable.at(new_path(), table_type="merge_on_read")
    resize = table.leave(Action.CLUSTERING, b"plan").requested_at
    made, named = list[InstantTime](), list[str]()

    def noted() -> None:
        turn = last_turn(table.storage)
        assert turn is not None
        assert table.decided(turn.instant) is None
        named.extend(marker.data_path for marker in read_markers(table.storage, turn.instant))
        made.append(turn.instant)

    meanwhile(monkeypatch, noted, ("duplicate",), "x/")
    with table.begin() as write:
        name = LogFileName(group_of(1), write.instant, 1, "1-0-1").to_file_name()
        copy = LogCopy(group_of(6), resize, 0)
        table.storage.put(f"x/{name}", b"rows")
        commit_write(write, CommitPlan([WriteStat(group_of(1), f"x/{name}", "x", log_copy=copy)]))
    paths = [stat.path for stat in metadata_of(table, write.instant).stats]
    assert made == [write.instant]
    assert len(paths) == 2
    assert [table.storage.read(path) for path in paths] == [b"rows", b"rows"]
    assert named == paths[1:], "a rollback finds the copy, whenever its writer dies"
