"""Expressions of an update or merge: SQL text in Spark's dialect, and values for Arrow rows.

Spark evaluates any expression. Without Spark, literals, columns, ``+``, ``-``, ``*``, ``||``,
``concat``, ``coalesce``, ``upper``, ``lower``, and conditions are evaluated, with the results of
Spark. A condition is what ``where`` understands, and comparisons of values of one kind.
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
from bucketlake.where.arrow_filter import values_of
from bucketlake.where.parser import predicate_of
from bucketlake.where.predicate import And, ColumnTest, Constant, Not, Predicate
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
_JOINING: Mapping[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.And: pc.and_kleene,
    exp.Or: pc.or_kleene,
}
_TESTS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
          exp.Is, exp.In, exp.Between, exp.Like)  # fmt: skip
_COMPARING: Mapping[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
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
            if spelled(schema, path) is None and not may_be_function(column):
                raise InputError(
                    role,
                    f"there is no column {path!r}; the table {why_missing(schema, path)}",
                    "name a column of the table; put texts in single quotes",
                )

    def holds(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for which rows the expression is true; a null is not true.

        Raises
        ------
        InputError
            If the expression is no condition. The other errors are those of :meth:`values`.
        """
        found = self.values(rows)
        if pa.types.is_null(found.type):
            found = found.cast(pa.bool_())
        if not pa.types.is_boolean(found.type):
            raise InputError(
                self._role, f"it is no condition, but {found.type}", "compare it with a value"
            )
        return pc.fill_null(found, False)

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
        if kind is exp.Concat:  # `concat_ws` is a class below it.
            return _joined([of(part) for part in node.expressions])
        if kind is exp.Coalesce:
            return pc.coalesce(of(node.this), *(of(part) for part in node.expressions))
        if kind in _JOINING:
            return _JOINING[kind](_condition(of(node.this)), _condition(of(node.expression)))
        if isinstance(node, exp.Not):
            return pc.invert(_condition(of(node.this)))
        if isinstance(node, _TESTS):
            return self._tested(node, rows)
        raise NotUnderstood(f"{kind.__name__.lower()}")

    def _tested(self, node: exp.Expr, rows: pa.Table) -> Value:
        """Return the result of a test: of a column and literals, or of two values."""
        predicate = predicate_of(node, self.text, self._schema)
        if (found := _of_predicate(predicate, rows)) is not None:
            return found
        if type(node) not in _COMPARING:
            raise NotUnderstood("this form of condition")
        left, right = self._value(node.this, rows), self._value(node.expression, rows)
        return _compared(_COMPARING[type(node)], left, right)


def _of_predicate(predicate: Predicate, rows: pa.Table) -> Value | None:
    if isinstance(predicate, Not):
        inner = _of_predicate(predicate.operand, rows)
        return None if inner is None else pc.invert(inner)
    if isinstance(predicate, And):
        parts = [_of_predicate(operand, rows) for operand in predicate.operands]
        known = [part for part in parts if part is not None]
        return reduce(pc.and_kleene, known) if len(known) == len(parts) else None
    if isinstance(predicate, Constant | ColumnTest):
        return values_of(predicate, rows)
    return None


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


def _condition(value: Value) -> Value:
    if pa.types.is_null(value.type):
        return value.cast(pa.bool_())
    if not pa.types.is_boolean(value.type):
        raise NotUnderstood(f"{value.type} as a condition")
    return value


def _compared(compare: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Compare values of one kind: texts, whole or floating numbers, or one other type."""
    types = left.type, right.type
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.bool_())
    if any(pa.types.is_floating(each) for each in types):
        return _compared_floats(
            compare, *(_number(each).cast(pa.float64()) for each in (left, right))
        )
    if not all(pa.types.is_integer(each) for each in types) and (
        left.type != right.type or pa.types.is_nested(left.type)
    ):
        raise NotUnderstood(f"a comparison of {left.type} with {right.type}")
    return compare(left, right)


def _compared_floats(compare: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Compare doubles as Spark does: NaN equals NaN, and is greater than every number."""
    ranks = [pc.cast(pc.is_nan(each), pa.int8()) for each in (left, right)]
    has_nan = pc.or_kleene(pc.is_nan(left), pc.is_nan(right))
    return pc.if_else(has_nan, compare(*ranks), compare(left, right))


def _joined(parts: list[Value]) -> Value:
    """Join texts; the result is null if one of them is."""
    return reduce(
        lambda left, right: pc.binary_join_element_wise(left, right, ""), map(_text, parts)
    )


def _path(column: exp.Column) -> str:
    return ".".join(part.name for part in column.parts)


def may_be_function(column: exp.Column) -> bool:
    """Return whether Spark may read a name as a function without parentheses."""
    name = column.name.lower()
    return len(column.parts) == 1 and (name.startswith("current_") or name in {"user"})
