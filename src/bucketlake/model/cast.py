"""Casting Arrow data to a table schema: batches before a write, older files in a read.

Whole columns are cast, nested columns by their children. A value that the target type cannot hold
raises an error that names the column and a value. Numbers of older files widen to the same values
as in Hudi; numbers of batches must fit without loss (``exact``).
:mod:`bucketlake.model.evolution` decides which casts are *allowed*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.arrays import map_entries, map_lengths
from bucketlake.model.by_schema import by_schema
from bucketlake.model.column_type import (
    BLOB,
    BLOB_STORAGE_TYPES,
    is_list,
    is_untyped,
    plain_values,
    stored_type,
    type_name,
)
from bucketlake.model.evolution import is_numeric, wider_number
from bucketlake.model.names import did_you_mean
from bucketlake.model.row_merge import how_to_allow
from bucketlake.model.text_values import EXACT_BELOW, TextForm, values_of_texts, why_no_value
from bucketlake.model.value_text import floating_text
from bucketlake.model.variant import VARIANT, is_variant, require_variants
from bucketlake.model.vector import (
    bytes_of_vectors,
    bytes_type,
    is_vector,
    plain_vector,
    vectors_of_bytes,
    vectors_of_lists,
)

# ---- Assigning computed numbers to columns as Spark does: rounded to the digits of the column ----
#
# A result of ``amount * 1.1`` has more digits than ``amount``. Spark rounds it when it stores it
# (``spark.sql.storeAssignmentPolicy``), half up, and so do updates and merges. A number that is too
# large, or a fraction for a column of whole numbers, stays as it is; the write refuses it, and
# names its key.

Value: TypeAlias = "pa.Scalar | pa.ChunkedArray | pa.Array"

_DOUBLE_DIGITS = 18  # No double has more digits in its shortest text.


def assigned(values: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray:
    """Return numbers rounded to the digits of a column; other values as they are.

    Examples
    --------
    >>> from decimal import Decimal
    >>> assigned(pa.chunked_array([[Decimal("2.675")]]), pa.decimal128(9, 2))[0].as_py()
    Decimal('2.68')
    """
    held = values.type
    if pa.types.is_floating(to) and (pa.types.is_integer(held) or pa.types.is_decimal128(held)):
        return floats_of(values, to)
    if not pa.types.is_decimal128(to):
        return values
    if pa.types.is_floating(held):
        return _decimals_of(doubles_of(values), to, values)
    if pa.types.is_decimal128(held) and held.scale > to.scale:
        return _rounded(values.cast(pa.decimal256(held.precision + 1, held.scale)), to.scale)
    return values


def doubles_of(values: Value) -> Value:
    """Return numbers as the nearest doubles."""
    return floats_of(values, pa.float64())


def floats_of(values: Value, to: pa.DataType) -> Value:
    """Return numbers as the nearest floats or doubles."""
    if pa.types.is_decimal(values.type):  # Arrow's own cast is off in the last digit.
        return values.cast(pa.string()).cast(to)
    return values.cast(to, safe=False)


def _decimals_of(
    doubles: pa.ChunkedArray, to: pa.DataType, otherwise: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Return doubles as decimals, by their shortest text; ``otherwise`` if one is too large."""
    size = pc.abs(doubles)
    if not pc.all(pc.less(size, 10.0 ** (to.precision - to.scale))).as_py():
        return otherwise
    # Smaller numbers are zero, and their text has too many digits.
    seen = pc.if_else(pc.less(size, 10.0 ** -(to.scale + 1)), 0.0, doubles)
    exact = pa.decimal256(to.precision + _DOUBLE_DIGITS + 1, to.scale + _DOUBLE_DIGITS)
    return _rounded(seen.cast(pa.string()).cast(exact), to.scale)


def _rounded(values: pa.ChunkedArray, scale: int) -> pa.ChunkedArray:
    """Round half up, away from zero."""
    rounded = pc.round(values, scale, "half_towards_infinity")
    precision = min(38, values.type.precision - values.type.scale + scale)
    return rounded.cast(pa.decimal128(precision, scale))


