"""Archival: what goes, what stays, that nothing misses what went, and deaths at every step."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import recovery
from bucketlake.actions.completion import complete_instant
from bucketlake.actions.metadata_upkeep import prepare_deletion
from bucketlake.actions.pending import begin_instant
from bucketlake.actions.rollback import carry_on_rollback
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER, OUTCOME_FOLDER
from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import AlreadyExistsError, CommitConflictError, ConfigError, TimelineError
from bucketlake.format.archive_file import ArchiveFile, encode_manifest
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.index.recorded_counts import record_path
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.metadata.changes import publish_change
from bucketlake.model.file_name import InstantTime
from bucketlake.model.retention import ArchivalLimits
from bucketlake.model.table_type import Operation, TableType
from bucketlake.services import archival
from bucketlake.services.archival import archive
from bucketlake.services.undo.rollback_commits import roll_back
from bucketlake.slices.file_system_view import list_partition
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline import archive_writer
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import newest_manifest, read_archive
from bucketlake.timeline.archive_writer import append, keep_active
from bucketlake.timeline.instant import Action, Instant, InstantClock, State, shift_instant
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.markers import Marker, MarkerType, write_markers
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.outcome import claim_rollback, outcome_path, read_outcome
from bucketlake.timeline.table_properties import table_at
from bucketlake.timeline.transitions import create_requested
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.broken_tables import later
from tests.choices import some
from tests.faulty_storage import FaultyStorage, SimulatedCrash, crash_points
from tests.inside import storage_of, timeline_of, values_of
from tests.meanwhile import PUTS, Interrupted, meanwhile
from tests.spies import spy
from tests.storages import objects_of

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
INDEX = bl.SimpleBucket(1)
HISTORY = ".hoodie/timeline/history"
KEYS = range(4)
_NUMBERS = count()


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def any_table(request: pytest.FixtureRequest) -> Iterator[bl.Table]:
    yield from made(request.param)


@pytest.fixture
def table() -> Iterator[bl.Table]:
    yield from made("copy_on_write")


def made(table_type: str) -> Iterator[bl.Table]:
    name = f"archival-{next(_NUMBERS)}"
    yield bl.create_table(
        f"memory://{name}",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=INDEX,
        table_type=table_type,
    )
    forget(name)


def rows(v: int, numbers: range = KEYS) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": "ab"[n % 2], "v": v} for n in numbers], SCHEMA
    )


def upsert(table: bl.Table, v: int, numbers: range = KEYS) -> Instant:
    """Upsert; return the commit."""
    instant = table.upsert(rows(v, numbers)).instant
    [found] = [one for one in table.timeline() if one.requested_at == instant]
    return found


def upserts(table: bl.Table, number: int) -> list[Instant]:
    return [upsert(table, v) for v in range(1, number + 1)]


def all_are(v: int) -> dict[str, int]:
    return {f"k{n}": v for n in KEYS}


def paths(table: bl.Table, folder: str = "") -> set[str]:
    return {stored.path for stored in storage_of(table).list(folder)}


def active(table: bl.Table) -> list[str]:
    return [one.requested_at for one in table.timeline()]


def archived(table: bl.Table) -> list[str]:
    return [
        one.requested_at for one in read_archive(opened_table(storage_of(table), table.config()))
    ]


def times(instants: list[Instant]) -> list[str]:
    return [one.requested_at for one in instants]


def drop_replaced(table: bl.Table) -> None:
    """Do as a cleaner whose clean is archived does with files of file groups that were replaced."""
    storage, timeline, config = storage_of(table), timeline_of(table), table.config()
    dropped: dict[str, list[str]] = defaultdict(list)
    for partition, file_id in timeline.replaced_file_groups(storage):
        for file in list_partition(storage, partition):
            if file.name.file_id == file_id:
                storage.delete(file.path)
                dropped[partition].append(file.path.rpartition("/")[2])
    newest = timeline.newest_time()
    assert newest is not None
    clean = shift_instant(newest, timedelta(milliseconds=-1))
    content = prepare_deletion(opened_table(storage, table.config()), timeline, clean, dropped)
    if content is not None:
        publish_change(opened_table(storage, config), clean, newest, content)


# What goes.


def test_the_oldest_commits_go_and_the_newest_stay(any_table: bl.Table) -> None:
    commits = upserts(any_table, 7)
    assert any_table.archive(keep_min=3, keep_max=7).instants == ()
    planned = any_table.archive(keep_min=3, keep_max=6, dry_run=True)
    assert archived(any_table) == []
    report = any_table.archive(keep_min=3, keep_max=6)
    assert planned == report
    assert list(report.instants) == commits[:4]
    assert report.held_back is None
    assert active(any_table) == times(commits[4:])
    assert archived(any_table) == times(commits[:4])
    assert values_of(any_table) == all_are(7)
    upsert(any_table, 8)
    assert values_of(any_table) == all_are(8)


def test_what_was_kept_of_an_instant_while_it_might_be_pending_goes_with_it(
    table: bl.Table,
) -> None:
    commits = upserts(table, 4)
    storage = storage_of(table)
    gone, kept = commits[0].requested_at, commits[3].requested_at
    for instant in (gone, kept):
        storage.put(f".hoodie/.heartbeat/{instant}", b"")
        storage.put(f".hoodie/.temp/{instant}/a/f.parquet.marker.CREATE", b"")
    table.archive(keep_min=1, keep_max=2)
    left = [path for path in paths(table, ".hoodie") if gone in path]
    # The timeline of the metadata table has an archival of its own.
    assert not [p for p in left if "history" not in p and not p.startswith(METADATA_TABLE_FOLDER)]
    assert storage.stat(outcome_path(kept)) is not None
    assert storage.stat(f".hoodie/.heartbeat/{kept}") is not None


def test_outcomes_of_commits_that_hudi_archived_go(table: bl.Table) -> None:
    commits = upserts(table, 3)
    first = commits[0].requested_at
    for path in paths(table, ".hoodie/timeline"):
        if f"/{first}" in path:
            storage_of(table).delete(path)
    table.archive()
    held = {path.rpartition("/")[2][:17] for path in paths(table, OUTCOME_FOLDER)}
    assert held == set(times(commits[1:]))


def test_what_forbids_a_commit_stays(table: bl.Table) -> None:
    """A late task or committer must find it, however late it is."""
    commits = upserts(table, 4)
    undone = later(commits[1].requested_at)
    claim_rollback(storage_of(table), undone)
    table.archive(keep_min=1, keep_max=2)
    assert read_outcome(storage_of(table), undone) is not None


def test_cleans_and_rollbacks_go_with_the_commits_around_them(table: bl.Table) -> None:
    first = upsert(table, 1)
    mistaken = upsert(table, 2)
    report = table.rollback(mistaken.requested_at)
    storage = storage_of(table)
    clean, end = (later(report.instants[0], by_ms) for by_ms in (1, 2))
    for suffix, content in (("requested", b"plan"), ("inflight", b"")):
        storage.put(f".hoodie/timeline/{clean}.clean.{suffix}", content)
    storage.put(f".hoodie/timeline/{clean}_{end}.clean", b"done")
    commits = upserts(table, 3)
    table.archive(keep_min=1, keep_max=2)
    entries = read_archive(opened_table(storage, table.config()))
    assert [one.action for one in entries] == ["commit", "rollback", "clean", "commit", "commit"]
    assert [one.requested_at for one in entries[3:]] == times(commits[:2])
    assert (entries[0].requested_at, entries[2].metadata) == (first.requested_at, b"done")
    [file] = newest_manifest(storage, table.config().history_folder).files
    held = archive_writer.read_archive_file(storage, table.config().history_folder, file)
    assert [one.plan is None for one in held] == [True, True, False, True, True]
    assert held[2].plan == b"plan"
    assert active(table) == times(commits[2:])


def test_a_clean_after_the_last_commit_that_goes_stays(table: bl.Table) -> None:
    commits = upserts(table, 2)
    clean = f"{int(commits[-1].completed_at or 0) + 1}"
    storage_of(table).put(f".hoodie/timeline/{clean}_{int(clean) + 1}.clean", b"done")
    commits += upserts(table, 2)
    table.archive(keep_min=2, keep_max=3)
    assert archived(table) == times(commits[:2])
    assert clean in active(table)


@pytest.mark.parametrize(("keep_min", "keep_max"), [(0, 3), (3, 3), (4, 3), (True, 3), (1, 1)])
def test_limits_that_are_none_are_refused(table: bl.Table, keep_min: int, keep_max: int) -> None:
    with pytest.raises(ConfigError, match="keep_"):
        table.archive(keep_min=keep_min, keep_max=keep_max)


# What stays, and why.


def assert_stops(table: bl.Table, commits: list[Instant], kept: int, why: str) -> None:
    """Archival leaves the commits from one on."""
    report = table.archive(keep_min=1, keep_max=2)
    assert report.held_back is not None
    assert why in report.held_back
    assert archived(table) == times(commits[:kept])
    assert active(table)[0] == commits[kept].requested_at


def test_the_commit_before_a_pending_instant_stays(any_table: bl.Table) -> None:
    commits = upserts(any_table, 3)
    pending = f"{int(commits[-1].completed_at or 0) + 1}"
    storage = storage_of(any_table)
    storage.put(f".hoodie/timeline/{pending}.compaction.requested", b"")
    before = values_of(any_table)
    commits += upserts(any_table, 3)
    assert before == all_are(3)
    assert_stops(any_table, commits, 2, f"instant {pending} is pending")


def test_nothing_goes_while_a_rollback_is_under_way(table: bl.Table) -> None:
    commits = upserts(table, 4)
    storage, config = storage_of(table), table.config()
    plan = RollbackPlan(commits[0].requested_at, "commit", {})
    content, clock = encode_rollback_plan(plan, storage.root), InstantClock("UTC")
    timeline = timeline_of(table)
    with begin_instant(
        OpenTable(storage, config, clock, NO_LOCK), timeline, Action.ROLLBACK, content
    ) as (instant, _):
        report = table.archive(keep_min=1, keep_max=2)
    assert report == archival.ArchiveReport((), f"rollback {instant} is under way")


def test_nothing_goes_where_the_first_instant_is_pending(table: bl.Table) -> None:
    storage_of(table).put(".hoodie/timeline/20200101000000000.compaction.requested", b"")
    upserts(table, 4)
    report = table.archive(keep_min=1, keep_max=2)
    assert report.instants == ()
    assert report.held_back == "instant 20200101000000000 is pending"


def test_a_failed_write_is_settled_first_and_holds_nothing_back(table: bl.Table) -> None:
    upserts(table, 2)
    storage, last = storage_of(table), timeline_of(table).newest_time()
    assert last is not None
    dead = later(last)
    storage.put(f".hoodie/timeline/{dead}.commit.requested", b"")
    storage.put(f".hoodie/timeline/{dead}.inflight", b"")
    name = f"00000000-0000-4000-8000-000000000000-0_1-0-1_{dead}.parquet"
    write_markers(storage, dead, [Marker("a", name, MarkerType.CREATE)])
    storage.put(f"a/{name}", b"rows")
    assert table.archive(keep_min=1, keep_max=1 + 1, dry_run=True).instants == ()
    report = archive(opened_table(storage, table.config()), ArchivalLimits(1, 2))
    assert report == archival.ArchiveReport()
    assert storage.stat(f"a/{name}") is None
    upsert(table, 3)
    assert table.archive(keep_min=1, keep_max=2).held_back is None
    assert values_of(table) == all_are(3)


@pytest.mark.parametrize("suffix", ["savepoint.inflight", "{0}.savepoint"])
def test_a_savepoint_and_all_after_it_stay(table: bl.Table, suffix: str) -> None:
    commits = upserts(table, 5)
    kept = commits[2].requested_at
    text = suffix.format(f"{int(commits[-1].completed_at or 0) + 1}")
    separator = "." if text.startswith("savepoint") else "_"
    storage_of(table).put(f".hoodie/timeline/{kept}{separator}{text}", b"")
    assert_stops(table, commits, 2, f"savepoint of instant {kept}")


def test_a_commit_whose_replaced_files_are_there_stays_until_they_are_cleaned(
    any_table: bl.Table,
) -> None:
    """Readers would count them as rows again."""
    commits = upserts(any_table, 2)
    instant = any_table.insert_overwrite(rows(3, range(0, 4, 2))).instant
    assert instant is not None
    commits += [one for one in any_table.timeline() if one.requested_at == instant]
    commits += [upsert(any_table, 4), upsert(any_table, 5)]
    assert_stops(any_table, commits, 2, f"files that instant {instant} replaced in partition 'a'")
    assert values_of(any_table) == all_are(5)
    # The metadata table may list the deleted files until their clean is completed.
    drop_replaced(any_table)
    clean = f".hoodie/timeline/{int(commits[-1].completed_at or 0) + 1}.clean.requested"
    storage_of(any_table).put(clean, b"plan")
    report = any_table.archive(keep_min=1, keep_max=2, dry_run=True)
    assert report.held_back is not None
    assert "is not completed: clean the table again" in report.held_back
    storage_of(any_table).delete(clean)
    assert any_table.archive(keep_min=1, keep_max=2).held_back is None
    assert archived(any_table) == times(commits[:4])
    assert values_of(any_table) == all_are(5)


def test_the_last_commit_that_tells_the_schema_stays(any_table: bl.Table) -> None:
    commits = upserts(any_table, 4)
    for after in commits[2:]:  # As a service of Hudi writes them.
        path = f".hoodie/timeline/{after.to_file_name(LAYOUT_2)}"
        storage_of(any_table).put(path, without_schema(storage_of(any_table).read(path)))
    assert_stops(any_table, commits, 1, "the last with the table's schema")


def test_a_commit_that_was_completed_after_later_ones_began_stays_with_them(
    table: bl.Table,
) -> None:
    commits = upserts(table, 5)
    storage, slow = storage_of(table), commits[1]
    late = f"{int(commits[3].requested_at) + 1}"
    path = f".hoodie/timeline/{slow.requested_at}_{slow.completed_at}.commit"
    storage.put(path.replace(str(slow.completed_at), late), storage.read(path))
    storage.delete(path)
    report = table.archive(keep_min=2, keep_max=3)
    assert report.held_back == f"instant {slow.requested_at} overlaps with an instant that stays"
    assert archived(table) == times(commits[:1])
    assert table.archive(keep_min=1, keep_max=2).instants[-1] == commits[3]


# What asks for it later.


def test_a_reader_that_looked_before_still_reads(any_table: bl.Table) -> None:
    any_table.upsert(rows(1))
    any_table.insert_overwrite(rows(2))
    storage = storage_of(any_table)
    pinned = timeline_of(any_table)
    drop_replaced(any_table)
    for v in (3, 4, 5):
        upsert(any_table, v)
    any_table.archive(keep_min=1, keep_max=2)
    assert set(pinned.replaced_file_groups(storage).values()) == {pinned.instants[1].requested_at}
    assert pinned.latest_schema(storage) is not None
    with pytest.raises(TimelineError, match="rolled back"):
        pinned.read_commit(
            storage, replace(pinned.instants[0], requested_at=InstantTime("2020" + "0" * 13))
        )


def test_time_travel_and_ranges_reach_into_the_archive(any_table: bl.Table) -> None:
    commits = [upsert(any_table, v, range(v, v + 2)) for v in range(6)]
    before = {one: values_of(any_table, as_of=one.requested_at) for one in commits}
    ranges = {
        (one, other): values_of(any_table, since=one.completed_at, until=other.completed_at)
        for number, one in enumerate(commits)
        for other in commits[number:]
    }
    any_table.archive(keep_min=1, keep_max=2)
    assert len(archived(any_table)) == 5
    for one, found in before.items():
        assert values_of(any_table, as_of=one.requested_at) == found
    for (one, other), found in ranges.items():
        assert values_of(any_table, since=one.completed_at, until=other.completed_at) == found
    assert values_of(any_table, since="2000-01-01") == values_of(any_table)
    assert values_of(any_table, until=commits[0].completed_at) == {"k0": 0, "k1": 0}


def test_log_files_of_archived_commits_belong_to_the_slices_they_belonged_to() -> None:
    for table in made("merge_on_read"):
        upsert(table, 1)
        table.compact(schedule_only=True)
        upserts(table, 3)
        table.compact()
        upsert(table, 5, range(2))
        found = values_of(table)
        assert found == all_are(3) | {"k0": 5, "k1": 5}
        assert table.archive(keep_min=1, keep_max=2).held_back is None
        assert values_of(table) == found
        table.compact()
        assert values_of(table) == found


def test_a_column_that_was_added_before_the_archive_ends_is_still_there(
    any_table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi's archival leaves no commit that tells the schema where only compactions stay."""
    upsert(any_table, 1)
    wider = rows(2).append_column("note", pa.array(["x"] * 4))
    any_table.upsert(wider, merge_schema="add_columns")
    schema = any_table.schema()
    assert schema.names == [*SCHEMA.names, "note"]
    upserts_of(any_table, wider, 3)
    any_table.archive(keep_min=1, keep_max=2)
    for one in any_table.timeline():
        path = f".hoodie/timeline/{one.to_file_name(LAYOUT_2)}"
        storage_of(any_table).put(path, without_schema(storage_of(any_table).read(path)))
    assert any_table.schema() == schema
    assert any_table.to_arrow()["note"].to_pylist() == ["x"] * 4
    storage_of(any_table).delete_folder(any_table.config().history_folder)
    assert any_table.schema() == SCHEMA  # As the table was made.


