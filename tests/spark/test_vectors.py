"""Spark sees vectors as arrays with Hudi's metadata, and writes arrays into them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.spark import arrow_tasks
from bucketlake.spark.spark_schema import spark_from_arrow
from tests.golden.test_tables import TABLES
from tests.spies import spy


@pytest.mark.parametrize("name", ["cow_vector_int8", "mor_vector_double"])
def test_vectors_of_hudi_are_arrays_and_arrays_are_written_to_them(
    spark: SparkSession, golden_table: Callable[[str], Path], name: str
) -> None:
    (path,) = TABLES.rglob(f"{name}.expected.parquet")
    expected = {row["id"]: row for row in pq.read_table(path).to_pylist()}
    table = bl.open_table(str(golden_table(name)), bl.SimpleBucket(2))
    frame = table.read(spark)
    assert frame.schema["v"].metadata["hudi_type"].startswith("VECTOR(3, ")
    assert {row["id"]: row.asDict() for row in frame.collect()} == expected
    other = frame.where("id = 'k0'").selectExpr("id", "region", "9L AS ts", "array(7, 8, 9) AS v")
    table.upsert(other)
    expected["k0"] |= {"ts": 9, "v": [7, 8, 9]}
    assert {row["id"]: row for row in table.to_arrow().to_pylist()} == expected
    with pytest.raises(InputError, match=r"column v: .*'k0'.*2 elements, expected 3"):
        table.upsert(other.selectExpr("id", "region", "ts", "array(7, 8) AS v"))


def test_table_made_of_arrays_with_hudis_metadata_holds_vectors(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema({"id": pa.string(), "v": pa.list_(pa.float32(), 2)})
    frame = spark.createDataFrame([("a", [1.5, 2.0]), ("b", None)], spark_from_arrow(schema))
    path = str(tmp_path / "made")
    bl.create_table(path, frame, record_key="id", index=bl.SimpleBucket(1)).upsert(frame)
    found = bl.open_table(path).to_arrow().sort_by("id")
    assert found.schema == schema
    assert found["v"].to_pylist() == [[1.5, 2.0], None]


def test_other_columns_of_a_table_with_vectors_are_read_by_spark_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = pa.array([[1.5, 2], [3, 4]], pa.list_(pa.float32(), 2))
    rows = pa.table({"id": ["a", "b"], "n": [1, 2], "v": vectors})
    table = bl.create_table(str(tmp_path / "made"), rows, record_key="id", index=bl.SimpleBucket(1))
    tasks = spy(monkeypatch, arrow_tasks, "map_in_arrow", lambda _df, _function, schema: schema)
    found = table.read(spark, columns=["id"], where="n > 1")
    assert [row.asDict() for row in found.collect()] == [{"id": "b"}]
    assert tasks == []
    found = table.read(spark, columns=["id"], where="v[0] > 2")
    assert [row.asDict() for row in found.collect()] == [{"id": "b"}]
    assert [schema.names for schema in tasks] == [["id", "v"]]
