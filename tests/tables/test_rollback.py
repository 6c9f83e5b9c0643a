"""Rolling commits back: what goes, what is refused, and that the table is as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.pending import begin_instant, withdraw_plan
from bucketlake.actions.rollback import (
    carry_out_rollback,
    rollback_plan,
    undo,
)
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import FormatError, IndexStateError, TimelineError
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.format.rollback_metadata import (
    RollbackPlan,
    decode_rollback_plan,
    encode_rollback_plan,
)
from bucketlake.index.bucket_hash import assign_buckets
from bucketlake.index.hashing_config import config_path
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action, InstantClock, State
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.outcome import is_rolled_back
from tests.faulty_storage import FaultyStorage, SimulatedCrash

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
INDEX = bl.PartitionBucket({"a": 3}, default=2)


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A partition-level table with rows 0 to 20 in the partitions a and b."""
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX
    )
    made.upsert(rows(range(20)))
    return made


def rows(numbers: range, v: int = 0, days: str = "ab") -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": days[n % len(days)], "v": v or n} for n in numbers], SCHEMA
    )


def instant_of(done: object) -> InstantTime:
    instant = done.instant  # type: ignore[attr-defined]
    assert instant is not None
    return instant


def objects(table: bl.Table) -> set[str]:
    return {o.path for o in open_storage(table.path).list("")}


def data_of(table: bl.Table) -> list[dict[str, object]]:
    found = table.to_arrow().sort_by([("day", "ascending"), ("id", "ascending")])
    return found.to_pylist()


def assert_sound(table: bl.Table, keys: int) -> None:
    """Every key is in its bucket, and the next write finds it there."""
    before = data_of(table)
    assert len(before) == keys
    for row in before:
        assert len(table.locate(row["id"], row["day"])) == 1
    again = pa.Table.from_pylist(before, SCHEMA)
    assert table.upsert(again).updated == keys
    assert data_of(table) == before


def test_an_upsert_goes_with_its_files_and_leaves_a_rollback_on_the_timeline(
    table: bl.Table,
) -> None:
    before, held = data_of(table), objects(table)
    mistaken = instant_of(table.upsert(rows(range(10, 30), 7)))
    report = table.rollback(mistaken)
    assert [c.instant for c in report.commits] == [mistaken]
    assert report.commits[0].partitions == ("a", "b")
    assert report.commits[0].files == 5
    assert not report.commits[0].rules
    assert data_of(table) == before
    new = {p for p in objects(table) - held if "/ext/" not in p and "/history/" not in p}
    new = {p for p in new if not p.startswith(METADATA_TABLE_FOLDER)}
    assert {path.rpartition(".")[2] for path in new} == {"requested", "inflight", "rollback"}
    [rollback] = [i for i in table.timeline() if i.action is Action.ROLLBACK]
    assert (rollback.requested_at, rollback.state) == (report.instants[0], State.COMPLETED)
    assert_sound(table, 20)


def test_the_first_commit_can_go(table: bl.Table) -> None:
    table.rollback(table.timeline()[0].requested_at)
    assert table.to_arrow().num_rows == 0
    assert table.buckets() == []
    assert table.upsert(rows(range(20))).inserted == 20


def test_a_rescale_goes_with_its_rules_and_the_old_file_groups_are_back(table: bl.Table) -> None:
    before, groups = data_of(table), table.buckets()
    rescaled = instant_of(table.rescale({"a": 6, "b": 5}, dry_run=False))
    report = table.rollback(rescaled)
    assert report.commits[0].rules
    assert table.buckets() == groups
    assert data_of(table) == before
    assert config_path(rescaled) not in objects(table)
    assert bl.open_table(table.path).index == INDEX
    assert_sound(table, 20)


def test_the_upgrade_of_a_simple_table_can_go(new_path: Callable[[], str]) -> None:
    simple = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=bl.SimpleBucket(4)
    )
    simple.upsert(rows(range(20)))
    simple.rollback(instant_of(simple.rescale({"a": 9}, dry_run=False)))
    assert bl.open_table(simple.path).index == bl.SimpleBucket(4)
    assert_sound(simple, 20)


