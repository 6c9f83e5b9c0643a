"""Change data over a history of commits, compared with a model: each commit has its changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.errors import TimelineError
from bucketlake.model.result import WriteResult
from tests.conformance.cases import FLAG, Case, Checked, Row, Rows, in_order, rows

Change = tuple[str, str, Row | None, Row | None]


class History:
    """A table whose commits are noted with the changes that each must have."""

    def __init__(self, table: Checked) -> None:
        self.table = table
        self.changes: list[list[Change]] = []
        self.times: list[str] = []

    def write(self, step: Callable[[], WriteResult]) -> None:
        """Write, and note what changed in the expected rows."""
        before = dict(self.table.rows)
        result = step()
        assert result.instant is not None
        assert result.completed_at is not None
        self.changes.append(changed(result.instant, before, self.table.rows))
        self.times.append(result.completed_at)

    def check(self, first: int, last: int, **arguments: Any) -> None:
        """Read the changes of some commits, and compare them with the expected ones."""
        since = self.times[first - 1] if first else None
        found = self.table.table.changes_to_arrow(
            since=since, until=self.times[last - 1], **arguments
        )
        expected = [change for commit in self.changes[first:last] for change in commit]
        assert sorted(changes_of(found), key=str) == sorted(expected, key=str)
        order = found["completed_at"].to_pylist()
        assert order == sorted(order)


def changed(instant: str, before: Rows, after: Rows) -> list[Change]:
    """Return the differences of two states."""
    found: list[Change] = []
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            letter = "i" if old is None else "d" if new is None else "u"
            found.append((instant, letter, old, new))
    return found


def changes_of(found: Any) -> list[Change]:
    return [(row["instant"], row["op"], row["before"], row["after"]) for row in found.to_pylist()]


def move(table: Checked, *, is_planned: bool = False) -> None:
    """Move the rows by the services that fit the table, without a change; or only plan it."""
    if table.case.merges_on_read:
        table.table.compact(schedule_only=is_planned)
    if isinstance(table.case.index, bl.ConsistentBucket | bl.ExtendibleBucket):
        table.table.resize(max_file_size=1, max_groups=100, schedule_only=is_planned)
    if table.case.kind.is_rescaled and not is_planned:
        table.table.rescale({"a": 4}, dry_run=False)


def test_changes_of_each_commit_are_those_of_the_model(
    case: Case, new_path: Callable[[], str]
) -> None:
    table = case.make(new_path())
    history = History(table)
    write = history.write
    write(lambda: table.upsert(rows(range(12))))
    write(lambda: table.upsert([*rows(range(4, 8), 1), *rows(range(12, 15)), *rows([8], -1)]))
    write(lambda: table.delete(rows([0, 1, 99])))
    move(table, is_planned=True)
    write(lambda: table.upsert([*rows([0], 2), {**rows([2], 3)[0], FLAG: True}]))
    write(lambda: table.upsert([*rows(range(3, 6), 4), *rows([9, 10])]))
    move(table)
    write(lambda: table.overwrite([*rows([4], 4), *rows([6], 9), *rows([40])]))
    write(lambda: table.upsert(rows([3, 4, 40], 11)))
    write(lambda: table.drop("b"))
    last = len(history.changes)
    table.check_rows()
    history.check(0, last)
    for place in range(last):
        history.check(place, place + 1)
    history.check(2, 6)
    table.table.archive(keep_min=2, keep_max=3)
    history.check(0, last)


def test_a_condition_holds_for_the_row_before_or_after(
    case: Case, new_path: Callable[[], str]
) -> None:
    table = case.make(new_path())
    first = table.upsert(rows(range(8)))
    second = table.upsert([*rows([0, 1], 1), *rows([9])])
    found = table.table.changes_to_arrow(where="day = 'a' AND v < 5", columns=["V", "id"])
    expected: list[Change] = [
        (first.instant, "i", None, {"v": n, "id": f"k{n}"}) for n in (0, 2, 4)
    ]
    update = second.instant, "u", {"v": 0, "id": "k0"}, {"v": 1000, "id": "k0"}
    assert sorted(changes_of(found), key=str) == [*expected, update]
    assert table.table.changes_to_arrow(since=first, columns="day").num_rows == 1


def test_versions_that_a_clean_took_away_are_named(case: Case, new_path: Callable[[], str]) -> None:
    table = case.make(new_path())
    history = History(table)
    for turn in range(5):
        history.write(lambda turn=turn: table.upsert(rows(range(8), turn)))
        if case.merges_on_read:
            table.table.compact()
    assert table.table.clean(retain_commits=1).partitions
    history.check(4, 5)
    with pytest.raises(TimelineError, match="this clean deleted") as caught:
        history.check(0, 5)
    since = str(caught.value).partition("ask for changes since ")[2][:17]
    readable = history.times.index(since) + 1
    assert 0 < readable <= 4
    history.check(readable, 5)
    assert in_order(table.rows.values())
