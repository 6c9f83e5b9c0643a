"""A conversion to dynamic buckets by tasks of Spark, and DataFrames written after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bucketlake as bl
from bucketlake.flow.threads import Threads
from bucketlake.index.setting import TableIndex
from bucketlake.services.check.findings import Severity
from bucketlake.write.pack import PackedRecords
from tests.bounds import set_bounds
from tests.indexed_tables import shards_of
from tests.ring_tables import SCHEMA, keyed, rows
from tests.spark.frames import frame_of, rows_of
from tests.spies import forbid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

DYNAMIC = bl.DynamicBucket(max_records=15, assigners=2)


def read(spark: SparkSession, table: bl.Table, where: str | None = None) -> dict[str, int]:
    """Read with Spark: the value of each key."""
    found = rows_of(table.read(spark, where=where, columns=["id", "v"]))
    held = {row["id"]: row["v"] for row in found}
    assert len(held) == len(found), "a key is there twice"
    return held


@pytest.mark.parametrize(
    ("index", "table_type"),
    [
        (bl.SimpleBucket(3), "copy_on_write"),
        (bl.ConsistentBucket(2), "merge_on_read"),
        (bl.RecordIndex(partitioned=False), "copy_on_write"),
    ],
    ids=["simple", "consistent", "global_record_index"],
)
def test_a_session_builds_the_index_of_a_conversion_and_writes_under_the_new_kind(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    index: TableIndex,
    table_type: str,
) -> None:
    table = bl.create_table(
        str(tmp_path / "table"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        index=index,
        table_type=table_type,
    )
    table.upsert(frame_of(spark, rows(range(60), days="ab"), tmp_path))
    table.upsert(frame_of(spark, rows(range(40, 80), 1, days="ab"), tmp_path))
    forbid(monkeypatch, Threads, "start")
    groups = {bucket.file_id for bucket in table.buckets()}
    converted = bl.convert(table.path, DYNAMIC, spark=spark)
    expected = keyed(range(40)) | keyed(range(40, 80), 1)
    assert converted.index == DYNAMIC
    assert {bucket.file_id for bucket in converted.buckets()} == groups
    assert read(spark, converted) == expected
    # The handle from before the conversion writes under the new kind, too.
    table.upsert(frame_of(spark, rows(range(70, 120), 2, days="ab"), tmp_path))
    converted.delete(frame_of(spark, rows(range(10), days="ab").select(["id", "day"]), tmp_path))
    expected = expected | keyed(range(70, 120), 2)
    expected = {key: v for key, v in expected.items() if key not in keyed(range(10))}
    assert read(spark, converted) == expected
    assert read(spark, converted, "day = 'b' AND id = 'k41'") == {"k41": 1}
    assert groups < {bucket.file_id for bucket in converted.buckets()}, "full groups stay as full"
    findings = converted.doctor(check_keys=True, min_age_seconds=0)
    assert not [one for one in findings if one.severity is not Severity.NOTE]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_session_writes_a_partition_of_one_shard_and_one_of_four_in_one_stage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    forbid(monkeypatch, PackedRecords, "locate")  # Else the write takes two stages.
    # The driver chooses, so no task needs it.
    set_bounds(monkeypatch, "bucketlake.metadata.record_index.shards", ROWS_OF_LARGE=30)
    table = bl.create_table(
        str(tmp_path / "table"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        index=bl.DynamicBucket(max_records=15),
        table_type=table_type,
    )
    first = [*range(0, 40, 2), *range(1, 120, 2)]
    table.upsert(frame_of(spark, rows(first, days="ab"), tmp_path))
    assert shards_of(table.path) == {"a": 1, "b": 4}
    table.upsert(frame_of(spark, rows(range(30, 140), 1, days="ab"), tmp_path))
    assert read(spark, table) == keyed(first) | keyed(range(30, 140), 1)
    findings = table.doctor(check_keys=True, min_age_seconds=0)
    assert not [one for one in findings if one.severity is not Severity.NOTE]