def test_several_rescales_go_newest_first(table: bl.Table) -> None:
    groups = table.buckets()
    first, second, third = (
        instant_of(table.rescale(rules, dry_run=False))
        for rules in ({"a": 6}, {"a": 6, "b": 5}, {"c": 9, "a": 6, "b": 5})
    )
    with pytest.raises(TimelineError, match="2 later commits build on it"):
        table.rollback(first)
    report = table.rollback(first, cascade=True)
    assert [c.instant for c in report.commits] == [third, second, first]
    assert all(c.rules for c in report.commits)
    assert len(report.instants) == 3
    assert table.buckets() == groups
    assert [v.instant for v in table.rule_versions()] == ["0" * 14]
    assert_sound(table, 20)


def test_later_commits_to_other_partitions_stay(table: bl.Table) -> None:
    rescaled = instant_of(table.rescale({"a": 6}, dry_run=False))
    later = instant_of(table.upsert(rows(range(30, 36), days="b")))
    table.rollback(rescaled)
    assert bl.open_table(table.path).index == INDEX
    assert later in {i.requested_at for i in table.timeline()}
    assert_sound(table, 26)


def test_a_later_commit_to_a_partition_that_was_rescaled_forbids_it(table: bl.Table) -> None:
    rescaled = instant_of(table.rescale({"a": 6}, dry_run=False))
    later = instant_of(table.upsert(rows(range(30, 31), days="a")))
    before = objects(table)
    with pytest.raises(TimelineError, match=later):
        table.rollback(rescaled)
    assert objects(table) == before
    table.rollback(rescaled, cascade=True)
    assert_sound(table, 20)


def test_a_later_partition_that_was_counted_by_the_rules_forbids_it(table: bl.Table) -> None:
    rescaled = instant_of(table.rescale(add={"c": 7}, dry_run=False))
    later = instant_of(table.upsert(rows(range(30, 60), days="c")))
    table.upsert(rows(range(60, 70), days="d"))  # Has the same count either way.
    with pytest.raises(TimelineError, match=f"1 later commits build on it .{later}"):
        table.rollback(rescaled)
    assert len(table.rollback(rescaled, cascade=True).commits) == 2
    assert_sound(table, 30)


def test_a_dropped_partition_comes_back_with_the_count_that_its_rows_were_written_by(
    table: bl.Table,
) -> None:
    """A rescale since found no rows of it to move."""
    dropped = instant_of(table.delete_partitions(["a"]))
    table.rescale(add={"b": 5}, dry_run=False)  # Of another partition.
    rescaled = instant_of(table.rescale(add={"a": 7}, dry_run=False))
    with pytest.raises(TimelineError, match=f"1 later commits build on it .{rescaled}"):
        table.rollback(dropped)
    assert len(table.rollback(dropped, cascade=True).commits) == 2
    assert_sound(table, 20)


def test_the_upgrade_of_a_simple_table_forbids_to_take_back_a_drop_of_before(
    new_path: Callable[[], str],
) -> None:
    simple = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=bl.SimpleBucket(4)
    )
    simple.upsert(rows(range(20)))
    dropped = instant_of(simple.delete_partitions(["a"]))
    simple.rescale({"a": 9}, dry_run=False)
    with pytest.raises(TimelineError, match="1 later commits build on it"):
        simple.rollback(dropped)
    simple.rollback(dropped, cascade=True)
    assert_sound(simple, 20)


def test_a_dropped_partition_does_not_come_back_below_an_overwrite_of_the_whole_table(
    table: bl.Table,
) -> None:
    dropped = instant_of(table.delete_partitions(["a"]))
    table.insert_overwrite(rows(range(9), days="b"), whole_table=True)
    with pytest.raises(TimelineError, match="1 later commits build on it"):
        table.rollback(dropped)


def test_a_delete_that_looked_by_the_count_of_a_rescale_goes_with_it(table: bl.Table) -> None:
    """Its buckets are other ones than those of before."""
    dropped = instant_of(table.delete_partitions(["a"]))
    rescaled = instant_of(table.rescale(add={"a": 7}, dry_run=False))
    keys = [f"k{n}" for n in range(0, 20, 2)]
    elsewhere = [k for k, b in zip(keys, assign_buckets(keys, 7), strict=True) if b >= 3]
    days = ["a"] * len(elsewhere)
    keys_and_one_of_b = pa.table({"id": [*elsewhere, "k1"], "day": [*days, "b"]})
    deleted = instant_of(table.delete(keys_and_one_of_b))
    undone = table.rollback(dropped, cascade=True)
    assert [one.instant for one in undone.commits] == [deleted, rescaled, dropped]
    assert_sound(table, 20)


