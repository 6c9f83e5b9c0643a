"""Batches that no table takes, as changes of a good batch; for Arrow tables and for Spark alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("price", pa.decimal128(5, 2)),
    ]
)


class BadBatch(NamedTuple):
    """A change that spoils a batch, and what the error says."""

    name: str
    spoil: Callable[[pa.Table], pa.Table]
    message: str


def good_rows(count: int = 4) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{i}" for i in range(count)],
            "part": ["ab"[i % 2] for i in range(count)],
            "ts": [1] * count,
            "price": [None] * count,
        },
        schema=SCHEMA,
    )


def with_column(name: str, values: list[object], data_type: pa.DataType | None = None) -> Callable:
    """Replace a column by values; the last one is repeated."""

    def spoil(rows: pa.Table) -> pa.Table:
        filled = [values[min(i, len(values) - 1)] for i in range(rows.num_rows)]
        index = rows.column_names.index(name)
        return rows.set_column(
            index, name, pa.array(filled, data_type or rows.schema.field(name).type)
        )

    return spoil


def without(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.drop_columns([name])


def and_column(name: str, value: object, data_type: pa.DataType | None = None) -> Callable:
    return lambda rows: rows.append_column(name, pa.array([value] * rows.num_rows, data_type))


def partition(value: str) -> Callable[[pa.Table], pa.Table]:
    return with_column("part", ["a", value])


BATCHES = [
    BadBatch("null key", with_column("id", ["k", None]), "'id'.* rows have a null or empty key"),
    BadBatch("empty key", with_column("id", ["k", ""]), "'id'.* rows have a null or empty key"),
    BadBatch("no key column", without("id"), "the record key column 'id' is missing"),
    BadBatch("no partition column", without("part"), "the partition column 'part' is missing"),
    BadBatch("no ordering column", without("ts"), "the ordering column 'ts' is missing"),
    BadBatch("a column of the table is missing", without("price"), "column price.* lacks it"),
    BadBatch("out of the table", partition(".."), r"partition path '\.\.'"),
    BadBatch("beside the table", partition("../other"), r"'\.\./other' contains a slash"),
    BadBatch("an absolute path", partition("/tmp/x"), "'/tmp/x' contains a slash"),
    BadBatch("the table itself", partition("."), r"partition path '\.'"),
    BadBatch("the timeline", partition(".hoodie"), r"partition path '\.hoodie'"),
    BadBatch("a scheme", partition("s3:x"), "Hudi cannot address the partition path 's3:x'"),
    BadBatch(
        "another type", with_column("ts", ["soon"], pa.string()), "column ts: .*bigint.*string"
    ),
    BadBatch(
        "a value that does not fit",  # Seen only where the values are: when the file is written.
        with_column("price", [7, 123_456], pa.int32()),
        r"column price: .*int does not fit decimal\(5,2\)",
    ),
    BadBatch("a name of Hudi's", and_column("_hoodie_file", "x"), "Hudi reserves this name"),
    BadBatch(
        "a flag that is none",
        and_column("_hoodie_is_deleted", "yes"),
        "column _hoodie_is_deleted: .*cast it to boolean",
    ),
    BadBatch("a name of no column", and_column("a-b", 1), "column a-b: the name cannot be stored"),
    BadBatch("names that differ by case", and_column("PRICE", 1), r"\(price, PRICE\)"),
    BadBatch(
        "a map without text keys",
        and_column("m", [(1, 2)], pa.map_(pa.int32(), pa.int32())),
        "column m.* cannot be stored",
    ),
]
