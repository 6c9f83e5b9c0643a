"""Each index kind of the registry through DataFrames: the Spark part of the conformance suite.

What a kind must do is tested without Spark in ``tests/conformance``. Here one table a kind is
written, read, compacted and rolled back by Spark, and compared with the same dictionary of rows.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.index.layout import SlotPlan
from bucketlake.model.result import WriteResult
from bucketlake.write import write_plan
from bucketlake.write.pack import PackedRecords
from bucketlake.write.record_index import indexed_write
from tests.bounds import set_bounds
from tests.conformance.cases import Case, Checked, Row, arrow, in_order, rows
from tests.conformance.kinds import Kind, kinds_named
from tests.conformance.test_parts import many_of
from tests.spark.frames import frame_of, rows_of
from tests.spies import spy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each kind; the kinds take turns with their table types.

    On a second version of Spark one kind of each way through Spark is enough: a bucket that is
    computed, one that a ring tells, and keys that are looked up.
    """
    found = kinds_named(metafunc.config.getoption("--kind"))
    cases = [*map(_case_of, (kind for kind in found if not kind.is_variant), count())]
    ways = {"simple", "consistent", "dynamic"}
    given = [
        case if case.kind.name in ways else pytest.param(case, marks=pytest.mark.any_spark)
        for case in cases
    ]
    metafunc.parametrize("case", given, ids=list(map(str, cases)))


def _case_of(kind: Kind, turn: int) -> Case:
    return Case(kind, kind.table_types[turn % len(kind.table_types)])


class ByFrames:
    """Writes a table with DataFrames, and the dictionary beside it row by row."""

    def __init__(self, spark: SparkSession, case: Case, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.held: Checked = case.make(str(folder / "table"))
        self.table = self.held.table

    def frame(self, data: Any) -> DataFrame:
        return frame_of(self.spark, data, self.folder / "batches")

    def upsert(self, batch: list[Row]) -> WriteResult:
        return self.held.upsert(batch, lambda table, data: table.upsert(self.frame(data)))

    def delete(self, batch: list[Row]) -> None:
        self.table.delete(self.frame(arrow(batch).select(["id", "day"])))
        for row in batch:
            self.held.rows.pop(self.held.key_held(row), None)

    def overwrite(self, batch: list[Row]) -> WriteResult:
        result = self.table.insert_overwrite(self.frame(arrow(batch)))
        touched = {row["day"] for row in batch}
        self.held.rows = {key: row for key, row in self.held.rows.items() if key[0] not in touched}
        self.held.expect_upserted(batch)
        return result

    def check(self) -> None:
        """Spark and Arrow read the rows of the dictionary."""
        expected = in_order(self.held.rows.values())
        assert in_order(rows_of(self.table.read(self.spark))) == expected
        self.held.check()


def test_spark_and_arrow_write_read_and_undo_in_turns(
    spark: SparkSession, case: Case, tmp_path: Path
) -> None:
    world = ByFrames(spark, case, tmp_path)
    table = world.table
    world.upsert(rows(range(30)))
    before = table.timeline()[-1].requested_at
    late = rows(range(5), -1)
    result = world.upsert([*rows(range(20, 40), 2), *late])
    assert result.written >= 20
    world.held.upsert(rows(range(35, 50), 3))
    world.delete(rows([3, 25, 90]))
    world.check()
    found = in_order(rows_of(table.read(spark, where="id IN ('k1', 'k26') AND day = 'b'")))
    assert found == rows([1])
    assert in_order(rows_of(table.read(spark, as_of=before))) == in_order(rows(range(30)))
    with pytest.raises(InputError):
        table.upsert(world.frame(arrow([{"id": None, "day": None, "v": 1, "at": 1}])))
    if case.merges_on_read:
        assert table.compact(spark=spark).slices
    held = dict(world.held.rows)
    undone = world.overwrite(rows(range(0, 8, 2), 9)).instant
    assert undone is not None
    world.check()
    table.rollback(undone)
    world.held.rows = held
    world.held.check()
    assert bl.open_table(table.path).index == case.index


def test_spark_writes_each_part_of_a_new_slot_in_a_task_of_its_own(
    spark: SparkSession, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[list[SlotPlan]] = []
    spy(monkeypatch, PackedRecords, "write", lambda _, plan, __: planned.append([*plan.slots]))
    spy(monkeypatch, PackedRecords, "locate", lambda _, lookups, __: planned.append([*lookups]))
    set_bounds(monkeypatch, write_plan, RECORDS_PER_TASK_MAX=20)
    set_bounds(monkeypatch, indexed_write, BYTES_MAX=1_000)
    world = ByFrames(spark, case, tmp_path)
    many = many_of(case)
    world.upsert([*rows(range(many)), *rows(range(5), 1)])
    world.check()
    world.upsert(rows(range(many // 2, many + many // 2), 2))
    world.check()
    first, later = planned
    parts = [slot for slot in first if slot.is_cut]
    assert bool(parts) is case.kind.is_cut
    assert len({slot.task for slot in parts}) == len(parts)
    assert not any(slot.is_cut for slot in later)
    if not case.kind.needs_metadata_table:  # Else these are lookups, whose parts share groups.
        assert len(world.table.buckets()) >= len(first)
