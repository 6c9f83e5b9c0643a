"""A plain model of a table: its rows by key, who changed each last, and how it was before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.instant import State
from tests.interop.table_kind import TableKind

Row = dict[str, Any]
Key = tuple[Any, ...]

IS_DELETED = "_hoodie_is_deleted"


@dataclass(frozen=True)
class CommittedState:
    """What a table holds once a commit is there.

    Attributes
    ----------
    rows : mapping of key to row
    changed_at : mapping of key to InstantTime
        The commit that wrote each row last.
    """

    instant: InstantTime
    completed_at: InstantTime
    rows: Mapping[Key, Row]
    changed_at: Mapping[Key, InstantTime]


@dataclass
class Model:
    """What a table must hold after every write so far; ``commit`` closes each write."""

    kind: TableKind
    rows: dict[Key, Row] = field(default_factory=dict)
    changed_at: dict[Key, InstantTime] = field(default_factory=dict)
    states: list[CommittedState] = field(default_factory=list)
    _changed: set[Key] = field(default_factory=set)

    def upsert(self, rows: Iterable[Row]) -> None:
        """Take a batch: one record of each key stays, and wins unless the stored one is newer."""
        winners: dict[Key, Row] = {}
        for row in rows:
            if self._wins(row, winners.get(self.key(row))):
                winners[self.key(row)] = row
        for key, row in winners.items():
            if not self._wins(row, self.rows.get(key)):
                continue
            if row.get(IS_DELETED):
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
                self._changed.add(key)

    def delete(self, keys: Iterable[Row]) -> None:
        """Delete by key, whatever the ordering value."""
        for row in keys:
            self.rows.pop(self.key(row), None)

    def overwrite(self, rows: list[Row], *, whole_table: bool = False) -> None:
        """Replace the partitions that the rows fall into, or all."""
        replaced = self.rows.values() if whole_table else rows
        self.delete_partitions([self.partition(row) for row in replaced])
        self.upsert(rows)

    def delete_partitions(self, partitions: Iterable[Key]) -> None:
        """Empty partitions, given by the values of their fields."""
        gone = set(partitions)
        for key, row in list(self.rows.items()):
            if self.partition(row) in gone:
                del self.rows[key]

    def commit(self, table: bl.Table) -> None:
        """Learn from the table's newest commit when it was that the changes were made."""
        newest = commits_of(table)[-1]
        assert newest.completed_at is not None
        assert all(state.instant < newest.requested_at for state in self.states)
        self.changed_at |= dict.fromkeys(self._changed, newest.requested_at)
        self._changed.clear()
        self.states.append(
            CommittedState(
                newest.requested_at, newest.completed_at, dict(self.rows), dict(self.changed_at)
            )
        )

    def changed_rows(self, first: int, last: int) -> list[Row]:
        """Return the rows that the commits at these positions wrote, as the last one left them."""
        instants = {state.instant for state in self.states[first : last + 1]}
        end = self.states[last]
        return [row for key, row in end.rows.items() if end.changed_at[key] in instants]

    def key(self, row: Row) -> Key:
        """Return what identifies a row: its partition, and its key there."""
        return self.partition(row), tuple(row[name] for name in self.kind.record_key)

    def partition(self, row: Row) -> Key:
        """Return a row's partition; null and the empty text share one."""
        return tuple(row[name] or None for name in self.kind.partition_by)

    def _wins(self, new: Row, old: Row | None) -> bool:
        field_ = self.kind.ordering
        return old is None or field_ is None or (new[field_] or 0) >= (old[field_] or 0)


def commits_of(table: bl.Table) -> list[Any]:
    """Return the completed instants of a table that write data, oldest first."""
    return [
        instant
        for instant in table.timeline()
        if instant.state is State.COMPLETED and instant.action.writes_data
    ]


def in_order(rows: Iterable[Row], schema: pa.Schema) -> list[Row]:
    """Sort rows by all of their columns, so that two readers' orders do not matter."""
    return sorted(
        ({name: row[name] for name in schema.names} for row in rows),
        key=lambda row: [repr(row[name]) for name in schema.names],
    )


def rows_of(table: pa.Table, schema: pa.Schema) -> list[Row]:
    """Return a reader's rows, without the columns that the table's schema lacks."""
    return in_order(table.select(schema.names).to_pylist(), schema)
