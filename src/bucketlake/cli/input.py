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
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from bucketlake.errors import InputError


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


def read_files(paths: Sequence[Path], schema: pa.Schema | None, reading: Reading) -> pa.Table:
    """Read data files into one table.

    Parameters
    ----------
    paths : sequence of Path
        At least one.
    schema : pyarrow.Schema or None
        Types of the columns it names; None takes all types from the files.
    reading : Reading
        Format, and what CSV takes for null.

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
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as reason:
        files = ", ".join(map(str, paths))
        raise InputError(files, f"the files do not go together: {reason}", "read one") from reason


def read_file(path: Path, schema: pa.Schema | None, reading: Reading) -> pa.Table:
    """Read one data file; as `read_files`."""
    file_format = FileFormat.of(path, reading.file_format)
    known = pa.schema([]) if schema is None else schema
    try:
        match file_format:
            case FileFormat.PARQUET:
                table = pq.read_table(path, partitioning=None)
            case FileFormat.CSV:
                table = _read_csv(path, known, reading)
            case FileFormat.JSONL:
                table = _read_json_lines(path, known)
    except pa.ArrowException as reason:
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
    return pyarrow.json.read_json(path, parse_options=options).select(names)


def _json_field(field: pa.Field) -> pa.Field | None:
    """Return the type to read a column with; None where the reader sees by itself.

    Numbers are told from text by JSON itself, and an error of a later cast names the column.
    """
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return None
    return field.with_type(pa.string()) if pa.types.is_date(field.type) else field


def _require_distinct_columns(table: pa.Table, path: Path) -> None:
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise InputError(str(path), f"column {name!r} is there twice", "remove one of them")


def _cast(table: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """Give the columns that a schema names its types, without loss."""
    for position, name in enumerate(table.column_names):
        if name not in schema.names:
            continue
        field = schema.field(name)
        try:
            column = table[name].cast(field.type)
        except pa.ArrowException as reason:
            raise InputError(
                f"{path}, column {name!r}",
                f"{table[name].type} does not fit the table's {field.type}: {_first_line(reason)}",
                "correct the values, or convert the column first",
            ) from reason
        table = table.set_column(position, field.with_nullable(True), column)
    return table


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
