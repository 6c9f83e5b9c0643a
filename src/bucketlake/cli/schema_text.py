"""Schemas as typed text: ``order_id:string,amount:decimal(10,2),placed_at:timestamp``.

The type names are those of SQL and Spark. The text cannot describe nested types; such a schema is
read from a data file.
"""

from __future__ import annotations

import re

import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.model.names import did_you_mean

_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_ALIASES = {"bool": "boolean", "integer": "int", "long": "bigint", "str": "string"}
_DECIMAL = re.compile(r"decimal\((?P<precision>\d+),\s*(?P<scale>\d+)\)")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


def parse_schema(text: str) -> pa.Schema:
    """Parse ``name:type,name:type``.

    Parameters
    ----------
    text : str
        Columns in order; types may be ``decimal(precision,scale)``.

    Returns
    -------
    pyarrow.Schema
        The schema; all columns are nullable.

    Raises
    ------
    ConfigError
        If a column has no type, an unknown type, or the name of an earlier column.

    Examples
    --------
    >>> parse_schema("id:string,price:decimal(10,2)")
    id: string
    price: decimal128(10, 2)
    """
    fields = [_parse_field(part.strip()) for part in _COMMA_OUTSIDE_PARENTHESES.split(text)]
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("--schema", text, f"column {name!r} is named twice")
    return pa.schema(fields)


def _parse_field(text: str) -> pa.Field:
    name, colon, type_name = (part.strip() for part in text.rpartition(":"))
    if not colon or not name:
        raise ConfigError("--schema", text, "write name:type, for example id:string")
    return pa.field(name, _parse_type(type_name.lower(), text))


def _parse_type(name: str, text: str) -> pa.DataType:
    known = _TYPES.get(_ALIASES.get(name, name))
    if known is not None:
        return known
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        known = ", ".join(_TYPES)
        allowed = f"types are {known}, decimal(precision,scale); --like takes all types"
        allowed += did_you_mean(name, [*_TYPES, *_ALIASES])
        raise ConfigError("--schema", text, allowed)
    precision, scale = int(decimal["precision"]), int(decimal["scale"])
    if not (1 <= precision <= 38 and scale <= precision):
        raise ConfigError("--schema", text, "a decimal has 1 to 38 digits, and not more after '.'")
    return pa.decimal128(precision, scale)
