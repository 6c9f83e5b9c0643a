"""Expressions of an update or merge: SQL text in Spark's dialect, and values for Arrow rows.

Spark evaluates any expression. Without Spark, literals, columns, ``+``, ``-``, ``*``, ``||``,
``concat``, ``coalesce``, ``upper``, ``lower``, and conditions are evaluated, with the results of
Spark 4 (:mod:`.spark_values`). A condition is what ``where`` understands, and comparisons of values
of one kind.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.model.cast import Value, doubles_of
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ
from bucketlake.model.field_path import column_of, spelled, why_missing
from bucketlake.where.arrow_filter import COMPARISONS, truth_of
from bucketlake.where.parser import OPERATORS, literal_of, predicate_of
from bucketlake.where.predicate import COLUMN_TESTS, And, Constant, Not, Predicate
from bucketlake.where.sql_literal import (
    DECIMAL_DIGITS_MAX,
    LiteralKind,
    NotUnderstood,
    fits_bits,
)
from bucketlake.where.syntax import find_doubt, find_regrouping, parse_tokens, tokenize
from bucketlake.where.words import FUNCTIONS

# ---- Calculations with values as Spark 4 does them: the types of results, decimals, NaN, Unicode -
#
# Whole numbers that do not fit are an error, as in Spark's ANSI mode. What Arrow would calculate
# otherwise than Spark raises :class:`NotUnderstood`.

Function: TypeAlias = Callable[[Any, Any], Any]

_DIGITS = {pa.int32(): 10, pa.int64(): 20}  # Of the decimals to which Spark casts whole numbers.
_NEGATED_DIGITS_MAX = 34
_COMPARED = (pa.bool_(), pa.string(), pa.binary(), pa.date32())
# Letters that got a second case in a later Unicode than that of some Python: they have none there.
_NEWER_CASES = frozenset("\u019b\u0264\ua7cb\ua7cc\ua7cd\ua7d3\ua7d5\ua7da\ua7db\ua7dc")


def calculated(function: Function, left: Value, right: Value) -> Value:
    """Add, subtract or multiply two numbers."""
    if any(pa.types.is_decimal(each.type) for each in (left, right)) and not any(
        pa.types.is_floating(each.type) for each in (left, right)
    ):
        left, right = (_as_decimal(number(each)) for each in (left, right))
        if _digits_of(function, left.type, right.type) > DECIMAL_DIGITS_MAX:
            raise NotUnderstood("a decimal of more than 38 digits")
        return function(left, right)
    common = common_type([number(left).type, number(right).type])
    return function(cast_to(left, common), cast_to(right, common))


def negated(value: Value) -> Value:
    """Return the number with the other sign."""
    if pa.types.is_decimal(value.type) and value.type.precision > _NEGATED_DIGITS_MAX:
        raise NotUnderstood("the negative of a decimal with many digits, of which Spark drops some")
    return pc.negate_checked(number(value))


def first_known(parts: Sequence[Value]) -> Value:
    """Return for each row the first value that is not null, in the type of all of them."""
    common = common_type([part.type for part in parts])
    return pc.coalesce(*(cast_to(part, common) for part in parts))


def compared(function: Function, left: Value, right: Value) -> Value:
    """Compare two values: numbers, or values of one type; NaN equals NaN, and is the greatest."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.bool_())
    if _is_numeric_value(left.type) and _is_numeric_value(right.type):
        common = common_type([left.type, right.type])
        left, right = cast_to(left, common), cast_to(right, common)
        return (
            _compared_floats(function, left, right) if _is_float(common) else function(left, right)
        )
    if left.type != right.type or not (left.type in _COMPARED or pa.types.is_timestamp(left.type)):
        raise NotUnderstood(f"a comparison of {left.type} with {right.type}")
    return function(left, right)


