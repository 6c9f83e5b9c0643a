"""Merges through Spark: joins on any columns, any expression, the source once, and SQL."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.model.table_type import TableType
from bucketlake.spark.frame_source import SPOOL_FOLDER
from bucketlake.spark.merge import SparkMerge
from bucketlake.spark.spark_schema import spark_from_arrow
from tests.choices import combinations
from tests.merge_rules import RULES, TYPES
from tests.spies import spy_answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {
        "id": [f"k{n}" for n in range(40)],
        "day": ["ab"[n % 2] for n in range(40)],
        "n": pa.array(range(40), pa.int32()),
        "mail": [f"m{n // 2}" for n in range(40)],
        "at": [5] * 40,
    }
)
ON = "t.id = s.id AND t.day = s.day"


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> bl.Table:
    made = bl.create_table(
        str(tmp_path / "orders"),
        schema=ROWS.schema,
        record_key="id",
        partition_by="day",
        ordering="at",
        index=bl.SimpleBucket(2),
        table_type=request.param,
    )
    made.upsert(ROWS)
    return made


def test_merge_on_other_columns_evaluates_what_spark_knows(
    spark: SparkSession, table: bl.Table
) -> None:
    # Rows 0 to 7 match by mail and day; the random column has one value for each row.
    source = spark.range(4).select(
        F.concat(F.lit("m"), F.col("id")).alias("mail"), F.lit("a").alias("day"),
        (F.rand() * 1000 + 1000).cast("int").alias("n"),
    )  # fmt: skip
    expected = {row["id"]: row for row in ROWS.to_pylist()}
    result = (
        table.merge(source, "upper(t.mail) = upper(s.mail) AND t.day = s.day")
        .when_matched_delete("length(t.id) = 2 AND t.n % 4 = 0")
        .when_matched_update({"n": "s.n", "mail": "concat(t.mail, '-', s.n)"})
        .when_not_matched_by_source_update({"n": "-n"}, "day = 'b' AND n > 35")
        .execute()
    )
    assert (result.inserted, result.updated, result.deleted) == (0, 4, 2)
    found = {row["id"]: row.asDict() for row in table.read(spark).collect()}
    assert found.keys() == expected.keys() - {"k0", "k4"}
    for key in ("k2", "k6"):  # The random number was evaluated once.
        assert found[key]["n"] >= 1000
        assert found[key]["mail"] == f"{expected[key]['mail']}-{found[key]['n']}"
        del expected[key], found[key]
    expected = {k: row for k, row in expected.items() if k in found}
    expected |= {f"k{n}": expected[f"k{n}"] | {"n": -n} for n in (37, 39)}
    assert found == expected
    assert not [*Path(table.path, SPOOL_FOLDER).glob("*")]


@pytest.mark.parametrize(("name", "table_type"), combinations([*RULES], TYPES))
def test_a_rule_of_merges_holds_with_spark(
    spark: SparkSession, tmp_path: Path, name: str, table_type: str
) -> None:
    RULES[name].check(str(tmp_path / "t"), table_type, partial(frame_of, spark))


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows.to_pylist(), spark_from_arrow(rows.schema))


def test_texts_that_spark_refuses_are_errors_before_anything_is_written(
    spark: SparkSession, table: bl.Table
) -> None:
    before = len(table.timeline())
    merge = table.merge(ROWS.slice(2, 1), ON, spark=spark)
    for text, words in (("no_such_function(s.n)", "no_such_function"), ("s.mail", "holds int")):
        with pytest.raises(InputError, match=words):
            merge.when_matched_update({"n": text}).execute()
    assert len([e for e in table.timeline() if e.completed_at]) == before


def test_statements_run_on_paths_names_views_and_subqueries(
    spark: SparkSession, table: bl.Table
) -> None:
    arrow = pa.table({"id": ["k1", "z"], "day": ["b", "b"], "n": pa.array([100, 101], pa.int32()),
                      "mail": ["x", "y"], "at": [9, 9]})  # fmt: skip
    merged = bl.sql(
        spark,
        f"MERGE INTO bucketlake.`{table.path}` t USING news s ON {ON} "
        "WHEN MATCHED THEN UPDATE SET n = s.n + length(t.mail), at = s.at "
        "WHEN NOT MATCHED THEN INSERT *",
        tables={"news": arrow},
    )
    assert (merged.inserted, merged.updated) == (1, 1)
    spark.createDataFrame([("k3",)], "key string").createOrReplaceTempView("gone_keys")
    deleted = bl.sql(
        spark,
        "MERGE INTO orders USING (SELECT key, 'b' AS day FROM gone_keys WHERE key LIKE 'k%') g "
        "ON orders.id = g.key AND orders.day = g.day WHEN MATCHED THEN DELETE",
        tables={"orders": table},
    )
    assert deleted.deleted == 1
    updated = bl.sql(spark, f"UPDATE `{table.path}` o SET o.mail = reverse(o.mail) WHERE n = 101")
    assert updated.updated == 1
    assert bl.sql(spark, f"DELETE FROM `{table.path}` WHERE n BETWEEN 10 AND 19").deleted == 10
    found = {row["id"]: row.asDict() for row in table.read(spark).collect()}
    gone = {"k3", *(f"k{n}" for n in range(10, 20))}
    assert found.keys() == {*ROWS["id"].to_pylist(), "z"} - gone
    assert (found["k1"]["n"], found["z"]["mail"], found["k1"]["mail"]) == (102, "y", "m0")


def test_columns_that_are_never_null_may_have_many_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = spark.range(12_000).withColumn("n", F.col("id") % 7)  # Too many to be in the driver.
    table = bl.create_table(
        str(tmp_path / "t"), schema=source, record_key="id", index=bl.SimpleBucket(2)
    )
    table.upsert(source.where("id < 5").withColumn("n", F.lit(99).cast("long")))
    merge = table.merge(source, "t.id = s.id").when_matched_update_all("s.n >= 0")
    result = merge.when_not_matched_insert_all().execute()
    assert (result.updated, result.inserted) == (5, 11_995)
    assert table.to_pandas()["n"].max() == 6


@pytest.mark.parametrize("clauses", [1, 4])
def test_a_merge_has_few_jobs_however_many_clauses_it_has(
    spark: SparkSession, tmp_path: Path, clauses: int
) -> None:
    """One for values that prune; one for the smaller side of the join; two are those of an upsert.

    The first of the two joins, counts and packs.
    """
    table = bl.create_table(
        str(tmp_path / "t"), schema=ROWS.schema, record_key="id", index=bl.SimpleBucket(2)
    )
    table.upsert(ROWS)
    frame_of(spark, ROWS).write.parquet(str(tmp_path / "source"))
    source = spark.read.parquet(str(tmp_path / "source"))
    merge = table.merge(source, "t.id = s.id")
    for number in range(clauses):
        merge = merge.when_matched_update({"n": f"s.n + {number}"}, f"s.n % 4 = {number}")
    before = job_count(spark)
    assert merge.when_not_matched_insert_all("s.n <> 5").execute().updated == 10 * clauses
    assert job_count(spark) - before <= 4


Cells = tuple[str, str | None, int | None]
GIVEN: list[Cells] = [("k1", "b", 7), ("k2", "a", 8), ("x1", "a", 9), ("x2", "b", 0)]


@pytest.mark.parametrize(
    ("more", "update", "insert", "is_upsert"),
    [
        (None, "s.n >= 0", None, True),
        (None, "s.n > 7", "n > 7", True),
        (None, "s.n > 7", None, False),  # Two rows are inserted, but would not be updated.
        (None, "t.n >= 0", None, False),
        (None, "1 / s.n > 0", None, False),  # It fails for a row of which the join does not ask it.
        (None, "s.n + rand() >= 0", None, False),
        (("k1", "b", None), "s.n >= 0", "s.n >= 0", True),
        (("k1", "b", None), "s.n >= 0", None, False),
        (("k1", "b", 3), "s.n >= 0", None, True),  # Both ways refuse two rows with one key.
        (("x3", None, 1), "s.n >= 0", None, False),
        (("x3", "__HIVE_DEFAULT_PARTITION__", 1), "s.n >= 0", None, False),
    ],
)
def test_a_merge_that_its_source_decides_is_an_upsert_with_the_outcome_of_the_join(
    spark: SparkSession,
    table: bl.Table,
    monkeypatch: pytest.MonkeyPatch,
    more: Cells | None,
    update: str,
    insert: str | None,
    is_upsert: bool,
) -> None:
    table.upsert(ROWS.slice(0, 1).set_column(1, "day", pa.nulls(1, pa.string())))
    rows = [(*cells, "mail", 9) for cells in (*GIVEN, *([] if more is None else [more]))]
    source = spark.createDataFrame(rows, "id string, day string, n int, mail string, at long")
    copy = bl.open_table(shutil.copytree(table.path, f"{table.path}_joined"))
    found = spy_answers(monkeypatch, SparkMerge, "upserted", lambda records: records is not None)
    known = outcome(table, source, update, insert)
    assert found == [is_upsert and table.config().table_type is TableType.COPY_ON_WRITE]
    monkeypatch.setattr(SparkMerge, "upserted", lambda *_: None)
    assert known == outcome(copy, source, update, insert)


def outcome(
    table: bl.Table, source: DataFrame, update: str, insert: str | None
) -> tuple[object, list[str]]:
    merge = table.merge(source, ON).when_matched_update_all(update)
    counts: object = "refused"
    with suppress(InputError):
        found = merge.when_not_matched_insert_all(insert).execute()
        counts = found.inserted, found.updated, found.deleted, found.ignored
    return counts, sorted(str(row) for row in table.to_arrow().to_pylist())


def test_a_merge_that_its_source_decides_has_the_jobs_of_an_upsert_and_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The one job tells values that prune, and that each row is written whether it matches or not.

    The source is read once more only by the job that packs its rows.
    """
    table = bl.create_table(
        str(tmp_path / "t"), schema=ROWS.schema, record_key="id", index=bl.SimpleBucket(2)
    )
    table.upsert(ROWS)
    source = frame_of(spark, ROWS)
    source.write.parquet(str(tmp_path / "source"))
    source = spark.read.parquet(str(tmp_path / "source"))
    jobs = []
    for condition in (None, "s.n >= 0"):
        before = job_count(spark)
        merge = table.merge(source, "t.id = s.id").when_matched_update_all(condition)
        assert merge.when_not_matched_insert_all().execute().updated == len(ROWS)
        jobs.append(job_count(spark) - before)
    assert jobs[1] == jobs[0] + 1


def job_count(spark: SparkSession) -> int:
    context = spark.sparkContext._jsc.sc()  # type: ignore[union-attr]
    context.listenerBus().waitUntilEmpty()
    return int(context.statusStore().jobsList(None).size())
