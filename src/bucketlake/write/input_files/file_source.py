"""Files as the source of a write: tasks read pieces of them in Arrow, on either engine.

The driver lists the files, reads the footers of Parquet and the first MiB of texts, and cuts them
into pieces: row groups of Parquet, and ranges of bytes of CSV and JSON lines. A range has the lines
that begin in it. A task checks after its reads that a file is still the one that was listed, so a
task that runs twice reads the same rows, or the write fails.

Without Spark the rows are read once and kept. On Spark, rows of Parquet are not kept: one job reads
the key columns alone and counts, the next reads all columns and sends the rows on. That is cheaper
than to hand all rows to the JVM and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.errors import BucketLakeError, InputError
from bucketlake.flow.stage import Engine, Flow, GroupName, JobStage, Rows, Stage, TaskPlan
from bucketlake.format.object_file import open_object
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import columns_at, roots_of
from bucketlake.storage.at_once import at_once
from bucketlake.write.arrow_source import selectable
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
from bucketlake.write.input_files.files import InputFile, InputFiles, listed, open_text
from bucketlake.write.pack import PackedCounts, PackedRecords, pack_records
from bucketlake.write.tag import Tagger

_PIECE_BYTES = 32 << 20
_HEAD_BYTES = 1 << 20
_BATCH_ROWS = 1 << 17
_PIECES_SEEN = 16  # Of a sample.
_POSITION_BITS = 40  # Of a row in its piece; the higher bits are the number of the piece.


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task reads of a file.

    Attributes
    ----------
    file : InputFile
        The file.
    number : int
        Number of the piece among all, in order of the files and of their rows.
    row_groups : tuple of int
        Of Parquet; empty for text.
    start, end : int
        Range of bytes of text: the lines that begin in it.
    names : tuple of str
        Columns of CSV.
    size_bytes : int
        About how much is read.
    """

    file: InputFile
    number: int
    row_groups: tuple[int, ...] = ()
    start: int = 0
    end: int = 0
    names: tuple[str, ...] = ()
    size_bytes: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether it is a part of a text."""
        return self.end - self.start < self.file.stored.size_bytes


@dataclass(frozen=True, slots=True)
class _Head:
    """What the driver reads of a file."""

    schema: pa.Schema
    pieces: tuple[Piece, ...]
    has_rows: bool


@dataclass(frozen=True, slots=True)
class PieceReader:
    """Reads pieces as rows of one schema; picklable.

    Attributes
    ----------
    schema : pa.Schema
        Columns of the records.
    paths : tuple of str or None
        The values to keep of them; None for all.
    reading : Reading
        Texts that mean null in CSV.
    """

    schema: pa.Schema
    paths: tuple[str, ...] | None
    reading: Reading

    def read(self, piece: Piece) -> Iterator[pa.Table]:
        """Yield the rows of a piece in order; raise InputError if they cannot be read."""
        file = piece.file
        try:
            tables = self._parquet(piece) if file.is_parquet else self._text(piece)
            for table in tables:
                rows = cast_table(table, self.schema, where=file.shown)
                yield rows if self.paths is None else columns_at(rows, list(self.paths))
        except BucketLakeError:
            _require_unchanged(file)
            raise
        except (pa.ArrowException, OSError) as error:  # Arrow raises both for damaged bytes.
            _require_unchanged(file)
            raise _unreadable(file, error) from error
        _require_unchanged(file)

    def _parquet(self, piece: Piece) -> Iterator[pa.Table]:
        stored = piece.file.stored
        with (
            open_object(piece.file.storage, stored.path, stored.size_bytes) as source,
            _parquet_file(source) as parquet,
        ):
            for batch in parquet.iter_batches(
                _BATCH_ROWS,
                row_groups=list(piece.row_groups),
                columns=self.schema.names,
                use_threads=False,
            ):
                yield selectable(pa.Table.from_batches([batch]))

    def _text(self, piece: Piece) -> Iterator[pa.Table]:
        data = _lines_of(piece)
        if piece.file.file_format is FileFormat.CSV:
            yield _csv_rows(piece, data, self.schema, self.reading)
            return
        rows = read_json_lines(
            as_json_lines(data), self.schema, self.reading, piece.file.shown, all_columns=True
        )
        unknown = [name for name in rows.column_names if name not in self.schema.names]
        if unknown and self.paths is None:
            raise InputError(
                piece.file.shown,
                f"column {unknown[0]!r} is not in the first MiB of the files",
                f"name its type: files(..., schema=pa.schema({{{unknown[0]!r}: ...}}))",
            )
        kept = rows.select([name for name in rows.column_names if name in self.schema.names])
        yield cast_to_known(kept, self.schema, piece.file.shown, self.reading)


@dataclass(frozen=True, slots=True)
class PackFiles(JobStage):
    """Reads and packs pieces of files; gives the rows, their counts, or both."""

    tagger: Tagger
    reader: PieceReader
    gives_rows: bool = True
    gives_counts: bool = True

    def run(self, plans: Sequence[Piece], _: object) -> Iterator[object]:
        """Pack the rows of each piece."""
        for piece in plans:
            first = piece.number << _POSITION_BITS
            tables = self.reader.read(piece)
            for item in pack_records(self.tagger, tables, first_position=first):
                if isinstance(item, Rows):
                    if self.gives_rows:
                        yield item
                elif self.gives_counts:  # Their size is that of all columns.
                    yield item if self.gives_rows else replace(item, size_bytes=piece.size_bytes)


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Rows that are counted, and read again by each flow that goes on from them.

    Attributes
    ----------
    engine : Engine
        Its tasks read the files.
    stage : PackFiles
        Gives the rows.
    pieces : sequence of Piece
        What it reads.
    counts : list of PackedCounts
        The results of the job that counted.
    """

    engine: Engine
    stage: PackFiles
    pieces: Sequence[Piece]
    counts: list[PackedCounts]

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,
        tasks: Mapping[GroupName, int] | None = None,
    ) -> Flow:
        """Read the rows, and add a stage."""
        sizes = [piece.size_bytes for piece in self.pieces]
        read = self.engine.start(self.stage, self.pieces, sizes)
        return read.then(stage, plans, task_count, tasks)

    def kept(self) -> ReadAgain:
        """Return the flow: the files keep its rows."""
        return self

    def results(self) -> list[PackedCounts]:
        """Return the counts."""
        return self.counts

    def close(self) -> None:
        """Do nothing: nothing is kept."""


