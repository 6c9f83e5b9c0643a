"""Python workers start once a session, beside the first write, which does not depend on it."""

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


def test_the_workers_of_a_session_are_started_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SparkSession] = []
    monkeypatch.setattr(warm_up, "_run", started.append)
    first, second = spark.newSession(), spark.newSession()
    for session in (first, first, second):
        warm_up.start_workers(session)
        wait_for_warm_up()
    assert started == [first, second]


def test_a_warm_up_that_fails_leaves_the_write_as_it_is(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spark.newSession()
    monkeypatch.setattr(warm_up, "_import_modules", None)  # No function: the job fails.
    schema = pa.schema({"id": pa.string(), "n": pa.int64()})
    table = bl.create_table(
        str(table_path), schema=schema, record_key=["id"], index=bl.SimpleBucket(2)
    )
    rows = session.createDataFrame([("a", 1), ("b", 2)], "id string, n long")
    assert table.upsert(rows).inserted == 2
    wait_for_warm_up()