Columns = TypeVar("Columns", pa.Table, pa.RecordBatch)

_INTEGER_DIGITS = {pa.int32(): 10, pa.int64(): 19}
_OF_BATCH = "correct the values, or cast the column before writing"
_OF_EXPRESSION = "correct the value, for example round or cast it in the expression"
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
    texts: TextForm | None = None,
    computed: bool = False,
    keys: Callable[[], pa.Array] | None = None,
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
        Whether a number that the type of the column would round is an error. A double may be
        rounded to a float.
    may_widen : bool
        Whether the write could widen a column for a number that does not fit; for the error.
    texts : TextForm or None
        How the texts of columns that are no strings are written; None if texts are no values.
    computed : bool
        Whether the data is what expressions gave; for the error.
    keys : callable, optional
        Returns the key of each row; for the error.

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
    required, given = _required_if_fitting(data.schema, target), data.schema
    if required is not None and not any(data.column(at).null_count for at in required):
        if given.equals(target, check_metadata=True):
            return data
        return type(data).from_arrays(data.columns, schema=target)
    next_step = _OF_EXPRESSION if computed else _OF_BATCH
    cast = _Cast(where, exact, may_widen, texts, next_step, keys)
    cast.check_known(data.schema, frozenset(target.names), "")
    columns = [cast.column(data, field) for field in target]
    return type(data).from_arrays(columns, schema=target)


@by_schema
def _required_if_fitting(given: pa.Schema, target: pa.Schema) -> list[int] | None:
    """Return the positions of required columns; None if a type differs, or a column is nested."""
    if given.names != target.names or given.types != target.types:
        return None
    if any(field.type.num_fields for field in target):
        return None
    return [at for at, field in enumerate(target) if not field.nullable]


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


