"""Flipped bits in base files: an error of Spark names the file, or the rows are the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("s", pa.string())])
ROWS = [{"id": f"k{i}", "n": i * i, "s": f"text {i % 50}"} for i in range(2000)]
FLIPS = 25


def test_flips_in_pages_are_errors_of_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = bl.create_table(str(path), schema=SCHEMA, record_key="id", index=bl.SimpleBucket(1))
    table.upsert(pa.Table.from_pylist(ROWS, SCHEMA))
    (file,) = path.glob("*.parquet")
    held = file.read_bytes()
    pages_end = len(held) - 8 - int.from_bytes(held[-8:-4], "little")
    drawn, errors = random.Random(5), 0
    for _ in range(FLIPS):
        damaged = bytearray(held)
        damaged[drawn.randrange(4, pages_end)] ^= 1 << drawn.randrange(8)
        file.write_bytes(damaged)
        (path / f".{file.name}.crc").unlink(missing_ok=True)
        try:
            found = table.read(spark, columns=SCHEMA.names).orderBy("n").collect()
        except Exception as error:  # Of Spark.
            errors += file.name in str(error)
        else:
            assert [row.asDict() for row in found] == ROWS
    assert errors > FLIPS / 3
