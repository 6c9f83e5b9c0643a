"""The output of a command: results on stdout, progress and errors on stderr, as text or JSON.

Commands pass plain values (facts, rows) to an `Output`, which renders them. In JSON, the result is
one document on stdout, and each line on stderr is a document too, so that a program can read both.
``model/text_table.py`` renders the text.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.actions.progress import LOGGER
from bucketlake.errors import BucketLakeError
from bucketlake.model.text_table import (
    COLUMN_GAP,
    Facts,
    plain_value,
    printable,
    render_fact,
    render_table,
    rows_of_value,
)
from bucketlake.storage.waiting import repeating

_PROGRESS_AFTER_SECONDS = 1.0  # Shorter work shows no progress.
_TICK_SECONDS_TERMINAL = 0.5
_TICK_SECONDS_LOG = 10.0
_ROWS_BY_FACT_MAX = 3  # Up to this many wide rows are shown with one fact per line.
_CONTROLS = re.compile("[\x7f-\x9f]")
# A message may quote a long value of a file. So each part has a greatest length, and the time grows
# with the text.
_INNER = r"\([^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,200}){0,9}\)"  # Brackets, with others inside.
_BOTH_WORDS = re.compile(
    rf"(?:\b[\w.]{{1,80}}{_INNER}"
    rf"|\b\w{{1,80}}=(?:\[[^\]]{{0,200}}\]|(?:\w{{1,80}}{_INNER})?[^\s()]{{0,200}})) "
    r"\((?:command line: )?(bucketlake [^()]{1,400}|--[^()]{1,400})\)"
)


class _NewestMessage(logging.Handler):
    """The last progress message of the library."""

    def __init__(self, text: str) -> None:
        super().__init__(logging.INFO)
        self.text = text

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _note(in_command_words(record.getMessage()))
        else:
            self.text = record.getMessage()


@contextmanager
def listening(handler: logging.Handler) -> Iterator[None]:
    """Hand what the library logs of its progress to a handler while the body runs."""
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


class Output:
    """The output of a command for people: aligned columns, sizes with units, one-line errors.

    :class:`JsonOutput` is that for programs.
    """

    is_text = True

    def facts(self, facts: Facts) -> None:
        """Show one line per fact, with aligned values."""
        width = max(map(len, facts), default=0)
        for key, value in facts.items():
            rows = rows_of_value(value)
            if rows:
                print(printable(key))
                self._table(rows, list(rows[0]), indent="  ")
            else:
                self._folded(render_fact(key, value, width), width + len(COLUMN_GAP))

    def outcome(self, facts: Facts, *, ran: bool, idle: bool) -> None:
        """Show what a command with ``--run`` did, or would do; a last line if nothing was changed.

        Parameters
        ----------
        facts : mapping
            What was done, or would be done.
        ran : bool
            Whether the command had ``--run``.
        idle : bool
            Whether there was nothing to do.
        """
        self.facts(facts)
        if idle:
            print("Nothing was changed: there is nothing to do.")
        elif not ran:
            print("Nothing was changed; add --run to do it.")

    def rows(
        self,
        rows: Sequence[Facts],
        columns: Sequence[str],
        row_count: int,
        spare: Sequence[str] = (),
    ) -> None:
        """Show rows with the same columns as a table, and a note if there are more rows.

        Parameters
        ----------
        rows, columns
            The rows.
        row_count : int
            Total number of rows.
        spare : sequence of str
            Columns that a narrow terminal may leave out.
        """
        self._table(rows, columns, spare=spare)
        if len(rows) < row_count:
            _note(f"{len(rows):,} of {row_count:,} rows; --limit 0 shows all, --to writes a file")

    def error(self, error: BaseException) -> None:
        """Write one line."""
        _note(f"Error: {_one_line(error)}")

    def tick(self, doing: str, seconds: float, *, done: bool) -> None:
        """Rewrite the same line on a terminal; write a new line elsewhere."""
        end = "\n" if done or not sys.stderr.isatty() else "\r"
        state = "done in" if done else "..."
        print(f"{printable(doing)} {state} {seconds:.1f} s", end=end, file=sys.stderr, flush=True)

    @property
    def tick_seconds(self) -> float:
        """Seconds between two progress messages: few on a terminal, which rewrites the line."""
        return _TICK_SECONDS_TERMINAL if sys.stderr.isatty() else _TICK_SECONDS_LOG

    @property
    def _room(self) -> int | None:
        """Cells of a line on a terminal; None elsewhere, where programs read lines."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def _folded(self, line: str, indent: int) -> None:
        """Print a line; on a terminal what does not fit goes below the value."""
        if self._room is None or len(line) <= self._room:
            print(line)
            return
        width = max(self._room, indent + 20)
        below = " " * indent
        print(
            "\n".join(
                textwrap.wrap(
                    line[indent:], width, initial_indent=line[:indent], subsequent_indent=below
                )
            )
        )

    def _table(
        self,
        rows: Sequence[Facts],
        columns: Sequence[str],
        indent: str = "",
        spare: Sequence[str] = (),
    ) -> None:
        room = None if self._room is None else self._room - len(indent)
        lines, hidden = render_table(rows, columns, width_max=room)
        if not {*hidden} <= {*spare} and 0 < len(rows) <= _ROWS_BY_FACT_MAX:
            for row in rows:
                self.facts({name: row.get(name) for name in columns})
            return
        for line in lines:
            print(f"{indent}{line}")
        if hidden:
            _note(f"columns that do not fit: {printable(', '.join(hidden))}")

    @contextmanager
    def progress(self, doing: str) -> Iterator[None]:
        """Show the progress and the duration of the body while it runs."""
        started = time.monotonic()
        newest = _NewestMessage(doing)

        def watch() -> None:
            self.tick(newest.text, time.monotonic() - started, done=False)

        with (
            repeating(watch, self.tick_seconds, "progress", _PROGRESS_AFTER_SECONDS),
            listening(newest),
        ):
            yield
        seconds = time.monotonic() - started
        if seconds > _PROGRESS_AFTER_SECONDS:
            self.tick(doing, seconds, done=True)


