"""Rows of golden tables as plain values, so that two readers' types do not matter."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa


def plain_rows(table: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of some columns, sorted; zones of times and forms of maps put aside."""
    rows = [tuple(_plain(row[name]) for name in columns) for row in table.to_pylist()]
    return sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        nanosecond = getattr(value, "nanosecond", 0)
        assert nanosecond == 0
        return dt.datetime(*value.timetuple()[:6], value.microsecond)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"  # It is not equal to itself.
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: _plain(one) for key, one in value}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value
