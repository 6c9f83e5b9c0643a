"""Merge-on-read tables that Hudi and bucketlake both write and compact."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

import bucketlake as bl
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.timeline.instant import Action, State
from tests.between import nothing, overlapped
from tests.choices import combinations, some
from tests.interop.layouts import BY_RULES, COMMIT_TIME, DELETED_BY_FLAG, LAYOUTS, ONE, Layout
from tests.interop.model import IS_DELETED, Row, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

KEYS = 30
CHOSEN = (ONE, COMMIT_TIME, BY_RULES, DELETED_BY_FLAG, LAYOUTS[0], LAYOUTS[2], LAYOUTS[7])
TURNS = some(combinations(CHOSEN, list(Writer)), 4)
WRITERS = pytest.mark.parametrize("writer", list(Writer), ids=lambda w: f"by {w.value}")


def merged(layout: Layout) -> Layout:
    return replace(layout, kind=replace(layout.kind, merge_on_read=True))


def events(layout: Layout, random_: random.Random, step: int) -> list[Row]:
    """Make events, none of them late: after a delete Hudi brings an old row back for a late one."""
    rows = []
    for n in random_.sample(range(KEYS), 12):
        row = layout.event(n, 10 * step) | {"v": random_.randrange(1000)}
        if IS_DELETED in row and random_.random() < 0.3:
            row[IS_DELETED] = True
        rows.append(row)
    return rows


def compact(table: SharedTable, writer: Writer, op: str = "scheduleAndExecute") -> None:
    if writer is BUCKETLAKE:
        table.ours.compact(schedule_only=op == "schedule")
    else:
        table.hudi.sql(f"SET hoodie.metadata.enable={str(table.kind.metadata_table).lower()}")
        given = "hoodie.compact.inline.max.delta.commits=1"
        for key, value in table.options.items():
            given += f",{key}={value}" if key.startswith("hoodie.metadata.") else ""
        if table.kind.version < NEWEST_VERSION:
            given += f",hoodie.write.table.version={table.kind.version}"
            given += ",hoodie.write.auto.upgrade=false"
        table.hudi.sql(
            f"CALL run_compaction(op => '{op}', path => '{table.path}', options => '{given}')"
        )


def compactions(table: SharedTable) -> int:
    done = [i for i in table.ours.timeline() if i.state is State.COMPLETED]
    return sum(1 for i in done if i.action is Action.COMMIT)


def log_files(table: SharedTable) -> int:
    return sum(1 for p in table.path.rglob(".*.log.*") if not p.name.endswith(".crc"))


@pytest.mark.parametrize(
    ("layout", "first"), TURNS, ids=[f"{lay.name}, {w.value} first" for lay, w in TURNS]
)
def test_hudi_and_bucketlake_take_turns(
    hudi: HudiPeer, tmp_path: Path, layout: Layout, first: Writer
) -> None:
    layout = merged(layout)
    other = HUDI if first is BUCKETLAKE else BUCKETLAKE
    table = SharedTable(hudi, tmp_path / "turns", layout.kind, layout.as_hudi_shows)
    random_ = random.Random(f"{layout.name} {first.value}")
    if first is BUCKETLAKE:
        table.begin()
    for step in range(1, 6):
        writer = first if step % 2 else other
        table.upsert(writer, events(layout, random_, step))
        table.delete(writer, [layout.event(n, 0) for n in random_.sample(range(KEYS), 3)])
        table.assert_read_by_all()
        if step in (3, 4):
            compacted = compactions(table)
            compact(table, first if step == 3 else other)
            assert compactions(table) == compacted + 1
            table.assert_read_by_all()
    assert log_files(table)
    assert any(i.action is Action.DELTA_COMMIT for i in table.ours.timeline())


@pytest.mark.parametrize("kind", [ONE.kind, COMMIT_TIME.kind], ids=["event time", "commit time"])
def test_hudi_reads_what_writers_at_once_meant(
    hudi: HudiPeer, tmp_path: Path, kind: TableKind
) -> None:
    """Two upserts of the same keys, with ties; a compaction is planned between their commits."""
    layout = replace(ONE, kind=replace(kind, merge_on_read=True))
    table = SharedTable(hudi, tmp_path / "at once", layout.kind)
    table.begin()
    events = [layout.event(n, 10) | {"v": 0} for n in range(KEYS)]
    table.upsert(BUCKETLAKE, events)
    first, second = ([event | {"v": v} for event in events] for v in (1, 2))
    second[0] = second[0] | {"ts": 9}  # Late, if event time counts.
    table.model.upsert(first)
    table.model.upsert(second)
    for plans in (True, False):
        overlapped(
            table.ours,
            layout.kind.rows(first),
            layout.kind.rows(second),
            then=(lambda: table.ours.compact(schedule_only=True)) if plans else nothing,
        )
        table.assert_read_by_all()
    compact(table, HUDI, "run")
    table.assert_read_by_all()
    compact(table, HUDI)
    table.assert_read_by_all()


@WRITERS
def test_one_side_plans_a_compaction_and_the_other_carries_it_out(
    hudi: HudiPeer, tmp_path: Path, writer: Writer
) -> None:
    """Both upsert while it is pending; what they write then lies in the slices to come."""
    layout = merged(ONE)
    other = HUDI if writer is BUCKETLAKE else BUCKETLAKE
    table = SharedTable(hudi, tmp_path / "planned", layout.kind)
    random_ = random.Random(writer.value)
    table.begin()
    for step in (1, 2, 3):
        table.upsert(HUDI if step == 2 else BUCKETLAKE, events(layout, random_, step))
    compact(table, writer, "schedule")
    [planned] = [i for i in table.ours.timeline() if i.action is Action.COMPACTION]
    table.upsert(other, events(layout, random_, 4))
    table.upsert(writer, events(layout, random_, 5))
    table.assert_read_by_all()
    compact(table, other, "run")
    table.assert_read_by_all()
    [done] = [i for i in table.ours.timeline() if i.requested_at == planned.requested_at]
    assert (done.state, done.action) == (State.COMPLETED, Action.COMMIT)
    for step, turn in enumerate((writer, other), 6):
        table.upsert(turn, events(layout, random_, step))
        table.assert_read_by_all()


def test_partitions_are_overwritten_and_deleted_in_turns(hudi: HudiPeer, tmp_path: Path) -> None:
    layout = merged(ONE)
    table = SharedTable(hudi, tmp_path / "overwritten", layout.kind)
    random_ = random.Random(0)
    table.begin()
    for step, writer in enumerate((BUCKETLAKE, HUDI, BUCKETLAKE, HUDI), 1):
        table.upsert(writer, events(layout, random_, 3 * step))
        table.overwrite(writer, events(layout, random_, 3 * step + 1)[:6])
        table.assert_read_by_all()
        table.upsert(writer, events(layout, random_, 3 * step + 2))
        table.delete_partitions(writer, ["eu"])
        table.assert_read_by_all()


@WRITERS
def test_a_delta_commit_of_either_side_is_rolled_back(
    hudi: HudiPeer, tmp_path: Path, writer: Writer
) -> None:
    layout = merged(ONE)
    table = SharedTable(hudi, tmp_path / "rolled_back", layout.kind)
    random_ = random.Random(0)
    table.begin()
    table.upsert(BUCKETLAKE, events(layout, random_, 1))
    table.upsert(HUDI, events(layout, random_, 2))
    table.write(writer, events(layout, random_, 3))
    newest = max(i.requested_at for i in table.ours.timeline() if i.action.writes_data)
    table.ours.rollback(newest)
    table.assert_read_by_all()
    table.upsert(HUDI, events(layout, random_, 4))
    table.upsert(BUCKETLAKE, events(layout, random_, 5))
    table.assert_read_by_all()


def test_a_merge_on_read_table_is_rescaled_and_hudi_goes_on(hudi: HudiPeer, tmp_path: Path) -> None:
    layout = merged(BY_RULES)
    table = SharedTable(hudi, tmp_path / "rescaled", layout.kind)
    random_ = random.Random(0)
    table.begin()
    for step, writer in enumerate((BUCKETLAKE, HUDI), 1):
        table.upsert(writer, events(layout, random_, step))
    table.ours.rescale({"eu": 2, "us": 7}, default=3, dry_run=False)
    table.assert_read_by_all()
    for step, writer in enumerate((HUDI, BUCKETLAKE, HUDI), 3):
        table.upsert(writer, events(layout, random_, step))
        table.assert_read_by_all()


def test_hudi_reads_and_compacts_our_avro_log_files(hudi: HudiPeer, tmp_path: Path) -> None:
    layout = merged(DELETED_BY_FLAG)
    table = SharedTable(hudi, tmp_path / "avro", layout.kind)
    random_ = random.Random(0)
    table.begin()
    table.upsert(BUCKETLAKE, events(layout, random_, 1))
    for step in (2, 3):
        batch = events(layout, random_, step)
        table.model.upsert(batch)
        avro = bl.open_table(str(table.path), log_format="avro")
        avro.upsert(layout.kind.rows(batch))
        table.assert_read_by_all()
    table.upsert(HUDI, events(layout, random_, 4))
    compact(table, HUDI)
    table.assert_read_by_all()


def test_changes_and_read_optimized_reads_are_those_of_hudi(hudi: HudiPeer, tmp_path: Path) -> None:
    """Between any two commits of either side, compactions in between; no event comes late."""
    layout = merged(ONE)
    table = SharedTable(hudi, tmp_path / "changes", layout.kind)
    random_ = random.Random(0)
    table.begin()
    for step, writer in enumerate((BUCKETLAKE, HUDI, BUCKETLAKE, HUDI), 1):
        table.upsert(writer, events(layout, random_, step))
        if step == 2:
            table.delete(BUCKETLAKE, [layout.event(n, 0) for n in random_.sample(range(KEYS), 4)])
            compact(table, HUDI)
        assert read_optimized(table, HUDI) == read_optimized(table, BUCKETLAKE)
    times = sorted(i.completed_at for i in table.ours.timeline() if i.completed_at is not None)
    assert len(times) == 6
    for since, until in itertools.combinations(times, 2):
        expected = rows_of(table.hudi.incremental(table.path, since, until), layout.kind.schema)
        found = rows_of(table.ours.to_arrow(since=since, until=until), layout.kind.schema)
        assert found == expected, (since, until)
    assert rows_of(table.ours.to_arrow(since=times[0]), layout.kind.schema)


def read_optimized(table: SharedTable, reader: Writer) -> list[Row]:
    if reader is BUCKETLAKE:
        return rows_of(table.ours.to_arrow(read_optimized=True), table.kind.schema)
    options = {"hoodie.datasource.query.type": "read_optimized"}
    return rows_of(table.hudi.read(table.path, options), table.kind.schema)


def test_we_end_a_rollback_of_a_compaction_that_hudi_began(hudi: HudiPeer, tmp_path: Path) -> None:
    """Hudi undoes a compaction that died before it runs it again, by a plan on the timeline."""
    layout = merged(ONE)
    table = SharedTable(hudi, tmp_path / "undone", layout.kind)
    random_ = random.Random(0)
    table.begin()
    table.upsert(BUCKETLAKE, events(layout, random_, 1))
    table.upsert(HUDI, events(layout, random_, 2))
    compact(table, HUDI)
    [done] = [i for i in table.ours.timeline() if i.action is Action.COMMIT]
    timeline = table.path / ".hoodie" / "timeline"
    base_files = sorted(table.path.rglob(f"[!.]*_{done.requested_at}.parquet"))
    assert base_files, "the compaction wrote nothing"
    # As Hudi leaves the table when it dies after the plan of the rollback.
    (timeline / f"{done.requested_at}_{done.completed_at}.commit").unlink()
    files: dict[str, tuple[str, ...]] = {}
    for path in base_files:
        files[path.parent.name] = (*files.get(path.parent.name, ()), path.name)
    plan = RollbackPlan(done.requested_at, Action.COMPACTION.value, files)
    at = f"{int(done.completed_at or '') + 1}"
    content = encode_rollback_plan(plan, str(table.path))
    (timeline / f"{at}.rollback.requested").write_bytes(content)
    for step, writer in enumerate((BUCKETLAKE, HUDI), 3):
        table.upsert(writer, events(layout, random_, step))
        table.assert_read_by_all()
    assert not any(path.exists() for path in base_files)
    compact(table, BUCKETLAKE)
    table.upsert(HUDI, events(layout, random_, 5))
    compact(table, HUDI)
    table.assert_read_by_all()
    assert all(i.state is State.COMPLETED for i in table.ours.timeline())
