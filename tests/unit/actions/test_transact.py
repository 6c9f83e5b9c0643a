"""The loop that takes turns: prepared on the newest head, taken once, taken back when lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from bucketlake.actions.transact import AGAIN, Again, Answer, Done, Ready, Settled, T, transact
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER, HEARTBEAT_FOLDER
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.commit_order import Head, last_turn, take_turn
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import Action
from tests.faulty_storage import FaultyStorage
from tests.unit.actions.bare_table import BareTable

OWN = InstantTime("20300101000000000")
OTHER = InstantTime("20300101000000001")


@pytest.fixture
def table(new_path: object) -> BareTable:
    assert callable(new_path)
    return BareTable.at(new_path())


def run(table: BareTable, change: Callable[[Head], Answer[T]]) -> Done[T]:
    """Take a turn on the state as it is; the turns of these tests have no instants to finish."""

    def look() -> Head:
        return Head(table.opened, last_turn(table.storage), table.timeline())

    return transact(table.opened, change, look=look)


def test_a_change_takes_the_turn_after_the_head_that_it_saw(table: BareTable) -> None:
    before = take(table)
    done = run(table, lambda _: Ready(OWN, "made"))
    assert done.took_turn
    assert done.value == "made"
    assert done.head.turn == before
    newest = last_turn(table.storage)
    assert newest is not None
    assert (newest.instant, newest.number) == (OWN, 2)


def take(table: BareTable) -> object:
    table.take(OTHER)
    return last_turn(table.storage)


def test_a_change_that_loses_its_turn_takes_back_and_prepares_on_the_newer_head(
    table: BareTable,
) -> None:
    seen: list[object] = []
    lost: list[object] = []

    def change(now: Head) -> Ready[int]:
        seen.append(now.turn)
        assert len(seen) <= 2, "prepared on the old head again"
        if len(seen) == 1:
            assert take_turn(table.storage, OTHER, now.turn)
        number = len(seen)
        return Ready(OWN, number, if_lost=lambda: lost.append(number))

    assert run(table, change).value == 2
    assert lost == [1]
    assert seen[0] is None
    assert getattr(seen[1], "instant", None) == OTHER


def test_a_change_that_settles_takes_no_turn(table: BareTable) -> None:
    done = run(table, lambda _: Settled("nothing to do"))
    assert (done.value, done.took_turn) == ("nothing to do", False)
    assert last_turn(table.storage) is None


def test_a_change_that_waits_looks_again_and_takes_no_turn_before(table: BareTable) -> None:
    answers: list[Again | Ready[None]] = [AGAIN, AGAIN, Ready(OWN, None)]
    run(table, lambda _: answers.pop(0))
    newest = last_turn(table.storage)
    assert newest is not None
    assert newest.number == 1
    assert answers == []


def test_a_new_instant_beats_from_before_its_turn_until_its_owner_ends(table: BareTable) -> None:
    now_ms = table.clock.now_ms
    traced = FaultyStorage(table.storage, reads_count=False)
    with ExitStack() as beats:
        run(table.over(traced), lambda _: Ready(OWN, None, beats=beats))
        folders = [step.path.rpartition("/")[0] for step in traced.trace]
        assert folders == [HEARTBEAT_FOLDER, COMMIT_ORDER_FOLDER]
        assert is_alive(table.storage, OWN, now_ms)
    assert not is_alive(table.storage, OWN, now_ms)


def test_an_instant_that_another_writer_uses_takes_no_turn(table: BareTable) -> None:
    instants = [OTHER, OWN]
    with ExitStack() as others, ExitStack() as beats:
        run(table, lambda _: Ready(OTHER, None, beats=others))

        def change(_: Head) -> Ready[None]:
            return Ready(instants.pop(0), None, beats=beats)

        run(table, change)
        newest = last_turn(table.storage)
        assert newest is not None
        assert (newest.instant, newest.number) == (OWN, 2)
    assert instants == []


def test_a_turn_says_that_it_changes_the_metadata_table_or_the_layout(table: BareTable) -> None:
    run(table, lambda _: Ready(OWN, None, changes_metadata=True, layout=2))
    newest = last_turn(table.storage)
    assert newest is not None
    assert newest.metadata_changed
    assert newest.layout == 2


def test_a_turn_carries_the_layout_of_the_timeline_on(table: BareTable) -> None:
    run(table, lambda _: Ready(OTHER, None, layout=1))
    run(table, lambda _: Ready(OWN, None))
    newest = last_turn(table.storage)
    assert newest is not None
    assert (newest.instant, newest.layout) == (OWN, table.config.layout.number)


def test_a_change_does_not_wait_for_its_own_instant(table: BareTable) -> None:
    """It would roll itself back."""
    own = table.leave(Action.COMMIT).requested_at
    table.take(own)
    done = transact(table.opened, lambda _: Ready(own, None), own=own)
    assert done.took_turn
    assert table.decided(own) is None
