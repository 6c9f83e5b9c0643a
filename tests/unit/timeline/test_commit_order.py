"""Commits take turns: each number is taken once, and the last one is found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from bucketlake.errors import AlreadyExistsError, FormatError, StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer, Storage
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
    contents = (b"rubbish", b"rubbish claim", b"\xff\xfe claim", b"202601010 claim floor=../x")
    for content in contents:
        storage.put(f"{FOLDER}/000000000001", content)
        with pytest.raises(FormatError, match="commit_order/000000000001"):
            last_turn(storage)
    storage.put(f"{FOLDER}/000000000001", b"rubbish" * 100)
    with pytest.raises(FormatError, match="an instant and a claim, found 'rubbishrub") as caught:
        last_turn(storage)
    assert "rubbish" * 12 not in str(caught.value)


@pytest.mark.parametrize("last", [10, 11])
def test_a_number_that_was_dropped_is_not_taken_again(storage: Storage, last: int) -> None:
    """Who was slow between its look and its turn would commit on checks that are long outdated."""
    assert take_turn(storage, instant(1), after=None)
    slow = last_turn(storage)
    for number in range(2, last + 1):  # The tenth drops the second, which the slow one wants.
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


def test_a_turn_with_a_changed_byte_is_refused_or_reads_as_it_was(storage: Storage) -> None:
    for number, changes in ((9, True), (3, False)):
        assert take_turn(storage, instant(number), last_turn(storage), changes_metadata=changes)
    path, turn = f"{FOLDER}/000000000002", last_turn(storage)
    assert turn == Turn(2, instant(3), True, instant(9), instant(9))
    content, refused = storage.read(path), 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        storage.put(path, bytes(changed))
        try:
            found = last_turn(storage)
        except FormatError:
            refused += 1
            continue
        assert found == turn, changed
    assert refused > len(content) - len("checksum=") - 1
    storage.put(path, content[:-1] + b"!")
    with pytest.raises(FormatError, match=f"{path}: .*a turn with its checksum"):
        last_turn(storage)


def test_a_turn_of_an_earlier_release_has_no_checksum_and_no_facts(storage: Storage) -> None:
    storage.put(f"{FOLDER}/000000000004", f"{instant(3)} claim".encode())
    assert last_turn(storage) == Turn(4, instant(3), False, None, None)
    assert take_turn(storage, instant(5), last_turn(storage))
    assert last_turn(storage) == Turn(5, instant(5), False, None, None)


def test_the_instant_of_a_turn_is_later_than_the_floor_only_where_it_is_greater(
    storage: Storage,
) -> None:
    for _ in range(2):
        assert take_turn(storage, instant(3), last_turn(storage))
    turn = last_turn(storage)
    assert turn is not None
    assert (turn.later_instant, turn.floor) == (None, instant(3))


def test_a_turn_that_is_deleted_after_the_listing_is_looked_for_again(storage: Storage) -> None:
    """Many others took their turns meanwhile."""
    assert take_turn(storage, instant(1), after=None)

    class GoneMeanwhile(FaultyStorage):
        looks = 0

        def read(self, path: str) -> bytes:
            self.looks += 1
            if self.looks == 1:
                for number in range(2, 12):
                    assert take_turn(storage, instant(number), last_turn(storage))
            return super().read(path)

    slow = GoneMeanwhile(storage)
    assert last_turn(slow) == Turn(11, instant(11))
    assert slow.looks == 2


def test_a_turn_that_others_took_and_deleted_since_the_put_is_lost(storage: Storage) -> None:
    class GoneMeanwhile(FaultyStorage):
        def put_if_absent(self, path: str, data: Buffer) -> None:
            raise AlreadyExistsError(path, "put", "simulated")

    assert not take_turn(GoneMeanwhile(storage), instant(1), after=None)


def test_the_layout_of_the_timeline_is_part_of_a_turn(storage: Storage) -> None:
    assert take_turn(storage, instant(1), after=None)
    first = last_turn(storage)
    assert first is not None
    assert first.layout is None
    assert take_turn(storage, instant(2), after=first, layout=1)
    assert last_turn(storage) == Turn(2, instant(2), layout=1)
