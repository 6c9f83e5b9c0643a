"""Cleans: what goes, what stays for whom, and what a reader of what went is told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.format.clean_metadata import (
    CleanPlan,
    decode_clean,
    decode_clean_plan,
    encode_clean,
    encode_clean_plan,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.model.table_type import Operation
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.clean_guard import read_clean
from bucketlake.read.read_plan import plan_read
from bucketlake.read.request import PinnedRead
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.cleaning import clean
from bucketlake.storage.local import STAGING_FOLDER
from bucketlake.storage.memory import forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import newest_manifest, read_archive
from bucketlake.timeline.instant import Action, State, instant_to_ms
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.write.ingest import write_records
from bucketlake.write.target import open_target
from tests.between import InterruptedSource
from tests.faulty_storage import FaultyStorage
from tests.inside import opened, storage_of
from tests.pinned import snapshot_as_of

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
INDEX = bl.SimpleBucket(2)
_NUMBERS = count()

ON_READ = pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])


@pytest.fixture
def name() -> Iterator[str]:
    """A place in memory."""
    made = f"clean-{next(_NUMBERS)}"
    yield made
    forget(made)


def create(name: str, table_type: str = "copy_on_write") -> bl.Table:
    return bl.create_table(
        f"memory://{name}", schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=INDEX, table_type=table_type,
    )  # fmt: skip


def rows(numbers: range, v: int, days: str = "ab") -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": days[n // 4 % len(days)], "v": v} for n in numbers], SCHEMA
    )


def data_of(table: bl.Table, **at: str | None) -> list[dict[str, object]]:
    found = table.to_arrow(**at).sort_by([("day", "ascending"), ("id", "ascending")])
    return found.to_pylist()


def data_files(table: bl.Table) -> set[str]:
    return {o.path for o in storage_of(table).list("") if o.path[0] != "." and "/.h" not in o.path}


def commits(table: bl.Table) -> list[InstantTime]:
    return [i.requested_at for i in table.timeline() if i.action.writes_data]


def upserted(table: bl.Table, times: int) -> list[list[dict[str, object]]]:
    """Upsert all rows again and again; return what the table held after each."""
    held = []
    for v in range(times):
        table.upsert(rows(range(8), v))
        held.append(data_of(table))
    return held


def test_the_commits_that_are_retained_are_read_as_they_were_and_older_ones_refused(
    name: str,
) -> None:
    table = create(name)
    held = upserted(table, 6)
    before = data_files(table)
    report = table.clean(retain_commits=3)
    times = commits(table)
    assert report.earliest_retained == times[3]
    assert [(p.partition_path, p.files) for p in report.partitions] == [("a", 4), ("b", 4)]
    assert len(data_files(table)) == len(before) - 8
    assert data_of(table) == held[-1]
    # The newest version from before the earliest retained commit stays, too.
    assert [data_of(table, as_of=one) for one in times[2:]] == held[2:]
    for gone in times[:2]:
        with pytest.raises(TimelineError, match=f"{report.instants[0]}.*ask for a later time"):
            table.to_arrow(as_of=gone)
    completed = [i.completed_at for i in table.timeline() if i.requested_at in times]
    with pytest.raises(TimelineError, match="ask for a later time"):
        table.to_arrow(until=completed[1])
    assert data_of(table, until=completed[2]) == held[2]
    [done] = [i for i in table.timeline() if i.action is Action.CLEAN]
    assert (done.requested_at, done.state) == (report.instants[0], State.COMPLETED)


def test_a_dry_run_tells_files_and_bytes_and_changes_nothing(name: str) -> None:
    table = create(name)
    upserted(table, 4)
    storage = storage_of(table)
    before = {o.path: o.size_bytes for o in storage.list("")}
    report = table.clean(retain_commits=1, dry_run=True)
    assert {o.path: o.size_bytes for o in storage.list("")} == before
    assert report.instants == ()
    done = table.clean(retain_commits=1)
    assert (done.partitions, done.earliest_retained) == (
        report.partitions,
        report.earliest_retained,
    )
    gone = set(before) - {o.path for o in storage.list("")}
    assert len(gone) == sum(p.files for p in report.partitions)
    assert sum(before[path] for path in gone) == sum(p.size_bytes for p in report.partitions)


def test_ten_commits_stay_if_nothing_is_said(name: str) -> None:
    table = create(name)
    upserted(table, 10)
    assert table.clean().instants == ()
    upserted(table, 2)
    assert table.clean().earliest_retained == commits(table)[-10]


@pytest.mark.parametrize(
    "retained", [{"retain_commits": 0}, {"retain_hours": 1, "retain_versions": 1}]
)
def test_a_retention_that_is_none_is_refused(name: str, retained: dict[str, int]) -> None:
    table = create(name)
    with pytest.raises(ConfigError, match=r"retain_(commits|hours and retain_versions)"):
        table.clean(**retained)


def test_versions_are_counted_by_file_group(name: str) -> None:
    table = create(name)
    for v in range(4):
        table.upsert(rows(range(8), v, "a"))
    table.upsert(rows(range(8), 9, "b"))
    report = table.clean(retain_versions=2)
    assert [(p.partition_path, p.files) for p in report.partitions] == [("a", 4)]
    assert report.earliest_retained is None
    assert [row["v"] for row in data_of(table)] == [3] * 8 + [9] * 8


@pytest.mark.filterwarnings("ignore::bucketlake.ClockWarning")  # Its commits are hours ahead.
def test_hours_reach_back_to_the_newest_version_before_them(name: str) -> None:
    table = create(name)
    held = upserted(table, 4)
    times = commits(table)
    storage = storage_of(table)
    now_ms = instant_to_ms(times[2], "UTC") + 3600 * 1000  # Third and fourth are in the hour.
    report = clean(
        opened_table(storage, table.config(), now_ms=lambda: now_ms),
        Retention(CleanPolicy.HOURS, 1),
    )
    assert report.earliest_retained == times[2]
    assert [data_of(table, as_of=one) for one in times[1:]] == held[1:]
    with pytest.raises(TimelineError):
        table.to_arrow(as_of=times[0])


def test_the_newest_version_stays_however_long_ago_it_was_written(name: str) -> None:
    table = create(name)
    held = upserted(table, 3)
    days_later = instant_to_ms(commits(table)[-1], "UTC") + 99 * 24 * 3600 * 1000
    clean(
        opened_table(storage_of(table), table.config(), now_ms=lambda: days_later),
        Retention(CleanPolicy.HOURS, 1),
    )
    assert data_of(table) == held[-1]


def test_log_files_go_with_their_version_and_never_those_of_the_newest(name: str) -> None:
    table = create(name, "merge_on_read")
    held = upserted(table, 3)
    assert table.clean(retain_commits=1).instants == ()  # One version, however many log files.
    table.compact()
    for v in (7, 8):
        table.upsert(rows(range(8), v))
    report = table.clean(retain_commits=1)
    assert [(p.partition_path, p.files) for p in report.partitions] == [("a", 6), ("b", 6)]
    assert [row["v"] for row in data_of(table)] == [8] * 8
    times = commits(table)
    assert [row["v"] for row in data_of(table, as_of=times[-2])] == [7] * 8
    assert data_of(table, as_of=times[3]) == held[-1]  # The compaction.
    with pytest.raises(TimelineError, match="ask for a later time"):
        table.to_arrow(as_of=times[2])


def test_what_a_pending_compaction_reads_stays(name: str) -> None:
    table = create(name, "merge_on_read")
    upserted(table, 3)
    table.compact(schedule_only=True)
    held = upserted(table, 3)
    before = data_files(table)
    table.clean(retain_versions=1)
    assert data_files(table) == before
    table.compact()
    assert data_of(table) == held[-1]
    table.clean(retain_versions=1)
    assert data_of(table) == held[-1]
    assert len(data_files(table)) < len(before)


def test_what_a_pending_compaction_reads_stays_though_its_file_groups_were_replaced(
    name: str,
) -> None:
    table = create(name, "merge_on_read")
    upserted(table, 2)
    table.compact(schedule_only=True)
    table.insert_overwrite(rows(range(8), 7))
    before = data_files(table)
    assert table.clean(retain_versions=1).instants == ()
    assert len(table.compact().instants) == 1
    table.clean(retain_versions=1)
    assert len(data_files(table)) < len(before)
    assert [row["v"] for row in data_of(table)] == [7] * 8


def test_a_replaced_file_group_goes_whole_once_its_replacement_is_old_enough(name: str) -> None:
    table = create(name)
    upserted(table, 2)
    before = data_of(table)
    table.insert_overwrite(rows(range(4), 5))
    overwritten = commits(table)[-1]
    table.clean(retain_commits=1)  # The earliest retained commit is the overwrite.
    assert data_of(table, as_of=commits(table)[-2]) == before
    table.upsert(rows(range(4), 6))
    held = data_files(table)
    table.clean(retain_commits=1)
    gone = held - data_files(table)
    assert gone
    assert not any(overwritten in path for path in gone)
    assert {path.split("_")[0] for path in gone}.isdisjoint(
        path.split("_")[0] for path in data_files(table)
    )
    assert [row["v"] for row in data_of(table)] == [6] * 4 + [1] * 4


def test_files_of_a_partition_that_was_deleted_go_and_it_can_be_written_again(name: str) -> None:
    table = create(name)
    upserted(table, 2)
    table.delete_partitions(["b"])
    table.upsert(rows(range(4), 5, "a"))
    table.clean(retain_commits=1)
    assert not [path for path in data_files(table) if path.startswith("b/")]
    table.upsert(rows(range(2), 6, "b"))
    assert [row["v"] for row in data_of(table) if row["day"] == "b"] == [6, 6]


def test_files_that_failed_writes_left_and_those_of_others_are_left_alone(name: str) -> None:
    table = create(name)
    upserted(table, 2)
    storage = storage_of(table)
    storage.put("a/notes.txt", b"mine")
    table.clean(retain_commits=1)
    assert storage.read("a/notes.txt") == b"mine"
    assert storage.stat("a/.hoodie_partition_metadata") is not None


def test_a_second_clean_looks_only_at_partitions_that_changed_since_the_first(name: str) -> None:
    table = create(name)
    for day in "abcdef":
        for v in range(2):
            table.upsert(rows(range(4), v, day))
    table.clean(retain_commits=1)
    for v in range(3):
        table.upsert(rows(range(4), v, "c"))
    storage = FaultyStorage(storage_of(table))
    report = clean(opened_table(storage, table.config()), Retention(CleanPolicy.COMMITS, 1))
    assert [(p.partition_path, p.files) for p in report.partitions] == [("c", 4), ("f", 2)]
    asked = {step.path for step in storage.trace if step.operation == "list"}
    assert {"c", "f"} <= asked  # The newest commit of before was not old enough then.
    assert asked.isdisjoint({"", "a", "b", "d", "e"})
    assert (
        clean(opened_table(storage, table.config()), Retention(CleanPolicy.COMMITS, 1)).partitions
        == ()
    )


def test_a_pending_clean_is_carried_out_first(name: str) -> None:
    """Of a plan that Hudi left behind, too; what meanwhile became the newest version stays."""
    table = create(name)
    held = upserted(table, 3)
    newest = [b.path for b in table.buckets()]
    files = {"a": tuple(p.rpartition("/")[2] for p in data_files(table) if p.startswith("a/"))}
    plan = CleanPlan(CleanPolicy.COMMITS.value, files, commits(table)[-1], "commit")
    at = "20990101000000000"
    put_timeline(table, f"{at}.clean.requested", encode_clean_plan(plan, "/elsewhere"))
    assert table.clean().instants == (at,)
    assert data_of(table) == held[-1]
    assert {p for p in data_files(table) if p.startswith("a/")} <= set(newest)
    done = storage_of(table)
    [path] = [o.path for o in done.list(".hoodie/timeline") if o.path.endswith(".clean")]
    assert len(decode_clean(done.read(path), path).files["a"]) == len(files["a"]) - 2


def test_a_rollback_waits_for_no_pending_clean_but_is_refused(name: str) -> None:
    table = create(name)
    held = upserted(table, 2)
    put_timeline(
        table,
        "20990101000000000.clean.requested",
        encode_clean_plan(CleanPlan("KEEP_LATEST_FILE_VERSIONS"), "/elsewhere"),
    )
    with pytest.raises(TimelineError, match="the pending clean 20990101000000000 may delete"):
        table.rollback(commits(table)[-1])
    assert data_of(table) == held[-1]
    table.clean()
    table.rollback(commits(table)[-1])
    assert data_of(table) == held[0]


def put_timeline(table: bl.Table, file_name: str, content: bytes) -> None:
    storage_of(table).put(f".hoodie/timeline/{file_name}", content)


def pinned(table: bl.Table) -> OpenTable:
    return opened(table)


@ON_READ
def test_a_reader_that_pinned_the_table_before_a_clean_is_told(name: str, table_type: str) -> None:
    table = create(name, table_type)
    upserted(table, 2)
    snapshot = load_snapshot(pinned(table))
    planned = plan_read(PinnedRead(snapshot), INDEX)
    table.upsert(rows(range(8), 5))
    if table_type == "merge_on_read":
        table.compact()
    assert snapshot.all_slices()  # A commit alone does no harm.
    table.clean(retain_versions=1)
    with pytest.raises(CommitConflictError, match="since the table was pinned"):
        snapshot.all_slices()
    with pytest.raises(CommitConflictError, match="was deleted since the table was pinned"):
        read_arrow(snapshot.storage, planned)


def test_a_reader_is_not_given_an_older_version_that_a_savepoint_held(name: str) -> None:
    """Pinned at the third version, of which only the first and the fourth are left."""
    table = create(name)
    upserted(table, 1)
    table.savepoint()
    upserted(table, 2)
    snapshot = load_snapshot(pinned(table))
    upserted(table, 1)
    table.clean(retain_versions=1)
    with pytest.raises(CommitConflictError, match="since the table was pinned"):
        snapshot.all_slices()


def test_readers_and_rollbacks_that_a_clean_does_not_concern_go_on(name: str) -> None:
    table = create(name)
    held = upserted(table, 5)
    snapshot = load_snapshot(pinned(table))
    table.clean(retain_commits=2)
    assert len(snapshot.all_slices()) == 4
    table.rollback(commits(table)[-1])
    assert data_of(table) == held[-2]
    table.rollback(commits(table)[-1])
    assert data_of(table) == held[-3]
    with pytest.raises(TimelineError, match="ask for a later time"):
        table.rollback(commits(table)[-1])


def written_and_cleaned(table: bl.Table) -> None:
    """Do what a write meets after it has pinned the table."""
    table.upsert(rows(range(8), 50))
    if table.config().table_type.value == "MERGE_ON_READ":
        table.compact()
    table.clean(retain_versions=1)


@ON_READ
def test_a_writer_that_pinned_the_table_before_a_clean_is_refused_and_writes_nothing(
    name: str, table_type: str
) -> None:
    table = create(name, table_type)
    upserted(table, 2)
    target = open_target(pinned(table), INDEX)
    source = InterruptedSource(rows(range(9), 60), lambda: written_and_cleaned(table))
    with pytest.raises(CommitConflictError):
        write_records(target, Operation.UPSERT, source)
    assert [row["v"] for row in data_of(table)] == [50] * 8
    assert all(i.state is State.COMPLETED for i in table.timeline())


def test_a_delta_commit_that_a_compaction_and_a_clean_overtook_is_refused(name: str) -> None:
    """Its log file would lie in a file group that it took for a new one."""
    table = create(name, "merge_on_read")
    upserted(table, 2)
    target = open_target(pinned(table), INDEX)
    slices = target.snapshot.partition_slices

    def blind() -> None:
        """Clean after the look at the timeline: the plan knows nothing of it."""
        table.compact()
        table.clean(retain_versions=1)

    assert slices(["a"])
    source = InterruptedSource(rows(range(8), 60), planned=blind)
    with pytest.raises(CommitConflictError, match="changed bucket"):
        write_records(target, Operation.DELETE, source)


# Cleans that are archived.


def archive_all_but_one(table: bl.Table, cleans: int = 1) -> None:
    """Move the commits, and the cleans among them, to the archive."""
    for v in (90, 91):
        table.upsert(rows(range(8, 12), v, "c"))  # A third partition: nothing else changes.
    assert table.archive(keep_min=1, keep_max=2).held_back is None
    kept = [one for one in table.timeline() if one.action is Action.CLEAN]
    moved = [one for one in read_archive(pinned(table)) if one.action == "clean"]
    assert (len(moved), kept) == (cleans, [])


def without_c(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in found if row["day"] != "c"]


@ON_READ
def test_earlier_times_are_refused_or_read_as_they_were_once_the_clean_is_archived_too(
    name: str, table_type: str
) -> None:
    table = create(name, table_type)
    held = []
    for v in range(6):
        table.upsert(rows(range(4 if v else 0, 8), v))  # The one partition is cleaned alone.
        held.append(data_of(table))
        if v and table_type == "merge_on_read":
            table.compact()
    table.clean(retain_commits=3)
    completed = {one.requested_at: one.completed_at for one in table.timeline()}

    def look(**at: str | None) -> list[dict[str, object]] | str:
        try:
            return data_of(table, **at)
        except TimelineError as error:
            return str(error)

    def looks() -> list[list[dict[str, object]] | str]:
        found = []
        for one in times:
            at = completed[one]
            found += [look(as_of=one), look(until=at), look(since="20000101000000", until=at)]
            found.append(look(as_of=one, where="day = 'a'"))
        return found

    times = [one for one in commits(table) if one in completed]
    before = looks()
    assert any(isinstance(one, str) for one in before)
    assert held[-1] in before
    archive_all_but_one(table)
    assert looks() == before


def test_a_file_group_that_was_replaced_before_is_not_missed_once_all_is_archived(
    name: str,
) -> None:
    table = create(name)
    before = upserted(table, 2)[-1]
    first = commits(table)[-1]
    table.insert_overwrite(rows(range(4), 5))
    table.upsert(rows(range(4), 6))
    kept = [(one, data_of(table, as_of=one)) for one in commits(table)[-2:]]
    completed = [i.completed_at for i in table.timeline() if i.requested_at == first]
    assert data_of(table, until=completed[0]) == before
    table.clean(retain_commits=1)
    archive_all_but_one(table)
    for one, rows_then in kept[1:]:
        assert data_of(table, as_of=one) == rows_then
    for at in ({"as_of": first}, {"until": completed[0]}):
        with pytest.raises(TimelineError, match="ask for a later time"):
            table.to_arrow(**at)


@ON_READ
def test_a_reader_that_pinned_the_table_before_a_clean_is_told_once_it_is_archived_too(
    name: str, table_type: str
) -> None:
    table = create(name, table_type)
    held = upserted(table, 2)
    snapshot = load_snapshot(pinned(table))
    table.upsert(rows(range(4), 5))
    if table_type == "merge_on_read":
        table.compact()
    archive_all_but_one(table, 0)
    assert len(snapshot.all_slices()) == 4
    table.clean(retain_versions=1)
    archive_all_but_one(table)
    with pytest.raises(CommitConflictError, match="since the table was pinned"):
        snapshot.all_slices()
    with pytest.raises(CommitConflictError, match="since the table was pinned"):
        snapshot.partition_slices(["a"])
    if table_type == "copy_on_write":  # A clean of other partitions does no harm.
        assert len(snapshot.partition_slices(["b"])) == 2
    assert without_c(data_of(table)) == [
        row | {"v": 5} if row["day"] == "a" else row for row in held[-1]
    ]


@ON_READ
def test_a_writer_that_pinned_the_table_before_a_clean_is_refused_once_it_is_archived_too(
    name: str, table_type: str
) -> None:
    table = create(name, table_type)
    upserted(table, 2)
    target = open_target(pinned(table), INDEX)

    def archived_too() -> None:
        written_and_cleaned(table)
        archive_all_but_one(table)

    with pytest.raises(CommitConflictError, match="since the table was pinned"):
        write_records(target, Operation.UPSERT, InterruptedSource(rows(range(9), 60), archived_too))
    assert [row["v"] for row in without_c(data_of(table))] == [50] * 8


def test_a_delta_commit_that_an_archived_compaction_and_clean_overtook_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its listing, which is told nothing of cleans, shows no file group where there was one."""
    table = create(name, "merge_on_read")
    upserted(table, 2)
    target = open_target(pinned(table), INDEX)

    def blind() -> None:
        table.compact()
        table.clean(retain_versions=1)
        archive_all_but_one(table)
        monkeypatch.setattr("bucketlake.read.clean_guard.require_uncleaned", lambda *_, **__: None)

    with pytest.raises(CommitConflictError, match="changed bucket"):
        write_records(target, Operation.DELETE, InterruptedSource(rows(range(8), 60), blind))


