"""Hudi and bucketlake take turns on tables with consistent hashing, whoever resizes them (RFC-42).

Hudi reads the copies that it makes during a resize in no order of its writes. So all events here
have an event time of their own, and no deleted key comes again in the same resize.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bucketlake.services.check.findings import FindingKind
from tests.interop.consistent import (
    INITIAL,
    MERGE,
    METADATA_FOLDER,
    SPLIT,
    Change,
    ConsistentKind,
    ConsistentTable,
    Ring,
    children,
)
from tests.interop.model import commits_of, in_order, rows_of
from tests.interop.peer.client import HudiPeer, PeerError
from tests.interop.shared_table import (
    BUCKETLAKE,
    HUDI,
    WITH_METADATA,
    WITHOUT_METADATA,
    Writer,
    rows,
)
from tests.interop.table_kind import EVENT
from tests.interop.test_hudi_serves_ours import CLEANING
from tests.interop.test_merge_on_read import compact, compactions

pytestmark = pytest.mark.interop

ONE = ConsistentKind()
TWO_KEYS = ConsistentKind(record_key=("id", "region"), hash_fields=("id",), hive_style=True)
WHOLE = ConsistentKind(partition_by=())

TURNS = {
    "one partition field": (ONE, BUCKETLAKE),
    "hive style, key of two fields, one hashed": (TWO_KEYS, HUDI),
    "no partitions": (WHOLE, BUCKETLAKE),
}
"""Kinds, and who plans the split and executes the merge."""


# Hudi keeps as many delta commits as it takes to the next compaction.
ARCHIVING = CLEANING | {"hoodie.compact.inline.max.delta.commits": "1"}
# Log files alone change nothing that a check of Hudi sees before it commits; this one asks for it.
FAILING_CHECK = {
    "hoodie.precommit.validators": (
        "org.apache.hudi.client.validator.SqlQueryEqualityPreCommitValidator"
    ),
    "hoodie.precommit.validators.equality.sql.queries": "SELECT count(*) FROM <TABLE_NAME>",
}


def begun(hudi: HudiPeer, path: Path, kind: ConsistentKind = ONE) -> ConsistentTable:
    table = ConsistentTable(hudi, path, kind)
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(40), 1))
    return table


def both_write(table: ConsistentTable, ts: int) -> None:
    """Each upserts some rows and deletes others, which nobody else touches."""
    for n, writer in enumerate((HUDI, BUCKETLAKE)):
        table.upsert(writer, rows(range(10 + 20 * n, 50 + 20 * n), ts + n))
        table.delete(writer, rows(range(3 * n, 3 * n + 3), ts + n))
        table.assert_read_by_all()


def resize_in_turns(
    table: ConsistentTable, planner: Writer, executor: Writer, change: Change, ts: int
) -> None:
    """Plan and execute a resize; both write before and after the plan is executed."""
    rings = {path: table.ring(path) for path, _ in table.file_groups()}
    planned = table.plan_resize(planner, change)
    both_write(table, ts)
    by_us = {is_by_us(name) for name in table.copies(planned)}
    assert by_us == {False, True}
    table.execute(executor)
    table.assert_read_by_all()
    for path, ring in rings.items():
        assert_is_next(table, path, ring)


def is_by_us(copy: str) -> bool:
    """Return whether the write token of a copy begins with the time of a write of ours."""
    return len(copy.rpartition("_")[2].partition("-")[0]) == len("20240101")


def assert_is_next(table: ConsistentTable, partition: str, before: Ring) -> None:
    """Compare the newest ring with what the plan says."""
    [*_, done] = table.completed_resizes()
    plan = table.plan_of(done)
    expected = dict(before.nodes)
    for value, prefix in children(plan, partition):
        if prefix is None:
            del expected[value]
        else:
            expected[value] = prefix
    after = table.ring(partition)
    assert after == Ring(done.requested_at, before.sequence + 1, before.initial, expected)


@pytest.mark.parametrize(("kind", "first"), TURNS.values(), ids=list(TURNS))
def test_both_write_before_during_and_after_resizes(
    hudi: HudiPeer, tmp_path: Path, kind: ConsistentKind, first: Writer
) -> None:
    take_turns(begun(hudi, tmp_path / "turns", kind), first)


def take_turns(table: ConsistentTable, first: Writer) -> None:
    """One plans a split and the other executes it; then a merge the other way round."""
    other = HUDI if first is BUCKETLAKE else BUCKETLAKE
    table.delete(BUCKETLAKE, rows(range(36, 40), 1))
    table.upsert(HUDI, rows(range(20, 60), 2))
    table.assert_read_by_all()
    resize_in_turns(table, first, other, SPLIT, 4)
    go_on(table, 6)
    resize_in_turns(table, other, first, MERGE, 8)
    go_on(table, 10)
    table.assert_healthy()


def go_on(table: ConsistentTable, ts: int) -> None:
    """Each upserts once; everyone reads it."""
    for n, writer in enumerate((HUDI, BUCKETLAKE)):
        table.upsert(writer, rows(range(20 * n, 20 * n + 50, 3), ts + n))
    table.assert_read_by_all()


def test_many_rounds_of_both_leave_one_ring_and_every_key_once(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = begun(hudi, tmp_path / "rounds", replace(ONE, most=8, least=2))
    rounds = [
        (BUCKETLAKE, BUCKETLAKE, SPLIT),
        (HUDI, HUDI, SPLIT),
        (BUCKETLAKE, BUCKETLAKE, MERGE),
        (HUDI, BUCKETLAKE, SPLIT),
        (BUCKETLAKE, HUDI, SPLIT),
        (HUDI, HUDI, MERGE),
    ]
    for ts, (planner, executor, change) in enumerate(rounds, 1):
        rings = {path: table.ring(path) for path in ("eu", "us")}
        table.plan_resize(planner, change)
        table.upsert(executor, rows(range(10 * ts, 10 * ts + 50), 10 * ts))
        table.execute(executor)
        for path, ring in rings.items():
            assert_is_next(table, path, ring)
            assert (len(table.ring(path).nodes) > len(ring.nodes)) is (change is SPLIT)
        table.assert_read_by_all()
    table.assert_healthy()


def test_a_resize_rolled_back_by_us_is_as_if_it_never_was(hudi: HudiPeer, tmp_path: Path) -> None:
    """Its ring is gone with it, so Hudi cannot take it for a version that counts."""
    table = begun(hudi, tmp_path / "undone")
    before = {path: table.ring(path) for path in ("eu", "us")}
    for ts, executor in ((2, BUCKETLAKE), (6, HUDI)):
        planned = table.plan_resize(BUCKETLAKE)
        both_write(table, ts)
        table.execute(executor)
        assert {ring.version for ring in table.rings("eu")} == {INITIAL, planned.requested_at}
        table.ours.rollback(planned.requested_at)
        assert not [p for p in files_of(table, planned.requested_at) if p.suffix != ".crc"]
        table.assert_read_by_all()
        go_on(table, ts + 2)
        assert {path: table.ring(path) for path in ("eu", "us")} == before
    resize_in_turns(table, HUDI, BUCKETLAKE, SPLIT, 10)
    table.assert_healthy()


def files_of(table: ConsistentTable, instant: str) -> list[Path]:
    """Return data files and rings that bear an instant."""
    rings = (table.path / METADATA_FOLDER).rglob(f"{instant}*")
    data = (p for p in table.path.rglob(f"*_{instant}*") if ".hoodie" not in p.parts)
    return [*rings, *data]


@pytest.mark.parametrize("executor", list(Writer), ids=lambda w: f"executed by {w.value}")
def test_writes_during_a_resize_that_we_roll_back_are_in_no_group(
    hudi: HudiPeer, tmp_path: Path, executor: Writer
) -> None:
    table = begun(hudi, tmp_path / "undone")
    planned = table.plan_resize(HUDI if executor is BUCKETLAKE else BUCKETLAKE)
    table.upsert(BUCKETLAKE, rows(range(10, 30), 2))
    kept = set(table.copies(planned))
    table.write(HUDI, rows(range(20, 60), 3))
    table.write(BUCKETLAKE, rows(range(50, 90), 4))
    assert len(table.copies(planned)) > len(kept)
    [*_, of_hudi, of_ours] = commits_of(table.ours)
    table.ours.rollback(of_ours.requested_at)
    table.ours.rollback(of_hudi.requested_at)
    assert set(table.copies(planned)) == kept
    table.assert_read_by_all()
    table.execute(executor)
    table.assert_read_by_all()
    go_on(table, 5)
    table.assert_healthy()


def test_copies_of_a_write_that_hudi_rolled_back_are_gone_once_the_resize_is_completed(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """A rollback of Hudi leaves them. Where Hudi executes the resize too, a repair takes them."""
    for executor in (BUCKETLAKE, HUDI):
        table = begun(hudi, tmp_path / executor.value)
        planned = table.plan_resize(BUCKETLAKE)
        table.write(executor, rows(range(30, 60), 3))
        left = table.copies(planned)
        undone = commits_of(table.ours)[-1].requested_at
        hudi.sql(f"CREATE TABLE {executor.value} USING hudi LOCATION '{table.path}'")
        call = f"rollback_to_instant(table => '{executor.value}', instant_time => '{undone}')"
        hudi.sql(f"CALL {call}")
        assert table.copies(planned) == left != []
        table.execute(executor)
        if executor is HUDI:
            report = table.ours.repair(dry_run=False, min_age_seconds=0)
            assert {found.kind for found in report.repaired} == {FindingKind.FILE_NOT_COMMITTED}
        assert table.copies(planned) == []
        go_on(table, 4)


def test_copies_of_a_failed_write_of_hudi_are_gone_before_we_complete_the_resize(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """Readers of Hudi would show them from then on."""
    table = begun(hudi, tmp_path / "failed")
    planned = table.plan_resize(BUCKETLAKE)
    with pytest.raises(PeerError, match="HoodieValidationException"):
        table.hudi_runs("upsert", rows(range(20, 60), 5), FAILING_CHECK)
    assert table.copies(planned)
    table.assert_read_by_all()
    table.execute(BUCKETLAKE)
    table.assert_read_by_all()
    go_on(table, 6)


def test_partitions_that_we_overwrite_or_delete_keep_every_row_that_hudi_then_writes(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """The new file groups are on a new ring; those of Hudi's own overwrite are on none."""
    table = begun(hudi, tmp_path / "overwritten")
    table.plan_resize(BUCKETLAKE)
    table.execute(BUCKETLAKE)
    table.overwrite(BUCKETLAKE, rows(range(1, 20, 2), 2))
    assert [ring.sequence for ring in table.rings("us")] == [0, 1, 2]
    table.assert_read_by_all()
    go_on(table, 3)
    table.delete_partitions(BUCKETLAKE, ["eu"])
    table.assert_read_by_all()
    go_on(table, 5)
    table.overwrite(BUCKETLAKE, rows(range(30), 7), whole_table=True)
    go_on(table, 8)
    resize_in_turns(table, HUDI, HUDI, MERGE, 10)
    table.assert_healthy()


