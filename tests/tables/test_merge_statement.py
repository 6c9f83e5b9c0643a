"""Merges of a table: which files they read, what they refuse, and the statements of ``bl.sql``."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import BucketLakeError, ConfigError, InputError, UnsupportedFeatureError
from bucketlake.storage.memory import forget
from bucketlake.write import arrow_merge
from bucketlake.write.merge_binding import BoundMerge
from bucketlake.write.merge_statement import Merge
from tests.merge_rules import RULES, TYPES
from tests.spies import spy

SCHEMA = pa.schema({"id": pa.string(), "day": pa.int32(), "n": pa.int64(), "at": pa.int64()})
ROWS = pa.table({"id": [f"k{n}" for n in range(24)], "day": [n % 3 for n in range(24)],
                 "n": [*range(24)], "at": [5] * 24}, SCHEMA)  # fmt: skip
ON = "t.id = s.id AND t.day = s.day"
NAMES = count()


def made(**options: Any) -> bl.Table:
    settings = {"index": bl.SimpleBucket(4), "partition_by": "day", "ordering": "at", **options}
    name = f"memory://merges-{next(NAMES)}"
    table = bl.create_table(name, schema=SCHEMA, record_key="id", **settings)
    table.upsert(ROWS)
    return table


@pytest.fixture
def table() -> Iterator[bl.Table]:
    table = made()
    yield table
    forget(table.path.removeprefix("memory://"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of files of each read of a merge."""
    return spy(
        monkeypatch,
        arrow_merge,
        "read_arrow",
        lambda _, plan: sum(len(of) for _, of in plan.files) + len(plan.merged),
    )


