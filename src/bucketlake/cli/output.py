"""What a command says: results on stdout, progress and errors on stderr, as text or as JSON.

Commands hand over plain values (facts, rows) and one `Output` renders them. In JSON each result is
one document on stdout, and each line on stderr is a document too, so that a program can read both.
A name that ends in ``_bytes`` holds a size, which text shows as a person would say it.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
import shutil
import sys
import threading
import time
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from datetime import time as wall_time
from enum import Enum
from typing import Any

import pyarrow as pa

from bucketlake.errors import BucketLakeError
from bucketlake.write.progress import LOGGER

Facts = Mapping[str, object]

_PROGRESS_AFTER_SECONDS = 1.0  # Shorter work says nothing.
_TICK_SECONDS_TERMINAL = 0.5
_TICK_SECONDS_LOG = 10.0
_CELL_WIDTH_MAX = 120
_ROWS_BY_FACT_MAX = 3  # So few rows are shown a fact a line, where a line has no room for a row.
_COLUMN_GAP = "  "
_CONTROLS = re.compile("[\x7f-\x9f]")


class Output(ABC):
    """Where a command's words go; one of two faces of the same values."""

    @abstractmethod
    def facts(self, facts: Facts) -> None:
        """Show one thing by its named facts."""

    @abstractmethod
    def rows(self, rows: Sequence[Facts], columns: Sequence[str], row_count: int) -> None:
        """Show rows, all with the same columns; ``row_count`` says how many there are in all."""

    @abstractmethod
    def error(self, error: BaseException) -> None:
        """Say what went wrong."""

    @abstractmethod
    def tick(self, doing: str, seconds: float, *, done: bool) -> None:
        """Say that work goes on, or that it is done."""

    @property
    @abstractmethod
    def tick_seconds(self) -> float:
        """Time between two words on work that goes on."""

    @contextmanager
    def progress(self, doing: str) -> Iterator[None]:
        """Show that work goes on, how far it is, and for how long, while the body runs."""
        started = time.monotonic()
        ended = threading.Event()
        newest = _NewestMessage(doing)

        def watch() -> None:
            wait = _PROGRESS_AFTER_SECONDS
            while not ended.wait(wait):
                self.tick(newest.text, time.monotonic() - started, done=False)
                wait = self.tick_seconds

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            with newest.listening():
                yield
        finally:
            ended.set()
            watcher.join()
        seconds = time.monotonic() - started
        if seconds > _PROGRESS_AFTER_SECONDS:
            self.tick(doing, seconds, done=True)


class _NewestMessage(logging.Handler):
    """What the library last said of its progress."""

    def __init__(self, text: str) -> None:
        super().__init__(logging.INFO)
        self.text = text

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()

    @contextmanager
    def listening(self) -> Iterator[None]:
        held = LOGGER.level
        LOGGER.addHandler(self)
        LOGGER.setLevel(min(held or logging.INFO, logging.INFO))
        try:
            yield
        finally:
            LOGGER.removeHandler(self)
            LOGGER.setLevel(held)


class TextOutput(Output):
    """For people: aligned columns, sizes in units, one sentence for an error."""

    def facts(self, facts: Facts) -> None:
        """Show a line for each fact, with the names aligned."""
        width = max(map(len, facts), default=0)
        for key, value in facts.items():
            name = _printable(key)
            rows = _as_rows(value)
            if rows:
                print(name)
                self._table(rows, list(rows[0]), indent=_COLUMN_GAP)
            else:
                text = "-" if value in (None, [], ()) else _text(name, value)
                print(f"{name.ljust(width)}{_COLUMN_GAP}{text}")

    def rows(self, rows: Sequence[Facts], columns: Sequence[str], row_count: int) -> None:
        """Show a table, and whether there is more."""
        self._table(rows, columns)
        if len(rows) < row_count:
            _note(f"{len(rows):,} of {row_count:,} rows; --limit 0 shows all, --to keeps them")

    def error(self, error: BaseException) -> None:
        """Write one line."""
        _note(f"Error: {_one_line(error)}")

    def tick(self, doing: str, seconds: float, *, done: bool) -> None:
        """Rewrite one line on a terminal; write a line at a time elsewhere."""
        end = "\n" if done or not sys.stderr.isatty() else "\r"
        state = "done in" if done else "..."
        print(f"{_printable(doing)} {state} {seconds:.1f} s", end=end, file=sys.stderr, flush=True)

    @property
    def tick_seconds(self) -> float:
        """Often where the line is rewritten, seldom where each is a new one."""
        return _TICK_SECONDS_TERMINAL if sys.stderr.isatty() else _TICK_SECONDS_LOG

    def _table(self, rows: Sequence[Facts], columns: Sequence[str], indent: str = "") -> None:
        room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        lines, hidden = render_table(rows, columns, width_max=room)
        if hidden and 0 < len(rows) <= _ROWS_BY_FACT_MAX:
            for row in rows:
                self.facts({name: row.get(name) for name in columns})
            return
        for line in lines:
            print(f"{indent}{line}")
        if hidden:
            _note(f"not shown for lack of room: {_printable(', '.join(hidden))}")


