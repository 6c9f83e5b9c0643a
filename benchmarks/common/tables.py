"""Tables of figures, in Markdown.

A `Table` is stated as data: its rows are contenders, or steps of contenders, and each column tells
something of a row. A table of another shape is a function that calls `listing`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.common.figures import Result, spread

Form = Callable[[Sequence[float]], str]
"""How values are written."""


class Row(NamedTuple):
    """A row of a table: a contender, and a step of its turn if the table has one row for each."""

    contender: str
    step: str = ""
    title: str = ""


Tell = Callable[[Result, Row], str]
"""What a column tells of a row."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, and what it tells of a row. ``<`` aligns it to the left."""

    title: str
    tell: Tell


def figure(step: str = "", field: str = "seconds", form: Form = spread) -> Tell:
    """Return what tells a measured value of a step, or of the row's own step."""

    def tell(result: Result, row: Row) -> str:
        found = result.values(row.contender, step or row.step, field)
        return form(found) if found else "–"

    return tell


def columns(
    titles: dict[str, str], heading: str, field: str = "seconds", form: Form = spread
) -> list[Column]:
    """Return a column for each step; a ``*`` in the heading stands for the step's title."""
    return [
        Column(heading.replace("*", title), figure(step, field, form))
        for step, title in titles.items()
    ]


def median(digits: int = 1, unit: float = 1) -> Form:
    """Return the form of a median with so many digits, in a unit."""
    return lambda found: f"{statistics.median(found) / unit:,.{digits}f}"


def rate_columns(title: str) -> list[Column]:
    """Return the column of rates, in millions a second."""

    def tell(result: Result, row: Row) -> str:
        seen = result.first(row.contender, row.step)
        least, middle, most = (seen[name] / 1e6 for name in ("least", "rate", "most"))
        return f"**{middle:.2f}** ({least:.2f} to {most:.2f})"

    return [Column(title, tell)]


def ranked(step: str, first: str = "") -> Callable[[Result], list[Row]]:
    """Return what makes a row for each contender: one by name, then ours, by the time of a step."""
    return lambda result: [
        Row(name) for name in sorted(result.ranked(step), key=lambda name: name != first)
    ]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of figures. Its text may name `Result.words` in braces."""

    rows: Callable[[Result], Iterable[Row]]
    columns: Sequence[Column]
    title: str = ""
    text: str = ""
    head: str = "contender"

    def __call__(self, result: Result) -> str:
        """Return the table of a result."""
        cells = [
            [row.title or row.contender, *(each.tell(result, row) for each in self.columns)]
            for row in self.rows(result)
            if result.rounds(row.contender)
        ]
        heads = [f"<{self.head}", *(column.title for column in self.columns)]
        return listing(self.title, self.text.format(**result.words), heads, cells)


def listing(title: str, text: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a title and a text; nothing if there are no rows."""
    lines = [_line(row) for row in rows]
    if not lines:
        return ""
    marks = "|".join("---" if head.startswith("<") else "---:" for head in heads)
    head = _line([head.removeprefix("<") for head in heads])
    parts = [f"### {title}" if title else "", text, "\n".join([head, f"|{marks}|", *lines])]
    return "\n\n".join(part for part in parts if part)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