def test_a_clean_that_waited_while_commits_after_it_were_archived_is_not_missed(
    name: str,
) -> None:
    """Its instant is older than the timeline that the reader pinned."""
    table = create(name)
    upserted(table, 1)
    waiting = f"{int(max(one.completed_at or '' for one in table.timeline())) + 1}"
    table.upsert(rows(range(8), 1))
    put_timeline(table, f"{waiting}.clean.requested", b"")
    for v in (2, 3):
        table.upsert(rows(range(8, 12), v, "c"))
    table.archive(keep_min=1, keep_max=2)
    snapshot = load_snapshot(pinned(table))
    assert waiting < (snapshot.timeline.start or "")
    [gone, *_] = [one.path for one in table.buckets() if one.path.startswith("a/")]
    plan = CleanPlan("KEEP_LATEST_FILE_VERSIONS", {"a": (gone.removeprefix("a/"),)})
    done = encode_clean(plan, started_at=InstantTime(waiting), duration_ms=1)
    put_timeline(table, f"{waiting}_{int(waiting) + 1}.clean", done)
    storage_of(table).delete(gone)
    for _ in range(2):
        with pytest.raises(TimelineError, match=waiting):
            snapshot.all_slices()
        archive_all_but_one(table)


def test_a_clean_that_is_archived_after_the_listing_is_read_there(name: str) -> None:
    table = create(name)
    upserted(table, 3)
    table.clean(retain_commits=1)
    listed = load_timeline(pinned(table))
    [clean_instant] = [one for one in listed.instants if one.action is Action.CLEAN]
    plan = read_clean(storage_of(table), listed, clean_instant)
    assert plan.files
    archive_all_but_one(table)
    assert read_clean(storage_of(table), listed, clean_instant) == plan
    unknown = replace(clean_instant, requested_at=InstantTime("2020" + "0" * 13))
    with pytest.raises(ObjectNotFoundError):
        read_clean(storage_of(table), listed, unknown)


