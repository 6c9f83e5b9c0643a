"""Every form of keys and partitions that a table may have, with rows that try it hard."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import bucketlake as bl
from tests.interop.model import IS_DELETED, Row
from tests.interop.table_kind import EVENT, TableKind

ODD = ("eu", "a/b", "k=v", "a b", "ä", "日本", "100%", "x:y", "{z}", "it's", "", None)
ENCODED = {
    "a/b": "a%2Fb",
    "k=v": "k%3Dv",
    "100%": "100%25",
    "x:y": "x%3Ay",
    "{z}": "%7Bz}",
    "it's": "it%27s",
}
ODD_AS_FOLDERS = tuple(value for value in ODD if value not in ("a/b", "x:y"))
MOMENTS_MS = (1_709_251_199_999, 1_709_251_200_000, -1, 0, 1_700_000_000_000)
"""The last millisecond of a leap day, the first after it, before 1970."""


def with_columns(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    """Add columns to those of an event."""
    return pa.schema([*EVENT, *(pa.field(name, kind) for name, kind in columns)])


@dataclass(frozen=True)
class Layout:
    """A form of keys and partitions.

    Attributes
    ----------
    columns : callable
        The columns of event ``n`` that differ from those of a plain one; keys and partition
        follow from ``n``.
    shown_by_hudi : mapping of str to callable
        What Hudi's Spark reader makes of a column: it reads partition columns from folder names.
    changes_by_hudi : mapping of str to callable
        The same for its incremental query, where that differs.
    key_filter : callable
        A condition that only this record meets.
    """

    name: str
    kind: TableKind
    columns: Callable[[int], Row] = lambda n: {}
    shown_by_hudi: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    changes_by_hudi: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    key_filter: Callable[[Row], str] = lambda row: f"id = '{row['id']}'"

    def event(self, n: int, ts: int) -> Row:
        """Make event ``n``."""
        plain = {"id": f"k{n}", "region": "eu", "ts": ts, "v": 7 * n + ts, "note": f"at {ts}"}
        return plain | self.columns(n)

    def as_hudi_shows(self, row: Row) -> Row:
        """Turn a row into what Hudi's Spark reader returns."""
        return row | {name: show(row[name]) for name, show in self.shown_by_hudi.items()}

    def as_hudi_shows_changes(self, row: Row) -> Row:
        """Turn a row into what Hudi's incremental query returns."""
        shown = self.shown_by_hudi | self.changes_by_hudi
        return row | {name: show(row[name]) for name, show in shown.items()}


def _cycled(values: tuple[Any, ...], n: int) -> Any:
    return values[n % len(values)]


def _two_keys(row: Row) -> str:
    parts = (f"{name} <=> {_literal(row[name])}" for name in ("id", "part"))
    return " AND ".join(parts)


def _literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


ONE = Layout("one", TableKind(), lambda n: {"region": ("eu", "us")[n % 2]})
COMMIT_TIME = Layout("one, commit time", TableKind(ordering=None), ONE.columns)
BY_RULES = Layout("one, partition-level", TableKind(rules=(("^eu$", 5), ("u", 2))), ONE.columns)
DELETED_BY_FLAG = Layout(
    "one, with a column that deletes",
    TableKind(schema=with_columns((IS_DELETED, pa.bool_()))),
    lambda n: {"region": ("eu", "us")[n % 2], IS_DELETED: (None, False)[n % 3 // 2]},
)

LAYOUTS = (
    Layout("none", TableKind(partition_by=())),
    ONE,
    Layout(
        "one, hive style, encoded",
        TableKind(hive_style=True, url_encode=True),
        lambda n: {"region": _cycled(ODD, n)},
        {"region": lambda text: text or None},
        {"region": lambda text: ENCODED.get(text, text or None)},
    ),
    Layout(
        "one, odd values as they are",
        TableKind(),
        lambda n: {"region": _cycled(ODD_AS_FOLDERS, n)},
        {"region": lambda text: "v" if text == "k=v" else text or None},
    ),
    Layout(
        "two, hive style",
        TableKind(
            schema=with_columns(("kind", pa.string())),
            partition_by=("region", "kind"),
            hive_style=True,
        ),
        lambda n: {"region": ("eu", "us")[n % 2], "kind": ("web", None, "app")[n % 3]},
    ),
    Layout(
        "two, one of them a number",
        TableKind(schema=with_columns(("year", pa.int32())), partition_by=("year", "region")),
        lambda n: {"region": ("eu", "us")[n % 2], "year": 2000 + n % 3},
    ),
    Layout(
        "day of a timestamp",
        TableKind(
            schema=with_columns(("at_ms", pa.int64())),
            partition_by=("at_ms",),
            timestamp=bl.TimestampPartition("EPOCHMILLISECONDS", "yyyy/MM/dd"),
            generator="TimestampBasedKeyGenerator",
        ),
        lambda n: {"at_ms": _cycled(MOMENTS_MS, n)},
        {"at_ms": str},
    ),
    Layout(
        "key of two fields, null or empty",
        TableKind(schema=with_columns(("part", pa.string())), record_key=("id", "part")),
        lambda n: {"id": f"k{n // 3}", "part": ("p", None, "")[n % 3]},
        key_filter=_two_keys,
    ),
    Layout(
        "key of two fields, hashed by one, commit time",
        TableKind(
            schema=with_columns(("part", pa.int64())),
            record_key=("id", "part"),
            hash_fields=("part",),
            ordering=None,
        ),
        lambda n: {"part": 10**12 * (n % 5 - 2)},
        key_filter=_two_keys,
    ),
    Layout(
        "key of another type",
        TableKind(schema=pa.schema([("id", pa.date32()), *list(EVENT)[1:]]), partition_by=()),
        lambda n: {"id": dt.date(1969, 12, 20 + n % 12)},
        key_filter=lambda row: f"id = DATE '{row['id']}'",
    ),
)
