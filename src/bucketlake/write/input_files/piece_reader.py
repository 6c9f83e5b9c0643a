"""What tasks do with pieces of files: read their rows as rows of one schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.errors import BucketLakeError, InputError
from bucketlake.model.cast import cast_table, selectable
from bucketlake.model.field_path import columns_at
from bucketlake.write.arrow_rows import KEEP_NULLS
from bucketlake.write.input_files.csv_text import CSV_BLOCK_BYTES, csv_batches
from bucketlake.write.input_files.files import InputFile, open_bytes
from bucketlake.write.input_files.heads import parquet_file
from bucketlake.write.input_files.json_text import as_json_lines, json_rows, require_names
from bucketlake.write.input_files.pieces import Piece, blocks_of_lines, open_piece
from bucketlake.write.input_files.reading import Reading
from bucketlake.write.input_files.text_rows import cast_rows, name_type

_BATCH_ROWS = 1 << 17


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
        How the files are read.
    gaps : frozenset of str
        Columns that some files lack, whose nulls stand for that.
    """

    schema: pa.Schema
    paths: tuple[str, ...] | None
    reading: Reading
    gaps: frozenset[str] = frozenset()

    def read(self, piece: Piece) -> Iterator[pa.Table]:
        """Yield the rows of a piece in order; raise InputError if they cannot be read."""
        file = piece.file
        try:
            tables = self._parquet(piece) if file.is_parquet else self._text(piece)
            for table in tables:
                rows = cast_table(self._with_folders(table, piece), self.schema, where=file.shown)
                self._require_given(rows, piece)
                yield rows if self.paths is None else columns_at(rows, list(self.paths))
        except BucketLakeError:
            _require_unchanged(file)
            raise
        except (pa.ArrowException, OSError) as error:  # Arrow raises both for damaged bytes.
            _require_unchanged(file)
            raise unreadable(file, error) from error
        _require_unchanged(file)

    def _with_folders(self, rows: pa.Table, piece: Piece) -> pa.Table:
        """Give rows the columns whose values stand in the names of the file's folders."""
        texts = self.reading.folder_values(piece.file.stored.path)
        names = sorted({*texts} & {*self.schema.names} - {*piece.names})
        if not names:
            return rows
        rows = rows.drop_columns(sorted({*names} & {*rows.column_names}))
        values = [pa.repeat(pa.scalar(texts[name], pa.string()), len(rows)) for name in names]
        form, where = self.reading.form, piece.file.shown
        typed = cast_rows(pa.table(values, names=names), self.schema, form, where, 0)
        for field, column in zip(typed.schema, typed.columns, strict=True):
            rows = rows.append_column(field, column)
        return rows

    def _parquet(self, piece: Piece) -> Iterator[pa.Table]:
        with (
            open_bytes(piece.file) as source,
            parquet_file(source, piece.footer) as parquet,
        ):
            for batch in parquet.iter_batches(
                _BATCH_ROWS,
                row_groups=list(piece.row_groups),
                columns=[self.reading.file_name(name) for name in self.schema.names],
                use_threads=False,
            ):
                rows = selectable(pa.Table.from_batches([batch]))
                yield rows.rename_columns(self.reading.table_names(rows.column_names))

    def _text(self, piece: Piece) -> Iterator[pa.Table]:
        read = self._csv if piece.is_csv else self._json
        try:
            yield from read(piece, 0)
        except InputError:
            if not piece.start:
                raise
            for _ in read(
                piece, self._rows_before(piece)
            ):  # The same error, with the row in the file.
                pass
            raise

    def _rows_before(self, piece: Piece) -> int:
        before = piece.before()
        with open_piece(before) as source:
            if not piece.is_csv:
                return sum(block.count(b"\n") for block in blocks_of_lines(source))
            return sum(map(len, self._batches(source, before, "")))

    def _batches(self, source: pa.NativeFile, piece: Piece, where: str) -> Iterator[pa.RecordBatch]:
        lines = piece.lines_before_rows
        return csv_batches(source, piece.names, lines, self.reading, where, CSV_BLOCK_BYTES)

    def _csv(self, piece: Piece, first_row: int) -> Iterator[pa.Table]:
        shown = piece.file.shown
        kept = [name for name in piece.names if self.schema.get_field_index(name) >= 0]
        with open_piece(piece) as source:
            for batch in self._batches(source, piece, shown):
                texts = pa.Table.from_batches([batch]).select(kept)
                yield cast_rows(texts, self.schema, self.reading.form, shown, first_row)
                first_row += batch.num_rows

    def _json(self, piece: Piece, first_row: int) -> Iterator[pa.Table]:
        shown = piece.file.shown
        with open_piece(piece) as source:
            blocks = [as_json_lines(source.read())] if piece.is_array else blocks_of_lines(source)
            for lines in blocks:
                if not lines.strip():
                    continue
                rows = json_rows(lines, self.schema, self.reading, shown, first_row)
                unknown = [
                    name for name in rows.column_names if self.schema.get_field_index(name) < 0
                ]
                if unknown and self.paths is None:
                    problem = f"column {unknown[0]!r} is not in the first MiB of the files"
                    raise InputError(shown, problem, name_type(unknown[0]))
                rows = rows.select([n for n in rows.column_names if n not in unknown])
                if self.reading.objects_alike:
                    doubtful = [
                        self.reading.file_name(name)
                        for name in piece.names
                        if rows.schema.get_field_index(name) >= 0 and rows[name].null_count
                    ]
                    if doubtful:
                        require_names(lines, doubtful, shown)
                yield rows
                first_row += len(rows)

    def _require_given(self, rows: pa.Table, piece: Piece) -> None:
        """Raise InputError for a null in a column whose nulls mean that a file lacks it."""
        for name in self.gaps.intersection(piece.names, rows.column_names):
            if rows[name].null_count:
                raise InputError(
                    f"{piece.file.shown}, column {name}",
                    "it has a null, and another file lacks the column",
                    KEEP_NULLS,
                )


def _require_unchanged(file: InputFile) -> None:
    if file.storage.stat(file.stored.path) != file.stored:
        raise InputError(file.shown, "it was changed or deleted while the write ran", "write again")


def unreadable(file: InputFile, error: Exception) -> InputError:
    """Return the error for a file that is not what its format says."""
    text = str(error).strip().splitlines()[0]
    next_step = "correct the file, or name its format with format= (--format)"
    if isinstance(error, pa.ArrowNotImplementedError):
        next_step = "write these rows as Parquet, or as Arrow tables"
    return InputError(file.shown, f"cannot be read as {file.file_format.value}: {text}", next_step)