def upserts_of(table: bl.Table, batch: pa.Table, number: int) -> None:
    for _ in range(number):
        table.upsert(batch)


def without_schema(commit: bytes) -> bytes:
    from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata

    return encode_commit_metadata(replace(decode_commit_metadata(commit, ""), extra={}))


def test_an_archived_commit_is_not_rolled_back(table: bl.Table) -> None:
    commits = upserts(table, 4)
    table.archive(keep_min=1, keep_max=2)
    before = paths(table)
    for instant in (commits[0].requested_at, commits[2].requested_at):
        for dry_run in (True, False):
            with pytest.raises(TimelineError, match="is archived") as caught:
                table.rollback(instant, dry_run=dry_run)
            assert instant in str(caught.value)
    assert paths(table) == before
    last = upsert(table, 5)
    table.rollback(last.requested_at)
    assert values_of(table) == all_are(4)


def test_the_last_commit_before_an_archive_is_not_rolled_back(table: bl.Table) -> None:
    """Where no commit is active, neither Hudi nor bucketlake counts the archived ones."""
    commits = upserts(table, 4)
    table.archive(keep_min=1, keep_max=2)
    with pytest.raises(TimelineError, match="the last commit of the active timeline"):
        table.rollback(commits[3].requested_at)
    upsert(table, 5)
    with pytest.raises(TimelineError, match="the last commit of the active timeline"):
        table.rollback(commits[3].requested_at, cascade=True)
    assert values_of(table) == all_are(5)


