"""The recorded change streams of ``tests/golden/cdc``: their messages, and the rows at the end."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

STREAMS = Path(__file__).parent / "golden" / "cdc"

MESSAGES = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of Spark's Kafka source, but for the type of the timestamp."""


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return base64.b64decode(value["base64"])


@cache
def messages(scenario: str, variant: str, table: str) -> pa.Table:
    """Return the messages of a table's topic; of all topics for an empty table."""
    rows = []
    with gzip.open(STREAMS / f"{scenario}.{variant}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["topic"].endswith(f".{table}") or not table:
                at = datetime.fromtimestamp(row["timestamp"] / 1000, UTC)
                headers = [{"key": k, "value": _bytes(v)} for k, v in row["headers"]]
                held = {name: _bytes(row[name]) for name in ("key", "value")}
                rows.append({**row, **held, "timestamp": at, "headers": headers})
    return pa.Table.from_pylist(rows, MESSAGES)


@cache
def expected(scenario: str) -> dict[str, Any]:
    """Return what is known of a scenario."""
    with gzip.open(STREAMS / f"{scenario}.expected.json.gz", "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def rows_at_end(scenario: str, table: str) -> list[dict[str, str | None]]:
    """Return the rows of the database, each value as its text."""
    held = expected(scenario)["tables"][table]
    names = [column["name"] for column in held["columns"]]
    return sorted((dict(zip(names, row, strict=True)) for row in held["rows"]), key=repr)


def as_texts(rows: pa.Table, names: list[str], kinds: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a table as the database writes them."""
    held = rows.select(names).to_pylist()
    found = [{name: text_of(row[name], kinds[name]) for name in names} for row in held]
    return sorted(found, key=repr)


def text_of(value: Any, kind: str) -> str | None:
    """Return a value as Postgres or MariaDB writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "{" + ",".join(_element(item, kind.removesuffix("[]")) for item in value) + "}"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        if "." in text and not kind.startswith("datetime"):
            text = text.rstrip("0")
        if kind.startswith("datetime(") and "." not in text:
            text += ".000000"
        return text + ("+00" if value.tzinfo else "")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date | int | str):
        return str(value)
    return format(value, ".17g") if isinstance(value, float) else str(value)


def _element(value: Any, kind: str) -> str:
    text = text_of(value, kind)
    if text is None:
        return "NULL"
    if text == "" or text.upper() == "NULL" or any(mark in text for mark in '{},"\\ \t\n'):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def kinds_of(scenario: str, table: str) -> dict[str, str]:
    """Return the type of each column in the database."""
    columns = expected(scenario)["tables"][table]["columns"]
    return {column["name"]: column["type"] for column in columns}


_TYPES = {
    "integer": pa.int32(),
    "int(10) unsigned": pa.int64(),
    "smallint": pa.int32(),
    "bigint": pa.int64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "double precision": pa.float64(),
    "real": pa.float32(),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "timestamp without time zone": pa.timestamp("us"),
    "datetime(6)": pa.timestamp("us"),
}


def type_of(kind: str) -> pa.DataType:
    """Return the type that a user declares for a column."""
    if kind.endswith("[]"):
        return pa.list_(type_of(kind.removesuffix("[]")))
    found = re.fullmatch(r"(?:numeric|decimal)\((\d+),(\d+)\)", kind)
    if found:
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"timestamp\((\d)\) without time zone", kind):
        return pa.timestamp("ms" if int(found[1]) <= 3 else "us")
    if kind.startswith("timestamp(") and kind.endswith("with time zone"):
        return pa.timestamp("us", "UTC")
    return _TYPES.get(kind, pa.string())


def declared(scenario: str, table: str) -> pa.Schema:
    """Return the columns that a user declares for messages without schemas."""
    return pa.schema([(name, type_of(kind)) for name, kind in kinds_of(scenario, table).items()])


def keys_of(scenario: str, table: str) -> list[str]:
    """Return the primary key of a table."""
    columns = expected(scenario)["tables"][table]["columns"]
    held = [column for column in columns if column["key_position"]]
    return [column["name"] for column in sorted(held, key=lambda column: column["key_position"])]


def parts(rows: pa.Table, cuts: list[int]) -> Iterator[pa.Table]:
    """Cut messages at some places."""
    ends = [0, *sorted({cut for cut in cuts if 0 < cut < len(rows)}), len(rows)]
    for start, end in pairwise(ends):
        yield rows.slice(start, end - start)
