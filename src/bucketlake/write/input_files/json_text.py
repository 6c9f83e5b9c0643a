"""JSON lines as Arrow tables: one object per line, or an array of objects.

PyArrow's reader takes ordinary lines, a block of whole lines at a time, so that it sees every line
at once. It gets the types of the columns; texts stand for values that JSON has no kind for, such as
times. It guesses no type of a known column, and none of a time. What it does not take goes to
:mod:`bucketlake.write.input_files.json_objects`, where errors name the row and the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.json

from bucketlake.errors import InputError
from bucketlake.model.bounded_json import NESTING_MAX, nesting_of
from bucketlake.write.arrow_rows import KEEP_NULLS
from bucketlake.write.input_files.json_objects import (
    BadValueError,
    after_space,
    objects_in,
    objects_table,
    where_of,
)
from bucketlake.write.input_files.reading import BYTE_ORDER_MARK, Reading
from bucketlake.write.input_files.text_rows import cast_rows, may_be_rounded, with_new_types

_NULL_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|\n)[ \t\r\n]*null")  # PyArrow may crash.


def as_json_lines(data: bytes) -> bytes:
    """Return an array of objects as one object per line; other data as they are.

    The text of each object stays, so that no number loses a digit.
    """
    if not data.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"["):
        return data
    try:
        objects = list(_objects_of_array(data.decode()))
    except (ValueError, RecursionError) as error:
        raise pa.ArrowInvalid(f"no array of JSON objects: {error}") from error
    return "\n".join(objects).encode()


def _objects_of_array(text: str) -> Iterator[str]:
    decoder = json.JSONDecoder()
    at = after_space(text, text.index("[") + 1)
    if not text.startswith("]", at):
        while True:
            value, end = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                raise ValueError(f"an element is {text[at:end][:40]}, not an object")
            yield text[at:end].replace("\n", " ").replace("\r", " ")  # Strings escape them.
            at = after_space(text, end)
            if not text.startswith(",", at):
                break
            at = after_space(text, at + 1)
        if not text.startswith("]", at):
            raise ValueError(f"no , or ] at character {at}")
    if text[at + 1 :].strip():
        raise ValueError("text after the array")


def json_rows(
    data: bytes, types: pa.Schema, reading: Reading, where: str, first_row: int = 0
) -> pa.Table:
    """Read whole lines; the result has the columns that PyArrow or the objects name.

    Parameters
    ----------
    data : bytes
        Whole lines.
    types : pyarrow.Schema
        Types of columns, by their names in the table.
    reading : Reading
        Other names in the file; the zone of times.
    where : str
        The file, for messages.
    first_row : int
        Number of rows before the data, for messages.

    Raises
    ------
    InputError
        If a value does not fit its column.
    ArrowException
        If a line is no object.
    """
    named = pa.schema([field.with_name(reading.file_name(field.name)) for field in types])
    rows = _by_arrow(data, named)
    if rows is None:
        try:
            rows = objects_table(list(objects_in(_decoded(data))), named, reading.form)
        except BadValueError as error:
            raise where_of(error, where, first_row) from error
    else:
        rows = cast_rows(rows, named, reading.form, where, first_row)
        rows = with_new_types(rows, named, reading.form, where, times_only=True)
    return rows.rename_columns(reading.table_names(rows.column_names))


def names_in(data: bytes) -> list[str]:
    """Return the names that occur in objects; raise ArrowInvalid if there are others."""
    if not _NULL_LINE.search(data):
        try:
            return list(_read(data, pa.schema([])).column_names)
        except pa.ArrowInvalid:  # Values of several kinds, or no object.
            pass
    return list(dict.fromkeys(name for found in objects_in(_decoded(data)) for name in found))


def require_names(data: bytes, names: list[str], where: str) -> None:
    """Raise InputError if an object lacks a name: its null would replace the stored value."""
    for found in objects_in(_decoded(data)):
        for name in names:
            if name not in found:
                raise InputError(
                    where,
                    f"an object lacks {name!r}, which another one has: {json.dumps(found)[:60]}",
                    KEEP_NULLS,
                )


def _read(data: bytes, types: pa.Schema) -> pa.Table:
    require_shallow(data)
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse = pyarrow.json.ParseOptions(explicit_schema=types)
    rows = pyarrow.json.read_json(pa.BufferReader(data), read, parse)
    try:
        _ = rows.column_names
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"names of columns are not UTF-8: {error}") from error
    return rows


def _by_arrow(data: bytes, types: pa.Schema) -> pa.Table | None:
    """Return the rows as PyArrow reads them, or None if it does not take them as they are.

    Times, dates and bytes are texts.
    """
    if _NULL_LINE.search(data):
        return None
    try:
        held = [field.with_type(_with_leaves(field.type, _as_text)) for field in types]
        rows = _read(data, pa.schema(held))
        more = [field for field in rows.schema if types.get_field_index(field.name) < 0]
        texts = [field.with_type(_with_leaves(field.type, _as_text_time)) for field in more]
        if texts != more:  # PyArrow guesses times, and drops their zone.
            rows = _read(data, pa.schema([*held, *texts]))
    except pa.ArrowInvalid:
        return None
    return None if any(map(may_be_rounded, rows.columns)) else rows


def _with_leaves(to: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other types in place of those inside its structs and lists."""
    if pa.types.is_struct(to):
        return pa.struct([field.with_type(_with_leaves(field.type, leaf)) for field in to])
    if pa.types.is_list(to):
        return pa.list_(to.value_field.with_type(_with_leaves(to.value_type, leaf)))
    return leaf(to)


def _as_text(to: pa.DataType) -> pa.DataType:
    """Return the type as which PyArrow reads the values of a type without loss."""
    if pa.types.is_map(to):
        raise pa.ArrowInvalid("PyArrow reads no maps")
    if pa.types.is_decimal(to):  # PyArrow does not check the number of digits.
        return pa.decimal128(38, to.scale)
    if pa.types.is_integer(to):
        return pa.int64()
    return pa.string() if pa.types.is_binary(to) else _as_text_time(to)


def _as_text_time(to: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(to) else to


def _decoded(data: bytes) -> str:
    require_shallow(data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"the text is not UTF-8: {error}") from error


# ---- The bound on JSON of input files ------------------------------------------------------------
#
# Arrow's reader crashes on brackets deep inside each other.


def require_shallow(data: bytes) -> None:
    """Raise ArrowInvalid if more brackets are inside each other than any column type has."""
    found = nesting_of(data)
    if found > NESTING_MAX:
        raise pa.ArrowInvalid(
            f"{found} brackets are inside each other; at most {NESTING_MAX} are read"
        )
