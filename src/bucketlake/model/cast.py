"""Casting Arrow data to a table schema: batches before a write, older files in a read.

Whole columns are cast, nested columns by their children. A value that the target type cannot hold
raises an error that names the column and a value. Numbers of older files widen to the same values
as in Hudi; numbers of batches must fit without loss (``exact``).
:mod:`bucketlake.model.evolution` decides which casts are *allowed*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.column_type import is_list, is_untyped, type_name
from bucketlake.model.evolution import is_wider_decimal
from bucketlake.model.extension_types import plain_values
from bucketlake.model.floating_text import floating_text
from bucketlake.model.map_entries import map_entries, map_lengths
from bucketlake.model.names import did_you_mean
from bucketlake.model.required_fields import has_required_fields, without_nulls
from bucketlake.model.schema_merge import how_to_allow

Columns = TypeVar("Columns", pa.Table, pa.RecordBatch)

_INTEGER_DIGITS = {pa.int32(): 10, pa.int64(): 19}
_WITHOUT_VIEWS = {
    pa.string_view().id: pa.large_string(),
    pa.binary_view().id: pa.large_binary(),
}


def cast_table(
    data: Columns,
    target: pa.Schema,
    *,
    where: str = "table",
    exact: bool = False,
    may_widen: bool = False,
) -> Columns:
    """Cast data to a schema: columns in its order and types, missing columns as nulls.

    Parameters
    ----------
    data : pyarrow.Table or pyarrow.RecordBatch
        Columns in any order.
    target : pyarrow.Schema
        Schema of stored types with every column of ``data``.
    where : str
        The table, input or file, for messages.
    exact : bool
        Whether an integer that a floating type would round is an error.
    may_widen : bool
        Whether a wider column of the table could hold a decimal that does not fit; for the error.

    Returns
    -------
    pyarrow.Table or pyarrow.RecordBatch
        Data with exactly the schema ``target``, in the chunks of ``data``. Columns of the right
        type are not copied.

    Raises
    ------
    InputError
        If a type cannot hold a value, a required column has a null, or ``target`` lacks a column;
        the error names the column.

    Notes
    -----
    Unless ``exact``, a floating type rounds integers, as Hudi 1.2.0 reads older files. A float
    becomes the double with its shortest decimal digits (0.1 stays 0.1).

    Examples
    --------
    >>> batch = pa.table({"n": pa.array([1], pa.int32())})
    >>> cast_table(batch, pa.schema({"tag": pa.string(), "n": pa.int64()})).to_pydict()
    {'tag': [None], 'n': [1]}
    """
    cast = _Cast(where, exact=exact, may_widen=may_widen)
    cast.check_known(data.schema, target.names, "")
    columns = [cast.column(data, field) for field in target]
    return type(data).from_arrays(columns, schema=target)


def require_valid(data: pa.Table | pa.RecordBatch, *, where: str) -> None:
    """Raise InputError if bytes do not fit their type, such as text that is not UTF-8.

    Arrow and Spark do not check such bytes, and later readers would fail.

    Raises
    ------
    InputError
        If a column has such bytes; the error names the column.
    """
    for name, column in zip(data.schema.names, data.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"{where}, column {name}",
                f"holds bytes that are not valid as {type_name(column.type)} ({error})",
                "correct the values; text must be UTF-8",
            ) from error


class _Cast:
    """Casts one table."""

    def __init__(self, where: str, *, exact: bool, may_widen: bool) -> None:
        self._where = where
        self._exact = exact
        self._may_widen = may_widen

    def column(
        self, data: pa.Table | pa.RecordBatch, field: pa.Field
    ) -> pa.Array | pa.ChunkedArray:
        """Return a column of the target."""
        index = data.schema.get_field_index(field.name)
        if index < 0:
            self._check_required(field, data.num_rows, field.name)
            return pa.nulls(data.num_rows, field.type)
        column = data.column(index)
        if isinstance(column, pa.ChunkedArray):
            chunks = [self._field(chunk, field, field.name) for chunk in column.chunks]
            return pa.chunked_array(chunks, field.type)
        return self._field(column, field, field.name)

    def check_known(self, fields: Iterable[pa.Field], known: Sequence[str], prefix: str) -> None:
        """Raise InputError for columns that the target lacks; only the caller may drop them.

        A column of the null type has no values, so the cast drops it.
        """
        for field in fields:
            if field.name not in known and not is_untyped(field.type):
                problem = "the table has no such column"
                where = f"{self._where}, column {prefix}{field.name}"
                hint = did_you_mean(field.name, known)
                raise InputError(where, problem, f"drop it, or add it to the table's schema{hint}")

    def _field(self, array: pa.Array, field: pa.Field, path: str) -> pa.Array:
        self._check_required(field, array.null_count, path)
        return self._array(array, field.type, path)

    def _check_required(self, field: pa.Field, null_count: int, path: str) -> None:
        if null_count and not field.nullable:
            problem = f"the table requires a value, nulls in the batch: {null_count}"
            raise InputError(f"{self._where}, column {path}", problem, "give every row a value")

    def _array(self, array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
        if _is_same(array.type, to) and not has_required_fields(to):
            return array
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), to)
        if isinstance(array.type, pa.BaseExtensionType):
            return self._array(plain_values(array), to, path)
        if pa.types.is_dictionary(array.type):
            return self._array(_decoded(array), to, path)
        if pa.types.is_run_end_encoded(array.type):
            return self._array(pc.run_end_decode(array), to, path)
        if pa.types.is_struct(to) and pa.types.is_struct(array.type):
            return self._struct(array, to, path)
        if pa.types.is_list(to) and is_list(array.type):
            return self._list(array, to, path)
        if pa.types.is_map(to) and pa.types.is_map(array.type):
            return self._map(array, to, path)
        return self._scalar(array, to, path)

    def _struct(self, array: pa.StructArray, to: pa.StructType, path: str) -> pa.Array:
        names = [field.name for field in array.type]
        self.check_known(array.type, [field.name for field in to], f"{path}.")
        children = dict(zip(names, array.flatten(), strict=True))
        arrays = []
        for field in to:
            child = children.get(field.name)
            if child is None:
                child = pa.nulls(len(array), field.type)
            own_nulls = child.null_count - array.null_count  # The others are nulls of the struct.
            self._check_required(field, own_nulls, f"{path}.{field.name}")
            child = self._array(child, field.type, f"{path}.{field.name}")
            arrays.append(child if field.nullable else without_nulls(child))
        return pa.StructArray.from_arrays(arrays, fields=list(to), mask=_null_mask(array))

    def _list(self, array: pa.Array, to: pa.ListType, path: str) -> pa.Array:
        values = self._field(array.flatten(), to.value_field, f"{path}[]")
        offsets = _offsets(pc.list_value_length(array))
        return pa.ListArray.from_arrays(offsets, values, type=to, mask=_null_mask(array))

    def _map(self, array: pa.MapArray, to: pa.MapType, path: str) -> pa.Array:
        keys, values = map_entries(array)
        return pa.MapArray.from_arrays(
            _offsets(map_lengths(array)),
            self._array(keys, to.key_type, f"{path}'s keys"),
            self._field(values, to.item_field, f"{path}{{}}"),
            type=to,
            mask=_null_mask(array),
        )

    def _scalar(self, array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
        def cast(values: pa.Array) -> pa.Array:
            return _cast_scalar(values, to, exact=self._exact)

        try:
            return cast(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            held = type_name(array.type)
            unfit = _first_unfit(array, cast)
            raise InputError(
                f"{self._where}, column {path}",
                f"{held} does not fit {type_name(to)} ({unfit}{error})",
                "correct the values, or cast the column before writing"
                + (self._widening(array.type, to, path)),
            ) from error

    def _widening(self, source: pa.DataType, to: pa.DataType, path: str) -> str:
        are_decimals = pa.types.is_decimal128(source) and pa.types.is_decimal128(to)
        is_whole = not any(mark in path for mark in ".[{")
        if not (self._may_widen and are_decimals and is_whole and is_wider_decimal(source, to)):
            return ""
        return f", or widen the table's column with {how_to_allow(['widen_types'])}"


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary; Arrow cannot select from views, as polars makes them."""
    values = array.dictionary
    plain = _WITHOUT_VIEWS.get(values.type.id)
    return values.cast(plain).take(array.indices) if plain else array.dictionary_decode()


