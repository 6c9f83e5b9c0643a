"""Columns of texts as columns of values: the types of a table, and those of new columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.cast import cast_table, first_failing
from bucketlake.model.text_values import EXACT_BELOW, TextForm, has_inexact, type_of_texts

_WIDER = (
    {pa.int32(): pa.int64(), pa.float32(): pa.float64()},
    {pa.int32(): pa.float64(), pa.float32(): pa.float64()},
)
"""Types that a write may widen a column to, if the numbers of a file do not fit it."""


def cast_rows(
    rows: pa.Table, types: pa.Schema, form: TextForm, where: str, first_row: int
) -> pa.Table:
    """Cast the columns that have a type; the others stay.

    Raises
    ------
    InputError
        If a value does not fit; the error names the row, counted from 1, the column and the value.
    """
    known = {field.name: field.with_nullable(True) for field in types}
    schema = pa.schema([known.get(field.name, field) for field in rows.schema])
    try:
        return cast_table(rows, schema, where=where, exact=True, texts=form)
    except InputError:
        cast = partial(cast_table, target=schema, exact=True, texts=form)
        bad = first_failing(rows, cast, InputError)
        where = f"{where}, row {first_row + bad + 1}"
        cast_table(rows.slice(bad, 1), schema, where=where, exact=True, texts=form)
        raise


def with_new_types(
    rows: pa.Table, types: pa.Schema, form: TextForm, where: str, *, times_only: bool = False
) -> pa.Table:
    """Give texts in columns that have no type the type of what they mean.

    ``times_only`` is for strings of JSON, whose numbers are no strings.
    """
    new, type_of = [], partial(type_of_texts, form=form, times_only=times_only)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if types.get_field_index(field.name) < 0:
            try:
                kind = _meant_type(column.combine_chunks(), type_of)
            except pa.ArrowInvalid as error:
                next_step = name_type(field.name)
                raise InputError(f"{where}, column {field.name}", str(error), next_step) from error
            if kind != field.type:
                new.append(field.with_type(kind))
    return cast_rows(rows, pa.schema(new), form, where, 0) if new else rows


def _meant_type(column: pa.Array, type_of: Callable[[pa.Array], pa.DataType]) -> pa.DataType:
    if pa.types.is_string(column.type):
        return type_of(column)
    if pa.types.is_list(column.type):
        return pa.list_(_meant_type(column.flatten(), type_of))
    if pa.types.is_struct(column.type):
        children = zip(column.type, column.flatten(), strict=True)
        return pa.struct([f.with_type(_meant_type(own, type_of)) for f, own in children])
    return column.type


def name_type(name: str) -> str:
    """Return what to do about the type of a new column."""
    return f"name its type: bl.files(..., schema=pa.schema({{{name!r}: ...}}))"


def widened(
    read: Callable[[pa.Schema], pa.Table], types: pa.Schema, fixed: Collection[str]
) -> pa.Table:
    """Read rows; a number that does not fit its column gives the column the next wider type.

    The write then widens the table's column, or refuses the type. ``fixed`` are the columns whose
    type the caller names; they keep it.
    """
    try:
        return read(types)
    except InputError:
        kept = frozenset(fixed)
        for wider in _WIDER:
            wide = [f if f.name in kept else f.with_type(wider.get(f.type, f.type)) for f in types]
            try:
                rows = read(pa.schema(wide))
            except InputError:
                continue
            return _narrowed(rows, types)
        raise


def _narrowed(rows: pa.Table, types: pa.Schema) -> pa.Table:
    """Give the columns whose values fit it their type."""
    fields, columns = list(rows.schema), rows.columns
    for place, field in enumerate(rows.schema):
        at = types.get_field_index(field.name)
        to = field if at < 0 else types.field(at)
        if to.type == field.type:
            continue
        try:
            column = cast_table(rows.select([place]), pa.schema([to]), exact=True).column(0)
        except InputError:
            continue
        if not (pa.types.is_floating(to.type) and _is_rounded(rows.column(place), column)):
            fields[place], columns[place] = to, column
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def _is_rounded(wide: pa.ChunkedArray, narrow: pa.ChunkedArray) -> bool:
    """Return whether floats lose more than digits of a fraction."""
    changed = pc.not_equal(wide, narrow.cast(wide.type))
    large = pc.greater_equal(pc.abs(wide), EXACT_BELOW[narrow.type])
    return bool(pc.any(pc.and_(changed, large)).as_py())


def may_be_rounded(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether a floating column, or one inside it, has numbers too large to be exact."""
    return any(
        has_inexact(leaves) for leaves in _leaves(column) if pa.types.is_floating(leaves.type)
    )


def _leaves(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    for chunk in chunks:
        if pa.types.is_struct(chunk.type):
            for child in chunk.flatten():
                yield from _leaves(child)
        elif pa.types.is_list(chunk.type):
            yield from _leaves(chunk.flatten())
        else:
            yield chunk