def test_a_write_between_two_rescales_goes_with_the_first_though_the_second_gives_its_count_back(
    table: bl.Table,
) -> None:
    first = instant_of(table.rescale(add={"c": 7}, dry_run=False))
    between = instant_of(table.upsert(rows(range(30, 60), days="c")))
    second = instant_of(table.rescale(add={"c": 2}, dry_run=False))
    undone = table.rollback(first, cascade=True)
    assert [one.instant for one in undone.commits] == [second, between, first]
    assert_sound(table, 20)


def test_an_overwrite_that_left_nothing_keeps_a_drop_before_it_from_being_taken_back(
    new_path: Callable[[], str],
) -> None:
    """It has neither files nor file groups that it replaced: every row was marked as deleted."""
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = bl.create_table(
        new_path(), schema=schema, record_key=["id"], partition_by=["day"], index=bl.SimpleBucket(4)
    )

    def marked(numbers: range, gone: bool) -> pa.Table:
        batch = rows(numbers)
        return batch.append_column("_hoodie_is_deleted", pa.array([gone] * batch.num_rows))

    table.upsert(marked(range(3), False))
    dropped = instant_of(table.delete_partitions(["a"]))
    table.insert_overwrite(marked(range(10, 11), True))
    with pytest.raises(TimelineError, match="1 later commits build on it"):
        table.rollback(dropped)


def test_a_compaction_goes_with_the_wider_type_that_it_cast_to(new_path: Callable[[], str]) -> None:
    table = bl.create_table(
        new_path(), schema=SCHEMA.set(2, pa.field("v", pa.int32())), record_key=["id"],
        partition_by=["day"], index=bl.SimpleBucket(1), table_type="merge_on_read",
    )  # fmt: skip
    for v in (1, 2):
        batch = rows(range(1), v, days="b")
        table.upsert(batch.set_column(2, "v", pa.array([v], pa.int32())))
    batch = rows(range(1), days="a").set_column(2, "v", pa.array([0.5]))
    widened = instant_of(table.upsert(batch, merge_schema="widen_types"))
    [compacted] = table.compact().instants
    with pytest.raises(TimelineError, match=f"1 later commits build on it .{compacted}"):
        table.rollback(widened)
    table.rollback(widened, cascade=True)
    assert table.to_arrow()["v"] == pa.chunked_array([pa.array([2], pa.int32())])


def test_later_commits_to_other_buckets_stay_when_an_upsert_goes(table: bl.Table) -> None:
    groups = {b.bucket_id: b for b in table.buckets() if b.partition_path == "b"}
    found = {k: table.locate(k, "b")[0].bucket_id for k in (f"k{n}" for n in range(1, 20, 2))}
    here, there = (next(k for k, b in found.items() if b == bucket) for bucket in groups)
    mistaken = instant_of(table.upsert(pa.table({"id": [here], "day": ["b"], "v": [-1]}, SCHEMA)))
    table.upsert(pa.table({"id": [there], "day": ["b"], "v": [-2]}, SCHEMA))
    table.rollback(mistaken)
    values = {row["id"]: row["v"] for row in data_of(table)}
    assert (values[here], values[there]) == (int(here[1:]), -2)


def test_an_overwrite_and_a_dropped_partition_come_back(table: bl.Table) -> None:
    before = data_of(table)
    table.rollback(instant_of(table.delete_partitions(["a"])))
    assert data_of(table) == before
    table.rollback(instant_of(table.insert_overwrite(rows(range(90, 99)), whole_table=True)))
    assert data_of(table) == before
    assert_sound(table, 20)


def test_a_delete_that_found_nothing_since_a_partition_was_dropped_forbids_to_take_the_drop_back(
    table: bl.Table,
) -> None:
    dropped = instant_of(table.delete_partitions(["b"]))
    deleted = instant_of(table.delete(rows(range(2))))  # k0 of a; k1 of b is not there any more.
    with pytest.raises(TimelineError, match=deleted):
        table.rollback(dropped)
    report = table.rollback(dropped, cascade=True)
    assert [one.instant for one in report.commits] == [deleted, dropped]
    assert_sound(table, 20)