def test_a_commit_that_an_archival_left_behind_does_not_count_as_the_last(table: bl.Table) -> None:
    commits = upserts(table, 4)
    assert plan_archival(table, 3)() is archive_writer.Appended.DONE  # And it dies.
    with pytest.raises(TimelineError, match="the last commit of the active timeline"):
        table.rollback(commits[3].requested_at)
    assert values_of(table) == all_are(4)
    upsert(table, 5)
    assert values_of(table) == all_are(5)


def test_the_index_of_a_partition_level_table_outlives_its_commits(table: bl.Table) -> None:
    upserts(table, 2)
    table.rescale({"a": 3}, dry_run=False)
    drop_replaced(table)
    opened = bl.open_table(table.path)
    upserts(opened, 4)
    index, counts = bl.open_table(table.path).index, table.recorded_counts()
    assert index == bl.PartitionBucket({"a": 3}, 1)
    assert opened.archive(keep_min=1, keep_max=2).held_back is None
    assert bl.open_table(table.path).index == index
    assert opened.recorded_counts() == counts
    assert [one.instant for one in opened.rule_versions()] == [counts["a"].instant]
    upsert(opened, 9)
    assert values_of(opened) == all_are(9)


@pytest.fixture
def ruled() -> bl.Table:
    """A table of four buckets with keys enough to fill them, rescaled to two."""
    table = bl.create_table(
        f"memory://archival-{next(_NUMBERS)}",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=bl.SimpleBucket(4),
    )
    table.upsert(rows(1, range(24)))
    table.rescale({"a": 2, "b": 2}, dry_run=False)
    table.clean(retain_versions=1)
    return bl.open_table(table.path)


