"""Results that print as small tables, also in notebooks.

A result is a frozen dataclass. ``repr`` stays that of the dataclass, which shows all values;
``str`` and notebooks show aligned facts, and its parts as tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any, TypeVar

from bucketlake.model.text_table import (
    Facts,
    cell_text,
    columns_of,
    render_facts,
    render_table,
    rows_in,
)

Item = TypeVar("Item")

NONE_TEXT = "none_text"
"""Key of a field's metadata: the text in place of None or nothing."""


class Shown:
    """A frozen dataclass that prints as a small table."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return one line for each fact; parts become tables."""
        return "\n".join(render_facts(facts_of(self)))

    def _repr_html_(self) -> str:
        """Return the facts as a table of HTML, for notebooks."""
        return _html_facts(facts_of(self))


class ShownList(list[Item]):
    """A list of frozen dataclasses that prints as a table."""

    def __str__(self) -> str:
        """Return a line for each item, under the names of the fields."""
        rows = [facts_of(item) for item in self]
        return "\n".join(render_table(rows, columns_of(rows))[0]) if rows else "[]"

    def _repr_html_(self) -> str:
        """Return a table of HTML, for notebooks."""
        return _html_rows([facts_of(item) for item in self])


def facts_of(value: Any) -> Facts:
    """Return the fields of a dataclass by name, without those whose names begin with ``_``.

    A list of dataclasses becomes a list of facts.
    """
    shown = [held for held in fields(value) if not held.name.startswith("_")]
    facts = {held.name: _parts(getattr(value, held.name)) for held in shown}
    texts = {held.name: held.metadata[NONE_TEXT] for held in shown if NONE_TEXT in held.metadata}
    return facts | {name: text for name, text in texts.items() if facts[name] in (None, ())}


def _parts(value: Any) -> Any:
    if isinstance(value, list | tuple) and value and all(map(is_dataclass, value)):
        return [facts_of(item) for item in value]
    return value


def _html_facts(facts: Facts) -> str:
    lines = []
    for name, value in facts.items():
        rows = rows_in(value)
        text = _html_rows(rows) if rows else escape(cell_text(name, value))
        lines.append(f"<tr><th>{escape(name)}</th><td>{text}</td></tr>")
    return f"<table>{''.join(lines)}</table>"


def _html_rows(rows: Sequence[Facts]) -> str:
    columns = columns_of(rows)
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = (
        "".join(f"<td>{escape(cell_text(name, row.get(name)))}</td>" for name in columns)
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>{body}</table>"
