"""Change data over a history of commits, compared with a model: each commit has its changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.errors import TimelineError
from bucketlake.format.log_block import read_log_blocks
from bucketlake.format.log_data import decode_data_block
from bucketlake.model.result import WriteResult
from tests.conformance.cases import FLAG, Case, Checked, Row, Rows, in_order, rows
from tests.conformance.test_attempts import write_in_attempts
from tests.inside import storage_of

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


@pytest.mark.in_turns("mode", ["data_before", "op_key_only", "data_before_after"])
def test_files_of_changes_hold_what_a_write_changed_in_stored_files(
    case: Case, mode: str, new_path: Callable[[], str]
) -> None:
    """Log files need none; all attempts write the same ones, and a rollback takes them away."""
    table = case.make(new_path(), cdc=mode)
    table.upsert(rows(range(8)))
    before = dict(table.rows)
    batch = [*rows(range(4, 12), 2), *rows([2], -1)]
    first, second, third = write_in_attempts(table, batch).attempts
    assert first == second == third
    newest = table.table.timeline()[-1].requested_at
    found = captured(table.table)
    assert sorted(found) == sorted(path for path in first if path.endswith(".cdc"))
    letters = [row["op"] for held in found.values() for row in held]
    if case.merges_on_read:
        assert letters == []
        return
    updates = [one for one in changed(newest, before, table.rows) if one[1] == "u"]
    assert len(updates) == 4
    expected = [recorded(one, mode) for one in updates]
    of_updates = [row for held in found.values() for row in held if row["op"] == "u"]
    assert sorted(map(keyed, of_updates), key=str) == sorted(expected, key=str)
    assert letters.count("i") + letters.count("u") == len(letters)
    table.table.rollback(newest)
    assert captured(table.table) == {}
    table.rows = before
    table.delete(rows([0, 5]))
    deletes = [row for held in captured(table.table).values() for row in held]
    assert [row["op"] for row in deletes] == ["d", "d"]
    assert {row["before"]["id"] for row in deletes if "before" in row} <= {"k0", "k5"}
    table.check()


def recorded(change: Change, mode: str) -> Row:
    """Return a change as a file of changes holds it."""
    instant, letter, before, after = change
    if mode == "data_before_after":
        return {"op": letter, "ts_ms": instant, "before": before, "after": after}
    assert before is not None
    images = {} if mode == "op_key_only" else {"before": before}
    return {"op": letter, "record_key": before["id"], **images}


def keyed(row: Row) -> Row:
    """Return a record with the plain id for its key, which may name the key's columns."""
    key = (
        {}
        if "record_key" not in row
        else {"record_key": re.sub("^id:|,day.*", "", row["record_key"])}
    )
    return {**row, **key}


def captured(table: bl.Table) -> dict[str, list[Row]]:
    """Return the records in the files of changes, by path."""
    storage = storage_of(table)
    paths = [one.path for one in storage.list("") if one.path.endswith(".cdc")]
    return {
        path: [
            row for b in read_log_blocks(storage, path) for row in decode_data_block(b).to_pylist()
        ]
        for path in paths
    }


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
