"""The parts of a page as HTML that is also well-formed XML. All text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bucketlake.model.text_table import printable
from bucketlake.report.units import number_text

Row = Mapping[str, object]

_SENTENCES = ("meaning", "reason", "repair", "call", "command")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the name of its values in a row, and its title."""

    name: str
    title: str
    is_number: bool = True


def text(value: object) -> str:
    """Return a value as the text of an element."""
    return escape(printable(str(value)))


def paragraph(words: object) -> str:
    """Return a paragraph."""
    return f"<p>{text(words)}</p>"


def facts_list(facts: Iterable[tuple[str, object]]) -> str:
    """Return names with values."""
    lines = (f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in facts)
    return f"<dl>{''.join(lines)}</dl>"


def table(
    caption: str, columns: Sequence[Column], rows: Sequence[Row], rest: Row | None = None
) -> str:
    """Return a table; ``rest`` is a last row that sums up what is not shown."""
    head = "".join(f'<th scope="col"{_class(c)}>{text(c.title)}</th>' for c in columns)
    lines = [f"<tr>{_cells(columns, row)}</tr>" for row in rows]
    if rest is not None:
        lines.append(f'<tr class="rest">{_cells(columns, rest)}</tr>')
    return (
        f'<div class="scroll"><table><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def figure(title: str, note: str, svg: str) -> str:
    """Return a chart with its title and what it shows."""
    label = text(f"{title}: {note}")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    caption = f"<b>{text(title)}</b> {text(note)}"
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"


def charts(figures: Iterable[str]) -> str:
    """Return charts beside each other, as far as the page is wide."""
    return f'<div class="charts">{"".join(figures)}</div>'


def section(anchor: str, title: str, parts: Iterable[str]) -> str:
    """Return a section with a title."""
    inner = "\n".join(parts)
    return f'<section id="{anchor}">\n<h2>{text(title)}</h2>\n{inner}\n</section>'


def _cells(columns: Sequence[Column], row: Row) -> str:
    return "".join(
        f"<td{_class(column)}>{text(number_text(column.name, row.get(column.name)))}</td>"
        for column in columns
    )


def _class(column: Column) -> str:
    if column.is_number:
        return ' class="number"'
    return ' class="words"' if column.name in _SENTENCES else ""
