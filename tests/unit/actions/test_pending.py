"""Plans on the timeline: who puts them there, and who takes them off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake.actions.pending import begin_instant, put_plan, withdraw_plan
from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication, claim_commit, is_rolled_back
from bucketlake.timeline.transitions import create_requested, to_inflight
from tests.faulty_storage import FaultyStorage
from tests.unit.actions.bare_table import AHEAD, BareTable

PLANS = [Action.ROLLBACK, Action.RESTORE, Action.CLEAN]


@pytest.fixture
def table(new_path: Callable[[], str]) -> BareTable:
    return BareTable.at(new_path())


class TakenTwice:
    """A clock whose first two times are those of an instant that another writer has."""

    def __init__(self, table: BareTable, taken: InstantTime) -> None:
        self.table, self.taken, self.asked = table, taken, list[Timeline]()

    def next_instant(self, timeline: Timeline, after: InstantTime | None = None) -> InstantTime:
        self.asked.append(timeline)
        is_late = len(self.asked) > 2
        return self.table.clock.next_instant(timeline, after) if is_late else self.taken


def test_a_plan_takes_another_time_where_another_writer_has_its_time(table: BareTable) -> None:
    before, taken = table.timeline(), table.leave(Action.COMMIT).requested_at
    clock = TakenTwice(table, taken)
    given = (
        OpenTable(table.storage, table.config, clock, NO_LOCK),
        before,
        Action.ROLLBACK,
        b"plan",
    )
    at = put_plan(*given)  # type: ignore[arg-type]
    assert at > taken
    path = f".hoodie/timeline/{at}.rollback.requested"
    assert table.storage.read(path) == b"plan"
    assert [timeline.find(taken) is not None for timeline in clock.asked] == [False, True, True]


def test_what_begins_takes_another_time_and_lives_until_its_end(table: BareTable) -> None:
    before, taken = table.timeline(), table.leave(Action.COMMIT).requested_at
    clock = TakenTwice(table, taken)
    given = (
        OpenTable(table.storage, table.config, clock, NO_LOCK),
        before,
        Action.ROLLBACK,
        b"plan",
    )
    with begin_instant(*given) as (at, begun):  # type: ignore[arg-type]
        assert at > taken
        assert Instant(at, Action.ROLLBACK, State.REQUESTED) in begun.instants
        assert is_alive(table.storage, at, table.clock.now_ms)
        assert not is_alive(table.storage, taken, table.clock.now_ms)
    assert [timeline.find(taken) is not None for timeline in clock.asked] == [False, True, True]
    assert not is_alive(table.storage, at, table.clock.now_ms)
    assert table.storage.read(f".hoodie/timeline/{at}.rollback.requested") == b"plan"


def test_a_plan_is_later_than_all_turns(table: BareTable) -> None:
    table.take(AHEAD)
    assert put_plan(table.opened, table.timeline(), Action.CLEAN, b"plan") > AHEAD


def test_a_write_lives_before_it_is_on_the_timeline(table: BareTable) -> None:
    """Between the two, another process would treat it as dead."""
    traced = FaultyStorage(table.storage, reads_count=False)
    with table.over(traced).begin():
        puts = [step.path for step in traced.trace]
    assert puts[0].startswith(HEARTBEAT_FOLDER)
    assert puts[1].endswith(".requested")


@pytest.mark.parametrize("action", PLANS)
def test_a_plan_that_is_withdrawn_is_off_the_timeline_and_never_decided(
    table: BareTable, action: Action
) -> None:
    planned = table.leave(action, b"plan").requested_at
    assert withdraw_plan(table.opened, planned, action)
    assert table.state_of(planned) is None
    assert is_rolled_back(table.storage, planned, action)
    assert withdraw_plan(table.opened, planned, action), "again does no harm"


@pytest.mark.parametrize("action", PLANS)
def test_a_plan_that_is_decided_is_not_withdrawn(table: BareTable, action: Action) -> None:
    planned = table.leave(action, b"plan")
    at = planned.requested_at
    assert claim_commit(table.storage, at, Publication(at, action, b"{}")).won
    assert not withdraw_plan(table.opened, at, action)
    assert planned in table.timeline().instants


@pytest.mark.parametrize("action", PLANS)
def test_what_a_withdrawn_plan_wrote_to_the_metadata_table_goes(
    new_path: Callable[[], str], action: Action
) -> None:
    table = BareTable.at(new_path(), metadata_table=True)
    planned = table.leave(action, b"plan").requested_at
    path = f"{METADATA_TABLE_FOLDER}/.hoodie/timeline/{planned}.deltacommit.requested"
    table.storage.put(path, b"")
    assert withdraw_plan(table.opened, planned, action)
    assert table.storage.stat(path) is None


def test_several_processes_may_mark_an_instant_as_inflight(table: BareTable) -> None:
    at = table.clock.next_instant(table.timeline())
    create_requested(table.opened, at, Action.CLEAN, b"plan")
    for _ in range(2):
        to_inflight(table.opened, at, Action.CLEAN)
    assert table.state_of(at) is State.INFLIGHT
    assert table.storage.read(f".hoodie/timeline/{at}.clean.inflight") == b""
