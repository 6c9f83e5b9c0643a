"""Messages of Kafka in DataFrames: the same batch as from Arrow tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bucketlake as bl
from tests.cdc_streams import messages
from tests.spark.frames import frame_of
from tests.spark.message_frames import require_bad_message_apart, require_rows_of_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning"),
]


def test_a_stream_in_two_frames_gives_the_rows_of_its_database(
    spark: SparkSession, tmp_path: Path
) -> None:
    require_rows_of_database(spark, tmp_path)


@pytest.mark.any_spark
def test_a_truncate_deletes_stored_rows_and_those_of_its_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = messages("truncate", "default", "public.parents")
    first = bl.debezium(frame_of(spark, rows.slice(0, 2), tmp_path / "first"))
    path = str(tmp_path / "parents")
    table = bl.create_table(path, schema=first.schema, record_key="id", ordering="_position")
    table.upsert(first)
    assert table.count() == 2
    rest = frame_of(spark, rows.slice(2), tmp_path / "rest")
    table.upsert(bl.debezium(rest, table, on_truncate="delete"))
    assert table.to_arrow()["v"].to_pylist() == ["last"]


@pytest.mark.any_spark
def test_a_message_that_cannot_be_read_is_apart_or_fails_the_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    require_bad_message_apart(spark, tmp_path)
