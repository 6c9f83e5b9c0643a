"""Merges with update, delete and insert, compared with a dictionary, for each index kind."""

from __future__ import annotations

import pytest

from bucketlake.errors import InputError
from bucketlake.model.result import WriteResult
from bucketlake.write import arrow_merge
from tests.conformance.cases import Checked, Row, arrow, rows
from tests.meanwhile import meanwhile
from tests.spies import forbid

ON = "t.id = s.id AND t.day = s.day"


def source() -> list[Row]:
    """Return newer rows of keys that the table has, an older one, and rows with new keys."""
    newer = rows([0, 1, 2, 3, 8, 9], 5)
    return [*newer, *rows([4], -1), *rows(range(20, 24), 5)]


def merge(table: Checked, batch: list[Row]) -> WriteResult:
    """Delete, update and insert by key, and change rows that the source lacks."""
    made = table.table.merge(arrow(batch), ON)
    made = made.when_matched_delete("s.v = 5000 OR s.id = 'k9'")
    made = made.when_matched_update({"v": "t.v + s.v", "at": "s.at"}, "s.v <> 5001")
    made = made.when_not_matched_insert_all("id <> 'k23'")
    return made.when_not_matched_by_source_update({"v": "-1"}, "t.day = 'b'").execute()


def expect_merged(table: Checked, batch: list[Row]) -> tuple[int, int, int, int]:
    """Change the expected rows as :func:`merge` does; return the counts."""
    given = {(row["day"], row["id"]): row for row in batch}
    inserted = updated = deleted = ignored = 0
    for key, held in [*table.rows.items()]:
        new = given.get(key)
        if new is None:
            if held["day"] == "b":
                table.rows[key] = {**held, "v": -1}
                updated += 1
        elif new["v"] == 5000 or new["id"] == "k9":
            del table.rows[key]
            deleted += 1
        elif new["v"] != 5001 and table.ordered and new["at"] < held["at"]:
            ignored += 1
        elif new["v"] != 5001:
            table.rows[key] = {**held, "v": held["v"] + new["v"], "at": new["at"]}
            updated += 1
    for key, new in given.items():
        if int(new["id"][1:]) >= 20 and new["id"] != "k23":
            table.rows[key] = new
            inserted += 1
    return inserted, updated, deleted, ignored


def counts(result: WriteResult) -> tuple[int | None, ...]:
    return result.inserted, result.updated, result.deleted, result.ignored


def test_merge_updates_deletes_and_inserts_in_one_commit(table: Checked) -> None:
    before = len(table.table.timeline())
    result = merge(table, source())
    assert counts(result) == expect_merged(table, source())
    assert len(table.table.timeline()) == before + 1
    table.check()
    gone = table.table.merge(arrow(rows(range(20, 24), 9)), ON).when_matched_delete().execute()
    assert gone.deleted == 3
    for key in [key for key in table.rows if int(key[1][1:]) >= 20]:
        del table.rows[key]
    table.check()


def test_merge_by_key_of_all_columns_is_an_upsert(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, arrow_merge, "read_arrow")  # An upsert reads no row of the table.
    on = "t.id = s.id" if table.case.kind.keys_are_global else ON
    twice = table.table.merge(arrow([*source(), *rows([3], 7)]), on).when_matched_update_all()
    with pytest.raises(InputError, match=r"two rows of the source have the key .*k3"):
        twice.when_not_matched_insert_all().execute()
    table.check_rows()
    made = table.table.merge(arrow(source()), on)
    made.when_matched_update_all().when_not_matched_insert_all().execute()
    table.expect_upserted(source())
    table.check()


def test_merge_beside_an_upsert_sees_the_row_that_it_brings(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = rows([21, 22], 1)
    meanwhile(monkeypatch, lambda: table.table.upsert(arrow(added)))
    result = merge(table, source())
    table.rows |= {table.key_held(row): row for row in added}
    inserted, updated, deleted, ignored = expect_merged_after(table, added)
    assert counts(result) == (inserted, updated, deleted, ignored)
    table.check()


def expect_merged_after(table: Checked, added: list[Row]) -> tuple[int, int, int, int]:
    """Change the expected rows as a merge after an upsert does: rows that it added match."""
    before = {key: table.rows[key] for key in ((row["day"], row["id"]) for row in added)}
    inserted, updated, deleted, ignored = expect_merged(table, source())
    given = {(row["day"], row["id"]): row for row in source()}
    for key, held in before.items():  # The loop over stored rows has updated them.
        table.rows[key] = {**held, "v": held["v"] + given[key]["v"], "at": given[key]["at"]}
    return inserted - len(before), updated, deleted, ignored
