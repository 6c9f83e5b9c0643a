"""What the driver reads of a file before the tasks do: its columns and its pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.errors import InputError
from bucketlake.format.base_file import with_int96_zones
from bucketlake.model.cast import cast_table, selectable
from bucketlake.model.column_type import is_number_type
from bucketlake.write.input_files.csv_text import CSV_BLOCK_BYTES, csv_batches, csv_columns
from bucketlake.write.input_files.files import InputFile, open_bytes, open_text
from bucketlake.write.input_files.json_text import as_json_lines, json_rows, names_in
from bucketlake.write.input_files.pieces import LINE_BYTES_MAX, Piece
from bucketlake.write.input_files.reading import BYTE_ORDER_MARK, FileFormat, Reading
from bucketlake.write.input_files.text_rows import cast_rows, widened, with_new_types

PIECE_BYTES = 32 << 20
HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileHead:
    """What the driver reads of a file.

    Attributes
    ----------
    file : InputFile
        The file.
    schema : pyarrow.Schema
        Its columns, by their names in the table.
    pieces : tuple of Piece
        What tasks read of it; none if it has no rows.
    is_whole : bool
        Whether all names are known: more objects of JSON may have more.
    """

    file: InputFile
    schema: pa.Schema
    pieces: tuple[Piece, ...]
    is_whole: bool = True

    def with_columns(self, more: Sequence[pa.Field]) -> FileHead:
        """Return the head of a file that has more columns."""
        names = [field.name for field in more]  # No piece has the columns of folders.
        pieces = tuple(replace(piece, names=(*piece.names, *names)) for piece in self.pieces)
        return replace(self, schema=pa.schema([*self.schema, *more]), pieces=pieces)


def read_head(
    file: InputFile, types: pa.Schema, reading: Reading, *, keeps_footers: bool
) -> FileHead:
    """Read the head of a file; raise InputError or ArrowException if it cannot be read.

    Parameters
    ----------
    file : InputFile
        The file.
    types : pyarrow.Schema
        Types of columns: those that the caller names, else those of the table. A number that does
        not fit a column of the table may widen it.
    reading : Reading
        How the file is read.
    keeps_footers : bool
        Whether the pieces of Parquet have the footer.
    """
    if file.is_parquet:
        head = _parquet_head(file, types, reading, keeps_footers=keeps_footers)
    else:
        read = _csv_head if file.file_format is FileFormat.CSV else _json_head
        head = read(file, types, reading)
    known = {field.name: field for field in types}
    folders = reading.folder_values(file.stored.path)
    held = frozenset(head.schema.names)
    own = [known.get(n, pa.field(n, pa.string())) for n in folders if n not in held]
    return replace(head, schema=pa.schema([*head.schema, *own])) if own else head


def _parquet_head(
    file: InputFile, types: pa.Schema, reading: Reading, *, keeps_footers: bool
) -> FileHead:
    with open_bytes(file) as source, parquet_file(source) as parquet:
        metadata, schema = parquet.metadata, with_int96_zones(parquet)
        if reading.fits_numbers:
            schema = _fitting(parquet, schema, types, reading)
    empty = selectable(schema.remove_metadata().empty_table())
    empty = empty.rename_columns(reading.table_names(empty.column_names))
    _require_distinct(empty.column_names, file.shown)
    pieces: list[Piece] = []
    groups: list[int] = []
    size_bytes = 0
    names = tuple(empty.column_names)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows:
            groups.append(number)
            size_bytes += group.total_byte_size
        if groups and (size_bytes >= PIECE_BYTES or number == metadata.num_row_groups - 1):
            piece = Piece(file, row_groups=tuple(groups), names=names, size_bytes=size_bytes)
            pieces.append(replace(piece, footer=metadata) if keeps_footers else piece)
            groups, size_bytes = [], 0
    return FileHead(file, empty.schema, tuple(pieces))


def _fitting(
    parquet: pq.ParquetFile, schema: pa.Schema, types: pa.Schema, reading: Reading
) -> pa.Schema:
    """Give numbers the types of the table's columns, if these hold all values as they are."""
    for place, name in enumerate(reading.table_names(schema.names)):
        at = types.get_field_index(name)
        field, to = schema.field(place), None if at < 0 else types.field(at).type
        if to in (None, field.type) or not all(map(is_number_type, (to, field.type))):
            continue
        values = parquet.read([field.name])
        try:
            cast = cast_table(values, pa.schema([pa.field(field.name, to)]), exact=True)
            is_same = cast.column(0).cast(field.type).equals(values.column(0))
        except (InputError, pa.ArrowInvalid):
            continue
        if is_same:
            schema = schema.set(place, field.with_type(to))
    return schema