def each_by_itself(table: bl.Table, **options: Any) -> dict[str, int]:
    found = [values_of(table, where=f"id = 'k{n}'", **options) for n in range(24)]
    return {key: v for one in found for key, v in one.items()}


def test_a_time_that_is_archived_is_pruned_by_its_own_rules(ruled: bl.Table) -> None:
    """No instant of the active timeline is that old, and the rules are still among the active."""
    then = upsert(ruled, 2, range(24))
    for v in (3, 4, 5):
        upsert(ruled, v, range(24))
    ruled.archive(keep_min=1, keep_max=2)
    assert then.requested_at < active(ruled)[0]
    whole = values_of(ruled, as_of=then.requested_at)
    assert set(whole.values()) == {2}
    assert each_by_itself(ruled, as_of=then.requested_at) == whole


def test_a_range_below_the_newest_rules_is_pruned_by_the_archived_ones(ruled: bl.Table) -> None:
    until = upsert(ruled, 2, range(24)).completed_at
    ruled.rescale({"a": 2, "b": 2, "c": 3}, dry_run=False)
    for v in (3, 4):
        upsert(ruled, v, range(24))
    ruled.archive(keep_min=1, keep_max=2)
    ruled.rescale({"a": 2, "b": 2, "c": 5}, dry_run=False)
    whole = values_of(ruled, since="0" * 17, until=until)
    assert len(whole) == 24
    assert each_by_itself(ruled, since="0" * 17, until=until) == whole


def test_counts_of_a_write_that_hudi_rolled_back_go(table: bl.Table) -> None:
    """Once the timeline begins later, they would count as committed."""
    commits = upserts(table, 2)
    assert commits[-1].completed_at is not None
    undone = later(commits[-1].completed_at)
    record = {"version": 1, "partitions": {"a": [7, undone]}}
    storage_of(table).put(record_path(undone), json.dumps(record).encode())
    commits += upserts(table, 3)
    table.archive(keep_min=1, keep_max=2)
    assert storage_of(table).stat(record_path(undone)) is None
    assert table.recorded_counts() == {}


# Writers meanwhile.


