"""Hudi and bucketlake take turns on one table, compared with a plain model each time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.choices import combinations, some
from tests.interop.layouts import BY_RULES, COMMIT_TIME, DELETED_BY_FLAG, LAYOUTS, ONE, Layout
from tests.interop.model import IS_DELETED, Row, in_order
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interop

KEYS = 30
SPARK_SCHEMA = "id string, region string, ts bigint, v int, note string"

LONG = combinations([ONE, COMMIT_TIME, BY_RULES], list(Writer))
SHORT = combinations(
    [layout for layout in (*LAYOUTS, DELETED_BY_FLAG) if layout is not ONE], list(Writer)
)


def names(turns: list[tuple[Layout, Writer]]) -> list[str]:
    return [f"{layout.name}, {first.value} first" for layout, first in turns]


def events(layout: Layout, random_: random.Random, step: int) -> list[Row]:
    """Make events: some late, some that delete where a column can, some keys twice."""
    numbers = random_.sample(range(KEYS), 12)
    made = [event(layout, random_, n, 10 * step - random_.choice([0, 0, 15])) for n in numbers]
    if layout.kind.ordering is not None:
        made += [event(layout, random_, n, 10 * step + 1) for n in numbers[:3]]
    random_.shuffle(made)
    return made


def event(layout: Layout, random_: random.Random, n: int, ts: int) -> Row:
    row = layout.event(n, ts) | {"v": random_.randrange(1000)}
    if IS_DELETED in row and random_.random() < 0.3:
        row[IS_DELETED] = True
    return row


def take_turns(
    hudi: HudiPeer,
    path: Path,
    layout: Layout,
    first: Writer,
    *,
    steps: int,
    with_hudi_rs: bool = True,
) -> None:
    table = SharedTable(hudi, path, layout.kind, layout.as_hudi_shows, with_hudi_rs=with_hudi_rs)
    random_ = random.Random(f"{layout.name} {first.value}")
    if first is BUCKETLAKE:
        table.begin()
    sent: list[Row] = []
    for step in range(1, steps + 1):
        writer = first if step % 2 else (HUDI if first is BUCKETLAKE else BUCKETLAKE)
        repeated = {layout_key(layout, row): row for row in random_.sample(sent, len(sent) // 4)}
        fresh = events(layout, random_, step)
        for row in fresh:
            repeated.pop(layout_key(layout, row), None)
        table.upsert(writer, [*repeated.values(), *fresh])
        table.delete(writer, [layout.event(n, 0) for n in random_.sample(range(KEYS), 3)])
        table.assert_read_by_all()
        sent = fresh


def layout_key(layout: Layout, row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in (*layout.kind.record_key, *layout.kind.partition_by))


@pytest.mark.every_case
@pytest.mark.parametrize(("layout", "first"), LONG, ids=names(LONG))
def test_hudi_and_bucketlake_take_turns(
    hudi: HudiPeer, tmp_path: Path, layout: Layout, first: Writer
) -> None:
    take_turns(hudi, tmp_path / "turns", layout, first, steps=6)


@pytest.mark.parametrize(("layout", "first"), some(SHORT, 6), ids=names(some(SHORT, 6)))
def test_hudi_and_bucketlake_take_turns_in_every_layout(
    hudi: HudiPeer, tmp_path: Path, layout: Layout, first: Writer
) -> None:
    take_turns(hudi, tmp_path / "turns", layout, first, steps=3)


def test_hudi_takes_turns_with_bucketlake_on_spark(
    hudi: HudiPeer, spark: SparkSession, tmp_path: Path
) -> None:
    """The same through DataFrames of this environment's PySpark; Hudi runs on Spark 3.5."""
    table = SharedTable(hudi, tmp_path / "turns")
    random_, schema = random.Random(0), table.kind.schema
    table.begin()
    for step in range(1, 4):
        batch = events(ONE, random_, step)
        frame = spark.createDataFrame(batch, SPARK_SCHEMA)
        table.model.upsert(batch)
        table.ours.upsert(frame)
        table.upsert(HUDI, events(ONE, random_, step))
        table.delete(HUDI, [ONE.event(n, 0) for n in random_.sample(range(KEYS), 3)])
        table.assert_read_by_all()
        found = [row.asDict() for row in table.ours.read(spark).collect()]
        assert in_order(found, schema) == in_order(table.model.rows.values(), schema)
