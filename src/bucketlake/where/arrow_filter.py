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
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.field_path import column_of
from bucketlake.where import predicate as nodes
from bucketlake.where.predicate import ColumnTest, Operator, Predicate, leaves
from bucketlake.where.sets import comparable_column, literal_type, numbers_of, places_in, set_column
from bucketlake.where.sql_literal import LiteralValue

FilterColumn: TypeAlias = "pa.Array | pa.ChunkedArray"

COMPARISONS: dict[Operator, Callable[[FilterColumn, pa.Scalar], FilterColumn]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}
_NUMBER_MAX, _HALVES = 2**62, pa.decimal128(38, 1)
_BITS_MIN, _BITS_FOR_MEMBER = 1_000, 16
# Made without `pa.scalar`, whose first call imports pandas.
_UNKNOWN = pa.nulls(1, pa.bool_())[0]


def require_answerable(predicate: Predicate) -> None:
    """Raise UnsupportedFeatureError if only Spark can answer a part of a predicate."""
    for leaf in leaves(predicate):
        if isinstance(leaf, nodes.Opaque):
            raise _unanswerable(leaf)


def _unanswerable(part: nodes.Opaque) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{part.text!r} ({part.reason})",
        "where, on Arrow data",
        "read the table with Spark, or use plain literals of the column's type",
    )


def truth_of(predicate: Predicate, rows: pa.Table | pa.RecordBatch) -> FilterColumn:
    """Return the result of a predicate for each row: true, false, or null if it is unknown.

    Parameters
    ----------
    predicate : Predicate
        From ``parse_where`` with the schema of the rows.
    rows : pyarrow.Table or pyarrow.RecordBatch
        The rows.

    Raises
    ------
    UnsupportedFeatureError
        If only Spark can answer a part of the predicate.

    Examples
    --------
    >>> rows = pa.table({"n": pa.array([1, 2, None], pa.int64())})
    >>> where = nodes.Not(nodes.Comparison("n", Operator.EQUAL, 1))
    >>> rows.filter(truth_of(where, rows))["n"].to_pylist()
    [2]
    """
    if isinstance(predicate, nodes.And | nodes.Or):
        join = pc.and_kleene if isinstance(predicate, nodes.And) else pc.or_kleene
        # One after the other, so that not all results are held at once.
        return reduce(join, (truth_of(operand, rows) for operand in predicate.operands))
    if isinstance(predicate, nodes.Not):
        return pc.invert(truth_of(predicate.operand, rows))
    if isinstance(predicate, nodes.Constant):
        return pa.repeat(pa.scalar(predicate.value, pa.bool_()), rows.num_rows)
    if isinstance(predicate, nodes.Among):
        return _among(predicate, [column_of(rows, name, "tested") for name in predicate.columns])
    if isinstance(predicate, nodes.Opaque):
        raise _unanswerable(predicate)
    return apply_test(predicate, column_of(rows, predicate.column, "tested"))


def apply_test(test: ColumnTest, column: FilterColumn) -> FilterColumn:
    """Return the result of a test for each value of its column."""
    if isinstance(test, nodes.IsNull):
        return column.is_null()
    if isinstance(test, nodes.Like):
        return pc.match_like(column, test.pattern)
    if isinstance(test, nodes.In):
        return _in(column, test)
    if isinstance(test, nodes.Within):
        return _within(column, test)
    if test.value is None:
        return pc.equal(column.is_null(), _UNKNOWN)  # NULL for each row.
    if test.operator is Operator.NULL_SAFE_EQUAL:
        return pc.and_kleene(column.is_valid(), _compare(column, Operator.EQUAL, test.value))
    return _compare(column, test.operator, test.value)