def test_a_pending_resize_of_a_partition_that_we_overwrite_is_withdrawn(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """Hudi refuses to execute it; the next resize of bucketlake withdraws it."""
    table = begun(hudi, tmp_path / "overtaken")
    planned = table.plan_resize(BUCKETLAKE)
    table.overwrite(BUCKETLAKE, rows(range(1, 20, 2), 2))
    table.assert_read_by_all()
    with pytest.raises(PeerError, match="Non serialized update"):
        table.execute_resizes()
    table.assert_read_by_all()
    report = table.resize_by_us(SPLIT)
    assert planned.requested_at not in report.instants
    table.assert_read_by_all()
    go_on(table, 3)
    table.assert_healthy()


@pytest.mark.parametrize("first", list(Writer), ids=lambda w: f"{w.value} first")
def test_either_compacts_groups_that_the_other_wrote_and_resizes(
    hudi: HudiPeer, tmp_path: Path, first: Writer
) -> None:
    other = HUDI if first is BUCKETLAKE else BUCKETLAKE
    table = begun(hudi, tmp_path / "compacted")
    table.upsert(first, rows(range(20, 60), 2))
    compact(table, other)
    assert compactions(table) == 1
    go_on(table, 3)
    table.plan_resize(other)
    both_write(table, 5)
    compact(table, first)  # No group of a pending resize is compacted.
    assert compactions(table) == 1
    table.execute(first)
    go_on(table, 7)
    compact(table, first, "schedule")
    assert not table.resize_by_us(SPLIT, schedule_only=True).scheduled
    go_on(table, 9)
    compact(table, other, "run" if other is HUDI else "scheduleAndExecute")
    assert compactions(table) == (2 if other is HUDI else 3)
    table.assert_read_by_all()
    table.assert_healthy()


@pytest.mark.parametrize(
    ("executor", "archiver"),
    [(BUCKETLAKE, HUDI), (HUDI, BUCKETLAKE)],
    ids=["of ours, by Hudi", "of Hudi, by us"],
)
def test_hudi_uses_the_ring_of_a_resize_that_is_archived(
    hudi: HudiPeer, tmp_path: Path, executor: Writer, archiver: Writer
) -> None:
    """Nobody writes to the partition before. Hudi alone falls back to the first ring (#8479)."""
    table = begun(hudi, tmp_path / "archived")
    table.delete(BUCKETLAKE, rows(range(0, 40, 2), 1))  # So no base file tells of the new ring.
    planned = table.plan_resize(BUCKETLAKE)
    table.execute(executor)
    ring = table.ring("eu")
    for ts in (2, 3, 4, 5):
        archiving = ARCHIVING if archiver is HUDI else None
        table.upsert(HUDI, rows(range(1, 20, 2), ts), archiving)
    if archiver is BUCKETLAKE:
        table.ours.clean(retain_commits=1)
        assert table.ours.archive(keep_min=1, keep_max=2).held_back is None
    assert planned.requested_at not in {one.requested_at for one in table.ours.timeline()}
    assert table.ring("eu") == ring
    go_on(table, 6)
    table.assert_healthy()
    assert table.ring("eu") == ring


def test_copy_on_write_tables_that_we_resize_are_read_exactly(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = ConsistentTable(hudi, tmp_path / "cow", ConsistentKind(merge_on_read=False))
    table.begin()
    for ts, change in enumerate((SPLIT, SPLIT, MERGE), 1):
        table.upsert(BUCKETLAKE, rows(range(10 * ts, 10 * ts + 40), 10 * ts))
        table.plan_resize(BUCKETLAKE, change)
        table.assert_read_by_all()
        table.execute(BUCKETLAKE)
        table.delete(BUCKETLAKE, rows(range(10 * ts + 5, 10 * ts + 9), ts))
        table.assert_read_by_all()
    table.overwrite(BUCKETLAKE, rows(range(1, 20, 2), 50))
    table.delete_partitions(BUCKETLAKE, ["eu"])
    table.upsert(BUCKETLAKE, rows(range(30), 60))
    table.assert_read_by_all()
    with pytest.raises(PeerError, match="does not work with COW table"):
        table.hudi_runs("upsert", rows(range(5), 70))
    table.assert_read_by_all()
    table.upsert(BUCKETLAKE, rows(range(10), 80))
    table.assert_read_by_all()
    table.assert_healthy()


def test_every_time_and_every_change_is_read_around_a_resize(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """A resize changes no row, and the copies of a write are changes of that write alone."""
    table = begun(hudi, tmp_path / "times")
    table.model.commit(table.ours)
    planned = table.plan_resize(BUCKETLAKE)
    for ts, writer in ((2, HUDI), (3, BUCKETLAKE)):
        table.upsert(writer, rows(range(10 * ts, 10 * ts + 30), ts))
        table.model.commit(table.ours)
    table.execute(BUCKETLAKE)
    table.upsert(HUDI, rows(range(50, 70), 4))
    table.model.commit(table.ours)
    states = table.model.states
    assert all(state.instant != planned.requested_at for state in states)
    for state in states:
        expected = in_order(state.rows.values(), EVENT)
        assert rows_of(table.ours.to_arrow(as_of=state.instant), EVENT) == expected
        assert rows_of(hudi.time_travel(table.path, state.instant), EVENT) == expected
    times = ["000", *(state.completed_at for state in states)]
    for n, (since, until) in enumerate(pairwise(times)):
        expected = in_order(table.model.changed_rows(n, n), EVENT)
        ours = table.ours.to_arrow(since=since.ljust(17, "0"), until=until)
        assert rows_of(ours, EVENT) == expected, n
        assert rows_of(hudi.incremental(table.path, since, until), EVENT) == expected, n


def test_the_metadata_table_of_hudi_knows_our_resizes_and_copies(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = begun(hudi, tmp_path / "listed")
    compact(table, BUCKETLAKE)  # hudi-rs finds no group of logs alone in a metadata table.
    table.plan_resize(BUCKETLAKE)
    table.upsert(BUCKETLAKE, rows(range(20, 50), 2))
    table.upsert(HUDI, rows(range(30, 60), 3), WITH_METADATA)
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    table.upsert(BUCKETLAKE, rows(range(40, 70), 4))
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    table.execute(BUCKETLAKE)
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    table.upsert(HUDI, rows(range(50, 80), 5), WITH_METADATA)
    table.upsert(BUCKETLAKE, rows(range(60, 90), 6))
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    assert "files" in table.ours.config().metadata_partitions
    go_on(table, 7)