class JsonOutput(Output):
    """Output for programs: one JSON document on stdout, one JSON document per line on stderr."""

    is_text = False
    tick_seconds = _TICK_SECONDS_LOG

    def facts(self, facts: Facts) -> None:
        """Write an object."""
        print(_json(plain_value(facts), indent=2))

    def outcome(self, facts: Facts, *, ran: bool, idle: bool) -> None:
        """Write an object with ``dry_run`` and ``nothing_to_do`` among the facts."""
        self.facts({**facts, "dry_run": not ran, "nothing_to_do": idle})

    def rows(
        self,
        rows: Sequence[Facts],
        columns: Sequence[str],
        row_count: int,
        spare: Sequence[str] = (),  # noqa: ARG002
    ) -> None:
        """Write an object with the rows and their total number."""
        self.facts({"row_count": row_count, "columns": list(columns), "rows": rows})

    def error(self, error: BaseException) -> None:
        """Write an object with the kind of error, its sentence, and its facts."""
        held = vars(error) if isinstance(error, BucketLakeError) else {}
        facts = {
            name: in_command_words(value) if isinstance(value, str) else value
            for name, value in held.items()
        }
        kind = {"type": type(error).__name__, "message": _one_line(error)}
        _note(_json({"error": plain_value(kind | facts)}))

    def tick(self, doing: str, seconds: float, *, done: bool) -> None:
        """Write one object per line."""
        _note(_json({"progress": doing, "seconds": round(seconds, 1), "done": done}))


def _json(value: object, indent: int | None = None) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # JSON does not escape these characters, and terminals interpret some of them.
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def rows_of(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as Python values; times outside of the years 1 to 9999 as text."""
    try:
        found: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="lossy")
        return found
    except (OverflowError, ValueError):  # Python has no such times.
        names, columns = rows.schema.names, zip(*rows.columns, strict=True)
        return [dict(zip(names, map(_value_of, row), strict=True)) for row in columns]


def instant_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return times of any year as text, in the form in which Arrow writes them to CSV files."""
    kind = column.type
    is_date = pa.types.is_date32(kind)
    unit = "D" if is_date else kind.unit
    numbers = column.cast(pa.int32() if is_date else pa.int64())
    held = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    texts = np.datetime_as_string(held.view(f"datetime64[{unit}]"))
    texts = np.char.replace(texts, "T", " ")
    if not is_date and kind.tz is not None:  # The numbers are in UTC, whatever the zone.
        texts = np.char.add(texts, "Z")
    return pc.if_else(numbers.is_valid(), pa.array(texts.tolist(), pa.string()), None)


def _value_of(scalar: pa.Scalar) -> Any:
    """Return a value for Python; where it holds times that Python has not, with text for them."""
    try:
        return scalar.as_py(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _value_of(held) for name, held in scalar.items()}
        if isinstance(scalar, pa.MapScalar):
            keys, items = (map(_value_of, scalar.values.field(place)) for place in (0, 1))
            return dict(zip(keys, items, strict=True))
        if isinstance(scalar, pa.ListScalar | pa.LargeListScalar):
            return [_value_of(held) for held in scalar.values]
        return instant_texts(pa.array([scalar], scalar.type))[0].as_py()


def in_command_words(text: str) -> str:
    """Return a message in the words of the command line.

    Messages name a call of Python, and after it the command or the option in brackets.

    >>> in_command_words("use table.clean() (bucketlake clean --run), or cascade=True (--cascade)")
    'use bucketlake clean --run, or --cascade'
    """
    return _BOTH_WORDS.sub(r"\1", text)


def _one_line(error: BaseException) -> str:
    words = in_command_words(" ".join(str(error).split()))
    return printable(words) or type(error).__name__


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
