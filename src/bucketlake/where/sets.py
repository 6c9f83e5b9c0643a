"""Alternatives as sets: many equal signs become one set, many ranges one list of intervals.

A condition such as ``(id = 1 AND p = 'a') OR (id = 2 AND p = 'b') OR …`` costs the product of its
length and the rows if each alternative is evaluated by itself. A set is looked up once for each
row. Pruning asks the same sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.field_path import known_field
from bucketlake.model.grouping import grouped
from bucketlake.where import predicate as nodes
from bucketlake.where.predicate import Operator, Predicate
from bucketlake.where.sql_literal import DECIMAL_DIGITS_MAX, LiteralValue, count_digits

SET_MIN = 8
"""Fewer alternatives stay as they are."""

_NUMBER_MIN, _NUMBER_MAX = -(2**63), 2**63 - 1

_Mask: TypeAlias = npt.NDArray[np.bool_]
_Kind: TypeAlias = tuple[str, ...] | str | None
"""The columns that an alternative compares by equal signs, or the one of its range."""


def merged(predicate: Predicate, schema: pa.Schema, *, is_negated: bool = False) -> Predicate:
    """Return a predicate that is true for the same rows, with sets in place of alternatives.

    Parameters
    ----------
    predicate : Predicate
        The predicate.
    schema : pyarrow.Schema
        Types of its columns.
    is_negated : bool
        Whether it stands under a ``Not``: then unknown must stay unknown.

    Examples
    --------
    >>> alternatives = [nodes.Comparison("n", Operator.EQUAL, value) for value in range(9)]
    >>> found = merged(nodes.Or(tuple(alternatives)), pa.schema({"n": pa.int64()}))
    >>> found.keys.to_pydict()
    {'n': [0, 1, 2, 3, 4, 5, 6, 7, 8]}
    """
    if isinstance(predicate, nodes.Not):
        return nodes.Not(merged(predicate.operand, schema, is_negated=True))
    again = partial(merged, schema=schema, is_negated=is_negated)
    if isinstance(predicate, nodes.And):
        return nodes.And(tuple(map(again, predicate.operands)))
    parts_of = _flat(predicate)
    alike = grouped((_kind(part, schema, is_negated=is_negated), part) for part in parts_of)
    if not isinstance(predicate, nodes.Or):
        ((kind, parts),) = alike.items()
        return next(iter(_joined(kind, parts, schema)), predicate)
    found = [
        f for k, parts in alike.items() for f in _joined(k, parts, schema) or map(again, parts)
    ]
    return found[0] if len(found) == 1 else nodes.Or(tuple(found))


def _flat(predicate: Predicate) -> Iterator[Predicate]:
    if not isinstance(predicate, nodes.Or):
        yield predicate
    else:
        for operand in predicate.operands:
            yield from _flat(operand)


def _comparisons(part: Predicate) -> list[nodes.Comparison]:
    """Return what a part compares, if it does nothing else."""
    tests = part.operands if isinstance(part, nodes.And) else (part,)
    found = [test for test in tests if isinstance(test, nodes.Comparison)]
    return found if len(found) == len(tests) else []


def _kind(part: Predicate, schema: pa.Schema, *, is_negated: bool) -> _Kind:
    if isinstance(part, nodes.In):
        # A NULL is true for no row: it adds nothing outside of NOT.
        return None if is_negated and None in part.values else (part.column,)
    tests = _comparisons(part)
    columns = tuple(sorted({test.column for test in tests}))
    if not tests or (is_negated and any(test.value is None for test in tests)):
        return None
    if all(test.operator is Operator.EQUAL for test in tests):
        is_exact = len(columns) == 1 or not is_negated
        return columns if is_exact and len(columns) == len(tests) else None
    is_range = all(test.operator in _ENDS and test.value is not None for test in tests)
    has_numbers = len(columns) == 1 and _has_numbers(known_field(schema, columns[0]).type)
    return columns[0] if is_range and has_numbers else None


def _joined(kind: _Kind, parts: Sequence[Predicate], schema: pa.Schema) -> list[Predicate]:
    """Return the set of some alternatives; nothing if they are few, or have no common type."""
    if isinstance(kind, str):
        return [_within(kind, parts, schema)] if len(parts) >= SET_MIN else []
    columns: list[list[LiteralValue]] = [[] for _ in kind or ()]
    for part in parts if kind else ():
        if isinstance(part, nodes.In):
            columns[0] += part.values
        for held, test in zip(
            columns, sorted(_comparisons(part), key=attrgetter("column")), strict=False
        ):
            held.append(test.value)
    if kind is None or len(columns[0]) < SET_MIN:
        return []
    types = [known_field(schema, name).type for name in kind]
    arrays = [set_column(held, own) for held, own in zip(columns, types, strict=True)]
    if any(array is None for array in arrays):
        return []
    return [nodes.Among(distinct(pa.table(arrays, names=list(kind)).drop_null()))]


def _within(column: str, parts: Sequence[Predicate], schema: pa.Schema) -> nodes.Within:
    """Join ranges that overlap or follow one another."""
    data_type, ranges = known_field(schema, column).type, []
    for part in parts:
        ends = [_ENDS[t.operator](*_around(t.value, data_type)) for t in _comparisons(part)]
        ranges.append((max(low for low, _ in ends), min(high for _, high in ends)))
    starts: list[int] = []
    lasts: list[int] = []
    for low, high in sorted(each for each in ranges if each[0] <= each[1]):
        if lasts and low <= lasts[-1] + 1:
            lasts[-1] = max(lasts[-1], high)
        else:
            starts.append(low)
            lasts.append(high)
    return nodes.Within(column, tuple(starts), tuple(lasts))


_ENDS: Mapping[Operator, Callable[[int, int], tuple[int, int]]] = {
    Operator.LESS: lambda _, ceiling: (_NUMBER_MIN, ceiling - 1),
    Operator.LESS_OR_EQUAL: lambda floor, _: (_NUMBER_MIN, floor),
    Operator.GREATER: lambda floor, _: (floor + 1, _NUMBER_MAX),
    Operator.GREATER_OR_EQUAL: lambda _, ceiling: (ceiling, _NUMBER_MAX),
}
"""The first and last number of a range with one end, from the numbers around the end."""


def _around(value: LiteralValue, data_type: pa.DataType) -> tuple[int, int]:
    """Return the last number up to a value, and the first from it on: a decimal lies between."""
    if isinstance(value, Decimal):
        return math.floor(value), math.ceil(value)
    array = pa.array([value], literal_type(data_type))
    number = int(numbers_of(array)[0][0])
    return number, number


# ---- Values of sets and of columns, as Arrow and NumPy compare them ------------------------------


def literal_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which values are compared with a column that has no decimals."""
    if pa.types.is_integer(data_type):
        return pa.int64()
    if pa.types.is_floating(data_type):
        return pa.float64()
    return pa.timestamp("us", data_type.tz) if pa.types.is_timestamp(data_type) else data_type


