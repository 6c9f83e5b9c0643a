"""Merges through Spark: joins on any columns, any expression, the source once, and SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.spark.spool import SPOOL_FOLDER
from bucketlake.write.merge_statement import Merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_ambiguous_rows_and_stored_keys_are_refused_before_anything_is_written(
    spark: SparkSession, table: bl.Table
) -> None:
    before = len(table.timeline())
    source = spark.createDataFrame(
        [("k2", "a", 7, "m1", 9), ("k2", "a", 8, "m0", 9)], "id string, day string, n int, "
        "mail string, at bigint",
    )  # fmt: skip

    def refused(merge: Merge, match: str) -> None:
        with pytest.raises(InputError, match=match):
            merge.execute()

    merge = table.merge(source, ON)
    both = r"key 'k2' in partition 'a': \(.*n=[78].*\) and \(.*n=[78].*\)"
    refused(merge.when_matched_update({"n": "s.n"}, "s.at > t.at"), both)
    refused(merge.when_matched_update_all().when_not_matched_insert_all(), "two rows .* key 'k2'")
    by_mail = table.merge(source, "t.mail = s.mail AND t.day = s.day AND t.n > 99")
    refused(by_mail.when_not_matched_insert_all("s.n = 7"), "inserted with key 'k2' .*table has")
    refused(merge.when_matched_update({"n": "no_such_function(s.n)"}), "no_such_function")
    refused(merge.when_matched_update({"n": "s.mail"}), "table holds int")
    assert len([e for e in table.timeline() if e.completed_at]) == before
    assert merge.when_matched_delete().execute().deleted == 1


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
