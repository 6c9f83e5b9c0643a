"""Data files of commands: rows are written completely or not at all, and read as a write does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cli.output import instant_texts, rows_of
from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.model.text_table import plain_value
from bucketlake.model.text_values import base64_of
from bucketlake.storage.memory import MemoryStorage
from bucketlake.storage.user_file import local_file
from bucketlake.write.input_files.files import InputFiles
from bucketlake.write.input_files.reading import FileFormat, Reading

if TYPE_CHECKING:
    from bucketlake.write.input_files.file_source import FileSource


def write_file(rows: pa.Table, path: Path, named_format: str | None) -> None:
    """Write rows to a file; an existing file is replaced and keeps its mode.

    Raises
    ------
    InputError
        If the file's ending does not name a format, and no format is given.
    UnsupportedFeatureError
        If the format cannot hold a column's type.
    StorageError
        If the file cannot be written.
    """
    file_format = FileFormat.of(path, named_format)
    try:
        with local_file(path) as unfinished:
            _WRITERS[file_format](rows, unfinished)
    except pa.ArrowException as reason:
        raise UnsupportedFeatureError(
            f"a column's type in {file_format.value} ({reason})",
            str(path),
            "choose --columns, or write Parquet",
        ) from reason


def _write_parquet(rows: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq  # Only exports need it.

    pq.write_table(rows, path, compression="zstd")


def _write_csv(rows: pa.Table, path: Path) -> None:
    from pyarrow.csv import write_csv

    # Without empty batches: PyArrow 22 repeats the column names after an empty batch.
    filled = [batch for batch in rows.to_batches() if batch.num_rows]
    write_csv(_with_texts(pa.Table.from_batches(filled, rows.schema)), path)


def _with_texts(rows: pa.Table) -> pa.Table:
    """Return rows with base64 for bytes, and text for times that Arrow cannot print.

    Arrow prints years from -32767 to 32767, and wrong years beyond them for times with a zone.
    """
    for place, field in enumerate(rows.schema):
        if pa.types.is_binary(field.type):
            texts = base64_of(rows.column(place).combine_chunks())
            rows = rows.set_column(place, field.name, texts)
        if pa.types.is_timestamp(field.type) or pa.types.is_date32(field.type):
            limits = pc.min_max(rows.column(place))
            if any(_is_far(limits[end]) for end in ("min", "max")):
                rows = rows.set_column(place, field.name, instant_texts(rows.column(place)))
    return rows


def _is_far(time: pa.Scalar) -> bool:
    try:
        time.as_py()
    except (OverflowError, ValueError):
        return True
    return False


def _write_json_lines(rows: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in rows.to_batches(max_chunksize=10_000):
            for row in rows_of(batch):
                file.write(json.dumps(plain_value(row), ensure_ascii=False) + "\n")


_WRITERS: dict[FileFormat, Callable[[pa.Table, Path], None]] = {
    FileFormat.PARQUET: _write_parquet,
    FileFormat.CSV: _write_csv,
    FileFormat.JSONL: _write_json_lines,
}


# ---- Data files of a command, as ``bl.files`` reads them; the path ``-`` is the standard input ---

STANDARD_INPUT = Path("-")

_PARQUET_MAGIC = b"PAR1"


def input_files(
    paths: Sequence[Path | str], reading: Reading, storage_options: Mapping[str, str] | None = None
) -> InputFiles:
    """Return files as the records of a write.

    Parameters
    ----------
    paths : sequence of Path or str
        Paths, addresses and patterns, at least one.
    reading : Reading
        How the files are read.
    storage_options : mapping of str to str, optional
        Settings of the store of addresses.

    Raises
    ------
    InputError
        If a path is no regular file, or the standard input has no known format.
    """
    if list(paths).count(STANDARD_INPUT) > 1:
        raise InputError("-", "the standard input can be read only once", "name it once")
    if STANDARD_INPUT in paths:
        piped = sys.stdin.buffer.read()
        name = f"rows.{_format_of_content(piped, reading.file_format).value}"
        storage = MemoryStorage("standard-input")
        storage.put(name, piped)
        paths = [f"{storage.root}/{name}" if path == STANDARD_INPUT else path for path in paths]
    for path in paths:
        if isinstance(path, Path) and path.exists() and not path.is_file():
            # A pipe can be read only once, and has size 0.
            next_step = "write the rows to a regular file, or pipe them into the command with -"
            raise InputError(str(path), "it is not a regular file", next_step)
    options = storage_options if any("://" in str(path) for path in paths) else None
    return InputFiles(tuple(map(str, paths)), reading, storage_options=options)


def read_input_file(path: Path, schema: pa.Schema | None, reading: Reading) -> pa.Table:
    """Return the rows of a file; columns of CSV and JSON have the types of a schema."""
    from bucketlake.write.merge_write import rows_in_files

    return rows_in_files(_source(path, schema, reading))


def schema_of_file(path: Path, reading: Reading) -> pa.Schema:
    """Return the columns of a file."""
    return _source(path, None, reading).schema


def _source(path: Path, schema: pa.Schema | None, reading: Reading) -> FileSource:
    # Most commands read no file, and should start fast.
    from bucketlake.flow.threads import HERE
    from bucketlake.write.input_files.file_source import FileSource

    return FileSource(input_files([path], reading), HERE, lambda: schema)


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
