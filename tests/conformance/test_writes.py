"""The rows of a table after writes, compared with a dictionary, for each index kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from tests.bad_input import BATCHES, good_rows
from tests.bad_input import SCHEMA as BAD_INPUT_SCHEMA
from tests.conformance.cases import (
    FLAG,
    WITH_FLAG,
    Case,
    Checked,
    arrow,
    objects,
    rows,
    rows_of,
)

KEYLESS = [one for one in BATCHES if one.name in {"null key", "empty key", "no key column"}]


def test_an_empty_table_has_no_rows_and_no_file_groups(
    case: Case, new_path: Callable[[], str]
) -> None:
    made = case.make(new_path())
    assert made.table.buckets() == []
    made.check_rows()
    assert made.table.upsert(arrow([])).instant is None
    assert made.upsert(rows(range(3))).inserted == 3
    made.check()


def test_upserts_insert_new_keys_and_update_known_ones(table: Checked) -> None:
    result = table.upsert(rows(range(8, 16), 2))
    assert result.written == 8
    if not table.case.merges_on_read:  # A writer of log files does not know which keys are new.
        assert (result.inserted, result.updated) == (4, 4)
    table.check_rows()
    table.upsert(rows(range(40, 43), days="c"))  # A new partition.
    table.upsert(rows(range(1), 3), bl.Table.insert)
    table.check()


def test_late_rows_lose_and_equal_ordering_values_are_replaced(table: Checked) -> None:
    late = rows(range(3))
    for row in late:
        row["v"] = -1
    table.upsert(late)  # Ordering value 0; the stored value is 1.
    equal = rows(range(6, 9))
    for row in equal:
        row["v"] = -2
    table.upsert(equal)
    values = {row["id"]: row["v"] for row in table.rows.values()}
    assert [values[f"k{n}"] for n in (0, 6)] == [1000, -2]
    table.check()


def test_of_repeated_rows_in_a_batch_the_greatest_ordering_value_stays_then_the_last_row(
    table: Checked,
) -> None:
    batch = [*rows(range(4, 14), 3), *rows(range(4, 14), 2), *rows(range(10, 14), 3)]
    for number, row in enumerate(batch):
        row["v"] = number
    result = table.upsert(batch)
    assert result.written == 10
    table.check()


def test_without_ordering_the_last_row_of_the_last_commit_stays(
    case: Case, new_path: Callable[[], str]
) -> None:
    made = case.make(new_path(), ordering=None)
    made.upsert(rows(range(8), 5))
    made.upsert([*rows(range(4), 9), *rows(range(4), 1)])
    assert {made.rows["a", "k0"]["at"], made.rows["a", "k6"]["at"]} == {1, 5}
    made.check()


def test_deletes_by_key_take_what_is_there_and_pass_over_what_is_not(table: Checked) -> None:
    result = table.delete(rows([0, 1, 6, 90, 91]))
    if not table.case.merges_on_read:
        assert result.deleted == 3
    table.check_rows()
    for row in rows([0, 6, 90]):
        assert table.table.locate(table.key_of(row), row["day"]) == []
    table.upsert(rows([0, 90], 7))  # A deleted key comes back.
    table.check()


def test_a_delete_of_unknown_keys_alone_changes_no_row(table: Checked) -> None:
    table.delete(rows(range(90, 94)))
    table.check()


def test_deletes_by_flag_go_by_their_ordering_values(
    case: Case, new_path: Callable[[], str]
) -> None:
    made = case.make(new_path(), schema=WITH_FLAG)
    flagged = lambda numbers, at: [row | {FLAG: True} for row in rows(numbers, at)]  # noqa: E731
    made.upsert([row | {FLAG: False} for row in rows(range(6), 5)])
    made.upsert([*flagged(range(2), 4), *flagged(range(2, 4), 6)])
    assert sorted(key for _, key in made.rows) == ["k0", "k1", "k4", "k5"]
    made.check_rows()
    made.upsert([row | {FLAG: False} for row in rows(range(3, 5), 7)])
    made.upsert(flagged([4, 70], 9))
    made.check()


HISTORIES_WITHOUT_ORDERING = (
    [(1, False), (None, True)],
    [(None, True), (1, False)],
    [(9, False), (None, True), (3, False), (2, False)],
    [(3, False), (None, True), (9, True)],
    [(9, False), (None, True), (None, False)],
    [(5, False), (None, True), (7, False), (None, True)],
)
"""Ordering values of the records of a key, and whether they delete; a delete may have none."""


def test_deletes_without_ordering_value_do_the_same_in_one_batch_and_in_several(
    case: Case, new_path: Callable[[], str]
) -> None:
    histories = [
        [{"id": f"k{n}", "day": "a", "v": at, "at": at, FLAG: deletes} for at, deletes in history]
        for n, history in enumerate(HISTORIES_WITHOUT_ORDERING)
    ]
    at_once = [row for history in histories for row in history]
    batches = [[row for row in several if row] for several in zip_longest(*histories)]
    found = []
    for written in ([at_once], batches):
        table = case.make(new_path()).table
        table.upsert(arrow(rows(range(0, 6, 2), 8, days="a")))
        for batch in written:
            table.upsert(arrow(batch, WITH_FLAG))
        found.append(rows_of(table.to_arrow()))
        if case.merges_on_read:
            table.compact()
            assert rows_of(table.to_arrow()) == found[-1]
    assert found[0] == found[1]
    assert "k0" not in {row["id"] for row in found[0]}


def test_every_row_may_go_and_the_table_is_written_on(table: Checked) -> None:
    table.delete([*table.rows.values()])
    table.check_rows()
    assert table.rows == {}
    table.upsert(rows(range(5), 9))
    table.check()
    table.delete([*table.rows.values()])
    table.upsert(rows(range(3), 10), bl.Table.bulk_insert)
    table.check()


def test_bulk_inserts_fill_new_partitions_only(table: Checked) -> None:
    with pytest.raises(InputError, match="bulk_insert"):
        table.table.bulk_insert(arrow(rows(range(3))))
    table.upsert([*rows(range(20, 28), days="c"), *rows([20], days="c")], bl.Table.bulk_insert)
    table.check_rows()
    table.check_next_write_finds_all()


def test_rows_without_a_key_are_rejected_before_anything_is_written(
    case: Case, new_path: Callable[[], str]
) -> None:
    table = bl.create_table(
        new_path(),
        schema=BAD_INPUT_SCHEMA,
        record_key=case.kind.record_key("part"),
        partition_by=["part"],
        ordering="ts",
        index=case.index,
        table_type=case.table_type,
    )
    table.upsert(good_rows(2))
    before = objects(table)
    for bad in KEYLESS:
        if bad.name == "no key column" or not case.kind.keyed_by_partition:
            with pytest.raises(InputError, match=bad.message):
                table.upsert(bad.spoil(good_rows()))
            assert objects(table) == before


def test_an_overwrite_replaces_the_partitions_of_its_rows(table: Checked) -> None:
    table.overwrite(rows(range(0, 30, 4), 0))
    assert {day for day, _ in table.rows} == {"a", "b"}
    table.check_rows()
    table.check_next_write_finds_all()
    table.overwrite(rows(range(3), days="c"), whole_table=True)
    table.check_rows()
    table.upsert(rows(range(8), 2))
    table.check()


def test_partitions_are_deleted_and_made_anew(table: Checked) -> None:
    before = rows_of(table.table.to_arrow())
    table.drop("a")
    table.check_rows()
    assert {bucket.partition_path for bucket in table.table.buckets()} == {"b"}
    again = [row for row in before if row["day"] == "a"]
    assert table.upsert(again[:4]).inserted == 4
    table.check_rows()
    table.drop("a", "b")
    assert table.table.buckets() == []
    table.upsert(before)
    table.check()
    with pytest.raises(InputError):
        table.table.delete_partitions(["never"])


def test_columns_are_added_and_widened_on_the_way(table: Checked) -> None:
    batch = arrow(rows(range(5, 14), 2))
    wider = batch.append_column("note", arrow(rows(range(5, 14)))["id"])
    with pytest.raises(InputError, match=r"column note.*merge_schema='add_columns'"):
        table.table.upsert(wider)
    table.check()
    table.table.upsert(wider, merge_schema="add_columns")
    table.expect_upserted(rows(range(5, 14), 2))
    table.check()
    notes = table.table.to_arrow()["note"].to_pylist()
    assert sum(note is not None for note in notes) == 9
