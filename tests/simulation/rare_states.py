"""Counters of rare states: which of them a run of the simulation reached.

A state is a place in the source, and perhaps a condition there. The counters are put into the code
by the tests (``tests/mutants.py``), so that the source knows nothing of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from bucketlake.actions import (
    commit,
    conflict,
    log_copies,
    pending,
    recovery,
    rollback,
    stream_batches,
    transact,
    turns,
)
from bucketlake.metadata.location_cache import refreshing
from bucketlake.timeline import (
    commit_order,
    data_file,
    heartbeat,
    locks,
    outcome,
    transitions,
)
from bucketlake.write import commit_checks
from tests.mutants import mutated, with_calls


@dataclass(frozen=True)
class RareState:
    """A state, and where a process is in it.

    Attributes
    ----------
    words : str
        The state.
    function : callable
        A function of the source.
    line : str
        A part of the statement that is run next.
    when : str
        A condition, in the words of the function.
    """

    words: str
    function: Callable[..., Any]
    line: str
    when: str = "True"

    @property
    def call(self) -> tuple[str, str]:
        """The line, and what is called before it."""
        return self.line, f"({self.when}) and _reached({self.words!r})"


RARE_STATES = [
    # Turns and outcomes.
    RareState("a commit was finished by another writer", turns._after,
              "finish(table, before.requested_at", "outcome is not None and outcome.publication"),
    RareState("a commit of a dead writer was finished", recovery.settle,
              "inflight = Instant(instant, action, State.INFLIGHT)"),
    RareState("a writer died between its turn and its decision", turns._decision,
              "return claim_rollback(storage, instant)"),
    RareState("a rollback won against a late publish", transact.publish,
              "is_of_another = pending.action in WRITES", "outcome.publication is None"),
    RareState("a turn was lost to another writer", transact.transact, "answer.if_lost()"),
    RareState("a turn was found free that had been dropped", commit_order.take_turn,
              "storage.delete(path)  # This writer's object"),
    RareState("the answer to a claim was lost", outcome._settle,
              "return replace(winner, won=", "winner.claim == claim.claim"),
    # Times.
    RareState("two writers drew one time", pending.begin_instant,
              "timeline = load_timeline(table)"),
    RareState("two actions drew one time", transitions.create_requested,
              '"another action has this time")'),
    RareState("a write drew a time before the timeline", transitions.create_requested,
              '"the time is too old by now")'),
    # Late processes and tasks.
    RareState("a file came after the rollback of its write", data_file.put_data_files,
              "for path, _ in objects:"),
    RareState("a task ran after the end of its write", transitions.require_pending,
              "raise CommitConflictError("),
    RareState("files of a late task were swept", recovery._sweep, "delete_files(table, instant)"),
    RareState("a commit was published after it was taken back", transitions._put_completed,
              "table.storage.delete(path)"),
    RareState("a commit was published again while it was undone", rollback.undo,
              "table.storage.delete(instant_path(table.config, published))"),
    RareState("a heartbeat was renewed", heartbeat._renew, "storage.put(_path(instant), content)"),
    RareState("a lease had ended before a decision", locks._Lease.check, "raise LockError("),
    RareState("a file lock was lost before a decision", locks.FileSystemLock.held,
              "raise LockError("),
    # Plans.
    RareState("a plan was withdrawn", pending.withdraw_plan, "take_back_metadata(table, instant)"),
    RareState("a plan was decided before it was withdrawn", pending.withdraw_plan,
              "        return False"),
    RareState("a restore of a dead writer was carried on", recovery._settle_all,
              "carry_out_restore(table, restore.requested_at)"),
    RareState("a rollback of a dead writer was carried on", recovery._settle_all,
              "carry_on_rollback(table, rollback)"),
    RareState("a resize was withdrawn", rollback.withdraw_resize, "undo_state(table.storage"),
    RareState("a write served a resize", log_copies.log_copies, "copies.append("),
    RareState("a resize completed while a write served it", commit._taken_over,
              "yield from keys"),
    # Conflicts.
    RareState("two writers wrote to one bucket", conflict.require_no_conflict,
              "raise CommitConflictError("),
    RareState("a write came into an overwritten partition",
              conflict.require_untouched_partitions, "raise CommitConflictError("),
    RareState("a shard got new keys of two writers", commit_checks.require_alone,
              "if common:", "common"),
    RareState("a write waited for another", conflict.wait_for_writers, "LOGGER.info("),
    RareState("a blind append followed one that it did not know", conflict.require_no_conflict,
              "if common:", "is_before and touched & written_keys(commit, group_key) - common"),
    RareState("a blind append was overtaken", conflict.require_no_conflict,
              "raise CommitConflictError(", "appends and other > instant"),
    RareState("a blind append waited for an earlier one", conflict.wait_for_earlier,
              "LOGGER.info("),
    RareState("a commit was archived since a write was planned", conflict.commits_since,
              "commits.append((entry.requested_at, commit))"),
    RareState("a commit was rolled back since a write was planned", conflict.require_kept,
              "raise CommitConflictError("),
    RareState("a write met an undoing", conflict.require_no_undoing,
              "raise CommitConflictError("),
    RareState("two drivers wrote one batch", stream_batches.carried_on,
              "if found is not None and not _Last(",
              "found is not None and not _Last(batch.batch_id, instant).replaces(found)"),
    RareState("a cached shard was not believed", refreshing.refresh_shard,
              "if state.coverage.is_newer_than(table):"),
]  # fmt: skip

IN_DIRECT_TESTS = {
    "a commit was published after it was taken back": (
        "test_a_commit_that_is_rolled_back_while_it_is_published_goes_again"
    ),
    "a commit was published again while it was undone": (
        "test_a_commit_that_a_slow_process_publishes_again_during_its_rollback_goes"
    ),
    "a commit was archived since a write was planned": (
        "test_commits_that_were_archived_since_the_pin_count_too"
    ),
}
"""States that two hundred crowds did not reach, each with the direct test that does."""


@contextmanager
def counted(counts: Counter[str]) -> Iterator[None]:
    """Count rare states while the body runs."""
    calls: dict[Callable[..., Any], list[tuple[str, str]]] = defaultdict(list)
    for state in RARE_STATES:
        calls[state.function].append(state.call)

    def reached(words: str) -> None:
        counts[words] += 1

    with ExitStack() as stack:
        for function, held in calls.items():
            change = with_calls(function, held)
            stack.enter_context(mutated(function, change, _reached=reached))
        yield


def never(counts: Counter[str]) -> list[str]:
    """Return the states that were not reached."""
    return [state.words for state in RARE_STATES if not counts[state.words]]
