"""Python workers start once, beside the first write, which does not depend on them."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.spark import warm_up

pytestmark = pytest.mark.spark


def wait_for_warm_up() -> None:
    for thread in threading.enumerate():
        if thread.name == "bucketlake-warm-up":
            thread.join()


def test_the_workers_are_started_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[SparkSession] = []
    monkeypatch.setattr(warm_up, "_first", threading.Lock())
    monkeypatch.setattr(warm_up, "_run", started.append)
    for session in (spark, spark, spark.newSession()):
        warm_up.start_workers(session)
        wait_for_warm_up()
    assert started == [spark]


def test_a_warm_up_that_fails_leaves_the_write_as_it_is(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "_first", threading.Lock())
    monkeypatch.setattr(warm_up, "_import_modules", None)  # No function: the job fails.
    schema = pa.schema({"id": pa.string(), "n": pa.int64()})
    table = bl.create_table(
        str(table_path), schema=schema, record_key=["id"], index=bl.SimpleBucket(2)
    )
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "id string, n long")
    assert table.upsert(rows).inserted == 2
    wait_for_warm_up()
