"""The rules of a merge, one case each: rows, clauses, and what comes of them.

``tests/tables`` runs them without Spark, ``tests/spark`` with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.index.setting import TableIndex
from bucketlake.write.merge_statement import Merge

TYPES = ("copy_on_write", "merge_on_read")
SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("n", pa.int64()), ("at", pa.int64()),
     ("op", pa.string())]
)  # fmt: skip
BY_KEY = "t.id = s.id AND t.day = s.day"

Cells = tuple[str | None, str | None, int | None, int | None, str]
STORED: list[Cells] = [
    ("a", "x", 1, 5, "I"), ("b", "x", 2, 5, "I"), ("c", "y", 3, 5, "I"), ("d", "y", None, 5, "I"),
]  # fmt: skip

SIMPLE = bl.SimpleBucket(2)


@dataclass(frozen=True)
class Rule:
    """A merge into a table with the rows ``STORED``, ordered by ``at``; "D" in ``op`` deletes.

    Attributes
    ----------
    source : list of cells
        The rows of the source.
    on : str
        Its condition.
    clauses : callable
        Adds the clauses.
    counts : tuple of int, or str
        Rows inserted, updated, deleted and ignored; or the words of the error.
    held : mapping of str to int or None
        The value of ``n`` by key after the merge.
    index : TableIndex
        The table's index.
    gone : tuple of str
        Keys of rows that the source flags in ``_hoodie_is_deleted``, and leaves null in
        others; empty: it has no such column.
    """

    source: list[Cells]
    on: str
    clauses: Callable[[Merge], Merge]
    counts: tuple[int, int, int, int] | str
    held: dict[str, int | None] | None = None
    index: TableIndex = SIMPLE
    gone: tuple[str, ...] = ()

    def check(self, path: str, table_type: str, to_source: Callable[[pa.Table], Any]) -> None:
        """Make the table, run the merge, and compare; a refused merge changes nothing."""
        table = make(path, table_type, self.index)
        before = len(table.timeline())
        source = arrow(self.source)
        if self.gone:
            flags = [True if row[0] in self.gone else None for row in self.source]
            source = source.append_column("_hoodie_is_deleted", pa.array(flags, pa.bool_()))
        merge = self.clauses(table.merge(to_source(source), self.on))
        if isinstance(self.counts, str):
            with pytest.raises(InputError, match=self.counts):
                merge.execute()
            assert len([e for e in table.timeline() if e.completed_at]) == before
        else:
            found = merge.execute()
            counts = found.inserted, found.updated, found.deleted, found.ignored
            assert counts == self.counts
        wanted = {str(row[0]): row[2] for row in STORED} if self.held is None else self.held
        rows = table.to_arrow().to_pylist()
        assert sorted((row["id"], str(row["n"])) for row in rows) == sorted(
            (key, str(n)) for key, n in wanted.items()
        )


def arrow(cells: list[Cells]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in cells], SCHEMA
    )


def make(path: str, table_type: str, index: TableIndex) -> bl.Table:
    """Return a table with the rows ``STORED`` and a delete marker."""
    table = bl.create_table(
        path, schema=SCHEMA, record_key="id", partition_by="day", ordering="at", index=index,
        table_type=table_type, delete_marker=("op", "D"),
    )  # fmt: skip
    table.upsert(arrow(STORED))
    return table


RULES: dict[str, Rule] = {
    "the_first_clause_that_holds_and_a_null_does_not": Rule(
        [("a", "x", 10, 6, "I"), ("b", "x", None, 6, "I"), ("c", "y", 30, 6, "I"),
         ("d", "y", 40, 6, "I"), (None, "y", 9, 6, "I")],
        BY_KEY,
        lambda m: m.when_matched_delete("s.n < 20").when_matched_update({"n": "s.n"}, "s.n < 35"),
        (0, 1, 1, 0), {"b": 2, "c": 30, "d": None}),
    "nulls_match_nothing": Rule(
        [("p", "y", None, 6, "I"), ("q", "x", 2, 6, "I")], "t.n = s.n AND t.day = s.day",
        lambda m: m.when_matched_update({"n": "coalesce(s.n, 7) + 1"}),
        (0, 1, 0, 0), {"a": 1, "b": 3, "c": 3, "d": None}),
    "many_matches_of_a_row_that_is_only_deleted": Rule(
        [("p", "x", 1, 6, "I"), ("q", "x", 1, 6, "I"), ("r", "z", 1, 6, "I")], "t.day = s.day",
        lambda m: m.when_matched_delete().when_not_matched_insert_all(),
        (1, 0, 2, 0), {"c": 3, "d": None, "r": 1}),
    "many_matches_of_which_one_has_a_clause": Rule(
        [("p", "x", 1, 6, "I"), ("q", "x", 2, 6, "I")], "t.day = s.day",
        lambda m: m.when_matched_update({"n": "s.n + 10"}, "t.n = s.n"),
        (0, 2, 0, 0), {"a": 11, "b": 12, "c": 3, "d": None}),
    "rows_that_an_empty_source_lacks": Rule(
        [], BY_KEY,
        lambda m: m.when_not_matched_by_source_delete("n > 2")
        .when_not_matched_by_source_update({"n": "n + 1"}).when_not_matched_insert_all(),
        (0, 3, 1, 0), {"a": 2, "b": 3, "d": None}),
    "older_ordering_values_lose_and_deletes_compare_none": Rule(
        [("a", "x", 10, 4, "I"), ("b", "x", 20, 5, "I"), ("c", "y", 30, 1, "I"),
         ("d", "y", 40, None, "I"), ("e", "y", 50, 1, "I")],
        BY_KEY,
        lambda m: m.when_matched_delete("s.id = 'c'").when_matched_update_all()
        .when_not_matched_insert({"id": "s.id", "day": "s.day", "at": "1"}),
        (1, 1, 1, 2), {"a": 1, "b": 20, "d": None, "e": None}),
    "a_row_that_gets_the_delete_marker_is_deleted": Rule(
        [("a", "x", 10, 6, "D"), ("b", "x", 20, 4, "D"), ("c", "y", 30, 6, "I"),
         ("e", "y", 50, 6, "D"), ("f", "y", 60, 6, "I")],
        BY_KEY,
        lambda m: m.when_matched_update_all("t.id <> 'z'").when_not_matched_insert_all()
        .when_not_matched_by_source_update({"op": "'D'"}),
        (1, 1, 2, 1), {"b": 2, "c": 30, "f": 60}),
    "a_row_that_the_source_flags_is_deleted_by_all_its_columns": Rule(
        [("a", "x", 10, 6, "I"), ("b", "x", 20, 4, "I"), ("c", "y", 30, 6, "I"),
         ("e", "y", 50, 6, "I"), ("f", "y", 60, 6, "I")],
        BY_KEY,
        lambda m: m.when_matched_update_all("t.id <> 'z'").when_not_matched_insert_all("s.n > 0"),
        (1, 1, 1, 1), {"b": 2, "c": 30, "d": None, "f": 60}, gone=("a", "b", "e")),
    "a_flag_of_the_source_is_a_column_to_clauses_that_name_theirs": Rule(
        [("a", "x", 10, 6, "I"), ("c", "y", 30, 6, "I")], BY_KEY,
        lambda m: m.when_matched_delete("s._hoodie_is_deleted")
        .when_matched_update({"n": "s.n", "at": "s.at"}),
        (0, 1, 1, 0), {"b": 2, "c": 30, "d": None}, gone=("a",)),
    "a_row_that_moves_under_an_index_of_the_whole_table": Rule(
        [("a", "z", 10, 6, "I"), ("b", "z", 20, 4, "I"), ("c", "y", 30, 6, "D"),
         ("d", "x", 40, 6, "D"), ("e", "x", 50, 6, "I")],
        "t.id = s.id",
        lambda m: m.when_matched_update_all("s.n > 0").when_not_matched_insert_all(),
        (1, 1, 2, 1), {"a": 10, "b": 2, "e": 50}, bl.RecordIndex(partitioned=False)),
    "a_row_that_matches_is_none_of_those_that_the_source_lacks_though_no_clause_holds": Rule(
        [("a", "x", 10, 6, "I"), ("c", "y", 30, 6, "I"), ("e", "y", 50, 6, "I"),
         ("f", "y", 60, 6, "I"), ("g", "y", 40, 6, "I")],
        BY_KEY,
        lambda m: m.when_not_matched_by_source_delete("t.day = 'x'")
        .when_not_matched_insert({"id": "s.id", "day": "s.day", "n": "-s.n", "at": "1"}, "n > 55")
        .when_matched_update({"n": "s.n"}, "s.n > 20").when_not_matched_insert_all("s.n > 45"),
        (2, 1, 1, 0), {"a": 1, "c": 30, "d": None, "e": 50, "f": -60}),
    "two_rows_update_one": Rule(
        [("a", "x", 10, 6, "I"), ("a", "x", 11, 6, "I")], BY_KEY,
        lambda m: m.when_matched_update({"n": "s.n"}),
        r"change the row with key 'a' in partition 'x': \(.*n=1[01].*\) and \(.*n=1[01].*\)"),
    "two_clauses_change_one_row": Rule(
        [("a", "x", 10, 6, "I"), ("a", "x", 11, 6, "I")], BY_KEY,
        lambda m: m.when_matched_delete("s.n = 10").when_matched_update({"n": "s.n"}),
        r"change the row with key 'a' in partition 'x': \(.*n=1[01].*\) and \(.*n=1[01].*\)"),
    "two_rows_insert_one_key_beside_a_delete": Rule(
        [("a", "x", 0, 6, "I"), ("e", "x", 1, 6, "I"), ("e", "x", 2, 6, "I")], BY_KEY,
        lambda m: m.when_matched_delete().when_not_matched_insert_all(),
        r"would be inserted with key 'e' in partition 'x': \(.*n=[12].*\) and \(.*n=[12].*\)"),
    "two_equal_rows_insert_one_key": Rule(
        [("e", "x", 1, 6, "I"), ("e", "x", 1, 6, "I")], BY_KEY,
        lambda m: m.when_matched_delete().when_not_matched_insert_all(),
        r"would be inserted with key 'e' in partition 'x': \(.*n=1.*\) and \(.*n=1.*\)"),
    "an_inserted_key_is_deleted_too": Rule(
        [("a", "x", 1, 6, "I"), ("a", "x", 2, 6, "I"), ("a", "x", 1, 7, "I")],
        f"{BY_KEY} AND s.n = 1",
        lambda m: m.when_matched_delete().when_not_matched_insert_all(),
        r"inserted with key 'a' in partition 'x', and .* changed, too: \(.*n=2.*and \(.*n=1,"),
    "an_inserted_key_is_that_of_a_row_that_matches_nothing": Rule(
        [("a", "x", 2, 6, "I")], f"{BY_KEY} AND s.n = 1",
        lambda m: m.when_not_matched_insert_all().when_not_matched_by_source_delete("t.n = 1"),
        r"inserted with key 'a' in partition 'x', and .* changed, too: \(id='a'.*n=2[^()]*\);"),
    "an_inserted_key_is_stored": Rule(
        [("a", "x", 2, 6, "I")], f"{BY_KEY} AND s.n = 1",
        lambda m: m.when_matched_delete().when_not_matched_insert_all(),
        "inserted with key 'a' in partition 'x', which the table has"),
    "an_inserted_key_that_is_marked_as_deleted_is_stored": Rule(
        [("a", "x", 2, 6, "D")], f"{BY_KEY} AND s.n = 1",
        lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
        "inserted with key 'a' in partition 'x', which the table has"),
    "an_inserted_key_is_null": Rule(
        [(None, "x", 2, 6, "I")], BY_KEY,
        lambda m: m.when_matched_delete().when_not_matched_insert_all(), "null"),
}  # fmt: skip