def test_a_write_that_began_before_an_archival_commits_after_it(
    any_table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    upserts(any_table, 5)
    meanwhile(monkeypatch, lambda: any_table.archive(keep_min=1, keep_max=2))
    upsert(any_table, 6)
    assert len(archived(any_table)) == 4 - 1  # The commit before the pending one stays, too.
    assert values_of(any_table) == all_are(6)


@pytest.fixture
def long_ago(any_table: bl.Table) -> tuple[InstantTime, list[Instant]]:
    """A time right after the first of five commits, which a writer drew and slept; and those."""
    commits = upserts(any_table, 5)
    return shift_instant(commits[0].requested_at, timedelta(milliseconds=1)), commits


def begin(table: bl.Table, instant: InstantTime) -> Timeline:
    return create_requested(
        opened_table(storage_of(table), table.config()), instant, action_of(table)
    )


def action_of(table: bl.Table) -> Action:
    is_merged = table.config().table_type is TableType.MERGE_ON_READ
    return Action.DELTA_COMMIT if is_merged else Action.COMMIT


def test_commits_after_a_write_that_comes_late_stay_active_until_it_has_ended(
    any_table: bl.Table,
    monkeypatch: pytest.MonkeyPatch,
    long_ago: tuple[InstantTime, list[Instant]],
) -> None:
    """Readers would take commits between it and the new begin of the timeline for pending."""
    late, commits = long_ago

    history = any_table.config().history_folder
    meanwhile(monkeypatch, lambda: begin(any_table, late), PUTS, history)
    any_table.archive(keep_min=1, keep_max=2)
    assert len(archived(any_table)) == 4
    assert timeline_of(any_table).start == commits[0].requested_at
    assert values_of(any_table) == all_are(5)
    assert not any_table.doctor()
    upsert(any_table, 6)  # The writer is dead, and rolled back.
    any_table.archive(keep_min=1, keep_max=5)
    assert timeline_of(any_table).start == commits[-1].requested_at
    assert values_of(any_table) == all_are(6)


def test_a_write_that_comes_too_late_for_an_archival_draws_another_time(
    any_table: bl.Table,
    monkeypatch: pytest.MonkeyPatch,
    long_ago: tuple[InstantTime, list[Instant]],
) -> None:
    late, commits = long_ago
    refused = []

    def write_late() -> None:  # What goes was listed, and goes after this.
        assert archived(any_table)
        with pytest.raises(AlreadyExistsError, match="too old"):
            begin(any_table, late)
        refused.append(late)

    meanwhile(monkeypatch, write_late, ("delete",), ".hoodie/timeline/")
    any_table.archive(keep_min=1, keep_max=2)
    assert refused
    assert timeline_of(any_table).start == commits[-1].requested_at
    assert values_of(any_table) == all_are(5)


def test_a_write_that_came_too_late_for_an_archival_and_died_hides_no_commit(
    any_table: bl.Table,
    monkeypatch: pytest.MonkeyPatch,
    long_ago: tuple[InstantTime, list[Instant]],
) -> None:
    late, commits = long_ago
    path = f".hoodie/timeline/{late}.{action_of(any_table).value}.requested"

    def read_meanwhile(*arguments: Any, **options: Any) -> Any:
        storage_of(any_table).put(path, b"")
        return read_archive(*arguments, **options)

    with monkeypatch.context() as hook:
        hook.setattr(archive_writer, "read_archive", read_meanwhile)
        any_table.archive(keep_min=1, keep_max=2)
    assert timeline_of(any_table).start == commits[-1].requested_at
    assert values_of(any_table) == all_are(5)
    upsert(any_table, 6)
    assert storage_of(any_table).stat(path) is None
    assert values_of(any_table) == all_are(6)


def test_a_conflict_with_a_commit_that_was_archived_since_is_found(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was requested before the write, and completed after the write had looked."""
    upserts(table, 2)
    storage = storage_of(table)
    target = open_target(table_at(storage), None)
    upserts(table, 3)
    table.archive(keep_min=1, keep_max=2)
    with pytest.raises(CommitConflictError, match="changed bucket"):
        write_records(target, Operation.UPSERT, ArrowSource(rows(9, range(1))))
    # Found in the archive: the newest commit touched another bucket.
    target = open_target(table_at(storage), None)
    upsert(table, 6, range(0, 4, 2))
    upsert(table, 7, range(1, 4, 2))
    upsert(table, 8, range(1, 4, 2))
    table.archive(keep_min=1, keep_max=2)
    with pytest.raises(CommitConflictError, match="changed bucket 0 of partition 'a'"):
        write_records(target, Operation.UPSERT, ArrowSource(rows(9, range(1))))
    assert values_of(table) == {"k0": 6, "k2": 6, "k1": 8, "k3": 8}


def test_a_write_planned_on_a_commit_that_was_rolled_back_is_refused_after_an_archival(
    table: bl.Table,
) -> None:
    upserts(table, 2)
    storage = storage_of(table)
    mistaken = upsert(table, 3)
    target = open_target(table_at(storage), None)
    table.rollback(mistaken.requested_at)
    for v in (4, 5, 6):
        upsert(table, v, range(1, 4, 2))
    table.archive(keep_min=1, keep_max=2)
    assert mistaken.requested_at < active(table)[0]
    with pytest.raises(CommitConflictError, match=f"{mistaken.requested_at} was rolled back"):
        write_records(target, Operation.UPSERT, ArrowSource(rows(9, range(1))))


def test_a_committer_that_slept_over_an_archival_learns_that_it_committed(table: bl.Table) -> None:
    commits = upserts(table, 4)
    storage, config = storage_of(table), table.config()
    first = commits[0]
    outcome = read_outcome(storage, first.requested_at)
    assert outcome is not None
    assert outcome.publication is not None
    table.archive(keep_min=1, keep_max=2)
    before = paths(table)
    assert complete_instant(opened_table(storage, config), first, outcome.publication) == first
    assert paths(table) == before


def test_a_committer_that_sleeps_inside_of_its_last_step_leaves_no_hole(table: bl.Table) -> None:
    """Its file appears after all; a timeline that began with it would miss what came after."""

    upsert(table, 1)
    first = commit_but_for_the_last_step(table)

    def meanwhile() -> None:
        publish(table, first)
        upserts(table, 4)
        table.archive(keep_min=1, keep_max=2)

    publish(table, first, meanwhile)
    assert first in archived(table)
    assert first not in active(table)
    assert values_of(table) == all_are(4)


def test_a_committer_takes_no_file_back_that_another_put_and_an_archival_left(
    table: bl.Table,
) -> None:
    """Between older ones that are still there it would be missed."""

    class Dying(FaultyStorage):
        def delete(self, path: str) -> None:
            if path.endswith(".commit"):
                raise SimulatedCrash(path)
            super().delete(path)

    upsert(table, 1)
    second = commit_but_for_the_last_step(table)

    def meanwhile() -> None:
        publish(table, second)
        upserts(table, 4)
        with suppress(SimulatedCrash):
            archive(opened_table(Dying(storage_of(table)), table.config()), ArchivalLimits(1, 2))

    publish(table, second, meanwhile)
    assert second in archived(table)
    assert second in active(table)
    table.archive(keep_min=1, keep_max=2)
    assert second not in active(table)
    assert values_of(table) == all_are(4)


def test_a_helper_that_slept_over_a_rollback_does_not_publish_the_commit_again(
    table: bl.Table,
) -> None:
    upsert(table, 1)
    first = commit_but_for_the_last_step(table)
    publish(table, first)
    publish(table, first, lambda: table.rollback(first))
    assert first not in active(table)
    assert values_of(table) == all_are(1)


def publish(
    table: bl.Table, instant: InstantTime, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Publish a write that is decided; sleep between the look at its inflight file and the put."""

    class Slow(FaultyStorage):
        def stat(self, path: str) -> Any:
            found = super().stat(path)
            is_look = path.startswith(".hoodie/timeline/") and path.endswith(".inflight")
            if is_look and found is not None and not woken:
                woken.append(path)
                meanwhile()
            return found

    woken: list[str] = []
    storage = storage_of(table)
    outcome = read_outcome(storage, instant)
    assert outcome is not None
    assert outcome.publication is not None
    pending = Instant(instant, Action.COMMIT, State.INFLIGHT)
    complete_instant(opened_table(Slow(storage), table.config()), pending, outcome.publication)


def commit_but_for_the_last_step(table: bl.Table) -> InstantTime:
    """Leave a write decided, and not published."""
    before = {one.requested_at for one in table.timeline()}
    counting = FaultyStorage(storage_of(table), reads_count=False)
    write(counting)
    [published] = [
        number
        for number, step in enumerate(counting.trace, 1)
        if step.path.endswith(".commit") and step.operation == "put_if_absent"
    ]
    last = table.timeline()[-1]
    table.rollback(last.requested_at)
    fault = next(f for f in crash_points(99) if f.operation == published)
    with pytest.raises(SimulatedCrash):
        write(FaultyStorage(storage_of(table), [fault], reads_count=False))
    [instant] = [
        one.requested_at
        for one in table.timeline()
        if one.requested_at not in before and one.state is not State.COMPLETED
    ]
    return instant


def write(storage: FaultyStorage) -> None:
    target = open_target(table_at(storage), INDEX)
    write_records(target, Operation.UPSERT, ArrowSource(rows(9), threads=1))


def test_a_ring_is_published_before_the_commit_that_brought_it_is_archived() -> None:
    """Hudi looks for that commit on the active timeline alone."""
    table = bl.create_table(
        "memory://archived-ring",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=bl.ConsistentBucket(1),
        table_type="merge_on_read",
    )
    upsert(table, 1)
    instant = table.delete_partitions(["a"]).instant
    drop_replaced(table)
    for v in (3, 4, 5):
        upsert(table, v, range(1, 4, 2))
    marker = f"{CONSISTENT.folder}/a/{instant}.commit"
    assert marker not in paths(table)
    table.archive(keep_min=1, keep_max=2)
    assert instant in archived(table)
    assert marker in paths(table)
    forget("archived-ring")


def test_a_writer_that_takes_an_archived_commit_for_dead_leaves_it_alone(table: bl.Table) -> None:
    """It looked while the commit was pending, and slept over its end and its archival."""
    upserts(table, 1)
    table.rescale({"a": 3}, dry_run=False)
    rescaled = table.timeline()[-1]
    opened = bl.open_table(table.path)
    drop_replaced(opened)
    upserts(opened, 4)
    opened.archive(keep_min=1, keep_max=2)
    assert rescaled.requested_at in archived(opened)
    storage, config = storage_of(table), table.config()
    pending = replace(rescaled, state=State.INFLIGHT, completed_at=None)
    seen = replace(timeline_of(table), instants=(pending,))
    clock = InstantClock(config.timeline_timezone)
    recovery.settle_failed_writes(OpenTable(storage, config, clock, NO_LOCK), seen)
    assert read_outcome(storage, rescaled.requested_at) is None
    assert bl.open_table(table.path).index == bl.PartitionBucket({"a": 3}, 1)
    assert values_of(opened) == all_are(4)


def test_a_late_task_of_an_archived_commit_brings_no_file_back(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file was replaced and cleaned, and the commit that replaced it is archived."""
    tasks = spy(monkeypatch, PackedRecords, "write", lambda *given: given)
    upsert(table, 1)
    monkeypatch.undo()
    table.insert_overwrite(rows(2))
    drop_replaced(table)
    upserts(table, 4)
    table.archive(keep_min=1, keep_max=2)
    [late] = tasks
    with pytest.raises(CommitConflictError, match="ended while a task still wrote"):
        PackedRecords.write(*late)
    assert values_of(table) == all_are(4)


# Several at once, and deaths.


def archive_now(storage: Storage) -> archival.ArchiveReport:
    return archive(table_at(storage), ArchivalLimits(1, 2))


def plan_archival(table: bl.Table, number: int) -> Callable[[], archive_writer.Appended]:
    """Plan an archival of the first instants; return what publishes it, and does no more."""
    storage, config = storage_of(table), table.config()
    manifest = newest_manifest(storage, HISTORY)
    gone = timeline_of(table).completed()[:number]
    opened = opened_table(storage, config)
    files = archive_writer.instant_files(opened)
    encoded = archive_writer.encode_instants(opened, files, gone, {})
    return lambda: append(opened, manifest, gone, encoded)


def assert_whole(table: bl.Table, commits: list[Instant], story: str = "") -> None:
    """Every commit is in a timeline, the archive is whole, and the rows are those of the last."""
    assert sorted({*archived(table), *active(table)}) == times(commits), story
    assert values_of(table) == all_are(len(commits)), story
    assert values_of(table, since="2000-01-01") == all_are(len(commits)), story
    config, storage = table.config(), storage_of(table)
    manifest = newest_manifest(storage, config.history_folder)
    names = [file.name for file in manifest.files]
    assert len(set(names)) == len(names), story
    for name in names:
        assert storage.stat(f"{config.history_folder}/{name}") is not None, story


def restore(table: bl.Table, objects: dict[str, bytes]) -> MemoryStorage:
    storage = storage_of(table)
    for path in paths(table):
        storage.delete(path)
    for path, data in objects.items():
        storage.put(path, data)
    return storage


def steps_of(run: Callable[[Storage], object], table: bl.Table, *, reads_count: bool) -> int:
    counting = FaultyStorage(storage_of(table), reads_count=reads_count)
    run(counting)
    return counting.operations


def test_archivals_at_the_same_time_do_no_harm(table: bl.Table) -> None:
    """Another one comes in before each of the steps of the first."""
    commits = upserts(table, 4)
    objects = objects_of(storage_of(table))
    for step in range(1, steps_of(archive_now, table, reads_count=True) + 1):
        storage = restore(table, objects)
        archive_now(Interrupted(storage, step, lambda: archive_now(storage_of(table))))
        assert_whole(table, commits, f"before step {step}")
        assert active(table) == times(commits[3:])
        assert archived(table) == times(commits[:3])


def roll_back_now(storage: Storage, instant: InstantTime) -> bool:
    """Roll a commit back; False where it is archived."""
    try:
        roll_back(table_at(storage), INDEX, instant)
    except TimelineError as error:
        assert "is archived" in str(error)  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("first", ["archival", "rollback"])
def test_a_rollback_and_an_archival_at_the_same_time_agree(table: bl.Table, first: str) -> None:
    """The one comes in before each step of the other; the commit is undone, or archived."""
    mistaken = upsert(table, 1, range(1, 2)).requested_at  # Alone in its partition.
    commits = [upsert(table, v, range(0, 4, 2)) for v in range(2, 6)]
    objects = objects_of(storage_of(table))
    undone: list[bool] = []

    def undo(storage: Storage) -> None:
        undone.append(roll_back_now(storage, mistaken))

    one, other = (archive_now, undo) if first == "archival" else (undo, archive_now)
    seen = set()
    for step in some(range(1, steps_of(one, table, reads_count=True) + 1), 30):
        storage = restore(table, objects)
        undone.clear()
        one(Interrupted(storage, step, lambda: other(storage_of(table))))
        [is_undone] = undone
        seen.add(is_undone)
        story = f"before step {step}, undone: {is_undone}"
        assert values_of(table) == {"k0": 5, "k2": 5} | ({} if is_undone else {"k1": 1}), story
        known = sorted(one for one in archived(table) if one not in rollbacks(table))
        expected = ([] if is_undone else [mistaken]) + times(commits)
        assert sorted({*known, *commits_in(active(table), expected)}) == expected, story
        assert all(one.state is State.COMPLETED for one in table.timeline()), story
        archive_now(storage)
        upsert(table, 6, range(0, 4, 2))
        assert values_of(table) == {"k0": 6, "k2": 6} | ({} if is_undone else {"k1": 1}), story
    assert seen == {True, False}


def rollbacks(table: bl.Table) -> set[str]:
    entries = read_archive(opened_table(storage_of(table), table.config()))
    return {one.requested_at for one in entries if one.action == "rollback"}


def commits_in(instants: list[str], expected: list[str]) -> list[str]:
    return [one for one in instants if one in expected]


@pytest.mark.parametrize("other", ["archival", "write"])
def test_death_at_every_step_loses_nothing_and_is_made_good(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The archival also merges files, and drops old ones."""
    set_bounds(monkeypatch, archive_writer, MERGED_FILES=2, MANIFESTS_KEPT=1)
    before = upserts(table, 3)
    table.archive(keep_min=1, keep_max=2)
    before += [upsert(table, v) for v in (4, 5, 6)]
    objects = objects_of(storage_of(table))
    steps = steps_of(archive_now, table, reads_count=False)
    assert steps >= 20
    assert {f.layer for f in newest_manifest(storage_of(table), HISTORY).files} == {1}
    for fault in some([*crash_points(steps)], 30):
        commits = list(before)
        storage = FaultyStorage(restore(table, objects), [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            archive_now(storage)
        assert_whole(table, commits, storage.replay())
        if other == "write":
            commits.append(upsert(table, 7))
            assert_whole(table, commits, storage.replay())
        archive_now(storage_of(table))
        assert_whole(table, commits, storage.replay())
        left = active(table)
        assert left == times(commits[-len(left) :]), storage.replay()
        assert len(left) <= (1 if other == "archival" else 2), storage.replay()
        assert not set(archived(table)) & set(left), storage.replay()


def test_ranges_miss_nothing_of_an_archival_that_died_among_commits_that_overtook_each_other(
    table: bl.Table,
) -> None:
    """One that began first and completed last goes first; who completed before it may be there."""
    commits = [upsert(table, v, range(v, v + 1)) for v in range(6)]
    storage, config = storage_of(table), table.config()
    completed = [str(one.completed_at) for one in commits]
    late, overtaking = commits[1], commits[2]
    old = f"{config.timeline_folder}/{late.to_file_name(LAYOUT_2)}"
    completed[1] = str(int(str(overtaking.completed_at)) + 1)
    storage.put(old.replace(str(late.completed_at), completed[1]), storage.read(old))
    storage.delete(old)
    objects = objects_of(storage)
    for fault in some([*crash_points(steps_of(archive_now, table, reads_count=False))], 25):
        faulty = FaultyStorage(restore(table, objects), [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            archive_now(faulty)
        for since in completed:
            expected = {f"k{v}": v for v, at in enumerate(completed) if at > since}
            assert values_of(table, since=since) == expected, faulty.replay()


def test_files_are_merged_and_old_manifests_go(any_table: bl.Table) -> None:
    commits = upserts(any_table, 2)
    for v in range(3, 25):
        commits.append(upsert(any_table, v))
        any_table.archive(keep_min=1, keep_max=2)
    storage = storage_of(any_table)
    files = newest_manifest(storage, HISTORY).files
    assert [file.layer for file in files].count(1) == 1
    merged = next(file for file in files if file.layer == 1)
    held = archive_writer.read_archive_file(storage, HISTORY, merged)
    assert (held[0].requested_at, held[-1].requested_at) == (merged.first, merged.last)
    assert len(paths(any_table, HISTORY)) <= 3 + 1 + 1 + len(files) + archive_writer.MERGED_FILES
    manifests = [path for path in paths(any_table, HISTORY) if "/manifest_" in path]
    assert len(manifests) == 3
    assert max(int(path.rpartition("_")[2]) for path in manifests) == int(
        storage.read(f"{HISTORY}/_version_")
    )
    assert_whole(any_table, commits)


def test_files_that_would_grow_too_large_are_not_merged() -> None:
    big, small = 2**30, 1

    def fitting(*sizes: int) -> list[int]:
        files = [ArchiveFile(f"{n}_{n}_0.parquet", size) for n, size in enumerate(sizes)]
        return [int(file.first) for file in archive_writer._fitting(files)]

    assert fitting(*[small] * 12) == list(range(10))
    assert fitting(big, big, small, small) == [2, 3]
    assert fitting(small, small, big, small) == [0, 1]
    assert len(fitting(big + 1, big, big)) < 2


def test_a_leftover_file_of_another_content_is_never_written_over(table: bl.Table) -> None:
    """Its writer may yet be heard of; fewer instants go, under another name."""
    commits = upserts(table, 5)
    storage = storage_of(table)
    name = ArchiveFile.name_of(commits[0].requested_at, commits[3].requested_at, 0)
    storage.put(f"{HISTORY}/{name}", b"half of a file")
    table.archive(keep_min=1, keep_max=2)
    assert storage.read(f"{HISTORY}/{name}") == b"half of a file"
    assert archived(table) == times(commits[:3])
    assert_whole(table, commits)


def test_a_broken_manifest_of_a_writer_that_died_is_passed_over(table: bl.Table) -> None:
    commits = upserts(table, 4)
    table.archive(keep_min=1, keep_max=2)
    storage = storage_of(table)
    storage.put(f"{HISTORY}/manifest_2", b'{"files": [')
    assert archived(table) == times(commits[:3])
    commits += [upsert(table, 5), upsert(table, 6)]
    table.archive(keep_min=1, keep_max=2)
    assert archived(table) == times(commits[:5])
    assert storage.read(f"{HISTORY}/_version_") == b"3"


def test_who_slept_until_a_number_was_free_again_is_overtaken(table: bl.Table) -> None:
    """The newest manifest is then without its file, and what it read goes on as active."""
    commits = upserts(table, 4)
    storage = storage_of(table)
    archive_first = plan_archival(table, 1)
    for number in range(1, 6):
        storage.put(f"{HISTORY}/manifest_{number}", encode_manifest(()))
    storage.delete(f"{HISTORY}/manifest_1")
    assert archive_first() is archive_writer.Appended.OVERTAKEN
    assert archived(table) == []
    table.archive(keep_min=1, keep_max=2)
    assert_whole(table, commits)


def test_a_rollback_and_an_archival_of_one_commit_exclude_each_other(table: bl.Table) -> None:
    """Whichever changes the archive first wins, and the other one sees it."""
    commits = upserts(table, 4)
    storage, config = storage_of(table), table.config()
    clock = InstantClock(config.timeline_timezone)
    archive_first = plan_archival(table, 1)
    assert keep_active(opened_table(storage, config), commits[0].requested_at)
    assert archive_first() is archive_writer.Appended.OVERTAKEN
    table.archive(keep_min=1, keep_max=2)
    assert not keep_active(opened_table(storage, config), commits[0].requested_at)
    before = paths(table)
    plan = RollbackPlan(commits[0].requested_at, "commit", {})
    content, timeline = encode_rollback_plan(plan, storage.root), timeline_of(table)
    with begin_instant(
        OpenTable(storage, config, clock, NO_LOCK), timeline, Action.ROLLBACK, content
    ):
        assert table.archive(keep_min=1, keep_max=2).instants == ()
    [left] = timeline_of(table).pending()
    carry_on_rollback(OpenTable(storage, config, clock, NO_LOCK), left)
    assert paths(table) == before | {outcome_path(left.requested_at, left.action)}
    assert_whole(table, commits)


def test_a_savepoint_keeps_an_archival_out_that_was_planned_before(table: bl.Table) -> None:
    """Later commits would be out of the reach of a restore."""
    commits = upserts(table, 4)
    archive_three = plan_archival(table, 3)
    table.savepoint(commits[1].requested_at)
    assert archive_three() is archive_writer.Appended.OVERTAKEN
    assert_stops(table, commits, 1, f"savepoint of instant {commits[1].requested_at}")
    table.restore(commits[1].requested_at)
    assert values_of(table) == all_are(2)


def test_a_commit_that_is_being_archived_gets_no_savepoint(table: bl.Table) -> None:
    commits = upserts(table, 4)
    assert plan_archival(table, 1)() is archive_writer.Appended.DONE
    with pytest.raises(TimelineError, match="archived"):
        table.savepoint(commits[0].requested_at)
    assert not timeline_of(table).pending()


def test_writers_and_archivals_at_once_lose_and_double_nothing(
    any_table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, archive_writer, MERGED_FILES=2)
    done: list[InstantTime] = []

    def write_on(writer: int) -> None:
        for v in range(8):
            batch = rows(v, range(2 * writer, 2 * writer + 2))
            while True:
                with suppress(CommitConflictError):
                    instant = any_table.upsert(batch).instant
                    assert instant is not None
                    done.append(instant)
                    break

    def archive_on(writers: list[Future[None]]) -> int:
        went = 0
        while not all(one.done() for one in writers):
            went += len(any_table.archive(keep_min=1, keep_max=2).instants)
        return went

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write_on, writer) for writer in range(2)]
        archivals = [pool.submit(archive_on, writers) for _ in range(2)]
        for one in writers:
            one.result()
        assert sum(one.result() for one in archivals) > 0
    any_table.archive(keep_min=1, keep_max=2)
    assert values_of(any_table) == all_are(7)
    assert values_of(any_table, since="2000-01-01") == all_are(7)
    assert sorted([*archived(any_table), *active(any_table)]) == sorted(done)
