"""Few rows of Spark are written by the driver: the same rows, by one job, no Python workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.flow import threads
from bucketlake.spark.frame_source import SPOOL_FOLDER, few_rows
from tests.bounds import set_bounds
from tests.conformance.cases import Case, rows
from tests.conformance.kinds import kinds_named
from tests.spark.frames import frame_of, in_order, rows_of
from tests.spark.test_kinds import ByFrames
from tests.spark.test_merge_statement import job_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": [f"k{n}" for n in range(40)], "p": [n % 2 for n in range(40)]})
SCHEMA = "id string, p long"


@pytest.fixture(autouse=True)
def few(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture of the session lets tasks write few rows, too."""
    set_bounds(monkeypatch, threads, HERE_BYTES_MAX=2 << 20)


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    return bl.create_table(
        str(tmp_path / "t"), schema=ROWS.schema, record_key="id", index=bl.SimpleBucket(2)
    )


def local(spark: SparkSession, _: Path) -> DataFrame:
    return spark.createDataFrame(
        [*map(tuple, zip(*ROWS.to_pydict().values(), strict=True))], SCHEMA
    )


def counted(spark: SparkSession, _: Path) -> DataFrame:
    return (
        spark.range(40).selectExpr("concat('k', id) AS id", "id % 2 AS p", "rand() AS r").drop("r")
    )


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    return counted(spark, folder).join(frame_of(spark, ROWS, folder), ["id", "p"])


def in_a_file(spark: SparkSession, folder: Path) -> DataFrame:
    return frame_of(spark, ROWS, folder)


@pytest.mark.parametrize("frame", [local, counted, joined, in_a_file])
def test_few_rows_of_any_plan_are_written_without_a_second_job(
    spark: SparkSession, table: bl.Table, tmp_path: Path, frame: Callable[..., DataFrame]
) -> None:
    given = frame(spark, tmp_path)
    if frame is in_a_file and not hasattr(given, "toArrow"):
        pytest.skip("PySpark 3.5 has no public way to hand rows of a file to the driver")
    before = job_count(spark)
    result = table.upsert(given)
    jobs = job_count(spark) - before
    assert (result.inserted, result.in_driver) == (40, True)
    assert jobs <= (1 if frame is not joined else 4)  # Its own stages are jobs.
    assert in_order(table.to_arrow().select(ROWS.column_names).to_pylist()) == in_order(
        ROWS.to_pylist()
    )
    assert [*Path(table.path, SPOOL_FOLDER).rglob("*.parquet")] == []


@pytest.mark.parametrize("bound", ["rows", "value", "rewritten"])
def test_more_than_the_driver_should_do_is_work_for_tasks(
    spark: SparkSession,
    table: bl.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
) -> None:
    table.upsert(ROWS.slice(0, 20))
    given = frame_of(spark, ROWS, tmp_path)
    if bound == "rows":
        set_bounds(monkeypatch, threads, HERE_ROWS_MAX=39)
    elif bound == "value":
        given = given.withColumn("id", F.expr("if(id = 'k39', repeat('x', 5000), id)"))
    else:
        set_bounds(monkeypatch, threads, HERE_REWRITTEN_MAX=1)
    result = table.upsert(given)
    assert (result.inserted, result.updated, result.in_driver) == (20, 20, False)
    assert len(table.to_arrow()) == 40


def test_small_files_are_written_without_a_job(
    spark: SparkSession, table: bl.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    given = bl.files(str(tmp_path / "rows.parquet"))
    before = job_count(spark)
    assert table.upsert(given).in_driver
    assert job_count(spark) == before
    set_bounds(monkeypatch, threads, HERE_REWRITTEN_MAX=1)
    again = table.upsert(given)
    assert (again.updated, again.in_driver) == (40, False)


def test_rows_that_change_are_read_once(spark: SparkSession, table: bl.Table) -> None:
    table.upsert(spark.range(40).selectExpr("cast(rand() AS string) AS id", "id AS p"))
    assert sorted(table.to_arrow()["p"].to_pylist()) == [*range(40)]


def test_bad_rows_are_refused_before_anything_is_written(
    spark: SparkSession, table: bl.Table
) -> None:
    with pytest.raises(InputError, match="id"):
        table.upsert(spark.range(3).selectExpr("cast(null AS string) AS id", "id AS p"))
    assert table.timeline() == []
    assert table.upsert(spark.range(0).selectExpr("'a' AS id", "id AS p")).instant is None


@pytest.mark.parametrize("name", ["simple", "consistent", "dynamic", "record_index"])
def test_each_way_of_an_index_gives_the_rows_of_the_model(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    kind = kinds_named(name)[0]
    world = ByFrames(spark, Case(kind, kind.table_types[-1]), tmp_path)
    assert few_rows(world.frame(ROWS)) is not None or not hasattr(world.frame(ROWS), "toArrow")
    world.upsert(rows(range(30)))
    result = world.upsert([*rows(range(20, 40), 2), *rows(range(5), -1)])
    assert result.in_driver is hasattr(world.frame(ROWS), "toArrow")
    world.delete(rows([3, 25, 90]))
    world.overwrite(rows(range(0, 8, 2), 9))
    world.check()


def test_a_merge_of_few_rows_takes_no_python_workers(
    spark: SparkSession, table: bl.Table, tmp_path: Path
) -> None:
    table.upsert(ROWS.slice(0, 20))
    source = frame_of(spark, ROWS, tmp_path)
    merge = table.merge(source, "t.id = s.id")
    merge = merge.when_matched_update({"p": "s.p + length(t.id)"}, "s.p = 1")
    before = job_count(spark)
    result = merge.when_not_matched_insert_all("s.id <> 'k39'").execute()
    if hasattr(type(source), "toArrow"):  # From PySpark 4 on, the driver gets the source.
        assert job_count(spark) - before <= 3  # Values that prune, the smaller side, the join.
        assert result.in_driver
    assert (result.inserted, result.updated) == (19, 10)
    held = {row["id"]: row["p"] for row in rows_of(table.to_arrow())}
    assert (held["k1"], held["k11"], held["k2"], held["k38"]) == (3, 4, 0, 0)
    twice = frame_of(spark, pa.concat_tables([ROWS, ROWS]), tmp_path)
    merge = table.merge(twice, "t.id = s.id").when_matched_update_all("s.p >= 0")
    with pytest.raises(InputError, match="two rows of the source"):
        merge.execute()