def _among(test: nodes.Among, columns: list[FilterColumn]) -> FilterColumn:
    """Look rows up in a set: each row gets a number, made of the place of each of its values."""
    keys = test.keys.columns
    columns = [comparable_column(each, own.type) for each, own in zip(columns, keys, strict=True)]
    if len(keys) == 1:
        found = _is_in(columns[0], keys[0])
        return found if keys[0].null_count else pc.if_else(columns[0].is_valid(), found, _UNKNOWN)
    numbers, count = [pa.repeat(0, len(each)) for each in (columns[0], keys[0])], 1
    for pair in zip(columns, keys, strict=True):
        values = pair[1].unique()
        if count * len(values) > _NUMBER_MAX:  # Numbered anew: fewer than there are keys.
            known = numbers[1].unique()
            numbers, count = [_places(each, known) for each in numbers], len(known)
        numbers = [
            pc.add(pc.multiply(number, len(values)), _places(each, values))
            for number, each in zip(numbers, pair, strict=True)
        ]
        count *= len(values)
    return pc.is_in(numbers[0], value_set=numbers[1])


def _is_in(column: FilterColumn, members: pa.Array) -> FilterColumn:
    """Look values up in a set; integers first by their last bits, which tell most of them apart."""
    if len(members) < _BITS_MIN or members.null_count or not pa.types.is_integer(members.type):
        return pc.is_in(column, value_set=members)
    numbers, own = numbers_of(column)[0], numbers_of(members)[0]
    mask = (1 << (_BITS_FOR_MEMBER * len(own)).bit_length()) - 1
    is_used = np.zeros(mask + 1, np.bool_)
    is_used[own & mask] = True
    at = np.flatnonzero(is_used[numbers & mask])
    found = np.zeros(len(numbers), np.bool_)
    found[at] = pc.is_in(pa.array(numbers[at]), value_set=pa.array(own))
    return pa.array(found)


def _places(column: FilterColumn, values: pa.Array) -> FilterColumn:
    return pc.index_in(column, value_set=values).cast(pa.int64())


def _within(column: FilterColumn, test: nodes.Within) -> FilterColumn:
    """Find the only interval that may hold each value: the first that does not end before it."""
    values, is_null = numbers_of(column)
    if not test.starts:
        return pa.array(np.zeros(len(values), np.bool_), mask=is_null)
    starts, ends = np.array(test.starts, np.int64), np.array(test.ends, np.int64)
    return pa.array(places_in(starts, ends, values, values)[0], mask=is_null)


def _in(column: FilterColumn, test: nodes.In) -> FilterColumn:
    values = [value for value in test.values if value is not None]
    members = set_column(values, column.type)
    if members is None:  # Decimals that have no common type with the column.
        found = reduce(pc.or_kleene, (_compare(column, Operator.EQUAL, value) for value in values))
    else:
        found = _is_in(comparable_column(column, members.type), members.drop_null())
        # For a null, Arrow returns false, and NOT would make it true.
        found = pc.if_else(column.is_valid(), found, _UNKNOWN)
    return pc.or_kleene(found, _UNKNOWN) if None in test.values else found


def _compare(column: FilterColumn, operator: Operator, value: LiteralValue) -> FilterColumn:
    data_type = column.type
    if isinstance(value, float):
        return _compare_float(column, operator, value)
    if isinstance(value, Decimal):
        # Arrow 17 compares decimals of two scales wrongly. Beside integers it is between two.
        members = set_column([value], data_type if pa.types.is_decimal(data_type) else _HALVES)
        assert members is not None, value
        return COMPARISONS[operator](comparable_column(column, members.type), members[0])
    return COMPARISONS[operator](column, pa.scalar(value, literal_type(data_type)))


def _compare_float(column: FilterColumn, operator: Operator, value: float) -> FilterColumn:
    """Compare as doubles; NaN equals NaN and is greater than every number."""
    doubles = column.cast(pa.float64())
    is_nan = pc.is_nan(doubles)
    is_number = pc.invert(is_nan)
    if not math.isnan(value):
        compared = COMPARISONS[operator](doubles, pa.scalar(value, pa.float64()))
        exceeds = operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL)
        return pc.or_kleene(compared, is_nan) if exceeds else compared
    if operator in (Operator.EQUAL, Operator.GREATER_OR_EQUAL):
        return is_nan
    if operator in (Operator.NOT_EQUAL, Operator.LESS):
        return is_number
    # No value is greater than NaN, and every value is less or equal; for a null both are unknown.
    combine = pc.and_kleene if operator is Operator.GREATER else pc.or_kleene
    return combine(is_nan, is_number)
