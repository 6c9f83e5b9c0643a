"""Spark writes to tables with a bucket index keep their record-level index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bucketlake as bl
from bucketlake.spark.flow import SparkFlow
from tests.choices import combinations
from tests.conformance.cases import Case, rows
from tests.conformance.kinds import Kind
from tests.spark.test_kinds import ByFrames
from tests.spies import spy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

RINGS = Kind("rings", bl.ConsistentBucket(2, max=8), bl.ConsistentBucket(3))
SIMPLE = Kind("simple", bl.SimpleBucket(4), bl.SimpleBucket(5))


@pytest.mark.parametrize(
    ("table_type", "partitioned"),
    combinations(["copy_on_write", "merge_on_read"], [True, False]),
)
def test_writes_and_rescales_of_spark_keep_the_index_equal_to_the_rows(
    spark: SparkSession, tmp_path: Path, table_type: str, partitioned: bool
) -> None:
    world = ByFrames(spark, Case(SIMPLE, table_type), tmp_path)
    world.table.rebuild_metadata_table(["record_index"], partitioned=partitioned)
    world.upsert(rows(range(60)))
    world.held.check_entries()
    world.upsert([*rows(range(40, 90), 2), *rows(range(5), 1, days="c")] if partitioned else [])
    world.delete(rows([3, 45, 99]))
    world.held.check_entries()
    world.overwrite(rows(range(1, 31, 2), 3, days="bb"))
    world.held.check_entries()
    table = world.table.rescale({"a": 8}, default=3, spark=spark, dry_run=False)
    assert table.instant is not None
    world.held.check_entries()
    world.check()


def test_a_resize_of_spark_keeps_the_index_equal_to_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = ByFrames(spark, Case(RINGS, "copy_on_write"), tmp_path)
    world.table.rebuild_metadata_table(["record_index"])
    world.upsert(rows(range(60)))
    assert world.table.resize(max_file_size=1, spark=spark).instants
    world.held.check_entries()
    world.check()


def test_a_write_of_spark_has_one_job_after_the_count_also_with_an_index(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ByFrames(spark, Case(SIMPLE, "copy_on_write"), tmp_path)
    runs = spy(monkeypatch, SparkFlow, "results", lambda _: None)
    world.upsert(rows(range(30)))
    assert len(runs) == 1
    world.table.rebuild_metadata_table(["record_index"])
    runs.clear()
    world.upsert(rows(range(20, 40), 2))
    assert len(runs) == 1
    world.held.check_entries()