def test_a_delete_in_another_bucket_does_not_forbid_it(table: bl.Table) -> None:
    dropped = instant_of(table.delete_partitions(["b"]))
    assert table.delete(rows(range(1))).instant is not None  # k0 of a.
    table.rollback(dropped)
    assert_sound(table, 19)


def test_what_a_delete_looked_at_has_to_be_readable(table: bl.Table) -> None:
    dropped = instant_of(table.delete_partitions(["b"]))
    later = instant_of(table.delete(rows(range(2))))
    storage = open_storage(table.path)
    [path] = [o.path for o in storage.list(".hoodie/timeline") if f"/{later}_" in o.path]
    metadata = decode_commit_metadata(storage.read(path), path)
    broken = replace(metadata, extra={**metadata.extra, "bucketlake.looked_at": "[1"})
    storage.put(path, encode_commit_metadata(broken))
    with pytest.raises(FormatError, match=r"looked_at, found '\[1"):
        table.rollback(dropped)


def test_a_dry_run_changes_nothing(table: bl.Table) -> None:
    rescaled = instant_of(table.rescale({"a": 6}, dry_run=False))
    table.upsert(rows(range(30, 32), days="a"))
    before = objects(table)
    report = table.rollback(rescaled, cascade=True, dry_run=True)
    assert [c.operation for c in report.commits] == ["UPSERT", "INSERT_OVERWRITE"]
    assert report.commits[1].size_bytes > 0
    assert report.instants == ()
    assert objects(table) == before


@pytest.mark.parametrize(
    ("instant", "problem"),
    [
        ("20300101000000000", "no commit"),
        ("20200101000000000", "active timeline starts at"),
        ("x", "no commit"),
    ],
)
def test_an_unknown_instant_is_refused(table: bl.Table, instant: str, problem: str) -> None:
    before = objects(table)
    with pytest.raises(TimelineError, match=problem):
        table.rollback(instant)
    assert objects(table) == before


def test_a_commit_whose_files_of_before_were_cleaned_stays(table: bl.Table) -> None:
    storage = open_storage(table.path)
    old = [b.path for b in table.buckets() if b.partition_path == "a"]
    rescaled = instant_of(table.rescale({"a": 6}, dry_run=False))
    storage.delete(old[0])
    with pytest.raises(IndexStateError, match=r"needs the files from before.* is missing"):
        table.rollback(rescaled)
    upserted = instant_of(table.upsert(rows(range(20), 5, "b")))
    for path in [p for p in objects(table) if p.startswith("b/") and upserted not in p]:
        if path.endswith(".parquet"):
            storage.delete(path)
    with pytest.raises(IndexStateError, match=r"needs the files from before.* is missing"):
        table.rollback(upserted)
    assert {r["v"] for r in data_of(table) if r["day"] == "b"} == {5}


def test_a_savepoint_holds_its_commit_and_those_before(table: bl.Table) -> None:
    first = table.timeline()[0].requested_at
    second = instant_of(table.upsert(rows(range(5))))
    storage = open_storage(table.path)
    storage.put(f".hoodie/timeline/{second}.savepoint.inflight", b"")
    storage.put(f".hoodie/timeline/{second}_{int(second) + 5}.savepoint", b"")
    for instant in (first, second):
        with pytest.raises(TimelineError, match="savepoint"):
            table.rollback(instant, cascade=True)
    third = instant_of(table.upsert(rows(range(5))))
    table.rollback(third)
    assert_sound(table, 20)


def test_one_that_had_not_begun_is_withdrawn_for_good(table: bl.Table) -> None:
    """Whoever planned it may wake up, and what it depends on may have changed meanwhile."""
    instant = instant_of(table.upsert(rows(range(5), v=1)))
    storage, config = open_storage(table.path), table.config()
    clock, timeline = InstantClock("UTC"), load_timeline(opened_table(storage, config))
    found = timeline.find_completed(instant)
    assert found is not None
    plan = rollback_plan(storage, timeline, found)
    before = data_of(table)
    content = encode_rollback_plan(plan, storage.root)
    with begin_instant(
        OpenTable(storage, config, clock, NO_LOCK), timeline, Action.ROLLBACK, content
    ) as (planned, _):
        pass  # It sleeps now, and its heart stands still.
    table.savepoint()
    assert not load_timeline(opened_table(storage, config)).pending()
    assert not carry_out_rollback(OpenTable(storage, config, clock, NO_LOCK), planned, plan)
    assert data_of(table) == before
    table.restore(instant)
    assert data_of(table) == before