def _compared_floats(function: Function, left: Value, right: Value) -> Value:
    ranks = [pc.cast(pc.is_nan(each), pa.int8()) for each in (left, right)]
    has_nan = pc.or_kleene(pc.is_nan(left), pc.is_nan(right))
    return pc.if_else(has_nan, function(*ranks), function(left, right))


def concatenated(parts: Sequence[Value]) -> Value:
    """Join texts; the result is null if one of them is."""
    return reduce(lambda a, b: pc.binary_join_element_wise(a, b, ""), map(_text, parts))


def upper(value: Value) -> Value:
    """Return the text in capital letters."""
    return _recased(_text(value), pc.ascii_upper, str.upper)


def lower(value: Value) -> Value:
    """Return the text in small letters."""
    return _recased(_text(value), pc.ascii_lower, str.lower)


def _recased(value: Value, of_ascii: Callable[[Any], Any], of_text: Callable[[str], str]) -> Value:
    """Change the case of texts; Arrow lacks the rules for several letters, such as of ß and Σ."""
    if _is_scalar(value):
        text = of_text(_known_letters(value.as_py())) if value.is_valid else None
        return pa.scalar(text, pa.string())
    if pc.all(pc.string_is_ascii(value)).as_py() is not False:
        return of_ascii(value)
    texts = pc.unique(value)
    found = [None if each is None else of_text(_known_letters(each)) for each in texts.to_pylist()]
    return pa.array(found, pa.string()).take(pc.index_in(value, value_set=texts))


def _known_letters(text: str) -> str:
    """Return a text whose letters have the same cases in Spark; raise NotUnderstood if not."""
    for letter in text:
        if not letter.isascii() and (
            letter in _NEWER_CASES or unicodedata.category(letter) == "Cn"
        ):
            raise NotUnderstood(f"the case of {letter!r}, which is new in Unicode")
    return text


def number(value: Value) -> Value:
    """Return the value if it is a number."""
    if not _is_numeric_value(value.type):
        raise NotUnderstood(f"arithmetic with {value.type}")
    return value


def condition(value: Value) -> Value:
    """Return the value if it is a truth value; a null is unknown."""
    if pa.types.is_null(value.type):
        return value.cast(pa.bool_())
    if not pa.types.is_boolean(value.type):
        raise NotUnderstood(f"{value.type} as a condition")
    return value


