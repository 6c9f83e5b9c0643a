"""Reading data files: Parquet, CSV or JSON become one Arrow table with a table's types.

JSON is one object per line, or an array of objects. The path ``-`` is the standard input.

If a schema is given, its columns are read with its types, so that ``007`` stays text in a text
column. Other columns keep the type from the file. Values that cannot be read raise ``InputError``
with file, column and value.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from bucketlake.errors import InputError
from bucketlake.write.input_files.data_files import (
    FileFormat,
    Reading,
    as_json_lines,
    cast_to_known,
    first_line,
    read_csv,
    read_json_lines,
    require_alike,
    require_distinct_columns,
)

STANDARD_INPUT = Path("-")

_PARQUET_MAGIC = b"PAR1"


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
        require_alike([(str(p), t.column_names) for p, t in zip(paths, tables, strict=True)])
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
                table = read_csv(data, known, reading, str(path))
            case FileFormat.JSONL:
                data = path.read_bytes() if piped is None else piped
                table = read_json_lines(as_json_lines(data), known, reading, str(path))
    except (pa.ArrowException, OSError) as reason:  # Arrow raises both for damaged bytes.
        problem = f"cannot be read as {file_format.value}: {first_line(reason)}"
        raise InputError(str(path), problem, "correct the file, or set --format") from reason
    require_distinct_columns(table, str(path))
    return cast_to_known(table, known, str(path), reading)


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
