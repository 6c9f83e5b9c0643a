"""Each step of the transaction has a direct test that fails if the step is left out or misplaced.

Each case puts one fault into a function and runs the test that must notice it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from bucketlake.actions import commit, completion, transact, turns
from bucketlake.timeline import commit_order, outcome
from bucketlake.timeline.instant import Action
from tests.mutants import mutated
from tests.unit.actions import test_commit, test_completion, test_transact, test_turns
from tests.unit.actions.bare_table import BareTable

BEATS_FIRST = inspect.getsource(transact._takes)
BEATS_FIRST = BEATS_FIRST[
    BEATS_FIRST.index("        try:") : BEATS_FIRST.index("        if is_taken")
]
TRY, TURN = BEATS_FIRST.split("        layout = ready.layout", 1)
BEATS_LATER = f"        layout = ready.layout{TURN}{TRY}"
PUT_OUT = "finish(now.table, at, pending.action, outcome)\n"
MARKERS = (
    "with suppress(StorageError):  # The next write deletes leftover markers.\n"
    "        delete_markers(storage, at)\n"
)


@dataclass(frozen=True)
class Mutant:
    """A fault, and the test that notices it.

    Attributes
    ----------
    fault : str
        What is wrong.
    function : callable
        Where.
    old, new : str
        Part of the source of the function, and what stands there instead.
    test : callable
        The test that fails.
    given : mapping of str to object
        Parameters of the test that are no fixtures.
    """

    fault: str
    function: Callable[..., Any]
    old: str
    new: str
    test: Callable[..., Any]
    given: Mapping[str, Any] = field(default_factory=dict)


MUTANTS = [
    # The loop.
    Mutant("the loop does not know its own instant", transact.transact,
           "partial(head, table, own)", "partial(head, table)",
           test_transact.test_a_change_does_not_wait_for_its_own_instant),
    Mutant("a change is prepared again on the old head", transact.transact,
           "while True:\n        now = look()", "now = look()\n    while True:",
           test_transact.test_a_change_that_loses_its_turn_takes_back_and_prepares_on_the_newer_head),
    Mutant("what a lost turn prepared stays", transact.transact,
           "answer.if_lost()", "pass",
           test_transact.test_a_change_that_loses_its_turn_takes_back_and_prepares_on_the_newer_head),
    Mutant("a lost turn counts as taken", transact.transact,
           "if _takes(now, answer)", "if _takes(now, answer) or True",
           test_transact.test_a_change_that_loses_its_turn_takes_back_and_prepares_on_the_newer_head),
    Mutant("a turn is taken twice", transact.transact,
           "if _takes(now, answer)", "if _takes(now, answer) and _takes(look(), answer)",
           test_transact.test_a_change_takes_the_turn_after_the_head_that_it_saw),
    Mutant("no turn is taken", transact.transact,
           "if _takes(now, answer)", "if True",
           test_transact.test_a_change_takes_the_turn_after_the_head_that_it_saw),
    Mutant("a change that settled says that it took a turn", transact.transact,
           "took_turn=False", "took_turn=True",
           test_transact.test_a_change_that_settles_takes_no_turn),
    # The turn.
    Mutant("a new instant does not beat", transact._takes,
           "if ready.beats is not None:\n", "if False:\n",
           test_transact.test_a_new_instant_beats_from_before_its_turn_until_its_owner_ends),
    Mutant("the heartbeat ends with the turn", transact._takes,
           "ready.beats.push(attempt.pop_all())", "pass",
           test_transact.test_a_new_instant_beats_from_before_its_turn_until_its_owner_ends),
    Mutant("a new instant beats only after its turn", transact._takes,
           BEATS_FIRST, BEATS_LATER,
           test_transact.test_a_new_instant_beats_from_before_its_turn_until_its_owner_ends),
    Mutant("an instant of another writer counts as taken", transact._takes,
           "the instant.\n            return False", "\n            return True",
           test_transact.test_an_instant_that_another_writer_uses_takes_no_turn),
    Mutant("the turn does not say that it changes the metadata table", transact._takes,
           "ready.changes_metadata", "False",
           test_transact.test_a_turn_says_that_it_changes_the_metadata_table_or_the_layout),
    Mutant("the turn does not say the new layout", transact._takes,
           "layout = ready.layout", "layout = None",
           test_transact.test_a_turn_says_that_it_changes_the_metadata_table_or_the_layout),
    Mutant("the turn does not carry the layout on", transact._takes,
           "if layout is None and", "if False and",
           test_transact.test_a_turn_carries_the_layout_of_the_timeline_on),
    Mutant("a turn that is taken is won", commit_order.take_turn,
           "if not put_or_find(storage, path, content):",
           "if put_or_find(storage, path, content) is None:",
           test_turns.test_a_turn_is_taken_after_the_one_that_the_head_saw),
    Mutant("the turn forgets the greatest instant", commit_order.take_turn,
           "if after is not None and after.floor > instant:", "if False:",
           test_turns.test_the_greatest_instant_of_all_turns_is_carried_on),
    # The decision.
    Mutant("nothing is done between turn and decision", transact.commit_change,
           "done.value.between()", "pass",
           test_commit.test_copies_for_a_resize_are_made_between_the_turn_and_the_decision),
    Mutant("the decision comes first", transact.commit_change,
           "done.value.between()\n    return Committed(done.head, done.value, publish(done.head, "
           "done.value, require_held))",
           "made = Committed(done.head, done.value, publish(done.head, done.value, require_held))"
           "\n    done.value.between()\n    return made",
           test_commit.test_copies_for_a_resize_are_made_between_the_turn_and_the_decision),
    Mutant("the floor of the turns is ignored", transact.publish,
           "now.next_instant()", "now.table.clock.next_instant(now.timeline)",
           test_commit.test_a_commit_completes_after_the_instants_of_all_turns),
    Mutant("the lock is not looked at again", transact.publish,
           "require_held()\n", "pass\n",
           test_turns.test_nothing_is_decided_under_a_lock_that_was_lost),
    Mutant("the lock is looked at after the decision", transact.publish,
           "require_held()\n    metadata_commit = None if decision.prepared is None else "
           "decision.prepared.content\n    action = pending.action.completes_as\n    publication = "
           "Publication(completed_at, action, decision.content, metadata_commit)\n    outcome = "
           "claim_commit(storage, at, publication)\n",
           "metadata_commit = None if decision.prepared is None else "
           "decision.prepared.content\n    action = pending.action.completes_as\n    publication = "
           "Publication(completed_at, action, decision.content, metadata_commit)\n    outcome = "
           "claim_commit(storage, at, publication)\n    require_held()\n",
           test_turns.test_nothing_is_decided_under_a_lock_that_was_lost),
    Mutant("the outcome lacks the commit of the metadata table", transact.publish,
           "decision.content, metadata_commit", "decision.content, None",
           test_turns.test_the_outcome_has_all_that_another_process_needs_to_complete),
    Mutant("an instant is claimed twice", transact.publish,
           "outcome = claim_commit(storage, at, publication)",
           "claim_commit(storage, at, publication)\n"
           "    outcome = claim_commit(storage, at, publication)",
           test_turns.test_an_instant_completes_after_the_instants_of_all_turns,
           {"action": Action.COMMIT}),
    Mutant("a plan is claimed twice", transact.publish,
           "outcome = claim_commit(storage, at, publication)",
           "claim_commit(storage, at, publication)\n"
           "    outcome = claim_commit(storage, at, publication)",
           test_turns.test_an_instant_is_decided_once_then_completed_and_its_markers_go_last,
           {"action": Action.COMPACTION}),
    Mutant("a rollback that won is overlooked", transact.publish,
           "if outcome.publication is None or is_of_another:",
           "if outcome.publication is None:\n        return completed_at\n    if is_of_another:",
           test_turns.test_what_another_process_rolled_back_is_not_published),
    Mutant("the commit of another action counts as this one", transact.publish,
           "pending.action in WRITES and not outcome.won", "False",
           test_turns.test_a_write_does_not_publish_what_another_action_decided_at_its_time,
           {"action": Action.DELTA_COMMIT}),
    Mutant("a service does not end what another process decided", transact.publish,
           "pending.action in WRITES and not outcome.won", "not outcome.won",
           test_turns.test_a_service_that_another_process_decided_completes_as_that_said,
           {"action": Action.COMPACTION}),
    Mutant("a service completes as itself said", transact.publish,
           "return outcome.publication.completed_at", "return completed_at",
           test_turns.test_a_service_that_another_process_decided_completes_as_that_said,
           {"action": Action.CLUSTERING}),
    Mutant("a claim does not look who won", outcome._settle,
           "won=winner.claim == claim.claim", "won=True",
           test_turns.test_a_write_does_not_publish_what_another_action_decided_at_its_time,
           {"action": Action.COMMIT}),
    # The completion.
    Mutant("an instant is completed before it is decided", transact.publish,
           "outcome = claim_commit(storage, at, publication)",
           "from bucketlake.timeline.outcome import Outcome\n"
           "    finish(now.table, at, pending.action, Outcome('', publication))\n"
           "    outcome = claim_commit(storage, at, publication)",
           test_turns.test_an_instant_is_decided_once_then_completed_and_its_markers_go_last,
           {"action": Action.COMMIT}),
    Mutant("a decided instant is not completed", transact.publish,
           PUT_OUT, "pass\n",
           test_turns.test_an_instant_completes_after_the_instants_of_all_turns,
           {"action": Action.CLUSTERING}),
    Mutant("the markers go before the completion", transact.publish,
           f"{PUT_OUT}    {MARKERS}", f"{MARKERS}    {PUT_OUT}",
           test_turns.test_an_instant_is_decided_once_then_completed_and_its_markers_go_last,
           {"action": Action.COMMIT}),
    Mutant("the markers go before the decision", transact.publish,
           "require_held()\n", "require_held()\n    delete_markers(storage, at)\n",
           test_turns.test_an_instant_is_decided_once_then_completed_and_its_markers_go_last,
           {"action": Action.DELTA_COMMIT}),
    Mutant("the markers stay", transact.publish,
           "delete_markers(storage, at)", "pass",
           test_turns.test_the_markers_go_once_the_instant_is_completed),
    Mutant("markers that stay undo the commit", transact.publish,
           "with suppress(StorageError):", "if True:",
           test_turns.test_markers_that_storage_does_not_delete_are_no_failure_of_the_commit),
    Mutant("the metadata table is not completed", completion.complete_instant,
           "if publication.metadata_commit is not None:", "if False:",
           test_completion.test_the_metadata_table_completes_at_the_times_of_the_commit),
    Mutant("the metadata table is completed after the data table", completion.complete_instant,
           "if publication.metadata_commit is not None:\n            "
           "_complete_metadata(table, pending, publication)\n        "
           "completed = publish_completed(table, pending, publication)",
           "completed = publish_completed(table, pending, publication)\n        "
           "_complete_metadata(table, pending, publication)",
           test_completion.test_a_commit_whose_delta_commit_is_gone_is_not_published),
    Mutant("an unknown end is told as a failure", completion.complete_instant,
           "if publication.action is Action.SAVEPOINT:", "if True:",
           test_completion.test_publication_that_keeps_failing_is_unknown_and_not_to_be_retried),
    # The head.
    Mutant("the last turn is read after the timeline", turns.head,
           "return Head(table, turn, _after(table, turn, own))",
           "timeline = _after(table, turn, own)\n"
           "    return Head(table, last_turn(table.storage), timeline)",
           test_turns.test_a_commit_that_comes_while_the_head_is_read_takes_the_turn),
    Mutant("the commit of the last turn is left as it is", turns._after,
           "if turn is None or turn.instant == own:", "if True:",
           test_turns.test_the_head_completes_the_decided_commit_of_the_last_turn),
    Mutant("the head waits for its caller", turns._after,
           "turn.instant == own", "False",
           test_turns.test_the_head_does_not_wait_for_the_instant_of_its_caller),
    Mutant("the head has the timeline of before", turns._after,
           "finish(table, before.requested_at, before.action, outcome)\n    "
           "return load_timeline(table)",
           "finish(table, before.requested_at, before.action, outcome)\n    return timeline",
           test_turns.test_the_head_completes_the_decided_commit_of_the_last_turn),
    Mutant("a write that died is not rolled back", turns._decision,
           "return claim_rollback(storage, instant)", "return None",
           test_turns.test_a_write_that_died_between_turn_and_decision_is_rolled_back,
           {"action": Action.COMMIT}),
    Mutant("a living writer is not waited for", turns._decision,
           "if not is_alive(storage, instant, clock.now_ms):", "if True:",
           test_turns.test_a_living_writer_is_waited_for_between_its_turn_and_its_decision),
    Mutant("a pending compaction is waited for", turns._decision,
           "return None", "pass",
           test_turns.test_an_undecided_compaction_holds_nobody_up),
    Mutant("the moved timeline is not noticed", turns.head,
           "_require_layout(table, turn)", "pass",
           test_turns.test_a_table_whose_timeline_moves_takes_no_turn),
    # The checks of a write.
    Mutant("it is not looked whether the instant is still there", commit._checked,
           "_require_inflight(write, timeline)", "pass",
           test_commit.test_a_write_whose_instant_is_gone_does_not_commit),
    Mutant("a build with the same instant is overlooked", commit._checked,
           "now.turn.metadata_instant == write.instant", "False",
           test_commit.test_a_write_with_the_instant_of_a_build_does_not_commit),
    Mutant("what is being undone is overlooked", commit._checked,
           "require_no_undoing(write.instant, timeline)", "pass",
           test_commit.test_nothing_commits_while_something_is_being_undone,
           {"action": Action.RESTORE}),
    Mutant("savepoints are overlooked", commit._checked,
           "require_not_in_savepoint(write.instant, timeline)", "pass",
           test_commit.test_a_write_before_a_savepoint_does_not_commit_after_it),
    Mutant("what was rolled back meanwhile is overlooked", commit._checked,
           "require_kept(write.table, write.instant, write.pinned, timeline)", "pass",
           test_commit.test_a_write_on_a_commit_that_was_rolled_back_does_not_commit),
    Mutant("a conversion is overlooked", commit._checked,
           "require_not_converted(write.instant, since)", "pass",
           test_commit.test_a_write_planned_before_a_conversion_does_not_commit),
    Mutant("a clean after a compaction is overlooked", commit._checked,
           "cleaned=cleaned", "cleaned=False",
           test_commit.test_a_compaction_is_a_conflict_only_where_a_clean_came_after_it,
           {"cleaned": True}),
    Mutant("a served resize is a conflict", commit._checked,
           "if instant not in plan.served", "if True",
           test_commit.test_the_commit_of_a_resize_is_no_conflict_for_a_write_that_serves_it,
           {"is_served": True}),
    Mutant("where a write looked is overlooked", commit._checked,
           "*plan.looked_at, ", "",
           test_commit.test_a_bucket_that_a_write_looked_at_is_in_conflict_like_one_that_it_wrote),
    Mutant("the buckets since a resize are overlooked", commit._checked,
           ", *_taken_over(plan, timeline)", "",
           test_commit.test_after_a_resize_writes_to_the_new_buckets_are_in_conflict,
           {"is_completed": True}),
    Mutant("other commits are overlooked", commit._checked,
           "require_no_conflict(write.instant, touched, others, cleaned=cleaned, "
           "group_key=plan.group_key)", "pass",
           test_commit.test_of_two_writes_to_a_bucket_the_second_does_not_commit),
    Mutant("the checks of the plan are left out", commit._prepared,
           "check(view)", "pass",
           test_commit.test_a_check_that_fails_saves_nothing_and_takes_no_turn),
    Mutant("the plan is saved before its checks", commit._prepared,
           "for check in plan.checks:\n        check(view)\n    for save in plan.saves:\n"
           "        save(view)",
           "for save in plan.saves:\n        save(view)\n    for check in plan.checks:\n"
           "        check(view)",
           test_commit.test_a_check_that_fails_saves_nothing_and_takes_no_turn),
    Mutant("the plan is not saved", commit._prepared,
           "save(view)", "pass",
           test_commit.test_checks_come_first_then_saves_and_then_the_turn),
    Mutant("new partitions are not marked", commit._prepared,
           "_mark_partitions(write, by_partition(plan.stats))", "pass",
           test_commit.test_a_partition_is_marked_before_its_first_commit_and_once),
    Mutant("the lock is given up before the decision", commit.commit_write,
           "as require_held:\n        done", "as require_held:\n        pass\n    if True:\n"
           "        done",
           test_commit.test_the_lock_is_held_from_the_checks_to_the_publication),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault.replace(" ", "-"))
def test_a_faulty_step_of_the_transaction_fails_its_test(
    mutant: Mutant, new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"new_path": new_path, "monkeypatch": monkeypatch, **mutant.given}
    names = inspect.signature(mutant.test).parameters

    def run() -> None:
        given = {"table": BareTable.at(new_path()), **known}
        mutant.test(**{name: given[name] for name in names})

    run()  # The test holds; what fails next is the mutant's fault.
    monkeypatch.undo()
    with (
        mutated(mutant.function, mutant.old, mutant.new),
        pytest.raises((Exception, pytest.fail.Exception)) as caught,
    ):
        run()
    assert not isinstance(caught.value, (NameError, TypeError, AttributeError, SyntaxError))
