"""Data files as input: Parquet, CSV or JSON lines become one Arrow table with a table's types.

Where a schema is given, its columns are read with its types, so that ``007`` stays text in a text
column; columns that it does not know keep the type that the file suggests. What cannot be read is
refused with file, column and value.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Formats of data files, by the word that names them on the command line."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"

    @classmethod
    def of(cls, path: Path, named: str | None) -> FileFormat:
        """Return the format that was named, or else the one that the file's ending tells."""
        if named is not None:
            return cls(named)
        try:
            return _BY_ENDING[path.suffix.lower()]
        except KeyError:
            raise InputError(
                str(path),
                f"the ending {path.suffix!r} tells no format",
                f"name one with --format: {', '.join(known.value for known in cls)}",
            ) from None


_EXACT_BELOW = 2.0**53  # Of a column with one number that is not whole the reader makes doubles.

_BY_ENDING = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How data files are read."""

    file_format: str | None = None  # None: by each file's ending.
    null_values: tuple[str, ...] = ("",)  # CSV: what stands for null, outside quotes.


def read_files(
    paths: Sequence[Path], schema: pa.Schema | None, reading: Reading, *, alike: bool = False
) -> pa.Table:
    """Read data files into one table.

    Parameters
    ----------
    paths : sequence of Path
        At least one.
    schema : pyarrow.Schema or None
        Types of the columns it names; None takes all types from the files.
    reading : Reading
        Format, and what CSV takes for null.
    alike : bool
        Whether each file has to have the columns that another one has.

    Returns
    -------
    pyarrow.Table
        Rows in order of the files; a column that a file lacks is null in its rows.

    Raises
    ------
    InputError
        If a file is not what its format says, or a value does not fit its column.
    """
    tables = [read_file(path, schema, reading) for path in paths]
    if alike:
        _require_alike(paths, tables)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as reason:
        files = ", ".join(map(str, paths))
        raise InputError(files, f"the files do not go together: {reason}", "read one") from reason


def read_file(path: Path, schema: pa.Schema | None, reading: Reading) -> pa.Table:
    """Read one data file; as `read_files`."""
    if not path.is_file():  # A pipe can be read once only, and says that it is of size 0.
        raise InputError(str(path), "it is no regular file", "write the rows to one first")
    file_format = FileFormat.of(path, reading.file_format)
    known = pa.schema([]) if schema is None else schema
    try:
        match file_format:
            case FileFormat.PARQUET:
                table = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
            case FileFormat.CSV:
                table = _read_csv(path, known, reading)
            case FileFormat.JSONL:
                table = _read_json_lines(path, known)
    except (pa.ArrowException, OSError) as reason:  # Arrow raises either on damaged bytes.
        problem = f"cannot be read as {file_format.value}: {_first_line(reason)}"
        raise InputError(str(path), problem, "correct the file, or name its --format") from reason
    _require_distinct_columns(table, path)
    return _cast(table, known, path)


def require_known_columns(table: pa.Table, schema: pa.Schema, where: str) -> None:
    """Refuse columns that a schema does not have: a mistyped name would widen the table."""
    unknown = [name for name in table.column_names if name not in schema.names]
    if unknown:
        raise InputError(
            where,
            f"the table has no column {unknown[0]!r}; it has {schema.names}",
            "correct the name, or add the column with --add-columns",
        )


def _read_csv(path: Path, schema: pa.Schema, reading: Reading) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        column_types=schema,
        null_values=list(reading.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    if path.stat().st_size == 0:
        raise pa.ArrowInvalid("the file is empty; a first line names the columns")
    return pyarrow.csv.read_csv(path, convert_options=convert)


def _read_json_lines(path: Path, schema: pa.Schema) -> pa.Table:
    if path.stat().st_size == 0:
        return schema.empty_table()
    # Read first without types: given types, the reader adds all of their columns to every file.
    names = pyarrow.json.read_json(path).column_names
    typed = [_json_field(schema.field(name)) for name in names if name in schema.names]
    explicit = pa.schema([field for field in typed if field is not None])
    options = pyarrow.json.ParseOptions(explicit_schema=explicit)
    table = pyarrow.json.read_json(path, parse_options=options).select(names)
    for name in names:
        is_whole = name in schema.names and pa.types.is_integer(schema.field(name).type)
        if is_whole and pa.types.is_floating(table[name].type):
            most = pc.max(pc.abs(table[name])).as_py()
            if most is not None and most >= _EXACT_BELOW:
                raise InputError(
                    f"{path}, column {name}",
                    f"some numbers have a point or an exponent, and {most:.0f} is too large to be "
                    "told exactly beside them",
                    "write whole numbers with digits alone",
                )
    return table


def _json_field(field: pa.Field) -> pa.Field | None:
    """Return the type to read a column with; None where the reader sees by itself.

    Numbers are told from text by JSON itself, and an error of a later cast names the column.
    """
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return None
    return field.with_type(pa.string()) if pa.types.is_date(field.type) else field


def _require_alike(paths: Sequence[Path], tables: Sequence[pa.Table]) -> None:
    """Refuse a file without a column of another one: its nulls would replace what is stored."""
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        lacking = [p for p, t in zip(paths, tables, strict=True) if name not in t.column_names]
        if lacking:
            raise InputError(
                str(lacking[0]),
                f"it lacks column {name!r}, which another of the files has",
                "add the column, or write the files one by one",
            )


def _require_distinct_columns(table: pa.Table, path: Path) -> None:
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise InputError(str(path), f"column {name!r} is there twice", "remove one of them")


def _cast(table: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """Give the columns that a schema names its types, without loss."""
    for position, name in enumerate(table.column_names):
        if name in schema.names:
            field = schema.field(name).with_nullable(True)
            column = _cast_column(table.select([position]), field, path)
            table = table.set_column(position, field, column)
    return table


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
    """Return why values of one type cannot stand for those of another at all; None if they can."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(to) and source.tz and not to.tz:
        return "without its zone a time is another one"
    is_number = pa.types.is_integer(source) or pa.types.is_floating(source)
    if is_number and pa.types.is_temporal(to):
        return "a number does not say of what unit it is"
    return None


def _changed(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(one.type):  # NaN is NaN here.
        one, other = (pc.if_else(pc.is_nan(held), None, held) for held in (one, other))
    return not one.equals(other)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
