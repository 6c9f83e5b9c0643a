"""Is the table what it must be? Row by row, and once more through another reader of Hudi tables."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from change_stream import Events, Kind, render_keys
from flight_data import FLIGHT_KEY
from hudi import HudiTable
from pyspark.sql import SparkSession

import bucketlake as bl


@dataclass(frozen=True, slots=True)
class Check:
    """One question to the table, and what came out."""

    question: str
    passed: bool
    finding: str


def check_table(
    table: bl.Table,
    spark: SparkSession,
    path: Path,
    flights: pa.Table,
    events: Events,
    expected: pa.Table,
) -> list[Check]:
    """Put all questions to the table."""
    schema = expected.schema
    expected = in_order(expected, schema)
    actual = in_order(table.read(spark).toArrow(), schema)
    return [
        compare_rows("read with Spark, it holds the expected state", actual, expected),
        look_for_withdrawn(actual, flights, events),
        compare_checksums(in_order(table.to_arrow(), schema), expected, "bucketlake without Spark"),
        compare_checksums(in_order(read_with_hudi_rs(path), schema), expected, "hudi-rs"),
    ]


def in_order(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows as a schema has them, without Hudi's meta columns, sorted by key."""
    columns = rows.select(schema.names).cast(schema)
    return columns.sort_by([(name, "ascending") for name in FLIGHT_KEY]).combine_chunks()


def compare_rows(question: str, actual: pa.Table, expected: pa.Table) -> Check:
    """Compare two sorted tables row by row and column by column."""
    if actual.num_rows != expected.num_rows:
        return Check(question, False, f"{actual.num_rows:,} rows, not {expected.num_rows:,}")
    if actual.equals(expected):
        return Check(question, True, f"{actual.num_rows:,} rows equal in every column")
    pairs = zip(actual.to_pylist(), expected.to_pylist(), strict=True)
    one, other = next((one, other) for one, other in pairs if one != other)
    return Check(question, False, f"the first row that differs is {one}, not {other}")


def look_for_withdrawn(actual: pa.Table, flights: pa.Table, events: Events) -> Check:
    """Look for the flights that were withdrawn: they are gone, but for those that came back."""
    withdrawn = render_keys(flights, events.take(events.kind == Kind.WITHDRAWN))
    reinstated = render_keys(flights, events.take(events.kind == Kind.REINSTATED))
    there = withdrawn.join(actual.select(FLIGHT_KEY), list(FLIGHT_KEY), join_type="left semi")
    gone = withdrawn.num_rows - there.num_rows
    passed = in_order(there, there.schema).equals(in_order(reinstated, there.schema))
    finding = f"{gone:,} are gone, {there.num_rows:,} are there, {reinstated.num_rows:,} came back"
    return Check("withdrawn flights are gone unless they came back", passed, finding)


def compare_checksums(actual: pa.Table, expected: pa.Table, reader: str) -> Check:
    """Compare number of rows and a digest of all values."""
    one, other = checksum(actual), checksum(expected)
    finding = f"{actual.num_rows:,} rows, checksum {one}"
    passed = (actual.num_rows, one) == (expected.num_rows, other)
    if not passed:
        finding += f", not {expected.num_rows:,} rows, checksum {other}"
    return Check(f"{reader} reads the same", passed, finding)


def read_with_hudi_rs(path: Path) -> pa.Table:
    """Read the table with hudi-rs, which shares no code with bucketlake."""
    return pa.Table.from_batches(HudiTable(str(path.resolve())).read())


def checksum(rows: pa.Table) -> str:
    """Return a digest of all values, in order."""
    text = io.BytesIO()
    pyarrow.csv.write_csv(rows, text)
    return hashlib.sha256(text.getbuffer()).hexdigest()[:16]