def common_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type of Spark for values of several types."""
    known = list(dict.fromkeys(each for each in types if not pa.types.is_null(each)))
    if len(known) < 2:
        return known[0] if known else pa.null()
    if not all(_is_numeric_value(each) for each in known):
        raise NotUnderstood(f"values of the types {' and '.join(map(str, known))}")
    if any(_is_float(each) for each in known):
        return pa.float64()
    if all(pa.types.is_integer(each) for each in known):
        return pa.int64()
    decimals = [_decimal_type(each) for each in known]
    scale = max(each.scale for each in decimals)
    whole = max(each.precision - each.scale for each in decimals)
    if whole + scale > DECIMAL_DIGITS_MAX:
        raise NotUnderstood("a decimal of more than 38 digits")
    return pa.decimal128(whole + scale, scale)


def cast_to(value: Value, to: pa.DataType) -> Value:
    """Cast a value to a common type."""
    if value.type == to:
        return value
    if pa.types.is_null(value.type) or pa.types.is_integer(to):
        return value.cast(to)
    if to == pa.float64():
        return doubles_of(value)
    return _as_decimal(value).cast(to)


def _as_decimal(value: Value) -> Value:
    """Return a whole number as a decimal; a scalar, a literal, has the digits that it shows."""
    if pa.types.is_decimal(value.type):
        return value
    if _is_scalar(value) and value.is_valid:
        return pa.scalar(Decimal(value.as_py()))
    return value.cast(_decimal_type(value.type))


def _decimal_type(data_type: pa.DataType) -> pa.DataType:
    is_decimal = pa.types.is_decimal(data_type)
    return data_type if is_decimal else pa.decimal128(_DIGITS[data_type], 0)


def _digits_of(function: Function, left: pa.DataType, right: pa.DataType) -> int:
    """Return the digits of a result of decimals, as Spark and Arrow count them."""
    if function is pc.multiply_checked:
        return int(left.precision + right.precision + 1)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return int(whole + max(left.scale, right.scale) + 1)


def _text(value: Value) -> Value:
    if value.type != pa.string():
        raise NotUnderstood(f"text functions of {value.type}")
    return value


def _is_numeric_value(data_type: pa.DataType) -> bool:
    return data_type in _DIGITS or _is_float(data_type) or pa.types.is_decimal128(data_type)


def _is_float(data_type: pa.DataType) -> bool:
    return data_type in (pa.float32(), pa.float64())


def _is_scalar(value: Value) -> bool:
    return isinstance(value, pa.Scalar)


# ---- Expressions of an update or merge: SQL text in Spark's dialect, and values for Arrow rows ---

_ARITHMETIC: Mapping[type[exp.Expr], Function] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_OF_TEXT: Mapping[type[exp.Expr], Callable[[Value], Value]] = {exp.Upper: upper, exp.Lower: lower}
_JOINING: Mapping[type[exp.Expr], Function] = {exp.And: pc.and_kleene, exp.Or: pc.or_kleene}
_TIMES = {
    LiteralKind.DATE: pa.date32(),
    LiteralKind.TIMESTAMP: TIMESTAMP,
    LiteralKind.LOCAL_TIMESTAMP: TIMESTAMP_NTZ,
}
_TESTS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
          exp.Is, exp.In, exp.Between, exp.Like)  # fmt: skip


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

    Attributes
    ----------
    text, role : str
        As given.
    columns : set of str
        The columns, or fields of structs, that it names, as paths of the schema.

    Raises
    ------
    InputError
        If the text is no expression, or names a column that does not exist.
    """

    def __init__(self, text: str, schema: pa.Schema, role: str) -> None:
        self.text, self.role, self._schema = text, role, schema
        try:
            tokens = tokenize(text)
            self._tree = parse_tokens(text, tokens)
            self._doubt = find_doubt(text, tokens) or find_regrouping(self._tree, tokens)
        except InputError as error:
            raise InputError(role, error.problem, "give an SQL expression, such as n + 1") from None
        self.columns: set[str] = set()
        for column in self._tree.find_all(exp.Column):
            path = _path(column)
            if (found := spelled(schema, path)) is not None:
                self.columns.add(found)
            elif not may_be_function(column):
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
                self.role, f"it is no condition, but {found.type}", "compare it with a value"
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
        except (NotUnderstood, pa.ArrowNotImplementedError) as error:
            reason = error if isinstance(error, NotUnderstood) else "values of these types"
            raise UnsupportedFeatureError(
                f"{self.role} ({reason}) without Spark", self.text, "start a SparkSession first"
            ) from None
        except pa.ArrowException as error:
            problem = f"a number is too large for its type ({str(error).partition(chr(10))[0]})"
            step = "write the expression with a larger type, or narrow the condition"
            raise InputError(self.role, problem, step) from error
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, len(rows))
        return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])

    def _value(self, node: exp.Expr, rows: pa.Table) -> Value:
        """Return the values of a node; only a literal is a scalar, whose digits Spark counts."""
        found = self._evaluated(node, rows)
        is_scalar = isinstance(found, pa.Scalar) and pa.types.is_integer(found.type)
        return pa.repeat(found, len(rows)) if is_scalar and not _is_number(node) else found

    def _evaluated(self, node: exp.Expr, rows: pa.Table) -> Value:
        def of(part: exp.Expr) -> Value:
            return self._value(part, rows)

        def of_later(part: exp.Expr) -> Value:
            """Return the value of a part that Spark evaluates for some rows only."""
            try:
                return of(part)
            except pa.ArrowInvalid as error:
                raise NotUnderstood("an overflow, perhaps of a part that no row needs") from error

        kind = type(node)
        if isinstance(node, exp.Paren):
            return of(node.this)
        if isinstance(node, exp.Column):
            path = spelled(self._schema, _path(node))
            if path is None:
                raise NotUnderstood("a function")
            return column_of(rows, path, "updated")
        is_cast = isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal)
        if is_cast or isinstance(node, exp.Boolean | exp.Null | exp.Literal) or _is_number(node):
            return _literal(node)
        if isinstance(node, exp.Neg):
            return negated(of(node.this))
        if kind in _ARITHMETIC:
            return calculated(_ARITHMETIC[kind], of(node.this), of(node.expression))
        if kind in _OF_TEXT:
            if type(node.this.unnest()) in _OF_TEXT:  # Spark's optimiser drops the inner one.
                raise NotUnderstood("a change of case inside another")
            return _OF_TEXT[kind](of(node.this))
        if isinstance(node, exp.DPipe):
            return concatenated([of(node.this), of(node.expression)])
        if kind is exp.Concat:  # `concat_ws` is a class below it.
            return concatenated([of(part) for part in node.expressions])
        if kind is exp.Coalesce:
            return first_known([of(node.this), *(of_later(part) for part in node.expressions)])
        if kind in _JOINING:
            return _JOINING[kind](condition(of(node.this)), condition(of_later(node.expression)))
        if isinstance(node, exp.Not):
            return pc.invert(condition(of(node.this)))
        if isinstance(node, _TESTS):
            return self._tested(node, rows)
        raise NotUnderstood(f"{kind.__name__.lower()}")

    def _tested(self, node: exp.Expr, rows: pa.Table) -> Value:
        """Return the result of a test: of a column and literals, or of two values."""
        predicate = predicate_of(node, self.text, self._schema)
        if (found := _of_predicate(predicate, rows)) is not None:
            return found
        operator = OPERATORS.get(type(node))
        if operator not in COMPARISONS:
            raise NotUnderstood("this form of condition")
        left, right = self._value(node.this, rows), self._value(node.expression, rows)
        return compared(COMPARISONS[operator], left, right)