def parquet_file(source: pa.NativeFile, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open Parquet of any writer; without its footer, that is read first."""
    return pq.ParquetFile(
        source, metadata=footer, coerce_int96_timestamp_unit="us", pre_buffer=True
    )


def _csv_head(file: InputFile, types: pa.Schema, reading: Reading) -> FileHead:
    head, rest = _beginning(file, HEAD_BYTES)
    names, skipped = csv_columns(head, reading, file.shown, types.names)
    _require_distinct(names, file.shown)
    try:
        texts = _first_rows(file, (head, rest), names, skipped, reading)
    except (InputError, pa.ArrowInvalid):  # Perhaps the first row is longer.
        head, rest = _beginning(file, CSV_BLOCK_BYTES)
        texts = _first_rows(file, (head, rest), names, skipped, reading)

    def read(wanted: pa.Schema) -> pa.Table:
        rows = cast_rows(texts, wanted, reading.form, file.shown, 0)
        return with_new_types(rows, wanted, reading.form, file.shown)

    rows = widened(read, types, reading.schema.names)
    if not rest and not len(rows):
        return FileHead(file, rows.schema, ())
    pieces = _ranges(file, names, is_cut=not file.is_compressed)
    pieces = [replace(piece, skipped=skipped) for piece in pieces]
    return FileHead(file, rows.schema, tuple(pieces))


def _beginning(file: InputFile, size_bytes: int) -> tuple[bytes, bytes]:
    """Return the first bytes of a text, and one more if there is one."""
    if not file.stored.size_bytes:
        return b"", b""
    with open_text(file) as source:
        return source.read(size_bytes), source.read(1)


def _first_rows(
    file: InputFile,
    beginning: tuple[bytes, bytes],
    names: Sequence[str],
    skipped: int,
    reading: Reading,
) -> pa.Table:
    """Return the rows of the head that it holds wholly."""
    head, rest = beginning
    schema = pa.schema([(name, pa.string()) for name in names])
    if not head.strip():
        return schema.empty_table()
    # If there is more text, the first block has whole rows only.
    data, size = (head + rest, len(head)) if rest else (head + b"\n", len(head) + 2)
    source, is_whole = pa.BufferReader(data), not rest
    where = file.shown
    batches = csv_batches(source, names, skipped, reading, where, size, is_whole=is_whole)
    return pa.Table.from_batches(islice(batches, 1) if rest else batches, schema)


def _json_head(file: InputFile, types: pa.Schema, reading: Reading) -> FileHead:
    lines, is_array, is_whole = _first_lines(file)
    if not lines.strip():
        return FileHead(file, pa.schema([]), ())
    names = reading.table_names(names_in(lines))
    _require_distinct(names, file.shown)
    named = frozenset(names)
    own = pa.schema([field for field in types if field.name in named])
    fixed = reading.schema.names
    rows = widened(lambda wanted: json_rows(lines, wanted, reading, file.shown), own, fixed)
    held = frozenset(rows.column_names)
    rows = rows.select([name for name in names if name in held])
    pieces = _ranges(file, tuple(names), is_cut=not (file.is_compressed or is_array))
    pieces = [replace(piece, is_array=is_array) for piece in pieces]
    return FileHead(file, rows.schema, tuple(pieces), is_whole)


def _first_lines(file: InputFile) -> tuple[bytes, bool, bool]:
    """Return the first lines, whether they are an array, and whether they are all."""
    if not file.stored.size_bytes:
        return b"", False, True
    with open_text(file) as source:
        head = source.read(HEAD_BYTES)
        if head.removeprefix(BYTE_ORDER_MARK).lstrip()[:1] == b"[":  # Its rows are no lines.
            return as_json_lines(head + source.read()), True, True
        while (more := source.read(HEAD_BYTES)) and b"\n" not in head:
            head += more
            if len(head) > LINE_BYTES_MAX:
                raise pa.ArrowInvalid(f"a line is longer than {LINE_BYTES_MAX >> 20} MiB")
    return (head[: head.rfind(b"\n") + 1] if more else head), False, not more


def _ranges(file: InputFile, names: tuple[str, ...], *, is_cut: bool) -> list[Piece]:
    size = file.stored.size_bytes
    step = PIECE_BYTES if is_cut else size
    return [
        Piece(
            file,
            start=start,
            end=min(start + step, size),
            names=names,
            size_bytes=min(step, size - start),
        )
        for start in range(0, size, max(step, 1))
    ]


def _require_distinct(names: Sequence[str], path: str) -> None:
    """Raise InputError if two columns have one name."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(path, f"column {name!r} occurs twice", "remove one column")
