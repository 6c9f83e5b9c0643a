"""Commits take turns: each number is taken once, and the last one is found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from bucketlake.errors import FormatError, StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.commit_order import Turn, last_turn, stray_turns, take_turn
from tests.faulty_storage import Effect, Fault, FaultyStorage, Moment

FOLDER = ".hoodie/.bucket_index/ext/commit_order"


def instant(number: int) -> InstantTime:
    return InstantTime(f"{20260101000000000 + number}")


def test_numbers_follow_one_another_and_few_are_kept(storage: Storage) -> None:
    assert last_turn(storage) is None
    for number in range(1, 31):
        before = last_turn(storage)
        assert take_turn(storage, instant(number), after=before)
        assert not take_turn(storage, instant(99), after=before)
        assert last_turn(storage) == Turn(number, instant(number))
    assert len(list(storage.list(FOLDER))) == 8


def test_of_many_at_once_one_takes_a_number(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: take_turn(storage, instant(n), after=None), range(64)))
    assert won.count(True) == 1
    assert last_turn(storage) == Turn(1, instant(won.index(True)))


def test_a_put_whose_answer_was_lost_is_known_again(storage: Storage) -> None:
    faulty = FaultyStorage(storage, [Fault(1, Moment.AFTER, Effect.ECHO)])
    assert take_turn(faulty, instant(1), after=None)


def test_the_greatest_instant_of_all_turns_is_carried_on(storage: Storage) -> None:
    """A compaction of the metadata table is on no timeline that later writers read."""
    for number, later in ((5, None), (9, None), (3, 9), (7, 9), (9, None), (12, None), (1, 12)):
        assert take_turn(storage, instant(number), after=last_turn(storage))
        found = last_turn(storage)
        assert found is not None
        assert found.instant == instant(number)
        assert found.later_instant == (None if later is None else instant(later))
        assert found.floor == instant(later or number)
    assert take_turn(storage, instant(2), after=last_turn(storage), changes_metadata=True)
    found = last_turn(storage)
    assert found == Turn(8, instant(2), True, instant(2), later_instant=instant(12))


def test_a_put_that_failed_says_so(storage: Storage) -> None:
    faulty = FaultyStorage(storage, [Fault(1, Moment.BEFORE, Effect.ERROR)])
    with pytest.raises(StorageError):
        take_turn(faulty, instant(1), after=None)


def test_the_last_change_of_the_metadata_table_is_carried_on(storage: Storage) -> None:
    for number, changes in ((1, False), (2, True), (3, False), (4, True), (5, False)):
        take_turn(storage, instant(number), last_turn(storage), changes_metadata=changes)
        found = last_turn(storage)
        assert found is not None
        assert found.metadata_changed is (number > 1)
        assert found.metadata_instant == {1: None, 2: instant(2), 3: instant(2)}.get(
            number, instant(4)
        )


def test_a_broken_turn_is_named(storage: Storage) -> None:
    for content in (b"rubbish", b"202601010 claim floor=../x"):
        storage.put(f"{FOLDER}/000000000001", content)
        with pytest.raises(FormatError, match="commit_order/000000000001"):
            last_turn(storage)


def test_a_number_that_was_dropped_is_not_taken_again(storage: Storage) -> None:
    """Who was slow between its look and its turn would commit on checks that are long outdated."""
    assert take_turn(storage, instant(1), after=None)
    slow = last_turn(storage)
    for number in range(2, 12):
        assert take_turn(storage, instant(number), after=last_turn(storage))
    left = {stored.path for stored in storage.list(FOLDER)}
    assert not take_turn(storage, instant(99), after=slow)
    lost = FaultyStorage(storage, [Fault(1, Moment.AFTER, Effect.ECHO)])
    assert not take_turn(lost, instant(99), after=slow)
    assert {stored.path for stored in storage.list(FOLDER)} == left


def test_old_turns_that_nobody_deleted_are_told(storage: Storage) -> None:
    """Their writer died between its turn and the deletion."""
    assert stray_turns(storage) == []
    for number in range(1, 12):
        assert take_turn(storage, instant(number), after=last_turn(storage))
    assert stray_turns(storage) == []
    storage.put(f"{FOLDER}/000000000002", b"left")
    storage.put(f"{FOLDER}/not-a-turn", b"")
    assert stray_turns(storage) == [f"{FOLDER}/000000000002"]
