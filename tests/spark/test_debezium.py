"""Messages of Kafka in DataFrames: the same batch as from Arrow tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.following import reading_of
from bucketlake.spark.debezium import decoded
from tests.cdc_streams import as_texts, kinds_of, messages, rows_at_end
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning"),
]


def test_a_stream_in_two_frames_gives_the_rows_of_its_database(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second one has a row whose key changed and whose value is in a row of the first one."""
    rows, table = messages("random", "default", "public.ledger"), None
    for number, part in enumerate((rows.slice(0, 150), rows.slice(150))):
        batch = bl.debezium(frame_of(spark, part, tmp_path / f"part{number}"), table)
        if table is None:
            path = str(tmp_path / "ledger")
            table = bl.create_table(
                path, schema=batch.schema, record_key="id", ordering="_position"
            )
        table.upsert(batch)
    kinds = kinds_of("random", "public.ledger")
    held = as_texts(table.to_arrow(), [*kinds], kinds)
    assert held == rows_at_end("random", "public.ledger")


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
    rows = messages("random", "default", "public.ledger").slice(0, 3)
    broken = rows.set_column(1, "value", pa.array([b"{", *rows["value"].to_pylist()[1:]]))
    frame = frame_of(spark, broken, tmp_path / "rows")
    found = decoded(frame, reading_of())
    assert found.rows.count() == 2
    (bad,) = found.bad.collect()
    assert (bad.offset, bytes(bad.value)) == (rows["offset"][0].as_py(), b"{")
    table = bl.create_table(
        str(tmp_path / "t"), schema=found.rows.schema, record_key="id", ordering="_position"
    )
    with pytest.raises(bl.InputError, match="offset 0: it cannot be read"):
        table.upsert(bl.debezium(frame))
    assert table.timeline() == []
