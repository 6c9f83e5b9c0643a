"""The history of rows from DataFrames: the same rows as from Arrow tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from tests.spark.frames import frame_of
from tests.tables.test_history import batch, expected, rows_of
from tests.tables.test_remembered_deletes import Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_frames_give_the_rows_of_the_set_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    changes = [
        Event(f"k{n % 5}", at, (n + at) % 4 == 0) for n in range(5) for at in (1, 3, 5, 2, 4)
    ]
    empty = bl.history(batch(changes), keys="id", sequence_by="at")
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=empty.schema,
        record_key=empty.record_key,
        table_type="merge_on_read",
        index=bl.SimpleBucket(2, hash_fields=["id"]),
    )

    def apply(frame: DataFrame) -> bl.WriteResult:
        return bl.history(frame, keys="id", sequence_by="at").apply(table)

    parts = [
        frame_of(spark, batch(changes[start::2]), tmp_path / f"part{start}") for start in (1, 0)
    ]
    apply(parts[0])
    apply(
        parts[1].withColumnRenamed("v", "w").selectExpr("id", "at", "w AS v", parts[1].columns[-1])
    )
    assert rows_of(table) == expected(changes)
    assert apply(parts[0].unionByName(parts[1])).instant is None

    only_deletes = spark.sql(
        "SELECT 'k1' AS id, CAST(9 AS INT) AS at, NULL AS v, true AS _hoodie_is_deleted"
    )
    apply(only_deletes)
    assert rows_of(table) == expected([*changes, Event("k1", 9, True)])
    other = batch([Event("k1", 9, False), Event("k2", 3, False)])
    other = other.set_column(2, "v", pa.array(["x", "other"]))
    with pytest.raises(InputError, match="differ"):
        apply(frame_of(spark, other, tmp_path / "other"))
