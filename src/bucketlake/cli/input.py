"""Reading data files: Parquet, CSV or JSON become one Arrow table with a table's types.

JSON is one object per line, or an array of objects. The path ``-`` is the standard input.

If a schema is given, its columns are read with its types, so that ``007`` stays text in a text
column. Other columns keep the type from the file. Values that cannot be read raise ``InputError``
with file, column and value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from bucketlake.errors import InputError
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import type_name


class FileFormat(Enum):
    """Formats of data files; the value is the name on the command line."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"

    @classmethod
    def of(cls, path: Path, named: str | None) -> FileFormat:
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


STANDARD_INPUT = Path("-")

_PARQUET_MAGIC = b"PAR1"

_EXACT_BELOW = 2.0**53  # A single fraction makes the reader read a column as doubles.

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


def read_files(
    paths: Sequence[Path], schema: pa.Schema | None, reading: Reading, *, alike: bool = False
) -> pa.Table:
    """Read data files into one table.

    Parameters
    ----------
    paths : sequence of Path
        The files, at least one.
    schema : pyarrow.Schema or None
        Types of its columns; None takes all types from the files.
    reading : Reading
        Format, and texts that mean null in CSV.
    alike : bool
        Whether all files must have the same columns.

    Returns
    -------
    pyarrow.Table
        Rows in order of the files; a column that a file does not have is null in its rows.

    Raises
    ------
    InputError
        If a file does not have its format, or a value does not fit its column.
    """
    if paths.count(STANDARD_INPUT) > 1:
        raise InputError("-", "the standard input can be read only once", "name it once")
    tables = [read_file(path, schema, reading) for path in paths]
    if alike:
        _require_alike(paths, tables)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as reason:
        files = ", ".join(map(str, paths))
        problem = f"the files do not fit together: {reason}"
        raise InputError(files, problem, "read one file") from reason


def read_file(path: Path, schema: pa.Schema | None, reading: Reading) -> pa.Table:
    """Read one data file; see `read_files`."""
    piped = None
    if path == STANDARD_INPUT:
        piped = sys.stdin.buffer.read()
        file_format = _format_of_content(piped, reading.file_format)
    elif path.is_file():
        file_format = FileFormat.of(path, reading.file_format)
    else:  # A pipe can be read only once, and has size 0.
        next_step = "write the rows to a regular file, or pipe them into the command with -"
        raise InputError(str(path), "it is not a regular file", next_step)
    known = pa.schema([]) if schema is None else schema
    try:
        match file_format:
            case FileFormat.PARQUET:
                source = path if piped is None else pa.BufferReader(piped)
                table = pq.read_table(source, partitioning=None, coerce_int96_timestamp_unit="us")
            case FileFormat.CSV:
                data = path.read_bytes() if piped is None else piped
                table = _read_csv(data, known, reading)
            case FileFormat.JSONL:
                data = path.read_bytes() if piped is None else piped
                table = _read_json_lines(_as_json_lines(data), known, path)
    except (pa.ArrowException, OSError) as reason:  # Arrow raises both for damaged bytes.
        problem = f"cannot be read as {file_format.value}: {_first_line(reason)}"
        raise InputError(str(path), problem, "correct the file, or set --format") from reason
    _require_distinct_columns(table, path)
    return _cast(table, known, path, reading)


def _format_of_content(data: bytes, named: str | None) -> FileFormat:
    """Return the named format of the standard input, or else the format of its first bytes."""
    if named is not None:
        return FileFormat(named)
    if data.startswith(_PARQUET_MAGIC):
        return FileFormat.PARQUET
    if data.lstrip()[:1] in (b"{", b"["):
        return FileFormat.JSONL
    known = ", ".join(known.value for known in FileFormat)
    raise InputError(
        "-",
        "the standard input does not begin like Parquet or JSON",
        f"name the format with --format: {known}",
    )


def _read_csv(data: bytes, schema: pa.Schema, reading: Reading) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        column_types={f.name: f.type for f in schema if not (reading.widens and _widens(f))},
        null_values=list(reading.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    if not data:
        raise pa.ArrowInvalid("the file is empty; a first line names the columns")
    return pyarrow.csv.read_csv(pa.BufferReader(data), convert_options=convert)


def _as_json_lines(data: bytes) -> bytes:
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


def _read_json_lines(data: bytes, schema: pa.Schema, path: Path) -> pa.Table:
    if not data.strip():
        return schema.empty_table()
    # Read first without types: with types, the reader would add all typed columns to every file.
    names = pyarrow.json.read_json(pa.BufferReader(data)).column_names
    typed = [_json_field(schema.field(name)) for name in names if name in schema.names]
    explicit = pa.schema([field for field in typed if field is not None])
    options = pyarrow.json.ParseOptions(explicit_schema=explicit)
    source = pa.BufferReader(data)
    table = pyarrow.json.read_json(source, parse_options=options).select(names)
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


def _json_field(field: pa.Field) -> pa.Field | None:
    """Return the type to read a column with; None if the reader finds the type.

    JSON distinguishes numbers from text, and an error of a later cast names the column.
    """
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return None
    return field.with_type(pa.string()) if pa.types.is_date(field.type) else field


def _require_alike(paths: Sequence[Path], tables: Sequence[pa.Table]) -> None:
    """Raise InputError if a file lacks a column of another: nulls would replace stored values."""
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        lacking = [p for p, t in zip(paths, tables, strict=True) if name not in t.column_names]
        if lacking:
            raise InputError(
                str(lacking[0]),
                f"it does not have column {name!r}, which another file has",
                "add the column, or write the files one by one",
            )


def _require_distinct_columns(table: pa.Table, path: Path) -> None:
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise InputError(str(path), f"column {name!r} occurs twice", "remove one column")


def _cast(table: pa.Table, schema: pa.Schema, path: Path, reading: Reading) -> pa.Table:
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


def _cast_column(given: pa.Table, field: pa.Field, path: Path) -> pa.ChunkedArray:
    cast = cast_table(given, pa.schema([field]), where=str(path))
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


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
