"""Savepoints and restores: what is held, what goes, and that the table is as it was then."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.restore import begin_restore, carry_out_restore
from bucketlake.actions.rollback import carry_out_rollback, read_rollback_plan
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import CommitConflictError, TimelineError
from bucketlake.format.clean_metadata import CleanPlan, encode_clean_plan
from bucketlake.format.rollback_metadata import (
    RestorePlan,
    RollbackPlan,
    decode_restore_plan,
    decode_savepoint,
    encode_restore_plan,
)
from bucketlake.index.hashing_config import config_path
from bucketlake.index.recorded_counts import record_path
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.services.undo.savepoints import restore
from bucketlake.storage.base import Buffer
from bucketlake.storage.memory import forget
from bucketlake.timeline.instant import Action, InstantClock, State
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.write.ingest import write_records
from bucketlake.write.target import open_target
from tests.between import InterruptedEngine, InterruptedSource
from tests.faulty_storage import FaultyStorage, SimulatedCrash
from tests.inside import opened, storage_of

# Actions of other writers have times of the far future.
pytestmark = pytest.mark.filterwarnings("ignore::bucketlake.ClockWarning")

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
INDEX = bl.PartitionBucket({"a": 3}, default=2)
_NUMBERS = count()

TYPES = pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])


@pytest.fixture
def place() -> Iterator[str]:
    """A place in memory."""
    made = f"savepoint-{next(_NUMBERS)}"
    yield f"memory://{made}"
    forget(made)


def create(place: str, table_type: str = "copy_on_write") -> bl.Table:
    table = bl.create_table(
        place, schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX,
        table_type=table_type,
    )  # fmt: skip
    table.upsert(rows(range(20), 0))
    return table


def rows(numbers: range, v: int, days: str = "ab") -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": days[n // 2 % len(days)], "v": v} for n in numbers], SCHEMA
    )


def data_of(table: bl.Table, as_of: str | None = None) -> list[dict[str, object]]:
    found = table.to_arrow(as_of=as_of).sort_by([("day", "ascending"), ("id", "ascending")])
    return found.to_pylist()


def objects(table: bl.Table) -> set[str]:
    return {o.path for o in storage_of(table).list("")}


def data_files(table: bl.Table) -> set[str]:
    return {path for path in objects(table) if path[:2] in ("a/", "b/", "c/")}


def commits(table: bl.Table) -> list[InstantTime]:
    return [i.requested_at for i in table.timeline() if i.action.writes_data]


def assert_sound(table: bl.Table) -> None:
    """Every key is in its bucket, the next write finds it there, and nothing is pending."""
    before = data_of(table)
    for row in before:
        assert len(table.locate(row["id"], row["day"])) == 1
    again = pa.Table.from_pylist(before, SCHEMA)
    table.upsert(again)
    assert data_of(table) == before
    assert all(i.state is State.COMPLETED for i in table.timeline())


@TYPES
def test_a_clean_spares_what_a_savepoint_holds_until_it_is_deleted(
    place: str, table_type: str
) -> None:
    table = create(place, table_type)
    table.upsert(rows(range(10), 1))
    held, then = data_of(table), table.savepoint(comment="why")
    [savepoint] = [i for i in table.timeline() if i.action is Action.SAVEPOINT]
    assert (savepoint.requested_at, then) == (commits(table)[-1],) * 2
    path = f".hoodie/timeline/{savepoint.to_file_name(LAYOUT_2)}"
    named = decode_savepoint(storage_of(table).read(path), path)
    saved = {f"{partition}/{name}" for partition, names in named.items() for name in names}
    logs = {path for path in data_files(table) if ".log." in path}
    assert {bucket.path for bucket in table.buckets()} | logs <= saved <= data_files(table)
    for v in (2, 3, 4):
        table.upsert(rows(range(20), v))
        if table_type == "merge_on_read":
            table.compact()
    table.clean(retain_versions=1)
    assert data_of(table, as_of=then) == held
    table.delete_savepoint(then)
    assert data_of(table, as_of=then) == held  # Nothing goes before the next clean.
    table.clean(retain_versions=1)
    with pytest.raises(TimelineError, match="ask for a later time"):
        table.to_arrow(as_of=then)
    assert {row["v"] for row in data_of(table)} == {4}


def test_a_deleted_savepoints_files_are_found_by_the_next_clean_by_commits(place: str) -> None:
    """Though no commit touched their partition since the last clean."""
    table = create(place)
    then = table.savepoint()
    for v in (1, 2, 3):
        table.upsert(rows(range(10), v))
    for v in (4, 5):
        table.upsert(rows(range(20, 24), v, "c"))
    table.clean(retain_commits=1)
    before = data_files(table)
    assert any(then in path for path in before)
    assert table.clean(retain_commits=1).partitions == ()
    table.delete_savepoint(then)
    assert table.clean(retain_commits=1).partitions
    assert not any(then in path for path in data_files(table) if "/.h" not in path)


def test_a_savepoint_is_of_a_commit_whose_files_are_there(place: str) -> None:
    table = create(place)
    first = commits(table)[0]
    for v in (1, 2, 3):
        table.upsert(rows(range(20), v))
    table.clean(retain_commits=1)
    before = objects(table)
    with pytest.raises(TimelineError, match="ask for a later time"):
        table.savepoint(first)
    for instant in ("20300101000000000", "x"):
        with pytest.raises(TimelineError, match="the table has no commit of this time"):
            table.savepoint(instant)
    left = [path for path in objects(table) - before if "/ext/" not in path]
    assert not [path for path in left if "/history/" not in path]
    assert table.savepoint(commits(table)[-2]) == commits(table)[-2]


def test_a_savepoint_of_what_a_pending_clean_deletes_is_refused(place: str) -> None:
    table = create(place)
    first = commits(table)[0]
    table.upsert(rows(range(20), 1))
    files = {"a": tuple(p[2:] for p in data_files(table) if first in p and p[0] == "a")}
    content = encode_clean_plan(CleanPlan("KEEP_LATEST_FILE_VERSIONS", files), place)
    storage_of(table).put(".hoodie/timeline/20990101000000000.clean.requested", content)
    with pytest.raises(TimelineError, match="the pending clean 20990101000000000 deletes a/"):
        table.savepoint(first)
    assert not [i for i in table.timeline() if i.action is Action.SAVEPOINT]
    second = table.savepoint()
    table.clean()
    assert {row["v"] for row in data_of(table, as_of=second)} == {1}


def test_a_savepoint_that_is_there_is_not_made_again_and_one_that_is_not_not_deleted(
    place: str,
) -> None:
    table = create(place)
    then = table.savepoint()
    before = objects(table)
    assert table.savepoint(then) == then
    assert objects(table) == before
    table.delete_savepoint(then)
    assert not [path for path in objects(table) if "savepoint" in path]
    for call in (table.delete_savepoint, table.restore):
        with pytest.raises(TimelineError, match="is not a savepoint"):
            call(then)


@TYPES
def test_a_restore_takes_everything_back_that_came_later(place: str, table_type: str) -> None:
    table = create(place, table_type)
    table.upsert(rows(range(10), 1))
    then = table.savepoint()
    held, groups, before = data_of(table), table.buckets(), objects(table)
    table.upsert(rows(range(30), 2))
    table.delete(rows(range(5), 0).select(["id", "day"]))
    if table_type == "merge_on_read":
        table.compact()
        table.upsert(rows(range(30), 3))
        table.compact(schedule_only=True)
        table.upsert(rows(range(7), 4))
    table.rescale({"a": 6, "b": 5}, dry_run=False)
    table.insert_overwrite(rows(range(4), 5))
    table.delete_partitions(["b"])
    table.clean(retain_versions=1)
    later = [one for one in commits(table) if one > then]

    planned = table.restore(then, dry_run=True)
    assert planned.instant is None
    assert {*planned.plans, *(one.instant for one in planned.commits)} == set(later)
    assert len(planned.plans) == (table_type == "merge_on_read")
    report = table.restore(then)
    assert (report.commits, report.plans) == (planned.commits, planned.plans)
    assert data_of(table) == held
    assert table.buckets() == groups
    assert bl.open_table(place).index == INDEX
    assert commits(table) == [one for one in commits(table) if one <= then]
    new = {path for path in objects(table) - before if "/ext/" not in path}
    new = {path for path in new if not path.startswith(METADATA_TABLE_FOLDER)}
    assert {path.rpartition(".")[2] for path in new} <= {
        "requested", "inflight", "clean", "restore",
    }  # fmt: skip
    assert {path.split("/")[-1][:17] for path in new}.isdisjoint(later)
    assert_sound(table)
    assert table.restore(then).commits[0].operation == "UPSERT"
    assert data_of(table) == held


def test_a_restore_brings_rules_and_recorded_counts_back(place: str) -> None:
    """Of a count that only the record knows, and whose version would be dropped by ten others."""
    table = create(place)
    storage = storage_of(table)
    table.upsert(rows(range(20), 1, "c"))
    recorded = max(i for i in commits(table) if record_path(i) in objects(table))
    then = table.savepoint()
    held, counts = data_of(table), table.recorded_counts()
    rescaled = table.rescale({"a": 6}, default=7, dry_run=False).instant
    for day in "defghijklmnopq":
        table.upsert(rows(range(3), 2, day))
    assert record_path(recorded) in objects(table)
    table.restore(then)
    assert table.recorded_counts() == counts
    assert config_path(InstantTime(str(rescaled))) not in objects(table)
    assert data_of(table) == held
    versions = [o.path for o in storage.list(".hoodie/.bucket_index/ext/partition_counts")]
    assert versions == [record_path(recorded)]
    assert_sound(table)


def test_a_restore_to_the_newest_commit_does_nothing(place: str) -> None:
    table = create(place)
    then = table.savepoint()
    before = objects(table)
    assert table.restore(then).instant is None
    assert objects(table) == before


def test_a_later_savepoint_is_in_the_way_of_a_restore_to_an_earlier_one(place: str) -> None:
    table = create(place)
    first = table.savepoint()
    table.upsert(rows(range(5), 1))
    second = table.savepoint()
    table.upsert(rows(range(5), 2))
    with pytest.raises(TimelineError, match=f"the later savepoint {second} would be lost"):
        table.restore(first)
    table.restore(second)
    table.delete_savepoint(second)
    table.restore(first)
    assert {row["v"] for row in data_of(table)} == {0}


def test_a_restore_whose_files_are_gone_undoes_nothing(place: str) -> None:
    table = create(place)
    then = table.savepoint()
    table.upsert(rows(range(20), 1))
    gone = next(path for path in data_files(table) if then in path and path.endswith("parquet"))
    storage_of(table).delete(gone)
    before = objects(table)
    with pytest.raises(TimelineError, match=f"{gone}, which the savepoint holds, is missing"):
        table.restore(then)
    assert objects(table) == before
    assert {row["v"] for row in data_of(table)} == {1}


@TYPES
def test_a_write_that_is_under_way_during_a_restore_is_refused(place: str, table_type: str) -> None:
    table = create(place, table_type)
    held, then = data_of(table), table.savepoint()
    table.upsert(rows(range(20), 1))
    target = open_target(opened(table), INDEX)
    source = InterruptedSource(rows(range(30), 9), written=lambda: table.restore(then))
    with pytest.raises(CommitConflictError, match="was rolled back meanwhile"):
        write_records(target, Operation.UPSERT, source)
    assert data_of(table) == held
    assert_sound(table)


@TYPES
def test_nothing_is_committed_while_a_restore_is_pending(place: str, table_type: str) -> None:
    table = create(place, table_type)
    held, then = data_of(table), table.savepoint()
    table.upsert(rows(range(20), 1))
    storage, config = storage_of(table), table.config()
    plan = RestorePlan(then, ((commits(table)[-1], table.timeline()[-1].action.value),))

    source = InterruptedSource(rows(range(9), 2), planned=lambda: put_restore(table, plan))
    target = open_target(opened_table(storage, config), INDEX)
    with pytest.raises(CommitConflictError, match="restore 20980101000000000 is under way"):
        write_records(target, Operation.UPSERT, source)
    assert {row["v"] for row in data_of(table)} == {1}
    with pytest.raises(TimelineError, match="the table has no commit of this time"):
        table.rollback(plan.undone[0][0])  # Which carries the restore on first.
    assert data_of(table) == held
    assert_sound(table)


def test_a_compaction_that_a_restore_overtakes_is_not_completed(place: str) -> None:
    table = create(place, "merge_on_read")
    held, then = data_of(table), table.savepoint()
    table.upsert(rows(range(20), 1))
    undone = commits(table)[-1]

    def overtaken(*_: object) -> None:
        planned = commits(table)[-1]
        put_restore(table, RestorePlan(then, ((planned, "compaction"), (undone, "deltacommit"))))

    with pytest.raises(CommitConflictError, match="this restore is under way"):
        compact(
            opened(table),
            CompactionLimits(),
            InterruptedEngine(overtaken),
        )
    table.upsert(rows(range(2), 0))
    assert data_of(table) == held
    assert {path for path in data_files(table) if path.endswith(".parquet")} == {
        bucket.path for bucket in table.buckets()
    }
    assert_sound(table)


def test_a_restore_that_had_not_begun_is_withdrawn_for_good(place: str) -> None:
    """Whoever planned it may wake up, and the table may have changed meanwhile."""
    table = create(place)
    storage, config = storage_of(table), table.config()
    then = table.savepoint()
    table.upsert(rows(range(5), 1))
    plan = RestorePlan(then, ((commits(table)[-1], "commit"),))
    put_restore(table, plan, has_begun=False)
    table.upsert(rows(range(5), 2))
    assert not [one for one in table.timeline() if one.action is Action.RESTORE]
    put_restore(table, plan, has_begun=False)  # As who had read it before, and goes on.
    with pytest.raises(CommitConflictError, match="treated this restore as dead"):
        carry_out_restore(OpenTable(storage, config, InstantClock("UTC"), NO_LOCK), RESTORE)
    table.upsert(rows(range(5, 7), 3))
    assert {row["v"] for row in data_of(table)} == {0, 2, 3}


@pytest.mark.parametrize("change", ["commit", "later savepoint", "no savepoint"])
def test_a_restore_begins_on_the_table_that_it_was_planned_on(place: str, change: str) -> None:
    table = create(place)
    storage, config = storage_of(table), table.config()
    then = table.savepoint()
    table.upsert(rows(range(5), 1))
    plan = RestorePlan(then, ((commits(table)[-1], "commit"),))
    match change:
        case "commit":
            table.upsert(rows(range(5), 2))
        case "later savepoint":
            table.savepoint()
        case _:
            table.delete_savepoint(then)
    before = data_of(table)
    put_restore(table, plan, has_begun=False)
    with pytest.raises(CommitConflictError, match="after this restore was planned"):
        begin_restore(OpenTable(storage, config, InstantClock("UTC"), NO_LOCK), RESTORE)
    assert not [one for one in table.timeline() if one.action is Action.RESTORE]
    assert data_of(table) == before


RESTORE = InstantTime("20980101000000000")


def put_restore(table: bl.Table, plan: RestorePlan, *, has_begun: bool = True) -> None:
    path = f".hoodie/timeline/{RESTORE}.restore"
    storage_of(table).put(f"{path}.requested", encode_restore_plan(plan))
    if has_begun:
        storage_of(table).put(f"{path}.inflight", b"")


def test_a_restore_that_is_pending_is_carried_on_by_the_next_write(place: str) -> None:
    table = create(place)
    then = table.savepoint()
    table.upsert(rows(range(20), 1))
    table.upsert(rows(range(20), 2))
    put_restore(table, RestorePlan(then, tuple((i, "commit") for i in commits(table)[:0:-1])))
    table.upsert(rows(range(2), 3))
    assert {row["v"] for row in data_of(table)} == {0, 3}
    assert_sound(table)


class DyingAtItsEnd(FaultyStorage):
    """Lets a restore die before it is published."""

    def put_if_absent(self, path: str, data: Buffer) -> None:
        if path.endswith(".restore"):
            raise SimulatedCrash(path)
        super().put_if_absent(path, data)


def left_behind(table: bl.Table) -> tuple[InstantTime, RollbackPlan]:
    """Leave a restore before its last step; return the rollback of its that is pending."""
    then = table.savepoint()
    table.upsert(rows(range(20), 1))
    with pytest.raises(SimulatedCrash):
        restore(opened_table(DyingAtItsEnd(storage_of(table)), table.config()), then)
    [one] = [one for one in table.timeline() if one.action is Action.ROLLBACK]
    assert one.state is State.REQUESTED
    return one.requested_at, read_rollback_plan(opened(table), one.requested_at)


def test_who_slept_over_the_end_of_a_restore_begins_none_of_its_rollbacks(place: str) -> None:
    table = create(place)
    instant, plan = left_behind(table)
    table.upsert(rows(range(2), 3))
    storage, config = storage_of(table), table.config()
    assert not carry_out_rollback(
        OpenTable(storage, config, InstantClock("UTC"), NO_LOCK), instant, plan
    )
    assert not [one for one in table.timeline() if one.action is Action.ROLLBACK]
    assert {row["v"] for row in data_of(table)} == {0, 3}
    assert_sound(table)


def test_a_rollback_of_a_restore_that_somebody_began_is_ended_with_it(place: str) -> None:
    table = create(place)
    instant, plan = left_behind(table)

    class Dying(FaultyStorage):
        def put_if_absent(self, path: str, data: Buffer) -> None:
            super().put_if_absent(path, data)
            if path.endswith(".rollback.inflight"):
                raise SimulatedCrash(path)

    with pytest.raises(SimulatedCrash):
        carry_out_rollback(
            OpenTable(Dying(storage_of(table)), table.config(), InstantClock("UTC"), NO_LOCK),
            instant,
            plan,
        )
    table.upsert(rows(range(2), 3))
    assert {row["v"] for row in data_of(table)} == {0, 3}
    assert_sound(table)


def test_commits_that_overlap_stay_where_the_savepoint_saw_them(place: str) -> None:
    """One that began before the savepoint's commit, and is completed before or after it is made."""
    table = create(place)
    storage, config = storage_of(table), table.config()

    def overlapped(days: str, meanwhile: str, then: list[str]) -> None:
        target = open_target(opened_table(storage, config), INDEX)

        def slow() -> None:
            table.upsert(rows(range(4), 5, meanwhile))
            then.extend([table.savepoint()] if days == "d" else [])

        source = InterruptedSource(rows(range(4), 6, days), planned=slow)
        write_records(target, Operation.UPSERT, source)

    saved: list[str] = []
    overlapped("c", "e", saved)
    overlapped("d", "f", saved)
    table.upsert(rows(range(20), 7))
    table.clean(retain_versions=1)
    table.restore(saved[0])
    assert {row["day"]: row["v"] for row in data_of(table)} == {
        "a": 0, "b": 0, "c": 6, "e": 5, "f": 5,
    }  # fmt: skip
    assert_sound(table)


