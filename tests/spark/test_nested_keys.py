"""DataFrames whose key, partition and ordering fields are inside a struct."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.choices import combinations
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HEADER = pa.struct([("eid", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])


def rows(*given: tuple[int, str, int, int]) -> pa.Table:
    headers = [{"eid": eid, "day": day, "ts": ts} for eid, day, ts, _ in given]
    values = pa.array([v for *_, v in given], pa.int64())
    return pa.table({"header": pa.array(headers, HEADER), "v": values})


@pytest.mark.parametrize(
    ("index", "table_type"),
    combinations(
        [bl.SimpleBucket(2), bl.DynamicBucket(max_records=2)], ["copy_on_write", "merge_on_read"]
    ),
)
def test_data_frames_with_keys_inside_a_struct_are_written_read_and_deleted(
    spark: SparkSession, tmp_path: Path, index: bl.SimpleBucket | bl.DynamicBucket, table_type: str
) -> None:
    first = frame_of(spark, rows((1, "a", 5, 1), (2, "b", 5, 2), (3, "a", 5, 3)), tmp_path / "in")
    second = frame_of(spark, rows((1, "a", 4, 11), (2, "b", 6, 12)), tmp_path / "in")
    table = bl.create_table(
        str(tmp_path / "table"),
        schema=rows().schema,
        record_key="header.eid",
        partition_by="header.day",
        ordering="header.ts",
        index=index,
        table_type=table_type,
    )
    table.upsert(first)
    table.upsert(second)
    read = table.read(spark, where="Header.EID < 3", columns=["header.eid", "v"])
    assert read.columns == ["header.eid", "v"]
    assert {tuple(row) for row in read.collect()} == {(1, 1), (2, 12)}
    table.delete(second.where("header.eid = 1"))
    flat = pa.table({"header.eid": [2], "header.day": ["b"]})
    table.delete(frame_of(spark, flat, tmp_path / "in"))
    assert [row.v for row in table.read(spark).collect()] == [3]
