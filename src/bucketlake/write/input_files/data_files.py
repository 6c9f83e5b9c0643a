"""Data files of users: their formats, and CSV and JSON as Arrow tables with a table's types.

JSON is one object per line, or an array of objects. If a schema is given, its columns are read with
its types, so that ``007`` stays text in a text column. Other columns keep the type from the file.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from bucketlake.errors import InputError
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import type_name
from bucketlake.write.arrow_rows import KEEP_NULLS

_EXACT_BELOW = 2.0**53  # A single fraction makes the reader read a column as doubles.
_LONG_BELOW = 2.0**63  # A greater whole number does, too.

_NULL_FIRST = re.compile(rb"[\xef\xbb\xbf\s]*null")  # Perhaps after a byte order mark.
_NULL_LINE = re.compile(rb"\nnull[ \t\r]*(?:\n|\Z)")
_BAD_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(CSV conversion error .*)")


class FileFormat(Enum):
    """Formats of data files; the value is the name on the command line."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"

    @classmethod
    def of(cls, path: PurePath, named: str | None) -> FileFormat:
        """Return the named format, or else the format of the file's ending."""
        if named is not None:
            return cls(named)
        try:
            return _BY_ENDING[path.suffix.lower()]
        except KeyError:
            raise InputError(
                str(path),
                f"the ending {path.suffix!r} does not name a format",
                f"name the format with --format: {', '.join(known.value for known in cls)}",
            ) from None


_BY_ENDING = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read data files."""

    file_format: str | None = None  # None: use each file's ending.
    null_values: tuple[str, ...] = ("",)  # CSV: texts that mean null, outside quotes.
    widens: bool = False  # Whether a number that does not fit its column keeps the file's type.
    names_alike: bool = False  # Whether all objects of JSON must have the same names.


def read_csv(
    data: bytes,
    schema: pa.Schema,
    reading: Reading,
    path: str,
    names: Sequence[str] | None = None,
) -> pa.Table:
    """Read CSV; raise ArrowException if it cannot be read, InputError for a value of a column.

    ``names`` are those of the columns if the first line does not say them.
    """
    convert = pyarrow.csv.ConvertOptions(
        column_types={f.name: f.type for f in schema if not (reading.widens and _widens(f))},
        null_values=list(reading.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    if not data:
        raise pa.ArrowInvalid("the file is empty; a first line names the columns")
    columns = pyarrow.csv.ReadOptions(column_names=None if names is None else list(names))
    try:
        table = pyarrow.csv.read_csv(pa.BufferReader(data), columns, convert_options=convert)
    except pa.ArrowInvalid as error:
        found = _BAD_VALUE.search(str(error))
        if found is None:
            raise
        first = data.partition(b"\n")[0].decode("utf-8-sig", "replace")
        header = next(csv.reader([first])) if names is None else names
        place = int(found[1])
        if place >= len(header):  # A name has a line break.
            raise
        raise _untyped(path, header[place], found[2].partition(". If ")[0]) from error
    for name in table.column_names:
        is_new = name not in schema.names and pa.types.is_floating(table.schema.field(name).type)
        most = pc.max(pc.abs(table[name])).as_py() if is_new else None
        if most is not None and most >= _LONG_BELOW:
            convert.include_columns, convert.column_types = [name], {name: pa.string()}
            texts = pyarrow.csv.read_csv(pa.BufferReader(data), columns, convert_options=convert)
            if pc.all(pc.match_substring_regex(texts[name], r"^[+-]?\d+$")).as_py():
                longest = max(pc.drop_null(texts[name]).to_pylist(), key=len)
                raise _untyped(path, name, f"{longest} does not fit a bigint")
    return table


def _untyped(path: str, name: str, problem: str) -> InputError:
    return InputError(
        f"{path}, column {name}",
        problem,
        "correct the values; or, if the table does not have the column, name its type: "
        f"bl.files(..., schema=pa.schema({{{name!r}: ...}}))",
    )


def as_json_lines(data: bytes) -> bytes:
    """Return an array of objects as one object per line; other data as they are.

    The text of each object stays, so that no number loses a digit.
    """
    if not data.lstrip().startswith(b"["):
        return data
    try:
        objects = list(_objects_of_array(data.decode()))
    except (ValueError, RecursionError) as error:
        raise pa.ArrowInvalid(f"no array of JSON objects: {error}") from error
    return "\n".join(objects).encode()


def _objects_of_array(text: str) -> Iterator[str]:
    decoder = json.JSONDecoder()
    at = _after_space(text, text.index("[") + 1)
    if not text.startswith("]", at):
        while True:
            value, end = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                raise ValueError(f"an element is {text[at:end][:40]}, not an object")
            yield text[at:end].replace("\n", " ").replace("\r", " ")  # Strings escape them.
            at = _after_space(text, end)
            if not text.startswith(",", at):
                break
            at = _after_space(text, at + 1)
        if not text.startswith("]", at):
            raise ValueError(f"no , or ] at character {at}")
    if text[at + 1 :].strip():
        raise ValueError("text after the array")


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def read_json_lines(
    data: bytes, schema: pa.Schema, reading: Reading, path: str, *, all_columns: bool = False
) -> pa.Table:
    """Read one object per line; raise ArrowException if that cannot be done.

    With ``all_columns``, the result has those of the schema that no object has, too.
    """
    if not data.strip():
        return schema.empty_table()
    if _NULL_FIRST.match(data) or (b"\nnull" in data and _NULL_LINE.search(data)):
        raise pa.ArrowInvalid("a line is null, not an object")  # Arrow's reader may crash.
    if all_columns:
        names = schema.names
    else:  # Read first without types: with types, the reader adds all typed columns.
        names = pyarrow.json.read_json(pa.BufferReader(data)).column_names
    typed = [_json_field(schema.field(name)) for name in names if name in schema.names]
    explicit = pa.schema([field for field in typed if field is not None])
    options = pyarrow.json.ParseOptions(explicit_schema=explicit)
    source = pa.BufferReader(data)
    table = pyarrow.json.read_json(source, parse_options=options)
    names = table.column_names if all_columns else names
    table = table.select(names)
    if reading.names_alike:
        _require_names(data, table, path)
    for name in names:
        is_whole = name in schema.names and pa.types.is_integer(schema.field(name).type)
        if is_whole and pa.types.is_floating(table[name].type):
            most = pc.max(pc.abs(table[name])).as_py()
            if most is not None and most >= _EXACT_BELOW:
                raise InputError(
                    f"{path}, column {name}",
                    f"some numbers have a point or an exponent, so that {most:.0f} is too large to "
                    "be read exactly",
                    "write whole numbers with digits only",
                )
    return table


def _require_names(data: bytes, table: pa.Table, path: str) -> None:
    """Raise InputError if an object lacks a name: its null would replace the stored value."""
    doubtful = [name for name in table.column_names if table[name].null_count]
    if not doubtful:
        return
    text, decoder, at = data.decode("utf-8-sig", "replace"), json.JSONDecoder(), 0
    while (at := _after_space(text, at)) < len(text):
        found, end = decoder.raw_decode(text, at)
        for name in doubtful:
            if name not in found:
                raise InputError(
                    path,
                    f"an object lacks {name!r}, which another one has: {text[at:end][:60]}",
                    KEEP_NULLS,
                )
        at = end


def _json_field(field: pa.Field) -> pa.Field | None:
    """Return the type to read a column with; None if the reader finds the type.

    JSON distinguishes numbers from text, and an error of a later cast names the column.
    """
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return None
    return field.with_type(pa.string()) if pa.types.is_date(field.type) else field


def require_alike(named: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Raise InputError if a file lacks a column of another: nulls would replace stored values.

    ``named`` has each file, as messages show it, and the names of its columns.
    """
    for name in dict.fromkeys(name for _, names in named for name in names):
        for file, names in named:
            if name not in names:
                raise InputError(
                    file,
                    f"it does not have column {name!r}, which another file has",
                    "add the column, or write the files one by one",
                )


