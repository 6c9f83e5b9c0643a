"""DataFrames and files on Spark, in a table whose columns have orderings of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.flow import threads
from tests.bounds import set_bounds
from tests.ordering_groups import ORDERING, SCHEMA, batch_of, expected, histories
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KINDS = {
    "simple": (bl.SimpleBucket(2), "merge_on_read"),
    "record": (bl.RecordIndex(), "copy_on_write"),
}


@pytest.mark.parametrize("name", KINDS)
def test_tasks_obey_the_orderings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    set_bounds(monkeypatch, threads, HERE_ROWS_MAX=0, HERE_BYTES_MAX=0)  # Else the driver does it.
    index, table_type = KINDS[name]
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        ordering=ORDERING,
        index=index,
        table_type=table_type,
    )
    events = histories(7)
    parts = [events[at : at + 70] for at in range(0, len(events), 70)]
    for number, part in enumerate(parts):
        rows = batch_of(part)
        if number % 2:
            result = table.upsert(frame_of(spark, rows, tmp_path / "frames"), missing="keep")
        else:  # Tasks read the file twice.
            pq.write_table(rows, tmp_path / f"{number}.parquet")
            result = table.upsert(bl.files(str(tmp_path / f"{number}.parquet")), missing="keep")
        assert not result.in_driver
    rows = {row["id"]: row for row in table.to_arrow().select(SCHEMA.names).to_pylist()}
    assert rows == expected(events)
