"""Renders facts and rows as aligned text, for the command line and for results of the library.

A name that ends in ``_bytes`` has a size, which is shown with a unit. A name that ends in
``_range`` or ``_ranges`` has ranges of hash values, of which the start is excluded.
"""

from __future__ import annotations

import base64
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from datetime import time as wall_time
from enum import Enum, IntEnum
from typing import Any, TypeAlias

Facts: TypeAlias = Mapping[str, object]
"""Named values."""

_CELL_WIDTH_MAX = 120
_LONG_TEXT_CELLS = 30  # Longer values are texts, not numbers or instants.
_CUT_CELLS_MIN = 12  # A text with less room is left out.
COLUMN_GAP = "  "
"""What stands between two columns."""


def render_table(
    rows: Sequence[Facts], columns: Sequence[str], width_max: int | None = None
) -> tuple[list[str], list[str]]:
    """Render rows as aligned lines, numbers to the right.

    Parameters
    ----------
    rows : sequence of mapping
    columns : sequence of str
    width_max : int, optional
        Most terminal cells of a line; None for no limit.

    Returns
    -------
    lines : list of str
        Column names, a rule, and one line per row.
    hidden : list of str
        The last columns, which did not fit.
    """
    cells = {
        name: [printable(name), *(_text(name, row.get(name)) for row in rows)] for name in columns
    }
    widths = {name: max(map(_width, column)) for name, column in cells.items()}
    shown = _columns_that_fit(columns, widths, width_max)
    if width_max is not None and len(shown) < len(columns):
        shown = _with_cut_column(shown, columns[len(shown)], cells, widths, width_max)
    rights = {name for name in shown if _is_numeric([row.get(name) for row in rows])}
    padded = [
        [_pad(cell, widths[name], right=name in rights) for cell in cells[name]] for name in shown
    ]
    lines = [COLUMN_GAP.join(line).rstrip() for line in zip(*padded, strict=True)]
    rule = COLUMN_GAP.join("-" * widths[name] for name in shown)
    return [*lines[:1], rule, *lines[1:]], list(columns[len(shown) :])


def render_facts(facts: Facts) -> list[str]:
    """Render named values as lines with aligned values; a list of facts becomes a table."""
    width = max((len(printable(name)) for name in facts), default=0)
    lines: list[str] = []
    for name, value in facts.items():
        rows = rows_of_value(value)
        if rows:
            table, _ = render_table(rows, columns_of(rows))
            lines += [printable(name), *(f"{COLUMN_GAP}{line}" for line in table)]
        else:
            lines.append(render_fact(name, value, width))
    return lines


def render_fact(name: str, value: object, width: int) -> str:
    """Render a name and a value as a line; the value begins after ``width`` letters and a gap."""
    return f"{printable(name).ljust(width)}{COLUMN_GAP}{cell_text(name, value)}"


def cell_text(name: str, value: object) -> str:
    """Render a value for people, on one line; nothing is a dash."""
    return "-" if value in (None, [], ()) else _text(name, value)


def columns_of(rows: Sequence[Facts]) -> list[str]:
    """Return the names of the columns that have a value in one of the rows at least."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(row.get(name) not in (None, ()) for row in rows)]


def rows_of_value(value: object) -> list[Facts]:
    """Return a value that is a list of facts; an empty list for any other value."""
    if not isinstance(value, list | tuple):
        return []
    rows = [item for item in value if isinstance(item, Mapping)]
    return rows if len(rows) == len(value) else []


def plain_value(value: Any) -> Any:
    """Convert a value to types that JSON can represent."""
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


def printable(text: str) -> str:
    """Escape line breaks and terminal control sequences in data or names."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _columns_that_fit(
    columns: Sequence[str], widths: Mapping[str, int], width_max: int | None
) -> Sequence[str]:
    if width_max is None:
        return columns
    taken = -len(COLUMN_GAP)
    for count, name in enumerate(columns):
        taken += len(COLUMN_GAP) + widths[name]
        if taken > width_max:
            return columns[: max(count, 1)]
    return columns


def _with_cut_column(
    shown: Sequence[str],
    name: str,
    cells: dict[str, list[str]],
    widths: dict[str, int],
    width_max: int,
) -> Sequence[str]:
    """Add a column of long texts, cut to the room that is left, if that shows some words."""
    room = width_max - sum(widths[known] + len(COLUMN_GAP) for known in shown)
    is_long = widths[name] > _LONG_TEXT_CELLS and all(map(str.isascii, cells[name]))
    if not is_long or room < max(_CUT_CELLS_MIN, _width(name)):
        return shown
    cells[name] = [text if len(text) <= room else f"{text[: room - 1]}…" for text in cells[name]]
    widths[name] = room
    return [*shown, name]


def _is_numeric(values: Sequence[object]) -> bool:
    """Return whether all values of a column are numbers or nulls."""
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _pad(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if right else cell + space


def _width(text: str) -> int:
    """Return the terminal cells of a text: wide East Asian letters use two, combining marks 0."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(bool(unicodedata.combining(letter)) for letter in text)


def _text(name: str, value: object) -> str:
    """Render a value for people, on one line and not too long."""
    if isinstance(value, int) and name.endswith("_bytes"):
        return _size(value)
    if name.endswith("_range") and value is not None:
        return _cut(_hash_ranges([value]))
    if name.endswith("_ranges"):
        return _cut(_hash_ranges(value))
    if isinstance(value, IntEnum):
        return value.name.lower()
    plain = plain_value(value)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        text = ", ".join(value)
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    else:
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return _cut(printable(text))


def _hash_ranges(ranges: Any) -> str:
    return " ".join("all" if start == end else f"({start}..{end}]" for start, end in ranges)


def _cut(text: str) -> str:
    return text if len(text) <= _CELL_WIDTH_MAX else text[: _CELL_WIDTH_MAX - 1] + "…"


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