class FileSource:
    """Records in files.

    Parameters
    ----------
    given : InputFiles
        The files.
    engine : Engine
        Its tasks read the files.
    known : callable
        Returns the table's schema; None if it has none yet.
    """

    def __init__(
        self,
        given: InputFiles,
        engine: Engine,
        known: Callable[[], pa.Schema | None],
    ) -> None:
        self._given, self._engine, self._known = given, engine, known
        self._paths: tuple[str, ...] | None = None
        self._kept: Flow | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self._whole.names if self._paths is None else self.schema.names
        return names

    @property
    def schema(self) -> pa.Schema:
        """Schema of the records; raises InputError if the files cannot be read."""
        if self._paths is None:
            return self._whole
        return columns_at(self._whole.empty_table(), list(self._paths)).schema

    def is_empty(self) -> bool:
        """Return whether the files have no rows."""
        return not any(head.has_rows for head in self._heads)

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._paths = tuple(paths)

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records in tasks; see the notes of the module."""
        self.close()
        schema, paths = self._whole, self._paths
        if paths is not None:  # Only their columns are read.
            schema = pa.schema([schema.field(name) for name in roots_of(paths, schema.names)])
        pieces = self._pieces
        stage = PackFiles(tagger, PieceReader(schema, paths, self._given.reading))
        sizes = [piece.size_bytes for piece in pieces]
        if self._engine.in_memory or not all(file.is_parquet for file in self._files):
            self._kept = self._engine.start(stage, pieces, sizes).kept()
        else:
            own = pa.schema([schema.field(name) for name in roots_of(tagger.columns, schema.names)])
            reader = PieceReader(own, None, self._given.reading)
            counting = PackFiles(tagger, reader, gives_rows=False)
            counts = self._engine.start(counting, pieces, sizes).results()
            stage = replace(stage, gives_counts=False)
            self._kept = ReadAgain(self._engine, stage, pieces, counts)
        return PackedRecords(self._kept, self.schema, self._engine.tasks_wanted)

    def reading(self) -> tuple[PieceReader, list[Piece]]:
        """Return what reads all columns of the files, and the pieces to read."""
        return PieceReader(self._whole, None, self._given.reading), self._pieces

    def some_rows(self, rows_max: int) -> pa.Table:
        """Return up to so many rows, from pieces all over the files."""
        reader, pieces = self.reading()
        chosen = pieces[:: max(1, -(-len(pieces) // _PIECES_SEEN))]
        tables = [reader.schema.empty_table()]
        for piece in chosen:
            left = rows_max // len(chosen)
            for table in reader.read(piece):
                tables.append(table.slice(0, left))
                left -= tables[-1].num_rows
                if not left:
                    break
        return pa.concat_tables(tables)

    def close(self) -> None:
        """Drop the packed records."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    @cached_property
    def _files(self) -> list[InputFile]:
        return listed(self._given)

    @cached_property
    def _pieces(self) -> list[Piece]:
        pieces = (piece for head in self._heads for piece in head.pieces)
        return [replace(piece, number=number) for number, piece in enumerate(pieces)]

    @cached_property
    def _heads(self) -> list[_Head]:
        fields: list[pa.Field] = []
        if not all(file.is_parquet for file in self._files):  # Only texts are read with types.
            fields = [*(self._known() or ()), *(self._given.schema or ())]
        types = pa.schema(list({field.name: field for field in fields[::-1]}.values()))

        def read(file: InputFile) -> _Head:
            try:
                if file.is_parquet:
                    return _parquet_head(file)
                return _text_head(file, types, self._given.reading)
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(file, error) from error

        return at_once(self._files[0].storage, read, self._files)

    @cached_property
    def _whole(self) -> pa.Schema:
        """The schema of all columns."""
        heads = list(zip(self._files, self._heads, strict=True))
        fixed = [pair for pair in heads if pair[0].file_format is not FileFormat.JSONL]
        require_alike([(file.shown, head.schema.names) for file, head in fixed])
        try:
            schemas = [head.schema for _, head in heads]
            return pa.unify_schemas(schemas, promote_options="permissive").remove_metadata()
        except pa.ArrowException as error:
            shown = ", ".join(sorted({file.shown for file, _ in heads})[:3])
            problem = f"the files do not fit together: {first_line(error)}"
            raise InputError(shown, problem, "write the files one by one") from error


