"""Filtering Arrow data with a predicate; the results are the same as in Spark.

Arrow and Spark agree on most comparisons. They differ on NaN (in Spark it equals itself and is
greater than every number), on a 32-bit float compared with a double, and on NULL in lists. This
module handles these cases. A predicate that only Spark can answer raises an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.field_path import column_of, expression_of, known_field
from bucketlake.where.predicate import (
    And,
    ColumnTest,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
)
from bucketlake.where.sql_literal import DECIMAL_DIGITS_MAX, Value, count_digits

Column: TypeAlias = pc.Expression | pa.Array
"""What a test is applied to; Arrow's functions accept both."""

_FUNCTIONS: dict[Operator, Callable[[Column, pa.Scalar], Column]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}
_CHAIN_MAX = 32
# Made without `pa.scalar`, whose first call imports pandas.
_UNKNOWN = pa.nulls(1, pa.bool_())[0]


def to_arrow_expression(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    """Convert a predicate to an Arrow filter with Spark's three-valued results.

    Parameters
    ----------
    predicate : Predicate
        From ``parse_where`` with the same schema.
    schema : pyarrow.Schema
        Types of the columns.

    Returns
    -------
    pyarrow.compute.Expression
        True, false or null for each row; a filter keeps the rows with true.

    Raises
    ------
    UnsupportedFeatureError
        If only Spark can answer a part of the predicate.

    Examples
    --------
    >>> from bucketlake.where.predicate import Comparison
    >>> schema = pa.schema({"n": pa.int64()})
    >>> rows = pa.table({"n": [1, 2, None]}, schema=schema)
    >>> where = Not(Comparison("n", Operator.EQUAL, 1))
    >>> rows.filter(to_arrow_expression(where, schema))["n"].to_pylist()
    [2]
    """
    if isinstance(predicate, And | Or):
        operands = [to_arrow_expression(operand, schema) for operand in predicate.operands]
        # Arrow's & and | of expressions are three-valued.
        return _joined(operands, and_ if isinstance(predicate, And) else or_)
    if isinstance(predicate, Not):
        return ~to_arrow_expression(predicate.operand, schema)
    if isinstance(predicate, Constant):
        return pc.scalar(pa.scalar(predicate.value, pa.bool_()))
    if isinstance(predicate, Opaque):
        raise UnsupportedFeatureError(
            f"{predicate.text!r} ({predicate.reason})",
            "where, on Arrow data",
            "read the table with Spark, or use plain literals of the column's type",
        )
    field_type = known_field(schema, predicate.column).type
    return _test(predicate, expression_of(schema, predicate.column), field_type)


def apply_test(test: ColumnTest, column: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
    """Return the result of a test for each value of its column."""
    return _test(test, column, column.type)


def values_of(test: ColumnTest | Constant, rows: pa.Table) -> Column:
    """Return the result of a test for each row: true, false or null."""
    if isinstance(test, Constant):
        return pa.repeat(pa.scalar(test.value, pa.bool_()), rows.num_rows)
    return apply_test(test, column_of(rows, test.column, "tested"))


def _test(test: ColumnTest, column: Column, data_type: pa.DataType) -> Column:
    if isinstance(test, IsNull):
        return column.is_null()
    if isinstance(test, Like):
        return pc.match_like(column, test.pattern)
    if isinstance(test, In):
        return _in(column, data_type, test)
    if test.value is None:
        return pc.equal(column.is_null(), _UNKNOWN)  # NULL for each row.
    if test.operator is Operator.NULL_SAFE_EQUAL:
        equal = _compare(column, data_type, Operator.EQUAL, test.value)
        return pc.and_kleene(column.is_valid(), equal)
    return _compare(column, data_type, test.operator, test.value)


def _in(column: Column, data_type: pa.DataType, test: In) -> Column:
    values = [value for value in test.values if value is not None]
    if pa.types.is_floating(data_type) or any(isinstance(value, Decimal) for value in values):
        # Arrow's sets distinguish 0.0 from -0.0, and hold only values of the column's type.
        found = [_compare(column, data_type, Operator.EQUAL, value) for value in values]
    else:
        # For a null, Arrow returns false, and NOT would make it true.
        members = pa.array(values, _literal_type(data_type))
        unknown_if_null = pc.and_kleene(column.is_null(), _UNKNOWN)
        found = [pc.is_in(column, value_set=members), unknown_if_null]
    if None in test.values:
        found.append(pc.equal(column.is_null(), _UNKNOWN))
    return _joined(found, pc.or_kleene)


def _joined(parts: list[Column], join: Callable[[Column, Column], Column]) -> Column:
    """Join conditions by AND or OR, in groups that are inverted twice.

    Arrow looks through each chain of equal functions, in a time that grows with the square of its
    length: a filter of 5,000 alternatives took ten seconds. An inversion ends a chain.
    """
    while len(parts) > _CHAIN_MAX:
        groups = [parts[i : i + _CHAIN_MAX] for i in range(0, len(parts), _CHAIN_MAX)]
        parts = [pc.invert(pc.invert(reduce(join, group))) for group in groups]
    return reduce(join, parts)


def _compare(column: Column, data_type: pa.DataType, operator: Operator, value: Value) -> Column:
    if isinstance(value, float):
        return _compare_float(column, operator, value)
    if isinstance(value, Decimal):
        # Arrow 17 compares decimals of two scales wrongly.
        common = _common_decimal(data_type, value)
        widened = column if common == data_type else column.cast(common)
        return _FUNCTIONS[operator](widened, pa.scalar(value, common))
    return _FUNCTIONS[operator](column, pa.scalar(value, _literal_type(data_type)))


def _common_decimal(data_type: pa.DataType, value: Decimal) -> pa.DataType:
    """Return a common type for the column and a value: the column's type if it can hold it."""
    whole, fraction = count_digits(value)
    if not pa.types.is_decimal128(data_type):
        return pa.decimal128(DECIMAL_DIGITS_MAX, fraction)
    if fraction <= data_type.scale and whole <= data_type.precision - data_type.scale:
        return data_type
    return pa.decimal128(DECIMAL_DIGITS_MAX, max(fraction, data_type.scale))


def _literal_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(data_type):
        return pa.int64()
    return pa.timestamp("us", data_type.tz) if pa.types.is_timestamp(data_type) else data_type


def _compare_float(column: Column, operator: Operator, value: float) -> Column:
    """Compare as doubles; NaN equals NaN and is greater than every number."""
    doubles = column.cast(pa.float64())
    is_nan = pc.is_nan(doubles)
    is_number = pc.invert(is_nan)
    if not math.isnan(value):
        compared = _FUNCTIONS[operator](doubles, pa.scalar(value, pa.float64()))
        exceeds = operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL)
        return pc.or_kleene(compared, is_nan) if exceeds else compared
    if operator in (Operator.EQUAL, Operator.GREATER_OR_EQUAL):
        return is_nan
    if operator in (Operator.NOT_EQUAL, Operator.LESS):
        return is_number
    # No value is greater than NaN, and every value is less or equal; for a null both are unknown.
    combine = pc.and_kleene if operator is Operator.GREATER else pc.or_kleene
    return combine(is_nan, is_number)