def _first_unfit(array: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> str:
    """Return the first value that cannot be cast, as words for a message; nothing of no values."""
    if not len(array):
        return ""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        try:
            cast(half)
            array = array.slice(len(half))
        except pa.ArrowInvalid:
            array = half
        except pa.ArrowNotImplementedError:  # No value can be cast.
            return ""
    try:
        return f"value {array[0]}: "
    except (ValueError, OverflowError):  # Times that Python cannot show.
        return ""


def _is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether types and names are equal; Arrow's equality ignores names inside lists."""
    inner = [(one.field(i), other.field(i)) for i in range(one.num_fields)] if one == other else []
    return one == other and all(a.name == b.name and _is_same(a.type, b.type) for a, b in inner)


def _cast_scalar(array: pa.Array, to: pa.DataType, *, exact: bool) -> pa.Array:
    source = array.type
    if pa.types.is_integer(source) and pa.types.is_floating(to):
        rounded = pc.cast(array, to, safe=False)
        if exact and pc.any(_differs(array, rounded)).as_py():
            raise pa.ArrowInvalid(f"{type_name(to)} would round it")
        return rounded
    if source == pa.float32() and to == pa.float64():
        return pc.cast(pc.cast(array, pa.string()), to)
    if source in (pa.float32(), pa.float64()) and to == pa.string():
        return floating_text(array)
    if source in _INTEGER_DIGITS and pa.types.is_decimal128(to):
        # Arrow checks only the types for this cast; between decimals it checks the values.
        array = pc.cast(array, pa.decimal128(_INTEGER_DIGITS[source], 0))
    return pc.cast(array, to)


def _differs(integers: pa.Array, rounded: pa.Array) -> pa.Array:
    """Return which integers a floating type rounds."""
    exact_to = 2**24 if pa.types.is_float32(rounded.type) else 2**53
    limits = pc.min_max(integers).as_py()
    if limits["min"] is None or max(-limits["min"], limits["max"]) <= exact_to:
        return pa.array([False])
    wide = pa.decimal128(38, 0)  # A cast back to an integer would overflow for 2^63.
    return pc.not_equal(pc.cast(rounded, wide), pc.cast(integers, wide))


def _offsets(lengths: pa.Array) -> pa.Array:
    """Return the offsets of flattened lists or maps; a null has no items."""
    ends = pc.cumulative_sum_checked(pc.cast(pc.fill_null(lengths, 0), pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