def _of_predicate(predicate: Predicate, rows: pa.Table) -> Value | None:
    if isinstance(predicate, Not):
        inner = _of_predicate(predicate.operand, rows)
        return None if inner is None else pc.invert(inner)
    if isinstance(predicate, And):
        parts = [_of_predicate(operand, rows) for operand in predicate.operands]
        known = [part for part in parts if part is not None]
        return reduce(pc.and_kleene, known) if len(known) == len(parts) else None
    if isinstance(predicate, (Constant, *COLUMN_TESTS)):
        return truth_of(predicate, rows)
    return None


def _literal(node: exp.Expr) -> pa.Scalar:
    """Return a literal in the type of Spark; of casts, those of texts to dates and times."""
    literal = literal_of(node)
    value, kind = literal.value, _TIMES.get(literal.kind)
    if isinstance(node, exp.Cast) and kind is None:
        raise NotUnderstood("a cast to another type than a date or a time")
    if literal.kind is LiteralKind.INTEGER:
        assert isinstance(value, int)
        if not fits_bits(value, 64):
            raise NotUnderstood("a number of more than 64 bits")
        kind = pa.int32() if fits_bits(value, 32) else pa.int64()
    return pa.scalar(value, kind)


def _is_number(node: exp.Expr) -> bool:
    """Return whether a node is the literal of a number, which may have a minus."""
    node = node.unnest()
    literal = node.this if isinstance(node, exp.Neg) else node
    return isinstance(literal, exp.Literal) and not literal.is_string


def _path(column: exp.Column) -> str:
    return ".".join(part.name for part in column.parts)


def may_be_function(column: exp.Column) -> bool:
    """Return whether Spark may read a name as a function without parentheses."""
    return len(column.parts) == 1 and column.name.lower() in FUNCTIONS