def test_a_commit_that_is_older_than_the_timeline_and_was_taken_back_misses_no_file(
    place: str,
) -> None:
    """The first one was requested before the savepoint's commit, and completed after it."""
    table = bl.create_table(
        place, schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX
    )
    saved: list[str] = []

    def slow() -> None:
        table.upsert(rows(range(4), 5, "e"))
        saved.append(table.savepoint())

    target = open_target(opened(table), INDEX)
    source = InterruptedSource(rows(range(4), 6, "a"), planned=slow)
    write_records(target, Operation.UPSERT, source)
    files = {"a": tuple(p[2:] for p in data_files(table) if p.startswith("a/"))}
    table.restore(saved[0])
    # A clean was planned before the restore, and whoever did sleeps still.
    content = encode_clean_plan(CleanPlan("KEEP_LATEST_FILE_VERSIONS", files), place)
    storage_of(table).put(".hoodie/timeline/20990101000000000.clean.requested", content)
    assert {row["day"]: row["v"] for row in data_of(table)} == {"e": 5}
    table.upsert(rows(range(4), 8, "a"))
    assert {row["day"]: row["v"] for row in data_of(table)} == {"e": 5, "a": 8}


def test_plans_are_read_as_they_were_written() -> None:
    plan = RestorePlan(InstantTime("1"), ((InstantTime("3"), "commit"), (InstantTime("2"), "x")))
    assert decode_restore_plan(encode_restore_plan(plan), "p") == plan
