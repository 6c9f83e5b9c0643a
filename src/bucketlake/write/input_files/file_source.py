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

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.flow.stage import Engine, Flow, Rows, in_runs
from bucketlake.flow.threads import HERE, fits_here
from bucketlake.model.column_type import with_arrays
from bucketlake.model.field_path import columns_at, roots_of
from bucketlake.model.row_merge import how_to_allow
from bucketlake.read.arrow_reader import gathered
from bucketlake.storage.base import at_once
from bucketlake.write.input_files.files import InputFile, InputFiles, Union, listed
from bucketlake.write.input_files.heads import PIECE_BYTES, FileHead, read_head
from bucketlake.write.input_files.piece_reader import PieceReader, unreadable
from bucketlake.write.input_files.pieces import Piece, count_quotes, cut_pieces, find_names
from bucketlake.write.input_files.reading import FileFormat
from bucketlake.write.pack import PackedRecords, pack_records
from bucketlake.write.tag import Tagger

_PIECES_SEEN = 16  # Of a sample.
_PACKED_ROWS_MIN = 1 << 16
_SMALL_BYTES, _KEPT_BYTES_MAX = 1 << 20, 128 << 20  # Of a file that is read once, and of all.
_POSITION_BITS = 40  # Of a row in its piece; the higher bits are the number of the piece.


