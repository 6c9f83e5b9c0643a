"""The steps between a turn and a completed instant, one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake.actions.metadata_upkeep import PreparedCommit
from bucketlake.actions.pending import decide_plan
from bucketlake.actions.transact import Decision, publish
from bucketlake.actions.turns import head
from bucketlake.config.paths_of_table import OUTCOME_FOLDER
from bucketlake.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    LockError,
    StorageError,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline import heartbeat
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action, Instant, InstantClock, State, instant_to_ms
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.markers import Marker, MarkerType, read_markers, write_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import (
    Publication,
    claim_commit,
    claim_rollback,
    read_outcome,
)
from tests.fake_time import FakeTime
from tests.faulty_storage import FaultyStorage
from tests.meanwhile import LOOKS, meanwhile
from tests.storages import failing
from tests.unit.actions.bare_table import AHEAD, BareTable

WRITES = [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT]
EARLY = InstantTime("20240101000000000")
TIMELINE = ".hoodie/timeline"
PLANS = [Action.ROLLBACK, Action.RESTORE, Action.CLEAN]


@pytest.fixture
def table(new_path: Callable[[], str]) -> BareTable:
    return BareTable.at(new_path())


def decide(table: BareTable, pending: Instant, content: bytes = b"{}") -> Publication:
    """Decide that an instant is committed, at a time after all others."""
    at = table.clock.next_instant(table.timeline())
    publication = Publication(at, pending.action.completes_as, content)
    assert claim_commit(table.storage, pending.requested_at, publication).won
    return publication


def put_out(table: BareTable, pending: Instant, prepared: PreparedCommit | None = None) -> str:
    now = head(table.opened, own=pending.requested_at)
    return publish(now, Decision(pending, b"{}", prepared), lambda: None)


def test_without_turns_the_head_has_none_and_the_timeline_as_it_is(table: BareTable) -> None:
    left = table.leave(Action.COMMIT)
    now = head(table.opened)
    assert now.turn is None
    assert now.timeline.find(left.requested_at) == left
    assert table.decided(left.requested_at) is None


def test_the_head_completes_the_decided_commit_of_the_last_turn(table: BareTable) -> None:
    left = table.leave(Action.COMMIT)
    table.take(left.requested_at)
    publication = decide(table, left)
    now = head(table.opened)
    found = now.timeline.find_completed(left.requested_at)
    assert found is not None
    assert found.completed_at == publication.completed_at
    assert now.turn == last_turn(table.storage)


def test_the_head_leaves_commits_of_earlier_turns_alone(table: BareTable) -> None:
    left = table.leave(Action.COMMIT)
    table.take(left.requested_at)
    table.take(AHEAD)  # Of an instant that no timeline has.
    head(table.opened)
    assert table.decided(left.requested_at) is None


def test_the_head_does_not_wait_for_the_instant_of_its_caller(table: BareTable) -> None:
    own = table.leave(Action.COMMIT)
    table.take(own.requested_at)
    now = head(table.opened, own=own.requested_at)
    assert now.timeline.find(own.requested_at) == own
    assert table.decided(own.requested_at) is None


def test_a_turn_in_the_name_of_a_completed_commit_decides_nothing(table: BareTable) -> None:
    """A resize takes such a turn for its plan, and the commit may be Hudi's, without an outcome."""
    table.storage.put(f".hoodie/timeline/{EARLY}_20240101000001000.commit", b"{}")
    table.take(EARLY)
    head(table.opened)
    assert table.decided(EARLY) is None


@pytest.mark.parametrize("action", [*WRITES, Action.CLUSTERING])
def test_a_write_that_died_between_turn_and_decision_is_rolled_back(
    table: BareTable, action: Action
) -> None:
    left = table.leave(action)
    table.take(left.requested_at)
    now = head(table.opened)
    assert table.decided(left.requested_at) == "rollback"
    assert now.timeline.find_completed(left.requested_at) is None


def test_an_undecided_compaction_holds_nobody_up(table: BareTable) -> None:
    """It changes no row, and its plan may stay pending for years."""
    left = table.leave(Action.COMPACTION, b"plan")
    table.take(left.requested_at)
    head(table.opened)
    assert table.decided(left.requested_at) is None


def test_a_decided_compaction_is_completed_by_the_next_turn(table: BareTable) -> None:
    left = table.leave(Action.COMPACTION, b"plan")
    table.take(left.requested_at)
    decide(table, left)
    now = head(table.opened)
    assert now.timeline.find_completed(left.requested_at) is not None