def require_distinct_columns(table: pa.Table, path: str) -> None:
    """Raise InputError if two columns have one name."""
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise InputError(path, f"column {name!r} occurs twice", "remove one column")


def cast_to_known(table: pa.Table, schema: pa.Schema, path: str, reading: Reading) -> pa.Table:
    """Cast the columns of a schema to its types, without loss."""
    for position, name in enumerate(table.column_names):
        if name in schema.names:
            field = schema.field(name).with_nullable(True)
            try:
                column = _cast_column(table.select([position]), field, path)
            except InputError:
                are_numbers = _is_number(table.schema.types[position]) and _is_number(field.type)
                if not (reading.widens and are_numbers):
                    raise
                continue  # The write widens the table's column, or refuses the type.
            table = table.set_column(position, field, column)
    return table


def _widens(field: pa.Field) -> bool:
    """Return whether a number may be too large or too fine for a column, but fit a wider one."""
    return field.type in (pa.int32(), pa.float32())


def _is_number(data_type: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(data_type) for is_kind in kinds)


def _cast_column(given: pa.Table, field: pa.Field, path: str) -> pa.ChunkedArray:
    cast = cast_table(given, pa.schema([field]), where=path)
    source = given.schema.types[0]
    problem = _refusal(source, field.type)
    if problem is None and not (source == field.type or pa.types.is_null(source)):
        back = cast.column(0).cast(source)
        if not pa.types.is_string(source) and _changed(given.column(0), back):
            problem = "some values would change"
    if problem is not None:
        raise InputError(
            f"{path}, column {field.name}",
            f"{type_name(source)} does not fit the table's {type_name(field.type)}: {problem}",
            "correct the values, or convert the column first",
        )
    return cast.column(0)


def _refusal(source: pa.DataType, to: pa.DataType) -> str | None:
    """Return why no value of a type can be cast to another type; None if values can be cast."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(to) and source.tz and not to.tz:
        return "without its time zone, the time would change"
    is_number = pa.types.is_integer(source) or pa.types.is_floating(source)
    if is_number and pa.types.is_temporal(to):
        return "a number does not say its unit"
    return None


def _changed(before: pa.ChunkedArray, after: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(before.type):  # NaN equals NaN here.
        before, after = (pc.if_else(pc.is_nan(held), None, held) for held in (before, after))
    return not before.equals(after)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return str(error).strip().splitlines()[0]
