"""Expressions of an update: SQL text in Spark's dialect, and their values for Arrow rows.

Spark evaluates any expression. Without Spark, literals, columns, ``+``, ``-``, ``*``, ``||``,
``concat``, ``coalesce``, ``upper`` and ``lower`` are evaluated, with the results of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.model.field_path import column_of, spelled, why_missing
from bucketlake.where.sql_literal import LiteralKind, number_literal
from bucketlake.where.sql_time import NotUnderstood
from bucketlake.where.syntax import find_doubt, parse_tokens, tokenize

Value: TypeAlias = "pa.Scalar | pa.ChunkedArray | pa.Array"

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)
_ARITHMETIC: Mapping[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_OF_TEXT: Mapping[type[exp.Expr], Callable[[Any], Any]] = {
    exp.Upper: pc.utf8_upper,
    exp.Lower: pc.utf8_lower,
}


class Expression:
    """A parsed expression.

    Parameters
    ----------
    text : str
        The expression, as for ``DataFrame.selectExpr``.
    schema : pa.Schema
        The columns that it may name.
    role : str
        What the expression is for, for errors.

    Raises
    ------
    InputError
        If the text is no expression, or names a column that does not exist.
    """

    def __init__(self, text: str, schema: pa.Schema, role: str) -> None:
        self.text, self._role, self._schema = text, role, schema
        try:
            tokens = tokenize(text)
            self._doubt = find_doubt(text, tokens)
            self._tree = parse_tokens(text, tokens)
        except InputError as error:
            raise InputError(role, error.problem, "give an SQL expression, such as n + 1") from None
        for column in self._tree.find_all(exp.Column):
            path = _path(column)
            if spelled(schema, path) is None and not _may_be_function(column):
                raise InputError(
                    role,
                    f"there is no column {path!r}; the table {why_missing(schema, path)}",
                    "name a column of the table; put texts in single quotes",
                )

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the value of each row.

        Raises
        ------
        UnsupportedFeatureError
            If only Spark can evaluate the expression.
        InputError
            If a number is too large for its type.
        """
        try:
            if self._doubt is not None:
                raise NotUnderstood(self._doubt)
            found = self._value(self._tree, rows)
        except NotUnderstood as reason:
            raise UnsupportedFeatureError(
                f"{self._role} ({reason}) without Spark", self.text, "start a SparkSession first"
            ) from None
        except pa.ArrowException as error:
            problem = str(error).partition("\n")[0]
            raise InputError(self._role, problem, "correct the expression") from error
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, len(rows))
        return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])

    def _value(self, node: exp.Expr, rows: pa.Table) -> Value:
        def of(part: exp.Expr) -> Value:
            return self._value(part, rows)

        kind = type(node)
        if isinstance(node, exp.Paren):
            return of(node.this)
        if isinstance(node, exp.Column):
            path = spelled(self._schema, _path(node))
            if path is None:
                raise NotUnderstood("a function")
            return column_of(rows, path, "updated")
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
            return _literal(node)
        if isinstance(node, exp.Neg):
            return pc.negate_checked(_number(of(node.this)))
        if kind in _ARITHMETIC:
            return _calculated(_ARITHMETIC[kind], of(node.this), of(node.expression))
        if kind in _OF_TEXT:
            return _OF_TEXT[kind](_text(of(node.this)))
        if isinstance(node, exp.DPipe):
            return _joined([of(node.this), of(node.expression)])
        if isinstance(node, exp.Concat):
            return _joined([of(part) for part in node.expressions])
        if isinstance(node, exp.Coalesce):
            return pc.coalesce(of(node.this), *(of(part) for part in node.expressions))
        raise NotUnderstood(f"{kind.__name__.lower()}")


def _literal(node: exp.Expr) -> pa.Scalar:
    if isinstance(node, exp.Null):
        return pa.scalar(None)
    if isinstance(node, exp.Boolean):
        return pa.scalar(bool(node.this))
    if node.is_string:
        return pa.scalar(str(node.this))
    literal = number_literal(str(node.this))
    value = literal.value
    if literal.kind is LiteralKind.INTEGER and isinstance(value, int):
        if not _INT64.min <= value <= _INT64.max:
            raise NotUnderstood("a number of more than 64 bits")
        is_short = _INT32.min <= value <= _INT32.max
        return pa.scalar(value, pa.int32() if is_short else pa.int64())
    if isinstance(value, Decimal | float):
        return pa.scalar(value)
    raise NotUnderstood("this number")


def _number(value: Value) -> Value:
    data_type = value.type
    if not (pa.types.is_integer(data_type) or pa.types.is_floating(data_type)):
        raise NotUnderstood(f"arithmetic with {data_type}")
    return value


def _text(value: Value) -> Value:
    if value.type != pa.string():
        raise NotUnderstood(f"text functions of {value.type}")
    return value


def _calculated(function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Calculate with whole or floating numbers; a decimal literal fits to floating numbers."""
    if pa.types.is_floating(left.type) and pa.types.is_decimal(right.type):
        right = right.cast(left.type)
    if pa.types.is_floating(right.type) and pa.types.is_decimal(left.type):
        left = left.cast(right.type)
    return function(_number(left), _number(right))


def _joined(parts: list[Value]) -> Value:
    """Join texts; the result is null if one of them is."""
    return reduce(
        lambda left, right: pc.binary_join_element_wise(left, right, ""), map(_text, parts)
    )


def _path(column: exp.Column) -> str:
    return ".".join(part.name for part in column.parts)


def _may_be_function(column: exp.Column) -> bool:
    """Return whether Spark may read a name as a function without parentheses."""
    name = column.name.lower()
    return len(column.parts) == 1 and (name.startswith("current_") or name in {"user"})
