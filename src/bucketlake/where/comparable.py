"""Which columns a literal can be compared with exactly, and with which value.

Spark casts one side of a comparison to the type of the other. Which side depends on its version and
settings: ``text = 5`` casts the column, so that ``'05'`` also matches. A literal is therefore
accepted only if every Spark version compares plain values: numbers with numbers, texts with texts,
points in time with points in time. Everything else raises :class:`NotUnderstood` and is not used
for pruning or filtering.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from bucketlake.where.predicate import And, Comparison, Operator, Predicate
from bucketlake.where.sql_literal import (
    DECIMAL_DIGITS_MAX,
    DOUBLE_TEXT,
    INTEGER_TEXT,
    LiteralKind,
    LiteralValue,
    NotUnderstood,
    SqlLiteral,
    count_digits,
    fits_bits,
    is_float32,
    parse_date,
    parse_local_timestamp,
    parse_timestamp,
)

_EXACT_DOUBLE_MAX, _EXACT_FLOAT_MAX = 2**53, 2**24
_INT64_DIGITS = 20  # Spark widens BIGINT to DECIMAL(20, 0).


def comparable_value(
    literal: SqlLiteral,
    column_type: pa.DataType,
    *,
    time_zone: str | None = None,
    in_list: bool = False,
) -> LiteralValue:
    """Return a value that compares with the column exactly as the literal does in Spark.

    Parameters
    ----------
    literal : SqlLiteral
        The literal as written.
    column_type : pyarrow.DataType
        Type of the column.
    time_zone : str or None
        Spark's session time zone; None if unknown.
    in_list : bool
        Whether the literal is in an ``IN`` list; there Spark 3 casts both sides to strings if one
        side is a string.

    Returns
    -------
    Value
        For an integer column an int, or a Decimal between two integers; for a decimal column a
        Decimal; for a floating column a float; for others a value of their type. None is NULL.

    Raises
    ------
    NotUnderstood
        If Spark would cast the column, or the cast depends on Spark's settings.
    """
    if literal.kind is LiteralKind.NULL:
        return None
    value: LiteralValue = None
    if pa.types.is_boolean(column_type):
        value = _for_boolean(literal)
    elif pa.types.is_signed_integer(column_type):
        value = _for_integer(literal, column_type.bit_width)
    elif pa.types.is_decimal128(column_type):
        value = _for_decimal(literal, column_type.precision - column_type.scale, column_type.scale)
    elif pa.types.is_float32(column_type) or pa.types.is_float64(column_type):
        value = _for_float(literal, column_type.bit_width, in_list=in_list)
    elif pa.types.is_string(column_type) or pa.types.is_large_string(column_type):
        value = literal.value if literal.kind is LiteralKind.STRING else None
    elif pa.types.is_date32(column_type):
        value = _for_date(literal)
    elif pa.types.is_timestamp(column_type):
        value = _for_timestamp(literal, column_type.tz, time_zone, in_list=in_list)
    if value is None:
        raise NotUnderstood(f"{literal.kind.value} compared with a column of type {column_type}")
    return value


def comparable_values(
    kind: LiteralKind,
    values: Sequence[Any],
    column_type: pa.DataType,
    *,
    time_zone: str | None = None,
) -> Sequence[LiteralValue]:
    """Return what :func:`comparable_value` returns for each literal of an ``IN`` list of one kind.

    Integers have 64 bits.
    """
    is_integer = kind is LiteralKind.INTEGER and pa.types.is_signed_integer(column_type)
    if is_integer or (kind is LiteralKind.STRING and pa.types.is_string(column_type)):
        return values
    return [
        comparable_value(SqlLiteral(kind, value), column_type, time_zone=time_zone, in_list=True)
        for value in values
    ]


def _for_boolean(literal: SqlLiteral) -> bool | None:
    if literal.kind is LiteralKind.BOOLEAN:
        return bool(literal.value)
    return {"true": True, "false": False}.get(str(literal.value)) if _is_text(literal) else None


def _for_integer(literal: SqlLiteral, bits: int) -> int | Decimal | None:
    value = literal.value
    if _is_text(literal):
        # Spark 3 casts the text to the column's type, Spark 4 both to BIGINT, an IN list of
        # Spark 3 both to text: alike for the plain text of a number that fits.
        plain = INTEGER_TEXT.fullmatch(str(value))
        number = int(str(value)) if plain and value != "-0" else None
        return number if number is not None and fits_bits(number, bits) else None
    if literal.kind is LiteralKind.DOUBLE:
        # Spark casts the column to double: exact below 2**53, and above that it stays above.
        assert isinstance(value, float)
        return _between_integers(Decimal(value)) if abs(value) < _EXACT_DOUBLE_MAX else None
    if literal.kind not in (LiteralKind.INTEGER, LiteralKind.DECIMAL):
        return None
    assert isinstance(value, int | Decimal)
    digits, fraction = count_digits(Decimal(value))
    if max(digits, _INT64_DIGITS) + fraction > DECIMAL_DIGITS_MAX:
        return None
    return _between_integers(Decimal(value))


def _between_integers(value: Decimal) -> int | Decimal | None:
    """Return an integer unchanged, and any other number as a decimal between two integers.

    All numbers strictly between two adjacent integers give the same results for integer columns.
    Beyond 64 bits Spark's optimiser also answers for NULL (``NULL < 1e19BD`` is true), so this
    raises :class:`NotUnderstood`.
    """
    floor = math.floor(value)
    if not fits_bits(floor, 64):
        return None
    return floor if value == floor else floor + Decimal("0.5")


def _for_decimal(literal: SqlLiteral, digits_max: int, scale: int) -> Decimal | None:
    if literal.kind not in (LiteralKind.INTEGER, LiteralKind.DECIMAL):
        return None
    assert isinstance(literal.value, int | Decimal)
    value = Decimal(literal.value)
    digits, fraction = count_digits(value)
    # Spark widens both sides to the larger precision and scale; past 38 digits it would round.
    fits = max(digits, digits_max) + max(fraction, scale) <= DECIMAL_DIGITS_MAX
    return value if fits else None


def _for_float(literal: SqlLiteral, bits: int, *, in_list: bool) -> float | None:
    value = literal.value
    if _is_text(literal):
        number = float(str(value)) if DOUBLE_TEXT.fullmatch(str(value)) else None
        exact = number is not None and (bits == 64 or is_float32(number))
        return number if exact and not in_list else None
    if literal.kind is LiteralKind.INTEGER:
        assert isinstance(value, int)
        limit = _EXACT_DOUBLE_MAX if bits == 64 else _EXACT_FLOAT_MAX
        return float(value) if abs(value) <= limit else None
    numeric = (LiteralKind.DECIMAL, LiteralKind.FLOAT, LiteralKind.DOUBLE)
    # Doubles are compared, also if the column has 32 bits.
    return float(value) if literal.kind in numeric and isinstance(value, Decimal | float) else None


def _for_date(literal: SqlLiteral) -> date | None:
    if literal.kind is LiteralKind.DATE:
        assert isinstance(literal.value, date)
        return literal.value
    return parse_date(str(literal.value)) if _is_text(literal) else None


def _for_timestamp(
    literal: SqlLiteral, column_zone: str | None, time_zone: str | None, *, in_list: bool
) -> datetime | None:
    with_zone = column_zone is not None
    own_kind = LiteralKind.TIMESTAMP if with_zone else LiteralKind.LOCAL_TIMESTAMP
    if literal.kind is own_kind:
        assert isinstance(literal.value, datetime)
        return literal.value
    if literal.kind is LiteralKind.DATE or (_is_text(literal) and not in_list):
        text = str(literal.value)
        return parse_timestamp(text, time_zone) if with_zone else parse_local_timestamp(text)
    return None


def _is_text(literal: SqlLiteral) -> bool:
    return literal.kind is LiteralKind.STRING


# ---- Plain conditions, such as those of point reads, without the SQL parser, slow to import ------

_TEST = re.compile(
    r"[ \n]*([a-z_]\w*)[ \n]*(=|<>|<=?|>=?)[ \n]*(?:'([^'\\\ud800-\udfff]*)'|(0|[1-9]\d{0,17}))"
    r"(?:[ \n]+(AND)\b|[ \n]*\Z)",
    re.ASCII | re.IGNORECASE,
)
_LITERAL_WORDS = frozenset({"null", "true", "false"})


def plain_condition(text: str, schema: pa.Schema, time_zone: str | None) -> Predicate | None:
    """Return what ``parse_where`` returns if a text only compares columns with plain literals.

    Returns None for any other text, also one with an unknown column.

    Examples
    --------
    >>> plain_condition("ID = 'a'", pa.schema({"id": pa.string()}), None)
    Comparison(column='id', operator=<Operator.EQUAL: '='>, value='a')
    >>> plain_condition("lower(id) = 'a'", pa.schema({"id": pa.string()}), None) is None
    True
    """
    tests: list[Predicate] = []
    found, following = _TEST.match(text), "AND"
    while following:
        if found is None or found[1].lower() in _LITERAL_WORDS:
            return None
        name, operator, string, number, following = found.groups()
        alike = [held for held in schema.names if held.lower() == name.lower()]
        column = name if name in alike else alike[0] if len(alike) == 1 else None
        if column is None:
            return None
        kind = LiteralKind.STRING if number is None else LiteralKind.INTEGER
        literal = SqlLiteral(kind, string if number is None else int(number))
        try:
            value = comparable_value(literal, schema.field(column).type, time_zone=time_zone)
        except NotUnderstood:
            return None
        tests.append(Comparison(column, Operator(operator), value))
        found = _TEST.match(text, found.end())
    return tests[0] if len(tests) == 1 else And(tuple(tests))
