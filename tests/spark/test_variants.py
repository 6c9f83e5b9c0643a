"""Variants of Spark are written and read back, by Spark's own reader and by Python tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

import bucketlake as bl

VALUES = {
    "a": '{"n":1,"deep":{"list":[1,2.5,"x",null,{"k":true}]}}',
    "b": "null",
    "c": None,
    "d": '"text"',
    "e": '{"n":1099511627776,"long":"' + "y" * 90 + '"}',
    "f": "[]",
}

if not hasattr(T, "VariantType"):
    pytest.skip("PySpark 3.5 has no variants", allow_module_level=True)


def frame_of(spark: SparkSession, values: dict[str, str | None], n: int) -> DataFrame:
    rows = spark.createDataFrame(list(values.items()), "id string, text string")
    return rows.selectExpr("id", f"{n}L AS n", "parse_json(text) AS v")


def texts(frame: DataFrame) -> dict[str, Any]:
    assert frame.schema["v"].dataType.simpleString() == "variant"
    found = frame.selectExpr("id", "to_json(v) AS text", "variant_get(v, '$.n', 'bigint') AS n")
    return {row.id: (row.text and json.loads(row.text), row.n) for row in found.collect()}


def expected_of(values: dict[str, str | None]) -> dict[str, Any]:
    held = {key: text and json.loads(text) for key, text in values.items()}
    return {
        key: (value, value["n"] if isinstance(value, dict) and "n" in value else None)
        for key, value in held.items()
    }


@pytest.mark.spark
@pytest.mark.parametrize(
    ("index", "table_type", "log_format"),
    [
        (bl.SimpleBucket(2), "copy_on_write", "parquet"),
        (bl.ConsistentBucket(2), "merge_on_read", "parquet"),
        (bl.DynamicBucket(), "merge_on_read", "avro"),
    ],
    ids=lambda value: getattr(type(value), "__name__", str(value)),
)
def test_variants_of_spark_are_read_back_equal(
    spark: SparkSession, tmp_path: Path, index: Any, table_type: str, log_format: str
) -> None:
    path, first = str(tmp_path / "table"), frame_of(spark, VALUES, 0)
    how: dict[str, Any] = {"record_key": "id", "table_type": table_type, "index": index}
    bl.create_table(path, schema="id string, n bigint, v variant", **how)
    table = bl.open_table(path, log_format=log_format)
    table.bulk_insert(first)
    changed = {"b": '{"n":7}', "c": "[[]]", "z": '{"n":9,"m":{"n":1}}', "d": None}
    table.upsert(frame_of(spark, changed, 1))
    table.upsert(spark.sql("SELECT 'a' AS id, 5L AS n"), missing="keep")
    table.delete(spark.sql("SELECT 'f' AS id"))
    held = {key: text for key, text in {**VALUES, **changed}.items() if key != "f"}
    for frame in (table.read(spark), spark.read.format("bucketlake").load(path)):
        assert texts(frame) == expected_of(held)
    some = table.read(spark, where="variant_get(v, '$.n', 'bigint') > 6", columns=["id", "v"])
    assert texts(some).keys() == {"b", "z"} | {"e"}
    arrow = {row["id"]: bl.variant_json(row["v"]) for row in table.to_arrow().to_pylist()}
    assert {key: text and json.loads(text) for key, text in arrow.items()} == {
        key: text and json.loads(text) for key, text in held.items()
    }
    if table_type == "merge_on_read":
        table.compact(spark=spark)
        assert texts(table.read(spark)) == expected_of(held)


@pytest.mark.spark
def test_shredded_variants_are_read_and_merged_and_are_whole_in_new_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    values: dict[str, str | None] = {f"k{n}": f'{{"n":{n},"m":"x"}}' for n in range(8)}
    values |= {"none": None, "more": '{"m":"y","z":{"n":1}}'}
    path, frame = tmp_path / "table", frame_of(spark, values, 0)
    how: dict[str, Any] = {"record_key": "id", "table_type": "merge_on_read"}
    table = bl.create_table(str(path), frame, index=bl.SimpleBucket(1), **how)
    (base,) = path.glob("*.parquet")
    rows, shredded = table.read(spark), tmp_path / "shredded"
    meta = spark.read.parquet(str(base)).schema.names
    named = [name for name in meta if name.startswith("_hoodie")]
    with_meta = spark.read.parquet(str(base)).select(*named, "id").join(rows, "id")
    ordered = with_meta.select(*named, "id", "n", "v").coalesce(1).sortWithinPartitions("id")
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "true")
    try:
        ordered.write.parquet(str(shredded))
    finally:
        spark.conf.unset("spark.sql.variant.writeShredding.enabled")
    (written,) = shredded.glob("*.parquet")
    base.write_bytes(written.read_bytes())
    (path / f".{base.name}.crc").unlink(missing_ok=True)
    assert "typed_value" in str(pq.read_schema(base))

    def check() -> None:
        assert texts(table.read(spark)) == expected_of(values)
        found = {row["id"]: bl.variant_json(row["v"]) for row in table.to_arrow().to_pylist()}
        assert {key: text and json.loads(text) for key, text in found.items()} == {
            key: text and json.loads(text) for key, text in values.items()
        }

    check()
    changed = {"k1": "1", "k2": None, "new": '{"n":70}'}
    table.upsert(frame_of(spark, changed, 1))
    values |= changed
    table.upsert(spark.sql("SELECT 'k3' AS id, 5L AS n"), missing="keep")
    table.delete(spark.sql("SELECT 'k4' AS id"))
    del values["k4"]
    check()
    table.compact(spark=spark)
    check()
    newest = max(path.glob("*.parquet"), key=lambda file: file.name.rpartition("_")[2])
    assert newest != base
    assert "typed_value" not in str(pq.read_schema(newest))
