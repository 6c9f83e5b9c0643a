"""Schemas as text: ``order_id string, tags array<string>`` of SQL, or ``order_id:string``.

The names of types are those of SQL and Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.model.column_type import BLOB, SPARK_TYPES
from bucketlake.model.names import did_you_mean
from bucketlake.model.variant import VARIANT
from bucketlake.model.vector import vector_of_word

_ALIASES = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "str": "string",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_HUDI_TYPES = {"blob": BLOB, "variant": VARIANT}
_NESTED = ("decimal", "array", "map", "struct")
_DECIMAL_DEFAULT = (10, 0)
_DEPTH_MAX = 50

_NAME = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<before>[^\s:,<>()`][^:,<>()`]*?)(?=\s*:)"
    r"|(?P<word>[^\s:,<>()`]+))\s*:?"
)
"""A name in backquotes, all before a colon, or a word."""

_WORD = re.compile(r"\s*(\w+)")
_DIGITS = re.compile(r"\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_VECTOR = re.compile(r"\s*\([^()]*\)")
_REST = re.compile(r"(\s+not\s+null)?(?:\s+comment\s+(?:'[^']*'|\"[^\"]*\"))?", re.IGNORECASE)


def parse_schema(text: str, argument: str = "schema") -> pa.Schema:
    """Parse ``name type, name type``; a colon may stand between name and type.

    Parameters
    ----------
    text : str
        Columns in order, as in Spark's DDL: types may be nested, and ``NOT NULL`` may follow. A
        name with other characters than letters, digits and underscores is in backquotes.
    argument : str
        Name of the caller's parameter, for the error.

    Returns
    -------
    pyarrow.Schema
        The schema.

    Raises
    ------
    ConfigError
        If a column has no type, an unknown type, or the name of an earlier column.

    Examples
    --------
    >>> parse_schema("id string NOT NULL, tags array<string>, price:decimal(10,2)")
    id: string not null
    tags: list<item: string>
      child 0, item: string
    price: decimal128(10, 2)
    """
    cursor = _Cursor(text, argument)
    fields = cursor.fields(0)
    if cursor.rest:
        cursor.refuse(f"{cursor.rest[:20]!r} is not expected; write name type, name type")
    return pa.schema(fields)


@dataclass(slots=True)
class _Cursor:
    """A place in the text of a schema; each method reads a part and moves on."""

    text: str
    argument: str
    at: int = 0

    @property
    def rest(self) -> str:
        return self.text[self.at :].strip()

    def refuse(self, problem: str) -> NoReturn:
        raise ConfigError(self.argument, self.text, problem)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = self.at if found is None else found.end()
        return found

    def skip(self, mark: str) -> bool:
        return self.take(re.compile(rf"\s*{mark}")) is not None

    def expect(self, mark: str) -> None:
        if not self.skip(mark):
            self.refuse(f"{mark!r} is missing before {self.rest[:20]!r}")

    def fields(self, depth: int) -> list[pa.Field]:
        if depth > _DEPTH_MAX:
            self.refuse(f"types are nested more than {_DEPTH_MAX} deep")
        found = [self.field(depth)]
        while self.skip(","):
            found.append(self.field(depth))
        names = [field.name for field in found]
        for name in names:
            if names.count(name) > 1:
                self.refuse(f"column {name!r} is named twice")
        return found

    def field(self, depth: int) -> pa.Field:
        found = self.take(_NAME)
        if found is None:
            self.refuse("write name type, for example id string, or id:string")
        name = (found["quoted"] or "").replace("``", "`") or found["before"] or found["word"]
        held = self.type_of(name, depth)
        rest = self.take(_REST)
        return pa.field(name, held, nullable=rest is None or rest[1] is None)

    def type_of(self, name: str, depth: int) -> pa.DataType:
        if depth > _DEPTH_MAX:
            self.refuse(f"types are nested more than {_DEPTH_MAX} deep")
        found = self.take(_WORD)
        if found is None:
            self.refuse(f"column {name!r} has no type; write name type, for example id string")
        word = _ALIASES.get(found[1].lower(), found[1].lower())
        if word in SPARK_TYPES:
            return SPARK_TYPES[word]
        if word == "decimal":
            return self.decimal()
        if word == "vector":
            return self.vector()
        if word in _HUDI_TYPES:
            return _HUDI_TYPES[word]
        readers: dict[str, Callable[[str, int], pa.DataType]] = {
            "array": lambda name, depth: pa.list_(self.type_of(name, depth)),
            "map": self.map_of,
            "struct": lambda _, depth: pa.struct(self.fields(depth)),
        }
        if word not in readers:
            self.refuse_type(name, found[1])
        self.expect("<")
        held = readers[word](name, depth + 1)
        self.expect(">")
        return held

    def map_of(self, name: str, depth: int) -> pa.DataType:
        key = self.type_of(name, depth)
        self.expect(",")
        return pa.map_(key, self.type_of(name, depth))

    def decimal(self) -> pa.DataType:
        found = self.take(_DIGITS)
        digits = () if found is None else tuple(int(text[:9]) for text in found.groups("0"))
        precision, scale = digits or _DECIMAL_DEFAULT
        if not (1 <= precision <= 38 and scale <= precision):
            self.refuse("a decimal has 1 to 38 digits, and not more after the point")
        return pa.decimal128(precision, scale)

    def vector(self) -> pa.DataType:
        found = self.take(_VECTOR)
        kind = vector_of_word(f"vector{(found or ' ')[0].strip()}")
        if kind is None:
            self.refuse("write vector(3), vector(3, double) or vector(3, int8)")
        return kind

    def refuse_type(self, name: str, word: str) -> NoReturn:
        if word.lower() in ("char", "varchar"):
            self.refuse(f"column {name!r}: texts have any length here; write string")
        known = ", ".join(
            [
                *SPARK_TYPES,
                "decimal(precision,scale)",
                *_NESTED[1:],
                "vector(n)",
                *_HUDI_TYPES,
            ]
        )
        hint = did_you_mean(word, [*SPARK_TYPES, *_ALIASES, *_NESTED, *_HUDI_TYPES])
        self.refuse(f"column {name!r} has type {word!r}; types are {known}{hint}")
