"""Commit or rollback, exactly one."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bucketlake.errors import (
    CommitOutcomeUnknownError,
    FormatError,
    StorageError,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer, Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.instant import Action
from bucketlake.timeline.outcome import (
    Outcome,
    Publication,
    claim_commit,
    claim_rollback,
    delete_outcome,
    is_committed,
    old_commits,
    outcome_path,
    read_outcome,
)
from tests.faulty_storage import Effect, FaultyStorage
from tests.storages import failing, memory_of
from tests.unit.actions.bare_table import AHEAD, BareTable

INSTANT, COMPLETED_AT = InstantTime("20240102030405678"), InstantTime("20240102030406789")
METADATA = b"Obj\x01\x00\xff"
PUBLICATION = Publication(COMPLETED_AT, Action.DELTA_COMMIT, METADATA)
LOST = StorageError("x", "put if absent", "the connection broke")


def _commit(storage: Storage) -> Outcome:
    return claim_commit(storage, INSTANT, PUBLICATION)


def test_what_became_of_a_plan_says_nothing_of_a_write_that_draws_its_time_later(
    storage: Storage,
) -> None:
    assert claim_commit(storage, INSTANT, Publication(COMPLETED_AT, Action.ROLLBACK, METADATA)).won
    assert not claim_rollback(storage, INSTANT, Action.ROLLBACK).is_rollback
    assert read_outcome(storage, INSTANT) is None
    assert claim_rollback(storage, INSTANT).won
    assert claim_rollback(storage, INSTANT, Action.RESTORE).won


def test_first_claim_wins_and_holds_what_to_publish(storage: Storage) -> None:
    outcome = _commit(storage)
    assert outcome.won
    assert not outcome.is_rollback
    assert outcome.publication == PUBLICATION
    found = read_outcome(storage, INSTANT)
    assert found is not None
    assert (found.publication, found.claim, found.won) == (PUBLICATION, outcome.claim, False)


def test_content_is_the_json_that_the_format_tells(storage: Storage) -> None:
    commit = _commit(storage)
    path = ".hoodie/.bucket_index/ext/outcome/20240102030405678.json"
    assert outcome_path(INSTANT) == path
    content = json.loads(storage.read(path))
    assert content.pop("checksum")
    assert content == {
        "outcome": "commit",
        "completedAt": COMPLETED_AT,
        "action": "deltacommit",
        "metadata": "T2JqAQD/",
        "claim": commit.claim,
    }
    storage.delete(path)
    rollback = claim_rollback(storage, INSTANT)
    content = json.loads(storage.read(path))
    assert content.pop("checksum")
    assert content == {"outcome": "rollback", "claim": rollback.claim}


def test_commit_after_a_rollback_loses_to_it(storage: Storage) -> None:
    assert claim_rollback(storage, INSTANT).won
    outcome = _commit(storage)
    assert not outcome.won
    assert outcome.is_rollback
    assert outcome.publication is None


def test_rollback_after_a_commit_learns_what_to_publish(storage: Storage) -> None:
    _commit(storage)
    outcome = claim_rollback(storage, INSTANT)
    assert not outcome.won
    assert outcome.publication == PUBLICATION


def test_second_commit_publishes_under_the_completion_time_of_the_first(storage: Storage) -> None:
    _commit(storage)
    later = InstantTime("20240102030407890")
    outcome = claim_commit(storage, INSTANT, Publication(later, Action.DELTA_COMMIT, METADATA))
    assert not outcome.won
    assert outcome.completed_at == COMPLETED_AT


def test_what_was_rolled_back_before_the_timeline_is_not_committed(
    new_path: Callable[[], str],
) -> None:
    table = BareTable.at(new_path())
    undone, kept = (table.clock.next_instant(table.timeline()) for _ in range(2))
    claim_rollback(table.storage, undone)
    made = table.commit(1)
    timeline = table.timeline()
    assert timeline.start == made
    found = [is_committed(table.storage, timeline, one) for one in (undone, kept, made, AHEAD)]
    assert found == [False, True, True, False]


def test_claims_of_other_instants_do_not_meet(storage: Storage) -> None:
    assert _commit(storage).won
    assert claim_rollback(storage, InstantTime("20240102030405679")).won


def test_one_of_many_racing_claims_wins_and_all_learn_which(storage: Storage) -> None:

    def claim(number: int) -> Outcome:
        return _commit(storage) if number % 2 else claim_rollback(storage, INSTANT)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(claim, range(64)))
    assert sum(outcome.won for outcome in outcomes) == 1
    assert len({(outcome.claim, outcome.publication) for outcome in outcomes}) == 1


def test_put_that_failed_but_landed_has_won(storage: Storage) -> None:
    outcome = _commit(failing(storage, 1, lands=True))
    assert outcome.won
    assert read_outcome(storage, INSTANT) is not None


def test_put_that_never_landed_is_repeated(storage: Storage) -> None:
    assert _commit(failing(storage, 1, lands=False)).won
    assert read_outcome(storage, INSTANT) is not None


def test_put_that_failed_after_another_won_has_lost(storage: Storage) -> None:
    claim_rollback(storage, INSTANT)
    outcome = _commit(failing(storage, 1, lands=False))
    assert (outcome.won, outcome.is_rollback) == (False, True)


def test_own_put_that_a_client_repeated_by_itself_has_won(storage: Storage) -> None:
    # The first request lands and its answer is lost; the client's second one finds the path taken.
    assert _commit(failing(storage, 1, lands=True, effect=Effect.ECHO)).won


def test_storage_that_keeps_failing_leaves_the_outcome_unknown(storage: Storage) -> None:
    failing_storage = failing(storage, 1, 2, lands=False)
    with pytest.raises(CommitOutcomeUnknownError, match=f"{INSTANT}.*look at .*ext/outcome"):
        _commit(failing_storage)


class _Unreadable(MemoryStorage):
    """Takes a claim, fails to say so, and cannot be read."""

    def put_if_absent(self, path: str, data: Buffer) -> None:
        super().put_if_absent(path, data)
        raise LOST

    def read(self, path: str) -> bytes:
        raise LOST


def test_storage_that_cannot_be_read_either_leaves_the_outcome_unknown() -> None:
    with pytest.raises(CommitOutcomeUnknownError, match="the connection broke"):
        _commit(_Unreadable.fresh())


def test_claim_that_vanished_between_put_and_read_leaves_the_outcome_unknown() -> None:
    class Forgetting(MemoryStorage):
        """Somebody deletes the outcome before it is read."""

        def read(self, path: str) -> bytes:
            self.delete(path)
            return super().read(path)

    storage = Forgetting.fresh()
    claim_rollback(storage, INSTANT)
    with pytest.raises(CommitOutcomeUnknownError):
        _commit(storage)


def test_instant_that_nobody_claimed_has_no_outcome(storage: Storage) -> None:
    assert read_outcome(storage, INSTANT) is None
    claim_rollback(storage, INSTANT)
    delete_outcome(storage, INSTANT)
    assert read_outcome(storage, INSTANT) is None


def test_an_archival_does_not_read_the_rollbacks_of_all_times() -> None:
    storage = FaultyStorage(memory_of())
    for number in range(3):
        claim_rollback(storage, InstantTime(f"2024010203040{number}678"))
    _commit(storage)
    storage.trace.clear()
    assert [*old_commits(storage, AHEAD)] == [outcome_path(INSTANT)]
    assert [each.operation for each in storage.trace] == ["list"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        b'{"outcome": "maybe", "claim": "a"}',
        b'{"outcome": "rollback"}',
        b'{"outcome": "commit", "claim": "a"}',
        b'{"outcome": "commit", "claim": "a", "completedAt": "1", "action": "x", "metadata": ""}',
        b'{"outcome": "commit", "claim": "a", "completedAt": "1", "action": "commit",'
        b' "metadata": "*"}',
    ],
)
def test_garbage_is_refused_by_its_path(content: bytes) -> None:
    storage = memory_of({outcome_path(INSTANT): content})
    with pytest.raises(FormatError, match=outcome_path(INSTANT)):
        read_outcome(storage, INSTANT)


def test_outcome_travels_between_processes() -> None:
    outcome = Outcome("a", PUBLICATION, won=True)
    assert pickle.loads(pickle.dumps(outcome)) == outcome