def _parquet_head(file: InputFile) -> _Head:
    stored = file.stored
    with (
        open_object(file.storage, stored.path, stored.size_bytes) as source,
        _parquet_file(source) as parquet,
    ):
        metadata, schema = parquet.metadata, parquet.schema_arrow
    empty = selectable(schema.remove_metadata().empty_table())
    require_distinct_columns(empty, file.shown)
    pieces: list[Piece] = []
    groups: list[int] = []
    size_bytes = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows:
            groups.append(number)
            size_bytes += group.total_byte_size
        if groups and (size_bytes >= _PIECE_BYTES or number == metadata.num_row_groups - 1):
            pieces.append(Piece(file, 0, tuple(groups), size_bytes=size_bytes))
            groups, size_bytes = [], 0
    return _Head(empty.schema, tuple(pieces), metadata.num_rows > 0)


def _text_head(file: InputFile, types: pa.Schema, reading: Reading) -> _Head:
    """Read the names and types of a text, and cut it into ranges."""
    size = file.stored.size_bytes
    is_csv = file.file_format is FileFormat.CSV
    is_array, lines = False, b""
    if size:
        with open_text(file) as source:
            head = source.read(_HEAD_BYTES)
            rest = source.read(1)
            lines = _whole_lines(head) if rest else head
            is_array = not is_csv and head.lstrip()[:1] == b"["
            if is_array:  # Its rows are no lines.
                lines = as_json_lines(head + rest + source.read())
    read = read_csv if is_csv else read_json_lines
    table = read(lines, types, reading, file.shown)
    require_distinct_columns(table, file.shown)
    table = cast_to_known(table, types, file.shown, reading)
    names = tuple(table.column_names) if is_csv else ()
    step = size if file.is_compressed or is_array else _PIECE_BYTES
    ranges = [(start, min(start + step, size)) for start in range(0, size, max(step, 1))]
    pieces = [Piece(file, 0, (), *own, names, own[1] - own[0]) for own in ranges]
    return _Head(table.schema, tuple(pieces), len(table) > 0)


def _whole_lines(data: bytes) -> bytes:
    """Return the lines of a text that end in it; all of it if none does."""
    end = data.rfind(b"\n")
    return data if end < 0 else data[: end + 1]


def _lines_of(piece: Piece) -> bytes:
    """Return the lines that begin in the range of a piece."""
    file, stored = piece.file, piece.file.stored
    if not piece.is_cut:
        with open_text(file) as source:
            return bytes(source.read())
    begin = max(piece.start - 1, 0)  # A line begins at `start` if the byte before ends one.
    data = file.storage.read_range(stored.path, begin, piece.end - begin)
    if piece.start:
        first = data.find(b"\n")
        if first < 0:
            return b""
        data = data[first + 1 :]
    at = piece.end
    while data and not data.endswith(b"\n") and at < stored.size_bytes:
        more = file.storage.read_range(stored.path, at, _HEAD_BYTES)
        end = more.find(b"\n")
        data += more if end < 0 else more[: end + 1]
        at += len(more)
        if end >= 0:
            break
    return data


def _csv_rows(piece: Piece, data: bytes, schema: pa.Schema, reading: Reading) -> pa.Table:
    if piece.is_cut and data.count(b'"') % 2:
        raise InputError(
            piece.file.shown,
            "a quoted value has a line break where the file would be cut",
            "write the rows as Parquet or JSON lines, or in files below 32 MiB",
        )
    names = None if piece.start == 0 else piece.names
    if names is not None and not data.strip():
        return schema.empty_table()
    rows = read_csv(data, schema, reading, piece.file.shown, names)
    if tuple(rows.column_names) != piece.names:
        raise InputError(
            piece.file.shown, f"a line does not have the {len(piece.names)} columns", "correct it"
        )
    kept = rows.select([name for name in rows.column_names if name in schema.names])
    return cast_to_known(kept, schema, piece.file.shown, reading)


def _parquet_file(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True)


def _require_unchanged(file: InputFile) -> None:
    if file.storage.stat(file.stored.path) != file.stored:
        raise InputError(file.shown, "it was changed or deleted while the write ran", "write again")


def _unreadable(file: InputFile, error: Exception) -> InputError:
    text = first_line(error)
    next_step = "correct the file, or name its format with format="
    if isinstance(error, pa.ArrowNotImplementedError):
        next_step = "write these rows as Parquet, or as Arrow tables"
    elif "changed from" in text:
        next_step = "give the values of the column one type"
    return InputError(file.shown, f"cannot be read as {file.file_format.value}: {text}", next_step)
