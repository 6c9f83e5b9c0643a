"""Filters that Spark pushes into the data source, as predicates.

Spark has cast the literals to the types of the columns. What is not understood prunes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from bucketlake.model.field_path import known_field, spelled
from bucketlake.where.comparable import comparable_value, comparable_values
from bucketlake.where.predicate import (
    Comparison,
    In,
    IsNull,
    Like,
    Operator,
    Predicate,
    negate,
)
from bucketlake.where.sql_literal import LiteralKind, LiteralValue, NotUnderstood, SqlLiteral

_OPERATORS = {
    "EqualTo": Operator.EQUAL,
    "EqualNullSafe": Operator.NULL_SAFE_EQUAL,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
}
_PATTERNS = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}
_KINDS: dict[type, LiteralKind] = {
    type(None): LiteralKind.NULL,
    bool: LiteralKind.BOOLEAN,
    int: LiteralKind.INTEGER,
    Decimal: LiteralKind.DECIMAL,
    float: LiteralKind.DOUBLE,
    str: LiteralKind.STRING,
    date: LiteralKind.DATE,
}


def pushed_predicate(pushed: Any, schema: pa.Schema) -> Predicate | None:
    """Return a filter of Spark as a predicate; None if it is not understood.

    Parameters
    ----------
    pushed : Filter
        A filter of ``pyspark.sql.datasource``. Classes are told by name, because PySpark 4.0 has
        none of them.
    schema : pa.Schema
        The columns of the table.

    Examples
    --------
    >>> from pyspark.sql.datasource import EqualTo, Not
    >>> pushed_predicate(Not(EqualTo(("n",), 3)), pa.schema([("n", pa.int64())]))
    Comparison(column='n', operator=<Operator.NOT_EQUAL: '<>'>, value=3)
    """
    kind = type(pushed).__name__
    if kind == "Not":
        inner = pushed_predicate(pushed.child, schema)
        return None if inner is None else negate(inner)
    column = _column(pushed.attribute, schema)
    if column is None:
        return None
    try:
        return _test(kind, column, pushed, known_field(schema, column).type)
    except NotUnderstood:
        return None


def _test(kind: str, column: str, pushed: Any, column_type: pa.DataType) -> Predicate | None:
    if kind == "IsNull" or (kind == "EqualNullSafe" and pushed.value is None):
        return IsNull(column)
    if kind == "IsNotNull":
        return negate(IsNull(column))
    if kind in _OPERATORS:
        return Comparison(column, _OPERATORS[kind], _value(pushed.value, column_type))
    if kind == "In":
        return In(column, tuple(_values(pushed.value, column_type)))
    if kind in _PATTERNS and not {*pushed.value} & {*"%_\\"} and pa.types.is_string(column_type):
        return Like(column, _PATTERNS[kind].format(pushed.value))
    return None


def _column(steps: Sequence[str], schema: pa.Schema) -> str | None:
    """Return the path of a column; None if a name in it has a dot, which is no path."""
    return None if any("." in step for step in steps) else spelled(schema, ".".join(steps))


def _values(values: Sequence[Any], column_type: pa.DataType) -> Sequence[LiteralValue]:
    """Return the values of a list, of which Spark may push many of one type."""
    types = {*map(type, values)}
    if types in ({int}, {str}):
        return comparable_values(_KINDS[types.pop()], values, column_type)
    return [_value(value, column_type) for value in values]


def _value(value: Any, column_type: pa.DataType) -> LiteralValue:
    kind = _KINDS.get(type(value))
    if isinstance(value, datetime):
        kind = LiteralKind.LOCAL_TIMESTAMP if value.tzinfo is None else LiteralKind.TIMESTAMP
    if kind is None:
        raise NotUnderstood(f"a value of {type(value).__name__}")
    return comparable_value(SqlLiteral(kind, value), column_type)
