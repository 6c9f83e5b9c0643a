"""Columns whose names are words of SQL: Spark takes them so, and so do updates and merges on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.

import bucketlake as bl
from tests.sql_words import CONDITIONS, HARD, WORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_takes_its_words_as_names(spark: SparkSession) -> None:
    words = {row["keyword"].lower() for row in spark.sql("SELECT * FROM sql_keywords()").collect()}
    assert words <= {*WORDS, "percentile_cont", "percentile_disc"}  # Spark 4 knows them no more.
    columns = ", ".join(f"`{name}` int" for name in [*HARD, "zz"])
    frame = spark.createDataFrame([], columns).alias("t")
    for condition in CONDITIONS:
        bare, quoted = (
            frame.select(
                *[F.expr(condition.format(n=form.format(name))).alias(name) for name in HARD]
            )
            for form in ("{}", "`{}`")
        )
        assert bare.sameSemantics(quoted), condition


def test_updates_and_merges_of_such_columns_run_on_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "words")
    schema = pa.schema({"id": pa.string()} | dict.fromkeys(HARD, pa.int64()))
    table = bl.create_table(path, schema=schema, record_key="id", index=bl.SimpleBucket(1))
    table.upsert(pa.table({"id": ["a", "b"]} | {name: [1, 2] for name in HARD}, schema))
    where = " OR ".join(f"{name} = 1" for name in HARD)
    assert table.update({name: f"{name} + 1" for name in HARD}, where=where).updated == 1
    source = pa.table({"id": ["a", "c"]} | {name: [10, 30] for name in HARD}, schema)
    values = ", ".join(f"t.{name} = t.{name} + s.{name}" for name in HARD)
    merged = bl.sql(
        spark,
        f"MERGE INTO bucketlake.`{path}` t USING s ON t.id = s.id AND t.end = 2 "
        f"WHEN MATCHED THEN UPDATE SET {values} WHEN NOT MATCHED THEN INSERT *",
        tables={"s": source},
    )
    assert (merged.inserted, merged.updated) == (1, 1)
    found = {row.pop("id"): {*row.values()} for row in table.to_arrow().to_pylist()}
    assert found == {"a": {12}, "b": {2}, "c": {30}}


def test_inserts_take_values_and_queries_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, schema = str(tmp_path / "rows"), pa.schema({"id": pa.string(), "end": pa.int64()})
    table = bl.create_table(path, schema=schema, record_key="id", index=bl.SimpleBucket(1))
    into = f"INSERT INTO bucketlake.`{path}`"
    assert bl.sql(spark, f"{into} VALUES ('a', 1), (reverse('cb'), length('ab'))").inserted == 2
    assert bl.sql(spark, f"{into} (id) SELECT concat('d', id) FROM range(2)").inserted == 2
    found = sorted((row["id"], row["end"]) for row in table.to_arrow().to_pylist())
    assert found == [("a", 1), ("bc", 2), ("d0", None), ("d1", None)]