def set_column(values: Sequence[LiteralValue], data_type: pa.DataType) -> pa.Array | None:
    """Return values for a set of values of a column: null for those that no row can have.

    None if decimals have no common type with the column.
    """
    if pa.types.is_decimal(data_type):
        digits = [count_digits(value) for value in values if isinstance(value, Decimal)]
        scale = max([data_type.scale, *(fraction for _, fraction in digits)])
        whole = max([data_type.precision - data_type.scale, *(whole for whole, _ in digits)])
        if whole + scale > DECIMAL_DIGITS_MAX:
            return None
        return pa.array(values, pa.decimal128(whole + scale, scale))
    if not pa.types.is_integer(data_type):
        return comparable_column(pa.array(values, literal_type(data_type)), literal_type(data_type))
    # A decimal is between two integers.
    held = [None if isinstance(value, Decimal) else value for value in values]
    found = pa.array(held, pa.int64())
    narrow = found.cast(data_type, safe=False)  # What does not fit becomes another number.
    return pc.if_else(pc.equal(narrow, found), narrow, None)


def comparable_column(column: Any, data_type: pa.DataType) -> Any:
    """Return a column as sets of a type are looked up: Arrow's distinguish 0.0 and -0.0."""
    column = column if column.type == data_type else column.cast(data_type)
    return pc.add(column, 0.0) if pa.types.is_floating(data_type) else column


def distinct(rows: pa.Table) -> pa.RecordBatch:
    """Return rows, each once."""
    if rows.num_columns == 1:
        array = rows.column(0).unique()
        return pa.RecordBatch.from_arrays([array], names=rows.column_names)
    found = rows.group_by(rows.column_names, use_threads=False).aggregate([])
    batches = found.select(rows.column_names).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def _has_numbers(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_signed_integer(data_type)
        or data_type in (pa.float32(), pa.float64())
        or pa.types.is_date32(data_type)
        or pa.types.is_timestamp(data_type)
    )


def numbers_of(column: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], _Mask]:
    """Return integers in the order of the values of a column, and which values are null.

    Floats are ordered as in Spark: NaN is the greatest, and two zeros are equal.
    """
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    to = literal_type(column.type)
    values = comparable_column(column, to)
    if pa.types.is_floating(to):
        values = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
        return np.where(bits < 0, bits ^ _NUMBER_MAX, bits), is_null
    values = values.cast(pa.int32()) if pa.types.is_date32(to) else values
    return pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), is_null


def sortable(column: pa.Array) -> tuple[npt.NDArray[Any], _Mask]:
    """Return the values of a column in a form that NumPy sorts as Spark, and which are null."""
    if _has_numbers(column.type):
        return numbers_of(column)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return np.array(column.to_pylist(), object), is_null


def places_in(
    starts: npt.NDArray[Any], ends: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> tuple[_Mask, _Mask]:
    """Return whether ranges of values meet one of some intervals, and whether one covers them.

    Parameters
    ----------
    starts, ends : ndarray, shape (n_intervals,)
        Disjoint, ascending intervals, with both ends.
    low, high : ndarray, shape (n_ranges,)
        First and last values.
    """
    place = np.searchsorted(ends, low)
    is_there = place < len(starts)
    place = np.where(is_there, place, 0)
    meets = is_there & (starts[place] <= high)
    return meets, meets & (starts[place] <= low) & (ends[place] >= high)