def test_one_that_was_decided_is_carried_on(table: bl.Table) -> None:
    before = data_of(table)
    instant = instant_of(table.upsert(rows(range(5), v=1)))
    storage, config = open_storage(table.path), table.config()
    timeline = load_timeline(opened_table(storage, config))
    found = timeline.find_completed(instant)
    assert found is not None
    plan = rollback_plan(storage, timeline, found)

    class DiesBeforeTheEnd(FaultyStorage):
        def put_if_absent(self, path: str, data: Buffer) -> None:
            if path.endswith(".rollback"):
                raise SimulatedCrash
            super().put_if_absent(path, data)

    faulty = DiesBeforeTheEnd(storage)
    clock, content = InstantClock("UTC"), encode_rollback_plan(plan, storage.root)
    with (
        begin_instant(
            OpenTable(storage, config, clock, NO_LOCK), timeline, Action.ROLLBACK, content
        ) as (planned, _),
        pytest.raises(SimulatedCrash),
    ):
        carry_out_rollback(OpenTable(faulty, config, clock, NO_LOCK), planned, plan)
    assert not withdraw_plan(opened_table(storage, config), planned, Action.ROLLBACK)
    table.upsert(rows(range(0)))
    assert data_of(table) == before
    assert carry_out_rollback(OpenTable(storage, config, clock, NO_LOCK), planned, plan)
    assert data_of(table) == before


def test_a_commit_that_a_slow_process_publishes_again_during_its_rollback_goes(
    table: bl.Table,
) -> None:
    """That process found the outcome before the rollback, and dies right after it published."""
    before = data_of(table)
    instant = instant_of(table.upsert(rows(range(5), v=1)))
    storage, config = open_storage(table.path), table.config()
    timeline = load_timeline(opened_table(storage, config))
    found = timeline.find_completed(instant)
    assert found is not None
    completed, plan = timeline.path_of(found), rollback_plan(storage, timeline, found)
    content = storage.read(completed)

    class PublishedMeanwhile(FaultyStorage):
        def delete(self, path: str) -> None:
            if path.endswith(f"{instant}.inflight"):  # The last that it deletes.
                assert storage.stat(completed) is None, "readers see the commit no more"
                storage.put(completed, content)
            super().delete(path)

    undo(opened_table(PublishedMeanwhile(storage), config), plan, Action.COMMIT)
    assert load_timeline(opened_table(storage, config)).find(instant) is None
    assert is_rolled_back(storage, instant)
    assert data_of(table) == before


def test_a_file_from_before_the_timeline_still_counts_as_nobodys(table: bl.Table) -> None:
    """A rollback adds a manifest, and that is no archive."""
    table.rollback(instant_of(table.upsert(rows(range(5), v=1))))
    before, storage = data_of(table), open_storage(table.path)
    held = next(o.path for o in storage.list("a") if o.path.endswith(".parquet"))
    stray = held.replace(held.rpartition("_")[2], "20200101000000000.parquet").replace("-0_", "-1_")
    storage.put(stray, storage.read(held))
    assert data_of(table) == before


def test_a_plan_names_files_below_its_own_table_alone() -> None:
    plan = RollbackPlan(InstantTime("1"), "commit", {"a/b": ("x.parquet",), "": ("y.parquet",)})
    moved = decode_rollback_plan(encode_rollback_plan(plan, "/elsewhere/t/"), "p")
    assert moved == plan
    assert moved.paths == ["a/b/x.parquet", "y.parquet"]
    hostile = RollbackPlan(InstantTime("1"), "commit", {"a": ("../../../etc/passwd",)})
    read = decode_rollback_plan(encode_rollback_plan(hostile, "/t"), "p")
    assert read.paths == ["a/passwd"]


def test_a_local_table_is_rolled_back_too(tmp_path: Path) -> None:
    table = bl.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX
    )
    table.upsert(rows(range(20)))
    table.rollback(instant_of(table.upsert(rows(range(40)))))
    assert_sound(table, 20)