def _pack(
    tagger: Tagger,
    reader: PieceReader,
    pieces: Sequence[Piece],
    *,
    gives_rows: bool = True,
    gives_counts: bool = True,
) -> Iterator[object]:
    """Pack the rows of a run of pieces; small pieces are packed together.

    It gives the rows, their counts, or both.
    """
    first = pieces[0].number << _POSITION_BITS
    tables = gathered(chain.from_iterable(map(reader.read, pieces)), _PACKED_ROWS_MIN)
    rows = (table.combine_chunks() for table in tables)
    for item in pack_records(tagger, rows, first_position=first):
        if isinstance(item, Rows):
            if gives_rows:
                yield item
        elif gives_counts:  # Their size is that of all columns.
            yield item if gives_rows else replace(item, size_bytes=_size_of(pieces))


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
        self, given: InputFiles, engine: Engine, known: Callable[[], pa.Schema | None]
    ) -> None:
        self._given, self._engine, self._known = given, engine, known
        self._paths: tuple[str, ...] | None = None
        self._kept: Flow | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [*self.schema.names]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the records; raises InputError if the files cannot be read."""
        if self._paths is None:
            return self._whole
        return columns_at(self._whole.empty_table(), list(self._paths)).schema

    def is_empty(self) -> bool:
        """Return whether the files have no rows."""
        return not any(head.pieces for head in self._heads)

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._paths = tuple(paths)

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records in tasks; see the notes of the module."""
        if self._engine.in_memory or not fits_here(size_bytes=_size_of(self._pieces)):
            return self._packed(tagger, self._engine)
        return self._packed(tagger, HERE, partial(self._packed, tagger, self._engine))

    def _packed(
        self, tagger: Tagger, engine: Engine, by_tasks: Callable[[], PackedRecords] | None = None
    ) -> PackedRecords:
        self.close()
        schema, paths = self._whole, self._paths
        if paths is not None:  # Only their columns are read.
            schema = pa.schema([schema.field(name) for name in roots_of(paths, schema.names)])
        weight = min(PIECE_BYTES, _size_of(self._pieces) / engine.tasks_wanted)
        pieces = in_runs(self._pieces, [piece.size_bytes for piece in self._pieces], weight)
        pack = partial(_pack, tagger, PieceReader(schema, paths, self._given.reading, self.gaps))
        sizes = [*map(_size_of, pieces)]
        told: Sequence[object] | None = None
        if engine.in_memory or not all(file.is_parquet for file in self._files):
            self._kept = engine.start(pack, pieces, sizes).kept()
        else:  # What goes on from this flow reads the files again.
            counted = {*roots_of(tagger.counted(schema.names), schema.names)}
            own = pa.schema([field for field in schema if field.name in counted])
            reader = PieceReader(own, None, self._given.reading)
            count = partial(_pack, tagger, reader, gives_rows=False)
            told = engine.start(count, pieces, sizes).results()
            self._kept = engine.start(partial(pack, gives_counts=False), pieces, sizes)
        return PackedRecords(self._kept, self.schema, engine, by_tasks=by_tasks, told=told)

    def reading(self) -> tuple[PieceReader, list[Piece]]:
        """Return what reads all columns of the files, and the pieces to read."""
        return PieceReader(self._whole, None, self._given.reading, self.gaps), self._pieces

    def some_rows(self, rows_max: int | None) -> pa.Table:
        """Return up to so many rows, from pieces all over the files; None for all rows."""
        reader, pieces = self.reading()
        if rows_max is None:
            rows = chain.from_iterable(map(reader.read, pieces))
            return pa.concat_tables([reader.schema.empty_table(), *rows])
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
    def gaps(self) -> frozenset[str]:
        """Columns that some files lack, whose nulls keep stored values."""
        if self._given.union is not Union.GAPS:
            return frozenset()
        names = [frozenset(head.schema.names) for head in self._heads if len(head.schema)]
        every = frozenset(chain.from_iterable(names))
        return every.difference(every.intersection(*names))

    @cached_property
    def _pieces(self) -> list[Piece]:
        whole = [head.pieces for head in self._heads]
        doubtful = [own for own in whole if len(own) > 1 and own[0].is_csv]
        if doubtful:
            cut = iter(self._cut_at_rows(doubtful))
            whole = [next(cut) if own in doubtful else own for own in whole]
        return [replace(piece, number=n) for n, piece in enumerate(chain.from_iterable(whole))]

    def _cut_at_rows(self, files: list[tuple[Piece, ...]]) -> list[tuple[Piece, ...]]:
        """Return the pieces of large files of CSV, which tasks read once for their quotes."""
        pieces = [replace(p, number=n) for n, p in enumerate(chain.from_iterable(files))]
        work = partial(count_quotes, self._given.reading.separator)
        flow = self._engine.start(work, pieces, [piece.size_bytes for piece in pieces])
        counted = sorted(flow.results(), key=lambda quotes: quotes.piece)
        flow.close()
        ends = list(accumulate(map(len, files), initial=0))
        return [cut_pieces(pieces[a:b], counted[a:b]) for a, b in pairwise(ends)]

    @cached_property
    def _types(self) -> pa.Schema:
        """Types of columns: those that the caller names, else those of the table."""
        reading, fields = self._given.reading, dict[str, pa.Field]()
        # Else only texts are read with types.
        if reading.fits_numbers or not all(file.is_parquet for file in self._files):
            fields = {field.name: field for field in (*(self._known() or ()), *reading.schema)}
        known = pa.schema([field.with_nullable(True) for field in fields.values()])
        return with_arrays(known)  # The write checks lengths.

    @cached_property
    def _heads(self) -> list[FileHead]:
        types, reading = self._types, self._given.reading
        sizes = [file.stored.size_bytes for file in self._files]
        # Other processes read the files again: their plans should be small.
        keeps = self._engine.in_memory
        is_bounded = sum(size for size in sizes if size <= _SMALL_BYTES) <= _KEPT_BYTES_MAX

        def read(file: InputFile) -> FileHead:
            try:
                if keeps and is_bounded and 0 < file.stored.size_bytes <= _SMALL_BYTES:
                    file = replace(file, content=file.storage.read(file.stored.path))
                return read_head(file, types, reading, keeps_footers=keeps)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(file, error) from error

        return self._with_late_names(at_once(self._files[0].storage, read, self._files))

    def _with_late_names(self, heads: list[FileHead]) -> list[FileHead]:
        """Add the columns of known types that objects have for the first time after the head."""
        types = self._types
        doubtful = [
            h for h in heads if not h.is_whole and {*types.names}.difference(h.schema.names)
        ]
        if not doubtful:
            return heads
        work = partial(find_names, types.names, self._given.reading)
        pieces = [piece for head in doubtful for piece in head.pieces]
        flow = self._engine.start(work, pieces, [piece.size_bytes for piece in pieces])
        late: dict[str, set[str]] = defaultdict(set)
        for shown, names in flow.results():
            late[shown] |= names
        flow.close()
        return [
            head.with_columns([field for field in types if field.name in late[head.file.shown]])
            for head in heads
        ]

    @cached_property
    def _whole(self) -> pa.Schema:
        """The schema of all columns."""
        heads = self._heads
        if self._given.union in (Union.NONE, Union.NEW):
            self._require_alike([h for h in heads if h.file.file_format is not FileFormat.JSONL])
        try:
            schemas = [head.schema for head in heads]
            return pa.unify_schemas(schemas, promote_options="permissive").remove_metadata()
        except pa.ArrowException as error:
            shown = ", ".join(sorted({head.file.shown for head in heads})[:3])
            problem = f"the files do not fit together: {str(error).splitlines()[0]}"
            raise InputError(shown, problem, "write the files one by one") from error

    def _require_alike(self, heads: list[FileHead]) -> None:
        """Raise InputError if a file lacks a column of another: nulls would replace stored values.

        A column that the table lacks has no stored values.
        """
        union, known = self._given.union, self._known() or pa.schema([])
        for name in dict.fromkeys(name for head in heads for name in head.schema.names):
            is_new = union is Union.NEW and known.get_field_index(name) < 0
            for head in heads:
                if head.schema.get_field_index(name) < 0 and not is_new:
                    raise InputError(
                        head.file.shown,
                        f"it does not have column {name!r}, which another file has",
                        "add the column, or write the files one by one; "
                        f"{how_to_allow(['fill_missing'])} writes nulls there, also into stored "
                        "records, and an upsert with missing='keep' (--missing keep) keeps stored "
                        "values",
                    )


def _size_of(pieces: Sequence[Piece]) -> int:
    return sum(piece.size_bytes for piece in pieces)
