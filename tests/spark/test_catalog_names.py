"""Tables of a catalog by their names in Spark's SQL, without Hudi's bundle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.memory_catalog import MemoryCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark.sql.datasource", reason="Spark 3 has no sources in Python")

pytestmark = pytest.mark.spark

DATABASE = "shop_by_name"


def rows(*ids: str, **more: pa.Array) -> pa.Table:
    return pa.table({"id": [*ids], "region": ["eu"] * len(ids), **more})


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[MemoryCatalog]:
    yield MemoryCatalog()
    spark.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")


def test_tables_of_a_catalog_are_selected_by_name(
    spark: SparkSession, tmp_path: Path, catalog: MemoryCatalog
) -> None:
    def selected(name: str) -> list[str]:
        return sorted(row.id for row in spark.sql(f"SELECT id FROM {DATABASE}.{name}").collect())

    options = {"record_key": "id", "partition_by": "region", "table_type": "merge_on_read"}
    path = str(tmp_path / "it's orders")
    table = bl.create_table(path, rows("a", "b"), index=bl.SimpleBucket(1), **options)  # type: ignore[arg-type]
    table.delete(where="id = 'b'")  # Into a log file.
    bl.sync(table, catalog, f"{DATABASE}.orders")
    bl.register(spark, catalog=catalog, database=DATABASE.upper())
    assert [selected(name) for name in ("orders", "orders_ro")] == [["a"], ["a", "b"]]
    table.upsert(rows("c"))
    assert selected("orders") == ["a", "c"]  # Each query reads the newest commit.
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")
    assert table.count() == 2


def test_another_table_of_that_name_stays_and_one_that_cannot_be_read_is_told(
    spark: SparkSession, tmp_path: Path, catalog: MemoryCatalog
) -> None:
    for name in ("gone", "orders"):
        table = bl.create_table(str(tmp_path / name), rows("a"), record_key="id")
        bl.sync(table, catalog, f"{DATABASE}.{name}")
    (tmp_path / "gone").rename(tmp_path / "elsewhere")
    spark.sql(f"CREATE DATABASE {DATABASE}")
    spark.sql(f"CREATE TABLE {DATABASE}.orders USING parquet AS SELECT 7 AS kept")
    with pytest.raises(
        bl.InputError, match=f"{DATABASE}.orders of Spark's catalog.*rename one of both"
    ):
        bl.register(spark, catalog=catalog, database=DATABASE)
    assert spark.table(f"{DATABASE}.orders").collect() == [(7,)]
    spark.sql(f"DROP TABLE {DATABASE}.orders")
    for more in ({}, {"n": pa.array([1])}):
        table.upsert(rows("b", **more), merge_schema=True)
        with pytest.warns(UserWarning, match=f"{DATABASE}.gone is not registered: .*no.* Hudi tab"):
            bl.register(spark, catalog=catalog, database=DATABASE)
        assert spark.table(f"{DATABASE}.orders").columns == ["id", "region", *more]
    with pytest.raises(bl.CatalogError, match="there is no database nothing"):
        bl.register(spark, catalog=catalog, database="nothing")
    with pytest.raises(bl.ConfigError, match="give catalog and database"):
        bl.register(spark, catalog=catalog)
