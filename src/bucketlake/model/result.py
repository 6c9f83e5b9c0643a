"""Results that print as small tables, also in notebooks; the result of a write is one.

A result is a frozen dataclass. ``repr`` stays that of the dataclass, which shows all values;
``str`` and notebooks show aligned facts, and its parts as tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from typing import Any, TypeVar

from bucketlake.model.file_name import InstantTime
from bucketlake.model.text_table import (
    Facts,
    cell_text,
    columns_of,
    render_facts,
    render_table,
    rows_of_value,
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
        rows = rows_of_value(value)
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


# ---- The result of a write -----------------------------------------------------------------------

_UNKNOWN = {NONE_TEXT: "unknown"}


@dataclass(frozen=True, slots=True)
class UpkeepStep:
    """A service that ran after a commit, because the table or the job asks for it.

    Attributes
    ----------
    service : {"compact", "resize", "clean", "archive", "sync"}
        The service; ``sync`` registers the table in a catalog.
    seconds : float
        How long it took.
    done : str
        What it did, in words.
    error : str or None
        Why it failed; the next writes try again.
    """

    service: str
    seconds: float
    done: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WriteResult(Shown):
    """Counts of one write; ``read(since=result)`` continues after its commit.

    Attributes
    ----------
    instant : InstantTime or None
        Requested time of the commit; None if the write changed nothing, and so made no commit: it
        had no rows, a delete found none of its keys, or every record lost by its ordering value.
    inserted, updated : int or None
        Records with new keys, and with keys that the table had; under an index of the whole table
        also in another partition. A record that lost by its ordering value is not counted.
        None if it is unknown: in a merge-on-read table, a log file of a bucket index is written
        without a look at stored keys. A record-level index knows them, but cannot tell which
        updates will lose, and takes a key for stored that was deleted after the last compaction.
    deleted : int or None
        Records that were deleted. None if log files have deletes of a bucket index, which do not
        tell whether the table had their keys.
    file_groups : int
        File groups written or replaced.
    looked_up : int or None
        Keys of the batch that were looked up in the record-level index. Keys of a partition that is
        new to the index are not looked up. None if the kind of index looks nothing up.
    from_cache : int or None
        Those of them that were answered from the local disk of an executor, see
        ``docs/how-to/dynamic-buckets.md``. Tables under :class:`RecordIndex` have no such cache.
    from_table : int or None
        Those of them that were answered by reading the index in the table: the cache did not have
        their shard, or could not be used. ``looked_up`` is the sum of both.
    written : int
        Records that were inserted or updated: the sum of both, also if they are unknown.
    completed_at : InstantTime or None
        Completion time of the commit; None without a commit.
    ignored : int or None
        Records that lost to a stored record by their ordering value. None if it is unknown, because
        log files are written without a look at stored records. Of several records of the batch with
        one key, one counts.
    skipped : bool
        Whether the batch of a stream was skipped, because it is committed already.
    upkeep : tuple of UpkeepStep
        Services that ran after the commit, and did something or failed; see
        :meth:`Table.set_upkeep`.
    in_driver : bool
        Whether the caller's process wrote the records itself: those of Arrow data, and few rows
        of Spark (``docs/performance.md``). Tasks of Spark write others.
    """

    instant: InstantTime | None
    inserted: int | None = field(default=0, metadata=_UNKNOWN)
    updated: int | None = field(default=0, metadata=_UNKNOWN)
    deleted: int | None = field(default=0, metadata=_UNKNOWN)
    file_groups: int = 0
    looked_up: int | None = None
    from_cache: int | None = None
    from_table: int | None = None
    written: int = 0
    completed_at: InstantTime | None = None
    ignored: int | None = field(default=0, metadata=_UNKNOWN)
    skipped: bool = False
    upkeep: tuple[UpkeepStep, ...] = ()
    in_driver: bool = field(default=False, compare=False)