def test_only_archived_files_of_the_time_that_is_asked_for_and_later_are_read(name: str) -> None:
    table = create(name)
    for v in range(3):
        upserted(table, 3)
        table.clean(retain_commits=1)
        archive_all_but_one(table, v + 1)
    storage = FaultyStorage(storage_of(table))

    def read_of_archive(as_of: str | None) -> set[str]:
        storage.trace.clear()
        snapshot = snapshot_as_of(opened_table(storage, table.config()), as_of)
        snapshot.partition_slices(["a"])
        paths = [step.path for step in storage.trace if step.operation == "read"]
        names = {path.rpartition("/")[2] for path in paths if "/history/" in path}
        return {name for name in names if name.endswith(".parquet")}

    files = newest_manifest(storage, table.config().history_folder).files
    assert len(files) == 3
    assert read_of_archive(None) == set()
    assert read_of_archive(commits(table)[-1]) == set()
    assert read_of_archive(files[-1].last) == {files[-1].name}


def test_plans_and_metadata_are_read_as_they_were_written() -> None:
    plan = CleanPlan(
        "KEEP_LATEST_COMMITS",
        {"": ("x.parquet",), "p=a b": ("y.parquet", ".z.log.1_1-0-1")},
        InstantTime("20240101000000000"),
        "commit",
        InstantTime("20240102000000000"),
        (InstantTime("20240101000000000"),),
    )
    assert decode_clean_plan(encode_clean_plan(plan, "/elsewhere/t"), "p") == plan
    done = decode_clean(encode_clean(plan, started_at=InstantTime("1"), duration_ms=1), "p")
    assert done == replace(plan, earliest_action="")
    bare = CleanPlan("KEEP_LATEST_FILE_VERSIONS")
    assert decode_clean_plan(encode_clean_plan(bare, "s3://b/t"), "p") == bare
    hostile = CleanPlan("KEEP_LATEST_COMMITS", {"a": ("../../../etc/passwd",)})
    assert decode_clean_plan(encode_clean_plan(hostile, "/t"), "p").paths == ["a/passwd"]


@pytest.mark.parametrize("verb", [bl.Table.clean, bl.Table.repair])
def test_temporary_files_of_killed_processes_go_with_a_clean_and_a_repair(
    tmp_path: Path, verb: Callable[..., object]
) -> None:
    table = bl.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key=["id"], index=INDEX)
    table.upsert(rows(range(4), 1))
    left, young = (tmp_path / "t" / STAGING_FOLDER / name for name in ("left", "young"))
    for staged, age_seconds in ((left, 3_700), (young, 3_500)):
        staged.write_bytes(b"half")
        os.utime(staged, (time.time() - age_seconds,) * 2)
    verb(table, dry_run=True)
    assert left.exists()
    verb(table)
    assert not left.exists()
    assert young.exists(), "it may belong to a running writer"
