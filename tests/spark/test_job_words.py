"""What Spark's UI says of our jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.spark.worker_python import context_of

DESCRIPTION = "spark.job.description"


def noting(folder: Path) -> object:
    """Return a function of tasks that notes what their job is called."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        text = context.getLocalProperty(DESCRIPTION)
        (folder / str(context.taskAttemptId())).write_text(str(text), encoding="utf-8")
        yield from batches

    return note


def test_jobs_name_table_and_step_and_leave_the_description_of_the_user(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = context_of(spark)
    assert context is not None
    schema = "id string, n long"
    table = bl.create_table(
        str(tmp_path / "trips"), schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
        record_key="id", index=bl.SimpleBucket(2),
    )  # fmt: skip
    folder = tmp_path / "notes"
    folder.mkdir()
    rows = spark.createDataFrame([("a", 1), ("b", 2)], schema)
    context.setLocalProperty(DESCRIPTION, "mine")
    try:
        table.upsert(rows.mapInArrow(noting(folder), schema))
        assert context.getLocalProperty(DESCRIPTION) == "mine"
    finally:
        context.setLocalProperty(DESCRIPTION, None)
    told = {path.read_text(encoding="utf-8") for path in folder.iterdir()}
    reading = "bucketlake upsert: trips · reading the records"
    assert told == {f"{reading} · keeping a copy, since they may change"}
