"""Rows of every type that a table stores, with the values at its edges."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

INNER = pa.struct(
    [("x", pa.int32()), ("d", pa.decimal128(12, 3)), ("words", pa.list_(pa.string()))]
)

TYPES: dict[str, pa.DataType] = {
    "yes": pa.bool_(),
    "i": pa.int32(),
    "l": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "s": pa.string(),
    "bin": pa.binary(),
    "dec2": pa.decimal128(2, 2),
    "dec10": pa.decimal128(10, 2),
    "dec38": pa.decimal128(38, 18),
    "whole38": pa.decimal128(38, 0),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
    "struct": INNER,
    "ints": pa.list_(pa.int32()),
    "structs": pa.list_(INNER),
    "lists": pa.list_(pa.list_(pa.string())),
    "decimals": pa.list_(pa.decimal128(9, 1)),
    "map": pa.map_(pa.string(), pa.int64()),
    "map_structs": pa.map_(pa.string(), INNER),
    "map_lists": pa.map_(pa.string(), pa.list_(pa.timestamp("us", tz="UTC"))),
}
WIDE = pa.schema([("id", pa.string()), ("ts", pa.int64()), *TYPES.items()])

DEC38_MAX = Decimal("9" * 20 + "." + "9" * 18)
_NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
_ROW: dict[str, Any] = {
    "yes": True,
    "i": 7,
    "l": 7,
    "f": 0.5,
    "d": 0.1,
    "s": "plain",
    "bin": b"plain",
    "dec2": Decimal("0.99"),
    "dec10": Decimal("12345678.90"),
    "dec38": Decimal("1.000000000000000001"),
    "whole38": Decimal(7),
    "day": dt.date(2024, 2, 29),
    "at": _NOON.replace(tzinfo=dt.UTC),
    "local": _NOON,
    "struct": {"x": 1, "d": Decimal("0.001"), "words": ["a", "b"]},
    "ints": [1, 2, 3],
    "structs": [{"x": 1, "d": None, "words": None}],
    "lists": [["a"], []],
    "decimals": [Decimal("1.5")],
    "map": [("k", 1)],
    "map_structs": [("k", {"x": None, "d": Decimal(2), "words": []})],
    "map_lists": [("k", [_NOON.replace(tzinfo=dt.UTC)])],
}

_LEAST: dict[str, Any] = {
    "yes": False,
    "i": -(2**31),
    "l": -(2**63),
    "f": float("-inf"),
    "d": float("-inf"),
    "s": "",
    "bin": b"",
    "dec2": Decimal("-0.99"),
    "dec10": Decimal("-99999999.99"),
    "dec38": DEC38_MAX.copy_negate(),
    "whole38": Decimal(1 - 10**38),
    "struct": {"x": None, "d": None, "words": None},
    "ints": [],
    "structs": [],
    "lists": [],
    "decimals": [],
    "map": [],
    "map_structs": [],
    "map_lists": [],
}
_GREATEST: dict[str, Any] = {
    "i": 2**31 - 1,
    "l": 2**63 - 1,
    "f": 3.4028234663852886e38,
    "d": 1.7976931348623157e308,
    "s": "\U0001f642 ä\u0000\n日本" + "x" * 5000,
    "bin": bytes(range(256)),
    "dec10": Decimal("99999999.99"),
    "dec38": DEC38_MAX,
    "whole38": Decimal(10**38 - 1),
    "day": dt.date(9999, 12, 31),
    "at": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    "local": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "lists": [[], ["", "\U0001f642"]],
    "map": [("", None), ("ä", -(2**63))],
    "map_structs": [("a", None), ("b", {"x": 2**31 - 1, "d": None, "words": ["", "b"]})],
    "map_lists": [("a", None), ("b", [])],
}
_ODD: dict[str, Any] = {
    "f": float("nan"),
    "d": float("nan"),
    "day": dt.date(1969, 12, 31),
    "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    "local": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
}
_ZEROES: dict[str, Any] = {
    "f": -0.0,
    "d": -0.0,
    "dec10": Decimal("0.00"),
    "day": dt.date(1970, 1, 1),
    "at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    "local": dt.datetime(1970, 1, 1),
}
_ANCIENT: dict[str, Any] = {
    "day": dt.date(1, 1, 1),
    "at": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    "local": dt.datetime(1, 1, 1),
}


def wide_rows(*, ancient: bool) -> pa.Table:
    """Return the rows, with or without times before the Gregorian calendar."""
    variants = [_ROW, _LEAST, _GREATEST, _ODD, _ZEROES, dict.fromkeys(TYPES)]
    variants += [_ANCIENT] if ancient else []
    rows = [{"id": f"w{n}", "ts": n, **_ROW, **variant} for n, variant in enumerate(variants)]
    return pa.Table.from_pylist(rows, WIDE)
