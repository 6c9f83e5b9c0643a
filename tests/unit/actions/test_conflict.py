"""What a write finds out about the commits of others, and which of them are in its way."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.actions import conflict
from bucketlake.actions.conflict import (
    WAIT_SECONDS_MAX,
    Commits,
    ReplanError,
    commits_since,
    require_kept,
    require_no_conflict,
    require_no_restore,
    require_no_undoing,
    require_not_converted,
    require_untouched_partitions,
    retried,
    rolled_back,
)
from bucketlake.errors import CommitConflictError, ObjectNotFoundError
from bucketlake.index.conflict_keys import key_of_slot
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action
from tests.spies import forbid
from tests.unit.actions.bare_table import BareTable, group_of

OWN, FIRST, SECOND = (InstantTime(f"2026010100000000{n}") for n in (5, 6, 7))


def commit(*buckets: int, partition: str = "x", **facts: Any) -> CommitMetadata:
    stats = [WriteStat(group_of(n), f"{partition}/{n}", partition) for n in buckets]
    return CommitMetadata("UPSERT", by_partition(stats), **facts)


def missing(path: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(path, "read", "it is not there")


@pytest.fixture
def table(new_path: Callable[[], str]) -> BareTable:
    return BareTable.at(new_path())


def test_a_write_that_finds_no_file_is_tried_again_too() -> None:
    """A rollback or a clean may have deleted it while the write read it."""
    failures: list[Exception] = [missing("a"), CommitConflictError(OWN, "b")]

    def write() -> str:
        if failures:
            raise failures.pop(0)
        return "written"

    assert retried(write) == "written"
    failures += [missing(f"file {n}") for n in range(4)]
    with pytest.raises(ObjectNotFoundError, match="file 3"):
        retried(write)


def test_an_attempt_that_only_waited_is_not_counted() -> None:
    failures: list[Exception] = [ReplanError(OWN, "a", 2.0) for _ in range(9)]
    failures += [CommitConflictError(OWN, "b") for _ in range(3)]

    def write() -> str:
        if failures:
            raise failures.pop()
        return "written"

    assert retried(write) == "written"


def test_waiting_ends_after_ten_minutes() -> None:
    waited: list[float] = []

    def write() -> None:
        waited.append(200.0)
        raise ReplanError(OWN, "the other one goes on", 200.0)

    with pytest.raises(CommitConflictError, match="goes on; it was tried 3 times") as caught:
        retried(write)
    assert pickle.loads(pickle.dumps(caught.value)).attempts == 3
    assert sum(waited) == WAIT_SECONDS_MAX == 600


def test_a_conflict_says_how_often_the_write_was_tried() -> None:
    failures: list[Exception] = [ReplanError(OWN, "a", 2.0), missing("a")]

    def write() -> None:
        raise failures.pop() if failures else CommitConflictError(OWN, "retry the write")

    with pytest.raises(CommitConflictError, match="retry the write; it was tried 5 times"):
        retried(write)


def test_another_error_is_not_tried_again() -> None:
    met: list[int] = []

    def write() -> None:
        met.append(1)
        raise ValueError("no conflict")

    with pytest.raises(ValueError, match="no conflict"):
        retried(write)
    assert met == [1]


def test_commits_since_a_pin_are_those_that_it_lacks(table: BareTable) -> None:
    table.commit(1)
    pinned = table.timeline()
    with table.begin() as running:
        made = [table.commit(2), table.commit(3)]
        found = commits_since(table.opened, pinned, table.timeline())
    assert [instant for instant, _ in found] == made
    assert running.instant not in made
    assert [[*held.partitions] for _, held in found] == [["x"], ["x"]]
    newest = table.timeline()
    assert commits_since(table.opened, newest, newest) == []


def archive(table: BareTable) -> Timeline:
    """Archive all commits but the newest; return the timeline as it is then."""
    assert bl.open_table(table.storage.root).archive(keep_min=1, keep_max=2).instants
    return table.timeline()


def test_commits_that_were_archived_since_the_pin_count_too(table: BareTable) -> None:
    table.commit(1)
    pinned = table.timeline()
    made = [table.commit(bucket) for bucket in (2, 3, 4)]
    newest = archive(table)
    assert newest.start == made[-1]
    found = commits_since(table.opened, pinned, newest)
    assert sorted(instant for instant, _ in found) == made


def test_the_whole_archive_is_asked_where_the_pin_saw_no_commit(table: BareTable) -> None:
    pinned = table.timeline()
    assert pinned.start is None
    made = [table.commit(bucket) for bucket in (1, 2, 3)]
    found = commits_since(table.opened, pinned, archive(table))
    assert sorted(instant for instant, _ in found) == made


def test_the_archive_is_not_read_where_the_timeline_begins_as_it_did(
    table: BareTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bucket in (1, 2, 3):
        table.commit(bucket)
    pinned = archive(table)
    made = table.commit(4)
    forbid(monkeypatch, conflict, "read_archive")
    [(instant, _)] = commits_since(table.opened, pinned, table.timeline())
    assert instant == made


def test_a_commit_that_is_neither_active_nor_archived_was_rolled_back(table: BareTable) -> None:
    gone = table.commit(1)
    pinned = table.timeline()
    bl.open_table(table.storage.root).rollback(gone)
    kept = [table.commit(bucket) for bucket in (2, 3, 4)]
    known, newest = table.timeline(), archive(table)
    assert {found.requested_at for found in newest.completed_commits()} == {kept[-1]}
    assert rolled_back(table.opened, pinned, newest) == {gone}
    with pytest.raises(CommitConflictError, match=f"instant {gone} was rolled back meanwhile"):
        require_kept(table.opened, OWN, pinned, newest)
    assert rolled_back(table.opened, known, newest) == set()
    assert rolled_back(table.opened, newest, known) == set()
    require_kept(table.opened, OWN, known, newest)


def test_a_conversion_among_other_commits_is_found() -> None:
    others: Commits = [(FIRST, commit(1)), (SECOND, commit(extra={"bucketlake.conversion": "x"}))]
    require_not_converted(OWN, others[:1])
    with pytest.raises(CommitConflictError, match=f"{SECOND} converted the table") as caught:
        require_not_converted(OWN, others)
    assert caught.value.instant == OWN


def test_a_pending_restore_or_rollback_is_found_among_other_pending_work(table: BareTable) -> None:
    for action in (Action.COMMIT, Action.COMPACTION, Action.CLEAN):
        table.leave(action)
    require_no_undoing(OWN, table.timeline())
    require_no_restore(table.timeline())
    undoing = table.leave(Action.ROLLBACK, b"plan").requested_at
    require_no_restore(table.timeline())
    with pytest.raises(CommitConflictError, match=f"rollback {undoing} is under way") as caught:
        require_no_undoing(OWN, table.timeline())
    assert caught.value.instant == OWN
    restore = table.leave(Action.RESTORE, b"plan").requested_at
    with pytest.raises(CommitConflictError, match="this restore is under way") as caught:
        require_no_restore(table.timeline())
    assert caught.value.instant == restore


def test_the_first_common_bucket_of_the_first_commit_in_conflict_is_named() -> None:
    touched = {key_of_slot("x", 2), key_of_slot("x", 3)}
    others: Commits = [(FIRST, commit(1)), (SECOND, commit(3, 2))]
    require_no_conflict(OWN, touched, others[:1])
    with pytest.raises(CommitConflictError, match=f"{SECOND} changed bucket 2") as caught:
        require_no_conflict(OWN, touched, others)
    assert caught.value.instant == OWN


def test_a_compaction_is_passed_over_and_the_commits_after_it_are_not() -> None:
    touched = {key_of_slot("x", 1)}
    compaction = FIRST, commit(1, compacted=True)
    require_no_conflict(OWN, touched, [compaction])
    with pytest.raises(CommitConflictError, match=f"instant {FIRST}"):
        require_no_conflict(OWN, touched, [compaction], cleaned=True)
    with pytest.raises(CommitConflictError, match=f"instant {SECOND}"):
        require_no_conflict(OWN, touched, [compaction, (SECOND, commit(1))])


def appended(*buckets: int, **facts: Any) -> CommitMetadata:
    """Return a commit of log files."""
    stats = [
        WriteStat(group_of(n), f"x/.{group_of(n)}_{FIRST}.log.1_1-0-1", "x", "20260101")
        for n in buckets
    ]
    return CommitMetadata("UPSERT", by_partition(stats), **facts)


BEFORE, AFTER = InstantTime("20260101000000004"), FIRST


def test_a_blind_append_follows_log_files_of_commits_that_were_requested_before_it() -> None:
    touched = {key_of_slot("x", 1)}
    others: Commits = [(BEFORE, appended(1)), (BEFORE, appended(1, 2))]
    require_no_conflict(OWN, touched, others, appends=True)
    require_no_conflict(
        OWN, touched, [(AFTER, commit(1, compacted=True))], cleaned=True, appends=True
    )
    with pytest.raises(CommitConflictError, match=f"instant {BEFORE} changed bucket 1"):
        require_no_conflict(OWN, touched, others)


@pytest.mark.parametrize(
    ("other", "made"),
    [
        (AFTER, appended(1)),  # Readers would put its log file after that of the write.
        (BEFORE, commit(1)),  # A base file.
        (BEFORE, appended(2, replaced_file_ids={"x": (group_of(1),)})),
    ],
    ids=["overtook it", "base file", "replaced"],
)
def test_a_blind_append_is_in_conflict_with_other_commits(
    other: InstantTime, made: CommitMetadata
) -> None:
    with pytest.raises(CommitConflictError, match=f"instant {other} changed bucket 1"):
        require_no_conflict(OWN, {key_of_slot("x", 1)}, [(other, made)], appends=True)


def test_a_blind_append_is_in_conflict_with_a_log_file_that_opened_its_group() -> None:
    opened = WriteStat(group_of(1), f"x/.{group_of(1)}_{BEFORE}.log.1_1-0-1", "x", opens_group=True)
    other = CommitMetadata("UPSERT", by_partition([opened]))
    with pytest.raises(CommitConflictError, match="changed bucket 1"):
        require_no_conflict(OWN, {key_of_slot("x", 1)}, [(BEFORE, other)], appends=True)


def test_a_write_of_whole_partitions_is_in_conflict_with_every_commit_to_them() -> None:
    """Also where the bucket had no file when the write was planned."""
    others: Commits = [
        (FIRST, commit(1, partition="z")),
        (FIRST, commit(1, partition="y", compacted=True)),
        (SECOND, commit(7, partition="y")),
    ]
    require_untouched_partitions(OWN, ["x", "y"], others[:2])
    require_untouched_partitions(OWN, iter(["x"]), others)
    with pytest.raises(CommitConflictError, match=f"{SECOND} changed partition 'y'") as caught:
        require_untouched_partitions(OWN, iter(["x", "y"]), others)
    assert caught.value.instant == OWN