def test_a_living_writer_is_waited_for_between_its_turn_and_its_decision(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = table.leave(Action.COMMIT)
    table.take(left.requested_at)
    clock = FakeTime(lambda: clock.seconds > 0.12 and decide(table, left))
    clock.installed(monkeypatch)
    with beating(table.storage, left.requested_at):
        now = head(table.opened)
    assert now.timeline.find_completed(left.requested_at) is not None
    assert 0.1 < clock.seconds < 0.5


def test_a_living_writer_that_does_not_decide_is_rolled_back_after_ten_seconds(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = table.leave(Action.COMMIT)
    table.take(left.requested_at)
    clock = FakeTime()
    clock.installed(monkeypatch)
    with beating(table.storage, left.requested_at):
        head(table.opened)
    assert table.decided(left.requested_at) == "rollback"
    assert 10 <= clock.seconds < 10.6


def test_the_clock_of_the_table_says_whether_a_writer_of_elsewhere_lives(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = table.leave(Action.COMMIT)
    table.take(left.requested_at)
    clock = FakeTime()
    clock.installed(monkeypatch)
    path = f".hoodie/.heartbeat/{left.requested_at}"
    table.storage.put(path, b'{"process": "of another machine"}')
    stored = table.storage.stat(path)
    assert stored is not None
    late = stored.modified_at_ms + heartbeat.EXPIRES_AFTER_MS + 1
    head(OpenTable(table.storage, table.config, InstantClock("UTC", lambda: late), NO_LOCK))
    assert clock.seconds == 0
    assert table.decided(left.requested_at) == "rollback"


def test_storage_that_fails_for_the_commit_of_another_is_no_unknown_outcome_of_the_caller(
    table: BareTable,
) -> None:
    left = table.leave(Action.COMMIT)
    table.take(left.requested_at)
    decide(table, left)
    with pytest.raises(StorageError, match="finish the commit of another writer") as caught:
        head(
            OpenTable(failing(table.storage, 1, 2, lands=False), table.config, table.clock, NO_LOCK)
        )
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert f"{left.requested_at}.json" in str(caught.value)


@pytest.mark.parametrize("action", [*WRITES, Action.COMPACTION, Action.CLUSTERING])
def test_an_instant_completes_after_the_instants_of_all_turns(
    table: BareTable, action: Action
) -> None:
    """Also after those that are on no timeline; else it were on the wrong side of them."""
    table.take(AHEAD)
    pending = table.leave(action, b"" if action in WRITES else b"plan")
    completed_at = put_out(table, pending)
    assert completed_at > AHEAD
    found = table.timeline().find_completed(pending.requested_at)
    assert found == Instant(
        pending.requested_at, action.completes_as, State.COMPLETED, InstantTime(completed_at)
    )


@pytest.mark.parametrize("action", PLANS)
def test_a_plan_that_changes_the_metadata_table_completes_after_the_instants_of_all_turns(
    table: BareTable, action: Action
) -> None:
    """A compaction of the metadata table has waited for earlier completion times only."""
    table.take(AHEAD)
    planned = table.leave(action, b"plan").requested_at
    took: list[int] = []

    def metadata(duration_ms: int) -> bytes:
        took.append(duration_ms)
        return b"{}"

    arguments = (
        table.opened,
        planned,
        action,
        metadata,
    )
    outcome = decide_plan(*arguments, b"of the metadata table")
    assert outcome.completed_at > AHEAD
    assert outcome.publication is not None
    assert outcome.publication.metadata_commit == b"of the metadata table"
    assert outcome.publication.action is action
    assert took == [instant_to_ms(outcome.completed_at, "UTC") - instant_to_ms(planned, "UTC")]
    assert read_outcome(table.storage, planned, action) is not None


@pytest.mark.parametrize("action", PLANS)
def test_a_plan_completes_after_all_that_is_on_the_timeline(
    table: BareTable, action: Action
) -> None:
    table.storage.put(f".hoodie/timeline/{EARLY}_{AHEAD}.commit", b"{}")
    planned = table.leave(action, b"plan").requested_at
    arguments = (
        table.opened,
        planned,
        action,
        lambda _: b"{}",
    )
    assert decide_plan(*arguments).completed_at > AHEAD


def test_nothing_is_decided_under_a_lock_that_was_lost(table: BareTable) -> None:
    pending = table.leave(Action.COMMIT)
    now = head(table.opened, own=pending.requested_at)

    def lost() -> None:
        raise LockError("the lock", "another writer", None)

    with pytest.raises(LockError):
        publish(now, Decision(pending, b"{}", None), lost)
    assert table.decided(pending.requested_at) is None
    assert not table.is_completed(pending.requested_at)


def test_what_another_process_rolled_back_is_not_published(table: BareTable) -> None:
    pending = table.leave(Action.COMMIT)
    claim_rollback(table.storage, pending.requested_at)
    with pytest.raises(CommitConflictError, match="rolled it back") as caught:
        put_out(table, pending)
    assert caught.value.instant == pending.requested_at
    assert table.state_of(pending.requested_at) is State.INFLIGHT


@pytest.mark.parametrize("action", WRITES)
def test_a_write_does_not_publish_what_another_action_decided_at_its_time(
    table: BareTable, action: Action
) -> None:
    pending = table.leave(action)
    decide(table, pending, b"of another")
    with pytest.raises(CommitConflictError):
        put_out(table, pending)
    assert not table.is_completed(pending.requested_at)


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.CLUSTERING])
def test_a_service_that_another_process_decided_completes_as_that_said(
    table: BareTable, action: Action
) -> None:
    pending = table.leave(action, b"plan")
    decided = decide(table, pending, b'{"of": "another"}')
    assert put_out(table, pending) == decided.completed_at
    found = table.timeline().find_completed(pending.requested_at)
    assert found is not None
    assert table.storage.read(table.timeline().path_of(found)) == decided.metadata


def test_the_outcome_has_all_that_another_process_needs_to_complete(
    table: BareTable,
) -> None:
    pending = table.leave(Action.COMPACTION, b"plan")
    prepared = PreparedCommit(b"of the metadata table", False)
    with pytest.raises(CommitConflictError):  # The table has no metadata table to complete.
        put_out(table, pending, prepared)
    outcome = read_outcome(table.storage, pending.requested_at)
    assert outcome is not None
    expected = Publication(outcome.completed_at, Action.COMMIT, b"{}", b"of the metadata table")
    assert outcome.publication == expected


def test_the_markers_go_once_the_instant_is_completed(table: BareTable) -> None:
    pending = table.leave(Action.COMMIT)
    write_markers(table.storage, pending.requested_at, [Marker("x", "f", MarkerType.CREATE)])
    put_out(table, pending)
    assert read_markers(table.storage, pending.requested_at) == []


def test_markers_that_storage_does_not_delete_are_no_failure_of_the_commit(
    table: BareTable,
) -> None:
    class KeepsFolders(FaultyStorage):
        def delete_folder(self, folder: str) -> None:
            raise StorageError(folder, "delete", "simulated")

    pending = table.leave(Action.COMMIT)
    write_markers(table.storage, pending.requested_at, [Marker("x", "f", MarkerType.CREATE)])
    put_out(table.over(KeepsFolders(table.storage)), pending)
    assert table.is_completed(pending.requested_at)
    assert read_markers(table.storage, pending.requested_at) != []


def test_a_turn_is_taken_after_the_one_that_the_head_saw(table: BareTable) -> None:
    first, second = (table.leave(Action.COMMIT).requested_at for _ in range(2))
    now = head(table.opened)
    assert take_turn(table.storage, first, now.turn)
    assert not take_turn(table.storage, second, now.turn), "another writer has taken it"
    turn = last_turn(table.storage)
    assert turn is not None
    assert (turn.number, turn.instant, turn.metadata_changed) == (1, first, False)
    later = head(table.opened, own=first)
    assert take_turn(table.storage, second, later.turn, changes_metadata=True)
    turn = last_turn(table.storage)
    assert turn is not None
    assert (turn.number, turn.instant, turn.metadata_changed) == (2, second, True)


def test_the_greatest_instant_of_all_turns_is_carried_on(table: BareTable) -> None:
    table.take(AHEAD)
    table.take(EARLY)
    turn = last_turn(table.storage)
    assert turn is not None
    assert (turn.instant, turn.floor) == (EARLY, AHEAD)


def test_a_commit_that_comes_while_the_head_is_read_takes_the_turn(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the head has the commit, or the turn after the head is gone."""
    late: list[InstantTime] = []
    meanwhile(monkeypatch, lambda: late.append(table.commit(1)), LOOKS, TIMELINE, after=True)
    now = head(table.opened)
    if now.timeline.find_completed(late[0]) is None:
        assert not take_turn(table.storage, EARLY, now.turn)


def test_a_table_whose_timeline_moves_takes_no_turn(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTime().installed(monkeypatch)  # Nobody waits for the writer.
    at = table.leave(Action.COMMIT).requested_at
    assert take_turn(table.storage, at, None, layout=1)
    with (
        beating(table.storage, at),
        pytest.raises(CommitConflictError, match="is being changed; repeat") as caught,
    ):
        head(table.opened)
    assert caught.value.instant == at


@pytest.mark.parametrize("action", [*WRITES, Action.COMPACTION])
def test_an_instant_is_decided_once_then_completed_and_its_markers_go_last(
    table: BareTable, action: Action
) -> None:
    pending = table.leave(action, b"" if action in WRITES else b"plan")
    write_markers(table.storage, pending.requested_at, [Marker("x", "f", MarkerType.CREATE)])
    traced = FaultyStorage(table.storage, reads_count=False)
    put_out(table.over(traced), pending)
    puts = [step.path for step in traced.trace if step.operation == "put_if_absent"]
    assert [path.rpartition("/")[0] for path in puts] == [OUTCOME_FOLDER, TIMELINE]
    assert [step.operation for step in traced.trace][2:] == ["delete_folder"]


@pytest.mark.parametrize(
    "after", [None, InstantTime("20240101000000000"), InstantTime("21000101000000000")]
)
def test_new_times_are_after_all_turns_and_after_a_given_time(
    table: BareTable, after: InstantTime | None
) -> None:
    table.take(AHEAD)
    now = head(table.opened)
    assert now.next_instant(after=after) > max(AHEAD, after or AHEAD)