@dataclass(slots=True)
class _Cast:
    """Casts one table."""

    where: str
    exact: bool
    may_widen: bool
    texts: TextForm | None
    next_step: str
    keys: Callable[[], pa.Array] | None
    first_row: int = 0  # Of the chunk that is cast.

    def column(
        self, data: pa.Table | pa.RecordBatch, field: pa.Field
    ) -> pa.Array | pa.ChunkedArray:
        """Return a column of the target."""
        index = data.schema.get_field_index(field.name)
        if index < 0:
            self._check_required(field, data.num_rows, field.name)
            return pa.nulls(data.num_rows, field.type)
        column = data.column(index)
        if column.type.num_fields == 0 and column.type == field.type and not column.null_count:
            return column
        if isinstance(column, pa.ChunkedArray):
            chunks, self.first_row = [], 0
            for chunk in column.chunks:
                chunks.append(self._field(chunk, field, field.name))
                self.first_row += len(chunk)
            return pa.chunked_array(chunks, field.type)
        return self._field(column, field, field.name)

    def check_known(self, fields: Iterable[pa.Field], known: Collection[str], prefix: str) -> None:
        """Raise InputError for columns that the target lacks; only the caller may drop them.

        A column of the null type has no values, so the cast drops it.
        """
        for field in fields:
            if field.name not in known and not is_untyped(field.type):
                problem = "the table has no such column"
                where = f"{self.where}, column {prefix}{field.name}"
                hint = did_you_mean(field.name, sorted(known))
                raise InputError(where, problem, f"drop it, or add it to the table's schema{hint}")

    def _field(self, array: pa.Array, field: pa.Field, path: str) -> pa.Array:
        self._check_required(field, array.null_count, path)
        return self._array(array, field.type, path)

    def _check_required(
        self, field: pa.Field, null_count: int, path: str, missing: pa.Array | None = None
    ) -> None:
        if null_count and not field.nullable:
            key = "" if missing is None else self._key(missing.index(True).as_py(), path)
            problem = f"the table requires a value, nulls in the batch: {null_count}"
            problem += key and f", the first{key}"
            raise InputError(f"{self.where}, column {path}", problem, "give every row a value")

    def _array(self, array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
        if _is_same(array.type, to) and not has_required_fields(to) and not is_vector(to):
            return array
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), to)
        if isinstance(array.type, pa.BaseExtensionType):
            return self._array(plain_values(array), to, path)
        if pa.types.is_dictionary(array.type):
            return self._array(_decoded(array), to, path)
        if pa.types.is_run_end_encoded(array.type):
            return self._array(pc.run_end_decode(array), to, path)
        if is_vector(to):
            return self._vector(array, to, path)
        if is_vector(array.type) and bytes_type(array.type) == to:
            return bytes_of_vectors(array)
        if pa.types.is_struct(to) and pa.types.is_struct(array.type):
            return self._struct(array, to, path)
        if pa.types.is_list(to) and is_list(array.type):
            return self._list(array, to, path)
        if pa.types.is_map(to) and pa.types.is_map(array.type):
            return self._map(array, to, path)
        return self._scalar(array, to, path)

    def _struct(self, array: pa.StructArray, to: pa.StructType, path: str) -> pa.Array:
        names = [field.name for field in array.type]
        self.check_known(array.type, {field.name for field in to}, f"{path}.")
        children = dict(zip(names, array.flatten(), strict=True))
        arrays = []
        for field in to:
            child = children.get(field.name)
            if child is None:
                child = pa.nulls(len(array), field.type)
            own_nulls = child.null_count - array.null_count  # The others are nulls of the struct.
            missing = pc.and_not(array.is_valid(), child.is_valid()) if own_nulls else None
            self._check_required(field, own_nulls, f"{path}.{field.name}", missing)
            child = self._array(child, field.type, f"{path}.{field.name}")
            if self.exact and to == BLOB and field.name == "type":
                self._checked(child, to, f"{path}.type", _require_storage_types)
            arrays.append(child if field.nullable else without_nulls(child))
        made = pa.StructArray.from_arrays(arrays, fields=list(to), mask=_null_mask(array))
        check = {VARIANT: require_variants, BLOB: _require_references}.get(to)
        return self._checked(made, to, path, check) if self.exact and check else made

    def _list(self, array: pa.Array, to: pa.ListType, path: str) -> pa.Array:
        values = self._field(array.flatten(), to.value_field, f"{path}[]")
        offsets = _offsets(pc.list_value_length(array))
        return pa.ListArray.from_arrays(offsets, values, type=to, mask=_null_mask(array))

    def _vector(self, array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
        if array.type == bytes_type(to):
            return vectors_of_bytes(array, to)
        if is_vector(array.type) and plain_vector(array.type) == to:
            # Numbers of null vectors do not count.
            hides = array.values.null_count and array.null_count
            numbers = array.flatten() if hides else array.values
            if not numbers.null_count:
                is_plain = _is_same(array.type, to) and not hides
                return array if is_plain else vectors_of_bytes(bytes_of_vectors(array), to)

        def cast(values: pa.Array) -> pa.Array:
            if not is_list(values.type):
                raise pa.ArrowInvalid("it is no list of numbers")
            lists = values.drop_null()
            numbers = _cast_scalar(lists.flatten(), to.value_type, exact=self.exact)
            vectors = vectors_of_lists(lists, to, numbers)
            if not values.null_count:
                return vectors
            count = pc.cumulative_sum(values.is_valid().cast(pa.int64()))
            places = pc.if_else(values.is_valid(), pc.subtract(count, 1), None)
            return vectors_of_bytes(bytes_of_vectors(vectors).take(places), to)

        return self._checked(array, to, path, cast)

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
        if self.texts is not None and pa.types.is_string(array.type):
            return self._of_texts(array, to, path, self.texts)

        def cast(values: pa.Array) -> pa.Array:
            return _cast_scalar(values, to, exact=self.exact)

        return self._checked(array, to, path, cast)

    def _checked(
        self, array: pa.Array, to: pa.DataType, path: str, cast: Callable[[pa.Array], pa.Array]
    ) -> pa.Array:
        try:
            return cast(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            held, wanted = type_name(array.type), type_name(to)
            what = "a value is wrong" if held == wanted else f"{held} does not fit {wanted}"
            unfit = self._unfit(array, cast, path)
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"{self.where}, column {path}",
                f"{what} ({unfit}{reason})",
                self.next_step + self._widening(array.type, to, path),
            ) from error

    def _of_texts(self, array: pa.Array, to: pa.DataType, path: str, form: TextForm) -> pa.Array:
        def cast(values: pa.Array) -> pa.Array:
            return values_of_texts(values, to, form)

        try:
            return cast(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            row = _first_unfit(array, cast)
            text = "" if row is None else array[row].as_py()
            problem, next_step = why_no_value(text, to, form)
            raise InputError(f"{self.where}, column {path}", problem, next_step) from error

    def _unfit(self, array: pa.Array, cast: Callable[[pa.Array], pa.Array], path: str) -> str:
        """Return the first value that cannot be cast, and its key, as words for a message."""
        row = _first_unfit(array, cast)
        if row is None:
            return ""
        key = self._key(row, path)
        if is_list(array.type) or is_variant(array.type) or array.type == BLOB:  # It may be long.
            return f"the value{key}: "
        try:
            return f"value {array[row]}{key}: "
        except (ValueError, OverflowError):  # Times that Python cannot show.
            return ""

    def _key(self, row: int, path: str) -> str:
        if self.keys is None or any(mark in path for mark in "[{"):  # Its rows are those of a list.
            return ""
        return f" of key {self.keys()[self.first_row + row].as_py()!r}"

    def _widening(self, source: pa.DataType, to: pa.DataType, path: str) -> str:
        is_whole = not any(mark in path for mark in ".[{")
        if not (self.may_widen and is_whole and is_numeric(source) and is_numeric(to)):
            return ""
        if wider_number(to, source) == to:
            return ""
        return f", or widen the table's column with {how_to_allow(['widen_types'])}"


def _require_storage_types(kinds: pa.Array) -> pa.Array:
    if pc.any(pc.invert(pc.is_in(kinds.drop_null(), pa.array(BLOB_STORAGE_TYPES)))).as_py():
        raise pa.ArrowInvalid(f"expected {' or '.join(BLOB_STORAGE_TYPES)}")
    return kinds


def _require_references(blobs: pa.StructArray) -> pa.StructArray:
    held = blobs.drop_null()
    leads = pc.equal(held.field("type"), BLOB_STORAGE_TYPES[1])
    if pc.any(pc.and_(leads, held.field("reference").is_null())).as_py():
        raise pa.ArrowInvalid("it is OUT_OF_LINE, and has no reference")
    return blobs


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary; Arrow cannot select from views, as polars makes them."""
    values = array.dictionary
    plain = _WITHOUT_VIEWS.get(values.type.id)
    return values.cast(plain).take(array.indices) if plain else array.dictionary_decode()


def _first_unfit(array: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> int | None:
    """Return the row of the first value that cannot be cast; None if it is the type."""
    try:
        return first_failing(array, cast, pa.ArrowInvalid) if len(array) else None
    except pa.ArrowNotImplementedError:  # No value can be cast.
        return None


def first_failing(rows: Any, cast: Callable[[Any], object], error: type[Exception]) -> int:
    """Return the first row that cannot be cast; some row cannot."""
    start, end = 0, len(rows)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            cast(rows.slice(start, middle - start))
            start = middle
        except error:
            end = middle
    return start


def _is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether types and names are equal; Arrow's equality ignores names inside lists."""
    inner = [(one.field(i), other.field(i)) for i in range(one.num_fields)] if one == other else []
    return one == other and all(a.name == b.name and _is_same(a.type, b.type) for a, b in inner)


def _cast_scalar(array: pa.Array, to: pa.DataType, *, exact: bool) -> pa.Array:
    source = array.type
    is_given = pa.types.is_integer(source) or pa.types.is_floating(source)
    if exact and is_numeric(to) and (is_given or pa.types.is_decimal128(source)):
        return _fitted(array, to)
    if pa.types.is_integer(source) and pa.types.is_floating(to):
        return pc.cast(array, to, safe=False)
    if source == pa.float32() and to == pa.float64():
        return pc.cast(pc.cast(array, pa.string()), to)
    if source in (pa.float32(), pa.float64()) and to == pa.string():
        return floating_text(array)
    if source in _INTEGER_DIGITS and pa.types.is_decimal128(to):
        # Arrow checks only the types for this cast; between decimals it checks the values.
        array = pc.cast(array, pa.decimal128(_INTEGER_DIGITS[source], 0))
    return pc.cast(array, to)


def _fitted(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Cast numbers of which none may lose a digit, except that doubles are rounded to floats."""
    if array.type == pa.float16():
        array = pc.cast(array, pa.float32())
    source = array.type
    if pa.types.is_floating(source) and not pa.types.is_floating(to):
        if pa.types.is_decimal128(to):
            return pc.cast(pc.cast(array, pa.string()), to)
        size_max = pc.max(pc.abs(array)).as_py()
        if size_max is not None and size_max > EXACT_BELOW[source]:
            raise pa.ArrowInvalid("so large a floating number may have lost digits")
        return pc.cast(array, to)
    if not pa.types.is_floating(to) or source == pa.float32():
        return _cast_scalar(array, to, exact=False)
    found = floats_of(array, to)
    if pa.types.is_floating(source):
        if pc.any(pc.and_(pc.is_inf(found), pc.is_finite(array))).as_py():
            raise pa.ArrowInvalid("the number is too large")
    elif pa.types.is_integer(source):
        if pc.any(_differs(array, found)).as_py():
            raise pa.ArrowInvalid(f"{type_name(to)} would round it")
    elif not pc.cast(pc.cast(found, pa.string()), source).equals(array):
        raise pa.ArrowInvalid(f"{type_name(to)} would round it")
    return found


def _differs(integers: pa.Array, rounded: pa.Array) -> pa.Array:
    """Return which integers a floating type rounds."""
    exact_to = EXACT_BELOW[rounded.type]
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


# ---- Required fields of structs: filling them where the struct itself is null --------------------
#
# These values cannot be read, but Arrow's Parquet writer rejects a null in a required field.


def has_required_fields(data_type: pa.DataType) -> bool:
    """Return whether a type contains a struct with a required field."""
    children = [data_type.field(i) for i in range(data_type.num_fields)]
    required = pa.types.is_struct(data_type) and any(not child.nullable for child in children)
    return required or any(has_required_fields(child.type) for child in children)


def without_nulls(array: pa.Array) -> pa.Array:
    """Replace each null by any value."""
    if array.null_count == 0:
        return array
    padded = pa.concat_arrays([array, pa.array([_placeholder(array.type)], array.type)])
    places = np.arange(len(array))
    places[pc.is_null(array).to_numpy(zero_copy_only=False)] = len(array)
    return padded.take(pa.array(places))


def _placeholder(data_type: pa.DataType) -> Any:
    if pa.types.is_list(data_type) or pa.types.is_map(data_type):
        return []
    if pa.types.is_struct(data_type):
        return {f.name: None if f.nullable else _placeholder(f.type) for f in data_type}
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return ""
    return False if pa.types.is_boolean(data_type) else 0


def selectable(rows: pa.Table) -> pa.Table:
    """Return the rows in layouts of which Arrow can select rows.

    Arrow cannot select from views, as polars makes them, and not from run-end encoded columns. The
    text of a column of JSON may be a view.
    Other columns keep their type, which later steps check and cast in chunks.
    """
    fields, columns = list(rows.schema), rows.columns
    for number, field in enumerate(fields):
        if any(layout in str(field.type) for layout in ("_view", "run_end_encoded", ".json")):
            fields[number] = field.with_type(stored_type(field.type, field.name, "the records"))
            column = cast_table(
                rows.select([number]), pa.schema([fields[number]]), where="the records"
            )
            columns[number] = column.column(0)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))