class JsonOutput(Output):
    """For programs: one JSON document on stdout, and one a line on stderr."""

    def facts(self, facts: Facts) -> None:
        """Write an object."""
        print(_json(plain_value(facts), indent=2))

    def rows(self, rows: Sequence[Facts], columns: Sequence[str], row_count: int) -> None:
        """Write an object with the rows and their number in all."""
        self.facts({"row_count": row_count, "columns": list(columns), "rows": rows})

    def error(self, error: BaseException) -> None:
        """Write an object with the kind of error, its sentence, and its facts."""
        facts = vars(error) if isinstance(error, BucketLakeError) else {}
        kind = {"type": type(error).__name__, "message": _one_line(error)}
        _note(_json({"error": plain_value(kind | facts)}))

    def tick(self, doing: str, seconds: float, *, done: bool) -> None:
        """Write an object a line."""
        _note(_json({"progress": doing, "seconds": round(seconds, 1), "done": done}))

    @property
    def tick_seconds(self) -> float:
        """Seldom: each is a new line."""
        return _TICK_SECONDS_LOG


def render_table(
    rows: Sequence[Facts], columns: Sequence[str], width_max: int | None = None
) -> tuple[list[str], list[str]]:
    """Render rows as aligned lines, numbers to the right.

    Parameters
    ----------
    rows : sequence of mapping
    columns : sequence of str
    width_max : int, optional
        Terminal cells a line may take; None for any number.

    Returns
    -------
    lines : list of str
        Head, rule, and a line for each row.
    hidden : list of str
        Last columns, that had no room.
    """
    cells = {
        name: [_printable(name), *(_text(name, row.get(name)) for row in rows)] for name in columns
    }
    widths = {name: max(map(_width, column)) for name, column in cells.items()}
    shown = _columns_that_fit(columns, widths, width_max)
    rights = {name for name in shown if _is_numeric([row.get(name) for row in rows])}
    padded = [
        [_pad(cell, widths[name], right=name in rights) for cell in cells[name]] for name in shown
    ]
    lines = [_COLUMN_GAP.join(line).rstrip() for line in zip(*padded, strict=True)]
    rule = _COLUMN_GAP.join("-" * widths[name] for name in shown)
    return [*lines[:1], rule, *lines[1:]], list(columns[len(shown) :])


def _columns_that_fit(
    columns: Sequence[str], widths: Mapping[str, int], width_max: int | None
) -> Sequence[str]:
    if width_max is None:
        return columns
    taken = -len(_COLUMN_GAP)
    for count, name in enumerate(columns):
        taken += len(_COLUMN_GAP) + widths[name]
        if taken > width_max:
            return columns[: max(count, 1)]
    return columns


def _is_numeric(values: Sequence[object]) -> bool:
    """Whether a column holds numbers, and perhaps nulls."""
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _as_rows(value: object) -> list[Facts]:
    """Return a list of facts as such; nothing where the value is anything else."""
    if not isinstance(value, list | tuple):
        return []
    rows = [item for item in value if isinstance(item, Mapping)]
    return rows if len(rows) == len(value) else []


def _pad(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if right else cell + space


def _width(text: str) -> int:
    """Terminal cells that a text takes: wide East Asian letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(bool(unicodedata.combining(letter)) for letter in text)


def _text(name: str, value: object) -> str:
    """Render a value as a person reads it, on one line and not too long."""
    if isinstance(value, int) and name.endswith("_bytes"):
        return _size(value)
    plain = plain_value(value)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        text = ", ".join(value)
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    else:
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    text = _printable(text)
    return text if len(text) <= _CELL_WIDTH_MAX else text[: _CELL_WIDTH_MAX - 1] + "…"


def _printable(text: str) -> str:
    """Spell out what a terminal would obey: a line break or an escape sequence in data or names."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _json(value: object, indent: int | None = None) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # JSON lets these through as they are, and terminals obey some of them.
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def rows_of(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as Python's values; times that Python has no value for, after 9999, as text."""
    try:
        return _as_dicts(rows)
    except (OverflowError, ValueError):
        columns = [column.cast(_with_text_for_times(column.type)) for column in rows.columns]
        return _as_dicts(pa.Table.from_arrays(columns, names=rows.schema.names))


def _with_text_for_times(kind: pa.DataType) -> pa.DataType:
    """Return a type, or one that is nested in it, with text in place of times."""
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_text_for_times(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(*map(_with_text_for_times, (kind.key_type, kind.item_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_with_text_for_times(kind.value_type)))
    return kind


def _as_dicts(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="lossy")
    return found


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def plain_value(value: Any) -> Any:
    """Turn a value into what JSON can hold."""
    match value:
        case None | bool() | int() | str():
            return value.value if isinstance(value, Enum) else value
        case float():
            return value if math.isfinite(value) else str(value)
        case Enum():
            return plain_value(value.value)
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | wall_time():
            return value.isoformat()
        case Mapping():
            return {str(key): plain_value(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain_value(item) for item in value]
        case _:
            return str(value)


def _one_line(error: BaseException) -> str:
    return _printable(" ".join(str(error).split())) or type(error).__name__


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
