"""Columns whose names are words of SQL, in every clause and argument that names columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.model.result import WriteResult
from tests.sql_words import HARD, LITERALS
from tests.sql_words import NAMES as WORDS

TABLES = count()
NAMES = [*dict.fromkeys([*HARD, *WORDS[::40]])]


def made(schema: pa.Schema, **settings: Any) -> bl.Table:
    options = {"record_key": "id", "index": bl.SimpleBucket(1), **settings}
    return bl.create_table(f"memory://names-{next(TABLES)}", schema=schema, **options)


@pytest.fixture(scope="module")
def table() -> bl.Table:
    """A table with a column for each word, and the rows a, b and c, whose values are 1, 2, 3."""
    table = made(pa.schema({"id": pa.string()} | dict.fromkeys(NAMES, pa.int64())))
    table.upsert(pa.table({"id": ["a", "b", "c"]} | {name: [1, 2, 3] for name in NAMES}))
    return table


def held(table: bl.Table) -> dict[str, set[int]]:
    """Return the values of each row, as a set."""
    rows = {row.pop("id"): row for row in table.to_arrow().to_pylist()}
    return {key: {*row.values()} for key, row in rows.items()}


def listed(form: str, between: str = ", ") -> str:
    return between.join(form.format(n=name) for name in NAMES)


def test_a_word_is_a_column_in_every_clause(table: bl.Table) -> None:
    any_of = listed("{n} = 1", " OR ")
    assert table.to_arrow(where=any_of, columns=["id", *NAMES])["id"].to_pylist() == ["a"]
    second = listed("NOT {n} <= 1 AND {n} IN (2)", " AND ")
    assert table.to_arrow(where=second)["id"].to_pylist() == ["b"]
    assert table.update({name: f"{name} + 1" for name in NAMES}, where=any_of).updated == 1
    assert held(table) == {"a": {2}, "b": {2}, "c": {3}}
    source = pa.table({"id": ["a", "d"]} | {name: [10, 40] for name in NAMES})
    merge = table.merge(source, f"t.id = s.id AND {listed('t.{n} < s.{n}', ' AND ')}")
    done = (
        merge.when_matched_delete(listed("s.{n} = 1", " OR "))
        .when_matched_update({name: f"t.{name} + s.{name}" for name in NAMES})
        .when_not_matched_insert({"id": "id"} | {name: f"s.{name} - 1" for name in NAMES})
        .when_not_matched_by_source_delete(listed("{n} = 3", " AND "))
        .execute()
    )
    assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
    assert held(table) == {"a": {12}, "b": {2}, "d": {39}}


def test_a_word_is_a_column_in_every_statement(table: bl.Table) -> None:
    def run(statement: str, **more: Any) -> WriteResult:
        return bl.sql(None, statement, tables={"words": table, **more})

    run("DELETE FROM words")
    columns, values = listed("{n}"), ", ".join("1" for _ in NAMES)
    assert run(f"INSERT INTO words (id, {columns}) VALUES ('a', {values})").inserted == 1
    found = run(f"UPDATE words SET {listed('{n} = {n} + 1')} WHERE {listed('{n} = 1', ' OR ')}")
    assert found.updated == 1
    source = pa.table({"id": ["a", "b"]} | {name: [5, 6] for name in NAMES})
    merged = run(
        "MERGE INTO words USING source s ON words.id = s.id "
        f"WHEN MATCHED AND {listed('words.{n} = 2', ' AND ')} "
        f"THEN UPDATE SET {listed('words.{n} = words.{n} + s.{n}')} "
        f"WHEN NOT MATCHED THEN INSERT ({columns}, id) VALUES ({listed('s.{n}')}, s.id)",
        source=source,
    )
    assert (merged.inserted, merged.updated) == (1, 1)
    assert held(table) == {"a": {7}, "b": {6}}
    assert run(f"DELETE FROM words t WHERE {listed('t.{n} = 6', ' AND ')}").deleted == 1


@pytest.mark.parametrize("name", ["end", "case", "order", "select", "null", "date", "user"])
def test_a_word_is_key_partition_and_ordering(name: str) -> None:
    schema = pa.schema({name: pa.string(), f"{name}_day": pa.string(), f"{name}_at": pa.int64()})
    arguments: list[Mapping[str, Any]] = [
        {"record_key": name, "partition_by": f"{name}_day", "ordering": f"{name}_at"},
        {"record_key": f"{name}_day", "partition_by": name, "ordering": f"{name}_at"},
    ]
    for settings in arguments:
        table = made(schema, **settings)
        table.upsert(pa.table([["a"], ["b"], [1]], schema=schema))
        source = pa.table([["a"], ["b"], [2]], schema=schema)
        on = " AND ".join(f"t.`{each}` = s.`{each}`" for each in (name, f"{name}_day"))
        merge = table.merge(source, on).when_matched_update({f"{name}_at": f"s.{name}_at"})
        assert merge.execute().updated == 1
        assert table.count(where=f"`{name}` = 'a' AND {name}_at = 2") == 1


@pytest.mark.parametrize("name", sorted(LITERALS))
def test_a_word_that_is_a_value_is_a_column_in_backquotes(name: str) -> None:
    table = made(pa.schema({"id": pa.string(), name: pa.int64()}))
    table.upsert(pa.table({"id": ["a"], name: [1]}))
    assert table.update({name: f"`{name}` + 1"}, where=f"`{name}` = 1").updated == 1
    done = bl.sql(None, f"UPDATE t SET `{name}` = t.{name} + 1 WHERE t.{name} = 2",
                  tables={"t": table})  # fmt: skip
    assert done.updated == 1
    assert table.to_arrow(columns=[name])[name].to_pylist() == [3]


STRUCTS = pa.schema({"id": pa.string(), "n": pa.int64(), "orders": pa.struct({"eid": pa.int64()})})


@pytest.mark.parametrize(
    "change",
    [
        lambda table: bl.sql(None, "UPDATE orders SET n = orders.eid + orders.n "
                             "WHERE orders.eid = 7 AND orders.id = 'a'", tables={"orders": table}),
        lambda table: bl.sql(None, "MERGE INTO orders USING s ON orders.id = s.id "
                             "WHEN MATCHED AND orders.eid = 7 THEN "
                             "UPDATE SET orders.n = orders.eid + orders.n",
                             tables={"orders": table, "s": pa.table({"id": ["a"]})}),
        lambda table: table.merge(pa.table({"id": ["a"]}), "orders.id = s.id", alias="orders")
        .when_matched_update({"n": "orders.eid + n"}, "orders.orders.eid = 7").execute(),
    ],
)  # fmt: skip
def test_a_table_and_its_struct_may_have_one_name(
    change: Callable[[bl.Table], WriteResult],
) -> None:
    table = made(STRUCTS)
    table.upsert(pa.table({"id": ["a"], "n": [1], "orders": [{"eid": 7}]}, STRUCTS))
    assert change(table).updated == 1
    assert table.to_arrow()["n"].to_pylist() == [8]


def test_names_of_other_scripts_and_in_capitals_are_columns() -> None:
    table = made(pa.schema({"Größe": pa.string(), "数": pa.int64()}), record_key="Größe")
    table.upsert(pa.table({"Größe": ["a", "b"], "数": [1, 2]}))
    merge = table.merge(pa.table({"Größe": ["a", "c"], "End": [10, 30]}), "t.größe = s.`GRÖSSE`")
    with pytest.raises(InputError, match=r"did you mean 's\.Größe'"):  # Of another length.
        merge.when_matched_delete().execute()
    merge = table.merge(pa.table({"GRÖßE": ["a", "c"], "End": [10, 30]}), "t.größe = s.größe")
    done = (
        merge.when_matched_update({"数": "t.数 + end"}, "s.END > 1")
        .when_not_matched_insert({"größe": "s.Größe", "数": "`end`"})
        .execute()
    )
    assert (done.inserted, done.updated) == (1, 1)
    assert sorted(table.to_arrow(where="数 > 1")["数"].to_pylist()) == [2, 11, 30]
