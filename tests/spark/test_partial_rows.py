"""Upserts of DataFrames that combine columns with stored rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from tests.partial_rows import Row, upserted
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.int64()),
        ("n", pa.int64()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
KINDS = {
    "simple": (bl.SimpleBucket(2), "merge_on_read"),
    "dynamic": (bl.DynamicBucket(), "copy_on_write"),
    "record": (bl.RecordIndex(partitioned=False), "merge_on_read"),
}


def rows_at(numbers: range, at: int, **changed: object) -> list[Row]:
    return [
        {"id": f"k{n}", "day": "ab"[n % 2], "at": at, "n": n, "s": f"s{n}", "tags": [f"t{at}"]}
        | changed
        for n in numbers
    ]


@pytest.mark.parametrize("name", KINDS)
def test_frames_are_combined_with_stored_rows(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    index, table_type = KINDS[name]
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="at",
        index=index,
        table_type=table_type,
    )
    rows: dict[str, Row] = {}

    def expect(batch: list[Row], **how: object) -> None:
        nonlocal rows
        rows = upserted(
            rows, batch, SCHEMA.names, key_of=lambda row: row["id"], ordering="at", **how
        )

    def frame(batch: list[Row]) -> object:
        return frame_of(spark, pa.Table.from_pylist(batch, schema_of(batch)), tmp_path / "batches")

    def check() -> None:
        found = {row["id"]: row for row in table.to_arrow().select(SCHEMA.names).to_pylist()}
        assert found == rows

    first = rows_at(range(30), 5)
    table.upsert(frame(first))
    expect(first)
    few = [{name: row[name] for name in ("id", "day", "at", "n")} for row in rows_at(range(20), 6)]
    few += [few[1] | {"at": 7, "n": -1}, few[2] | {"at": 1, "n": -2}]
    write = table.upsert_batch("partial", missing="keep", merge={"n": "sum"})
    assert write(frame(few), 0).written == 20
    assert write(frame(few), 0).skipped
    expect(few, keeps_missing=True, rules={"n": "sum"})
    check()

    bonus = 1000  # The function and what it refers to travel to the tasks.

    def larger(stored: pa.Table, new: pa.Table) -> pa.Table:
        larger = pc.max_element_wise(stored["n"], pc.add(new["n"], bonus))
        return new.set_column(new.column_names.index("n"), "n", larger)

    last = rows_at(range(5), 9, s=None)
    table.upsert(frame(last), nulls="keep", merge=larger)
    expect(
        [row | {"n": max(rows[row["id"]]["n"], row["n"] + bonus)} for row in last],
        keeps_nulls=True,
    )
    check()
    with pytest.raises(InputError, match=r"file group .* merge function 'missing'.* raised KeyE"):
        table.upsert(frame(last), merge=missing)
    check()


def schema_of(batch: list[Row]) -> pa.Schema:
    return pa.schema([field for field in SCHEMA if field.name in batch[0]])


def missing(stored: pa.Table, new: pa.Table) -> pa.Table:
    return stored.append_column("more", new["no such column"])
