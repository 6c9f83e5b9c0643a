"""CSV as columns of texts: PyArrow splits the text, and guesses no types."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv

from bucketlake.errors import InputError
from bucketlake.write.input_files.reading import BYTE_ORDER_MARK, Reading

CSV_BLOCK_BYTES = 4 << 20
"""Bytes that are split at once; a row cannot be longer."""

_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
_NO_UTF8 = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid UTF8")
_SEPARATORS = ";\t|,"


def csv_columns(
    head: bytes, reading: Reading, where: str, known: Sequence[str]
) -> tuple[tuple[str, ...], int]:
    """Find the columns of a file in its first bytes.

    ``known`` are the columns of the table and those with a given type; empty if there are none.

    Returns
    -------
    tuple of str
        Names of the columns in the table.
    int
        Number of lines before the rows: the header, and empty lines before it.

    Raises
    ------
    InputError
        If the first line does not name the columns.
    """
    lines = csv.reader(io.StringIO(_text_of(head), newline=""), delimiter=reading.separator)
    skipped, first = 0, list[str]()
    try:
        for first in lines:
            if first:
                break
            skipped += 1
    except csv.Error as error:
        raise pa.ArrowInvalid(f"the first line: {error}") from error
    if not first and (reading.header or reading.columns is None):
        raise pa.ArrowInvalid("the file is empty; a first line names the columns")
    if not reading.header:
        assert reading.columns is not None, "files() asks for the names"
        return reading.columns, 0
    names = list(reading.columns or reading.table_names(first))
    if reading.columns is None:
        _require_header(first, names, reading, where, known)
    return tuple(names), skipped + 1


def _text_of(head: bytes) -> str:
    return head.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace")


def _require_header(
    first: list[str], names: list[str], reading: Reading, where: str, known: Sequence[str]
) -> None:
    """Raise InputError if the first line is a row, or is not split at its separators."""
    shown = reading.separator.join(first)[:80]
    is_known = not known or not {*known}.isdisjoint(names)
    others = [mark for mark in _SEPARATORS if mark != reading.separator and mark in first[0]]
    if others and (len(first) == 1 or not is_known):
        mark = others[0]
        raise InputError(
            where,
            f"the first line has no {reading.separator!r}, but {mark!r}: {shown}",
            f"name the separator: bl.files(..., separator={mark!r}) (--separator {mark!r})",
        )
    if not is_known or any(map(_is_number, names)):
        example = list(known)[: len(first)] or [f"c{place}" for place in range(len(first))]
        raise InputError(
            where,
            f"the first line names no columns of the table: {shown}",
            "if the file has no header, name its columns: "
            f"bl.files(..., header=False, columns={example}) "
            f"(--no-header --columns {','.join(example)}); if the table has other names for them, "
            f"say so: columns={{{first[0]!r}: {example[0]!r}}} (--rename {first[0]}={example[0]})",
        )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return name.lower() not in ("nan", "inf", "infinity")


def csv_batches(
    source: pa.NativeFile,
    names: Sequence[str],
    skipped: int,
    reading: Reading,
    where: str,
    block_bytes: int,
    *,
    is_whole: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of CSV after some lines, with all columns as texts.

    ``is_whole`` says whether the text ends with a row.

    Raises
    ------
    InputError
        If a row has too few or too many values, a quote stays open, or a text is not UTF-8.
    ArrowException
        If the text is no CSV.
    """
    # PyArrow takes the end of the text for a closing quote. An open one takes in this row, too.
    last_row = b'\n""' + reading.separator.encode() * (len(names) - 1)
    read = pyarrow.csv.ReadOptions(
        use_threads=False,
        block_size=block_bytes,
        column_names=list(names),
        skip_rows_after_names=skipped,
    )
    split = pyarrow.csv.ParseOptions(delimiter=reading.separator, newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=list(reading.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        whole = pa.PythonFile(_WholeLineEnds(source, last_row if is_whole else b""), mode="r")
        batches = filter(len, pyarrow.csv.open_csv(whole, read, split, convert))
        yield from _without_last_row(batches, where) if is_whole else batches
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):  # A piece may have no row.
            text = str(error)
            ragged = _RAGGED.search(text)
            if is_whole and ragged and last_row.decode() in ragged[4]:
                raise _open_quote(where, ragged[4]) from error
            raise _explained(text, names, skipped, reading, where) or error from error


def _without_last_row(batches: Iterator[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """Leave out the row that was added; raise InputError if a value before it took it in."""
    batch = next(batches)
    for following in batches:
        yield batch
        batch = following
    first, *others = (column[-1].as_py() for column in batch.columns)
    if first != "" or any(others):
        raise _open_quote(where, [first, *others][-1])
    yield batch.slice(0, len(batch) - 1)


def _open_quote(where: str, text: str) -> InputError:
    problem = "a quote is not closed, so a value reaches to the end"
    shown = text.partition("\n")[0][:60]
    return InputError(where, f"{problem}: {shown!r}", "close the quote; the file may be cut off")


class _WholeLineEnds(io.RawIOBase):
    """A text, and a row after it, whose reads do not end between the characters of a line end.

    PyArrow drops a line feed at the beginning of a block if the block before it ends with a
    carriage return, also inside of quotes.
    """

    def __init__(self, source: pa.NativeFile, last_row: bytes) -> None:
        self._source = source
        self._last_row = last_row
        self._held = b""

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; none at the end."""
        data = self._held + bytes(self._source.read(size - len(self._held)))
        if len(data) == len(self._held):
            data, self._last_row = data + self._last_row, b""
        cut = len(data) > 1 and data.endswith(b"\r")
        self._held = data[-1:] if cut else b""
        return data[:-1] if cut else data


def _explained(
    text: str, names: Sequence[str], skipped: int, reading: Reading, where: str
) -> InputError | None:
    """Return an error that says more than a message of PyArrow, if there is more to say."""
    if ragged := _RAGGED.search(text):
        wanted, found, row = ragged[2], ragged[3], ragged[4].strip()
        return InputError(
            _row_of(where, ragged[1], skipped),
            f"it has {found} values, and the file has {wanted} columns: {row[:80]}",
            "correct the row; a value that holds the separator or a line break stands in quotes; "
            f"another separator than {reading.separator!r} is named by "
            "bl.files(..., separator=...) (--separator)",
        )
    if damaged := _NO_UTF8.search(text):
        name = names[int(damaged[1])]
        return InputError(
            f"{_row_of(where, damaged[2], skipped)}, column {name}",
            "the text is not UTF-8",
            "convert the file to UTF-8",
        )
    if "straddling" in text:
        problem = f"a row is longer than {CSV_BLOCK_BYTES >> 20} MiB"
        return InputError(where, problem, "close all quotes, or write the rows as Parquet")
    return None


def _row_of(where: str, number: str | None, skipped: int) -> str:
    return where if number is None else f"{where}, row {int(number) - skipped}"