def rows(*found: tuple[str, int | None, int, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA
    )


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_merges_holds_without_spark(name: str, table_type: str) -> None:
    RULES[name].check(f"memory://merges-{next(NAMES)}", table_type, lambda rows: rows)


@pytest.mark.parametrize(
    ("on", "insert", "most"),
    [
        (ON, False, [1]),
        (ON, True, [1]),  # Its key is new, because on equates it.
        (f"{ON} AND t.n < s.n", True, [1, 1]),  # Its key is looked up in its bucket.
        ("t.n = s.n AND t.day = 1", False, [4]),
        ("t.n = s.n", False, [12]),
    ],
)
def test_a_merge_reads_the_files_that_can_have_matching_rows(
    table: bl.Table, read: list[int], on: str, insert: bool, most: list[int]
) -> None:
    merge = table.merge(rows(("new" if insert else "k4", 1, 4, 9)), on).when_matched_delete()
    result = (merge.when_not_matched_insert_all() if insert else merge).execute()
    assert (result.inserted, result.deleted) == (int(insert), int(not insert))
    assert len(read) == len(most)
    assert all(found <= limit for found, limit in zip(read, most, strict=True)), read


def test_rows_that_match_nothing_are_read_where_their_condition_selects_them(
    table: bl.Table, read: list[int]
) -> None:
    source = rows(("k4", 1, 4, 9), ("k7", 1, 4, 9))
    merge = table.merge(source, ON)
    assert merge.when_not_matched_by_source_delete("t.day = 2 AND t.n > 9").execute().deleted == 5
    assert read.pop() <= 6  # The buckets of two keys, and those of one partition.
    assert merge.when_not_matched_by_source_delete().execute().deleted == 24 - 5 - 2
    assert read.pop() > 6
    assert sorted(table.to_arrow()["id"].to_pylist()) == ["k4", "k7"]


@pytest.mark.parametrize("partitioned", [True, False])
def test_an_update_moves_a_row_only_where_keys_are_unique_in_the_table(partitioned: bool) -> None:
    table = made(index=bl.RecordIndex(partitioned=partitioned))
    merge = table.merge(rows(("k4", 7, 40, 9), ("k5", 8, 50, 9)), "t.id = s.id")
    merge = merge.when_matched_update_all("s.n = 40").when_matched_delete()
    if partitioned:
        with pytest.raises(InputError, match=r"'day'.*partition column.*t\.day = `s`\.`day`"):
            merge.execute()
        return
    result = merge.execute()
    assert (result.updated, result.deleted) == (1, 1)
    assert table.to_arrow(where="id = 'k4'").to_pylist() == rows(("k4", 7, 40, 9)).to_pylist()
    assert table.to_arrow()["id"].to_pylist().count("k5") == 0


def test_two_inserted_rows_of_one_partition_path_are_found_though_their_columns_differ() -> None:
    days = bl.TimestampPartition("SCALAR", "yyyy/MM/dd", scalar_unit="HOURS")
    table = made(timestamp_partition=days)
    merge = table.merge(rows(("new", 30, 1, 9), ("new", 31, 2, 9)), ON)
    with pytest.raises(InputError, match=r"'new' in partition '1970/01/02'.*n=1.*n=2"):
        merge.when_not_matched_insert_all().execute()
    merge = table.merge(rows(("k4", 2, 1, 9)), ON).when_not_matched_insert_all()
    with pytest.raises(InputError, match=r"'k4' in partition '1970/01/01', which the table has"):
        merge.execute()


def test_an_inserted_row_whose_partition_is_null_does_not_replace_a_stored_one() -> None:
    table = made()
    table.upsert(rows(("k4", None, 1, 9)))
    for on in (ON, f"{ON} AND t.n < 9"):
        merge = table.merge(rows(("k4", None, 2, 9)), on).when_not_matched_insert_all()
        with pytest.raises(InputError, match=r"'k4' in partition '__HIVE_DEFAULT.*the table has"):
            merge.execute()
    merge = table.merge(rows(("k5", None, 2, 9)), ON).when_not_matched_insert_all()
    assert merge.execute().inserted == 1


REFUSED: list[tuple[str, Callable[[Merge], Merge], type[BucketLakeError], str]] = [
    ("t.id = s.idd", lambda m: m.when_matched_delete(), InputError, "'s.idd'.*mean 's.id'"),
    ("t.id = = s.id", lambda m: m.when_matched_delete(), InputError, "position 8"),
    (ON, lambda m: m, ConfigError, "add a clause"),
    (ON, lambda m: m.when_matched_delete().when_matched_update_all(), ConfigError, "put it last"),
    (ON, lambda m: m.when_matched_update({"nn": "1"}), InputError, "mean 'n'"),
    (ON, lambda m: m.when_matched_update({"n": "n + 1"}), InputError, "write t.n or s.n"),
    (ON, lambda m: m.when_matched_update({"n": "'x'"}), InputError, "table holds bigint"),
    (ON, lambda m: m.when_matched_update({"id": "'x'"}), InputError, "record key column"),
    (ON, lambda m: m.when_matched_update({"n": "pow(s.n, 2)"}), UnsupportedFeatureError, "Spark"),
    (ON, lambda m: m.when_matched_delete("s.n"), InputError, "no condition"),
    (ON, lambda m: m.when_matched_delete("s.n IN (SELECT 1)"), InputError, "subquery"),
    (ON, lambda m: m.when_not_matched_insert({"id": "s.id"}), InputError, "no 'day'"),
    (ON, lambda m: m.when_not_matched_insert_all("t.n = 1"), InputError, r"'t\.n'"),
    (ON, lambda m: m.when_not_matched_by_source_update({"at": "9"}), InputError, "ordering"),
    ("t.n = s.n", lambda m: m.when_matched_update_all(), InputError, "equate it in on"),
]  # fmt: skip


@pytest.mark.parametrize(("on", "with_clauses", "kind", "words"), REFUSED)
def test_a_wrong_merge_is_refused_before_anything_is_written(
    table: bl.Table,
    on: str,
    with_clauses: Callable[[Merge], Merge],
    kind: type[BucketLakeError],
    words: str,
) -> None:
    before = len(table.timeline())
    source = rows(("a", 0, 1, 9), ("b", 0, 2, 9), ("k4", 1, 3, 9))
    with pytest.raises(kind, match=words):
        with_clauses(table.merge(source, on)).execute()
    assert len(table.timeline()) == before


@pytest.mark.parametrize("on", ["t.day = s.day", "t.day = s.day AND t.n > s.n - 1", "t.n >= 0"])
def test_a_join_of_many_rows_to_many_rows_is_refused_in_little_memory(on: str) -> None:
    count = 20_000
    many = pa.table(
        {
            "id": [f"k{n}" for n in range(count)],
            "day": [1] * count,
            "n": range(count),
            "at": [5] * count,
        },
        SCHEMA,
    )
    table = made()
    table.insert_overwrite(many)
    tracemalloc.start()
    try:
        merge = table.merge(many, on)
        with pytest.raises(InputError, match=r"two rows of the source change the row with key 'k"):
            merge.when_matched_update({"n": "s.n"}).execute()
        with pytest.raises(
            UnsupportedFeatureError, match=r"pairs of rows may match, without Spark"
        ):
            merge.when_matched_update({"n": "s.n"}, "t.n > 99999").execute()
        if on == "t.day = s.day":  # Rows that match are found without their pairs.
            more = rows(("new", 7, 1, 9))
            both = pa.concat_tables([many, more])
            assert table.merge(both, on).when_not_matched_insert_all().execute().inserted == 1
            assert merge.when_matched_delete().execute().deleted == count
        assert tracemalloc.get_traced_memory()[1] < 300 << 20  # The pairs have 3.2 GB a side.
    finally:
        tracemalloc.stop()


def test_source_columns_that_an_update_of_all_columns_lacks_are_named(table: bl.Table) -> None:
    source = rows(("k4", 1, 4, 9)).drop_columns(["at"])
    with pytest.raises(InputError, match="source has no column 'at'"):
        table.merge(source, ON).when_matched_update_all().execute()
    more = rows(("k4", 1, 44, 9)).append_column("op", pa.array(["u"]))
    assert table.merge(more, ON).when_matched_update_all("s.op = 'u'").execute().updated == 1
    upsert = table.merge(more, ON).when_matched_update_all().when_not_matched_insert_all()
    assert upsert.execute().updated == 1


def test_statements_run_without_spark(table: bl.Table) -> None:
    path, news = table.path, rows(("k1", 1, 100, 9), ("k2", 2, 0, 9), ("z", 0, 7, 9))
    merged = bl.sql(
        None,
        f"MERGE INTO bucketlake.`{path}` USING news ON t.id = news.id AND t.day = news.day\n"
        "WHEN MATCHED AND news.n = 0 THEN DELETE\n"
        "WHEN MATCHED THEN UPDATE SET t.n = t.n + news.n, at = news.at\n"
        "WHEN NOT MATCHED BY TARGET THEN INSERT (id, day, n) VALUES (news.id, day, -1);",
        tables={"News": news},
    )
    assert (merged.inserted, merged.updated, merged.deleted) == (1, 1, 1)
    held = {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
    assert (held["k1"], held["z"], "k2" in held) == (101, -1, False)
    named = {"Orders": table, "again": path}
    update = "UPDATE orders o SET o.n = o.n * 2 WHERE o.n > 20 AND o.day = 1"
    assert bl.sql(None, update, tables=named).updated == 2
    assert bl.sql(None, "DELETE FROM again WHERE n >= 202", tables=named).deleted == 1
    insert = "INSERT INTO again (at, id, day, n) VALUES (9, 'z', 0, 1 + 1), (9, 'new', 1, NULL)"
    added = bl.sql(None, insert, tables=named)
    assert (added.inserted, added.updated) == (1, 1)
    assert bl.sql(None, "DELETE FROM again WHERE id IN ('z', 'new')", tables=named).deleted == 2
    copied = "MERGE INTO again USING orders ON again.id = orders.id AND again.day = orders.day "
    assert bl.sql(None, f"{copied} WHEN MATCHED THEN DELETE", tables=named).deleted == 22


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("SELECT * FROM orders", UnsupportedFeatureError, "'SELECT'.*table.read"),
        ("INSERT INTO orders VALUES (1)", InputError, r"4 columns \(id, .*\) get 1 values"),
        ("INSERT INTO orders (id, nn) VALUES (1, 2)", InputError, "did you mean 'n'"),
        ("INSERT INTO orders (id, ID) VALUES (1, 2)", InputError, "'id' is named twice"),
        ("INSERT INTO orders (id, n) VALUES ('a', '1')", InputError, "holds bigint.*a text"),
        ("INSERT INTO orders (id) VALUES (uuid())", UnsupportedFeatureError, "without Spark"),
        ("INSERT INTO orders SELECT 1", UnsupportedFeatureError, r"call table\.insert"),
        ("INSERT INTO orders 5", InputError, "expected VALUES or SELECT at line 1, position 20"),
        ("INSERT OVERWRITE orders SELECT 1", UnsupportedFeatureError, "table.insert_overwrite"),
        ("VACUUM orders", UnsupportedFeatureError, r"table\.clean"),
        ("DELETE orders", InputError, "expected FROM at line 1, position 8, found 'orders'"),
        ("DELETE FROM ordrs", InputError, "no table of this name; did you mean 'orders'"),
        ("DELETE FROM orders WHERE nn = 1", InputError, "did you mean 'n'"),
        ("UPDATE orders SET n", InputError, "column = value at line 1, position 19"),
        ("UPDATE orders SET n = 1, n = 2", InputError, "named twice"),
        ("DELETE FROM rows", InputError, "only a table of bucketlake"),
        ("MERGE INTO orders USING nothing ON 1 = 1 WHEN MATCHED THEN DELETE",
         UnsupportedFeatureError, "'nothing'.*without Spark"),
        ("MERGE INTO orders USING (SELECT 1) s ON 1 = 1 WHEN MATCHED THEN DELETE",
         UnsupportedFeatureError, "subquery"),
        (f"MERGE INTO orders t USING rows s ON {ON}\nWHEN MATCHED THEN INSERT *",
         InputError, "expected UPDATE at line 2, position 19, found 'INSERT'"),
        (f"MERGE INTO orders t USING rows s ON {ON} WHEN MATCHED THEN UPDATE SET n = 'a",
         InputError, "quote at position"),
    ],
)  # fmt: skip
def test_a_wrong_statement_is_refused(
    table: bl.Table, statement: str, kind: type[BucketLakeError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        bl.sql(None, statement, tables={"orders": table, "rows": rows(("a", 0, 1, 1))})


def test_a_statement_takes_files_as_its_source(table: bl.Table, tmp_path: Path) -> None:
    pq.write_table(rows(("k1", 1, 100, 6), ("new", 2, 7, 6)), tmp_path / "landing.parquet")
    result = bl.sql(
        None,
        f"MERGE INTO orders t USING landing s ON {ON} "
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *",
        tables={"orders": table, "landing": bl.files(str(tmp_path / "*.parquet"))},
    )
    assert (result.updated, result.inserted) == (1, 1)
    found = table.to_arrow(where="id IN ('k1', 'new')", columns=["id", "n"]).sort_by("id")
    assert found.to_pydict() == {"id": ["k1", "new"], "n": [100, 7]}


@pytest.mark.parametrize("table_type", TYPES)
def test_a_merge_that_is_an_upsert_obeys_the_flag_of_its_source(table_type: str) -> None:
    stored = pa.table({"id": ["a", "b"], "n": [1, 2]})
    place = f"memory://flagged-merge/{table_type}"
    table = bl.create_table(place, stored, record_key="id", table_type=table_type)
    flags = pa.array([True, None, True])
    rows = pa.table({"id": ["a", "b", "c"], "n": [10, 20, 30], "_hoodie_is_deleted": flags})
    merge = table.merge(rows, "t.id = s.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.to_arrow().to_pylist() == [{"id": "b", "n": 20}]


@pytest.mark.parametrize(
    ("on", "update", "source", "decides"),
    [
        (ON, "s.n > 1", SCHEMA, True),
        (ON, "s.n > 1", SCHEMA.append(pa.field("more", pa.int64())), True),
        (ON, "t.n > s.n", SCHEMA, False),
        (f"{ON} AND s.n > 1", "s.n > 1", SCHEMA, False),
        ("t.id = s.id", "s.n > 1", SCHEMA, False),
        ("t.id = s.id AND t.day = s.n", "s.n > 1", SCHEMA, False),
        (ON, "s.n > 1", SCHEMA.set(2, pa.field("n", pa.int32())), False),
        (ON, "s.n > 1", SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())), False),
    ],
)
def test_a_source_decides_where_an_upsert_and_the_join_compare_and_cast_alike(
    table: bl.Table, on: str, update: str, source: pa.Schema, decides: bool
) -> None:
    merge = table.merge(source.empty_table(), on).when_matched_update({"n": "s.n"}, "s.n = 7")
    inserted = merge.when_not_matched_insert_all()
    whole = table.merge(source.empty_table(), on).when_matched_update_all(update)
    for made, expected in ((whole.when_not_matched_insert_all("n > 1"), decides),
                           (inserted, False), (whole, False)):  # fmt: skip
        with suppress(*() if decides else (InputError,)):  # Some would change a key.
            bound = BoundMerge(made.statement, SCHEMA, source, table.config(), is_global=False)
            assert (bound.decided_by_source is not None) is expected
