"""Messages of Kafka in DataFrames of any session, classic or through Spark Connect."""

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


def require_rows_of_database(spark: SparkSession, tmp_path: Path) -> None:
    """Write a stream in two frames.

    The second one has a row whose key changed and whose value is in a row of the first one.
    """
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


def require_bad_message_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Decode three messages, of which one cannot be read; a write with it is refused."""
    rows = messages("random", "default", "public.ledger").slice(0, 3)
    broken = rows.set_column(1, "value", pa.array([b"{", *rows["value"].to_pylist()[1:]]))
    frame = frame_of(spark, broken, tmp_path / "rows")
    found = decoded(frame, reading_of())
    assert found.rows.count() == 2
    (bad,) = found.bad.collect()
    assert (bad["offset"], bytes(bad["value"])) == (rows["offset"][0].as_py(), b"{")
    table = bl.create_table(
        str(tmp_path / "t"), schema=found.rows.schema, record_key="id", ordering="_position"
    )
    with pytest.raises(bl.InputError, match="offset 0: it cannot be read"):
        table.upsert(bl.debezium(frame))
    assert table.timeline() == []
