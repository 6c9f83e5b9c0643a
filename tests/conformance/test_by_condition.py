"""Updates and deletes by condition, compared with a dictionary, for each index kind."""

from __future__ import annotations

import pytest

from bucketlake.write import by_condition
from tests.conformance.cases import Checked, Row, arrow, rows
from tests.meanwhile import meanwhile
from tests.spies import spy


def expect_values(table: Checked, value: int) -> None:
    """Give the matching rows another value."""
    for key, row in [*table.rows.items()]:
        if row in matching(table):
            table.rows[key] = {**row, "v": value}


def matching(table: Checked) -> list[Row]:
    return [row for row in table.rows.values() if row["day"] == "a" and row["at"] == 1]


def test_update_changes_the_matching_rows_alone(table: Checked) -> None:
    for key, row in [*table.rows.items()]:
        if row in matching(table):
            table.rows[key] = {**row, "v": row["v"] * 2 + 1}
    count = len([row for row in table.rows.values() if row["day"] == "a" and row["at"] == 1])
    others = [one for one in table.table.buckets() if one.partition_path != "a"]
    result = table.table.update({"V": "v * 2 + 1"}, where="day = 'a' AND at = 1")
    assert (result.inserted, result.updated, result.deleted) == (0, count, 0)
    table.check()
    assert [one for one in table.table.buckets() if one.partition_path != "a"] == others


def test_delete_removes_the_matching_rows_alone(table: Checked) -> None:
    gone = {key for key, row in table.rows.items() if row["v"] >= 1003}
    assert table.table.delete(where="v >= 1003").deleted == len(gone)
    for key in gone:
        del table.rows[key]
    table.check()
    assert table.table.delete(where="v >= 1003").instant is None
    assert table.table.update({"v": "0"}, where="day = 'no such day'").instant is None
    table.check_rows()


def test_rows_that_another_writer_adds_meanwhile_match_too(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = rows(range(100, 104), 1, days="a")

    def other() -> None:
        table.table.upsert(arrow(added))

    meanwhile(monkeypatch, other)
    result = table.table.update({"v": "-7"}, where="day = 'a' AND at = 1")
    assert result.updated == len(matching(table)) + len(added)
    table.rows |= {table.key_held(row): row for row in added}
    expect_values(table, -7)
    table.check()


def test_a_row_that_another_writer_deletes_meanwhile_does_not_come_back(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = matching(table)[0]
    meanwhile(monkeypatch, lambda: table.table.delete(arrow([gone])))
    table.table.update({"v": "-7"}, where="day = 'a' AND at = 1")
    del table.rows[table.key_held(gone)]
    expect_values(table, -7)
    table.check()


def test_commits_to_partitions_without_a_match_are_no_conflict(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = rows(range(100, 104), 1, days="b")
    checks = spy(monkeypatch, by_condition, "require_same_matches", lambda *given: given)
    meanwhile(monkeypatch, lambda: table.table.upsert(arrow(added)))
    table.table.update({"v": "-7"}, where="day = 'a' AND at = 1")
    assert len(checks) == 1
    table.rows |= {table.key_held(row): row for row in added}
    expect_values(table, -7)
    table.check()
