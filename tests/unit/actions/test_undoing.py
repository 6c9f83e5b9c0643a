"""The order of the steps in which a commit or a resize is taken back."""

from __future__ import annotations

from collections.abc import Callable

from bucketlake.actions.commit import CommitPlan, commit_write
from bucketlake.actions.rollback import rollback_plan, undo, withdraw_resize
from bucketlake.timeline.commit_order import last_turn
from bucketlake.timeline.instant import Action
from bucketlake.timeline.outcome import Publication, claim_commit
from tests.faulty_storage import FaultyStorage
from tests.unit.actions.bare_table import BareTable, files_of


def test_a_commit_is_invisible_before_its_files_go_and_its_instant_goes_last(
    new_path: Callable[[], str],
) -> None:
    """A process that dies meanwhile leaves no commit without files."""
    table = BareTable.at(new_path())
    with table.begin() as write:
        files = files_of(write, 1, 2)
        for stat in files:
            table.storage.put(stat.path, b"rows")
        commit_write(write, CommitPlan(files))
    timeline = table.timeline()
    found = timeline.find_completed(write.instant)
    assert found is not None
    plan = rollback_plan(table.storage, timeline, found)
    traced = FaultyStorage(table.storage, reads_count=False)
    undo(table.over(traced).opened, plan, Action.COMMIT)
    pending = [
        f".hoodie/timeline/{write.instant}{end}" for end in (".commit.requested", ".inflight")
    ]
    steps = [timeline.path_of(found), *(stat.path for stat in files), *pending]
    deleted = [step.path for step in traced.trace if step.operation == "delete"]
    assert [path for path in deleted if path in steps] == steps


def test_a_resize_is_withdrawn_in_its_turn(new_path: Callable[[], str]) -> None:
    """Writes that took a turn before have all of their copies by then."""
    table = BareTable.at(new_path())
    instant = table.clock.next_instant(table.timeline())
    table.storage.put(f".hoodie/timeline/{instant}.clustering.inflight", b"")
    assert withdraw_resize(table.opened, instant)
    turn = last_turn(table.storage)
    assert turn is not None
    assert turn.instant == instant


def test_a_resize_that_was_decided_is_not_withdrawn(new_path: Callable[[], str]) -> None:
    table = BareTable.at(new_path())
    pending = table.leave(Action.CLUSTERING, b"plan")
    at = pending.requested_at
    assert claim_commit(table.storage, at, Publication(at, Action.REPLACE_COMMIT, b"{}")).won
    assert not withdraw_resize(table.opened, at)
    assert pending in table.timeline().instants
