"""Files as the records of a write, read by tasks of Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.errors import InputError

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {
        "id": [f"k{i}" for i in range(3000)],
        "day": [f"d{i % 3}" for i in range(3000)],
        "n": list(range(3000)),
    }
)


KINDS = {"dynamic": bl.DynamicBucket(), "simple": bl.SimpleBucket(2)}


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_read_parquet_and_text_as_a_frame_of_the_same_rows_is_written(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(3):
        own = ROWS.slice(1000 * number, 1000)
        pq.write_table(own, landing / f"{number}.parquet", row_group_size=300)
    pa.csv.write_csv(ROWS.slice(0, 500), landing / "a.csv")
    table = bl.create_table(
        str(tmp_path / "table"),
        schema=ROWS.schema,
        record_key="id",
        partition_by="day",
        index=KINDS[kind],
    )
    assert table.upsert(bl.files(f"{landing}/*.parquet")).inserted == 3000
    assert table.upsert(bl.files(f"{landing}/a.csv")).updated == 500
    assert table.to_arrow().sort_by("n").equals(ROWS)
    frame = spark.read.parquet(f"{landing}/0.parquet")
    assert table.delete(bl.files(f"{landing}/0.parquet")).deleted == frame.count()
    (landing / "b.csv").write_text("id,day,n\nk1,d1,one\n")
    before = len(table.timeline())
    with pytest.raises(InputError, match="one"):
        table.upsert(bl.files([f"{landing}/a.csv", f"{landing}/b.csv"]))
    assert len(table.timeline()) == before
