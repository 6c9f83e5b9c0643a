"""Upserts that combine columns: bad input, inputs of several kinds, and tables with such a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import PROPERTIES_FILE
from bucketlake.errors import BucketLakeError, ConfigError, InputError
from bucketlake.format.properties import parse_properties, render_properties
from bucketlake.storage.location import open_storage
from tests.bounds import set_bounds

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.int64()),
        ("n", pa.int32()),
        ("price", pa.decimal128(4, 2)),
        ("seen", pa.timestamp("us", tz="UTC")),
        ("ok", pa.bool_()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string())])),
    ]
)
FIRST = {
    "id": "a",
    "at": 1,
    "n": 1,
    "price": Decimal("1.50"),
    "seen": 5,
    "ok": False,
    "x": 1.0,
    "tags": ["u"],
    "place": {"city": "Rome"},
}
TYPES = ("copy_on_write", "merge_on_read")


@pytest.fixture(params=TYPES)
def table(request: pytest.FixtureRequest, new_path: Callable[[], str]) -> bl.Table:
    made = bl.create_table(
        new_path(),
        schema=SCHEMA,
        record_key="id",
        ordering="at",
        index=bl.SimpleBucket(1),
        table_type=request.param,
    )
    made.upsert(batch(FIRST))
    return made


def batch(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(
        [*rows], pa.schema([field for field in SCHEMA if field.name in rows[0]])
    )


def values(table: bl.Table, *names: str, key: str = "a") -> Any:
    (row,) = table.to_arrow(where=f"id = '{key}'").select(names).to_pylist()
    return row[names[0]] if len(names) == 1 else tuple(row.values())


def test_rules_serve_columns_of_all_their_types(table: bl.Table) -> None:
    seen = pa.scalar(7, pa.timestamp("us", tz="UTC")).as_py()
    row = FIRST | {"n": 2, "price": Decimal("2.25"), "seen": 7, "ok": True, "x": float("nan")}
    rules = {"n": "min", "price": "sum", "seen": "max", "ok": "max", "x": "max", "place": "keep"}
    table.upsert(batch(row | {"place": {"city": "Bern"}}), merge=rules)
    assert values(table, "n", "price", "seen", "ok") == (1, Decimal("3.75"), seen, True)
    assert values(table, "place") == {"city": "Rome"}
    assert str(values(table, "x")) == "nan"
    table.upsert(batch(FIRST), merge={"x": "max", "ok": "min", "price": "max", "N": "sum"})
    assert values(table, "ok", "price", "n") == (False, Decimal("3.75"), 2)
    assert str(values(table, "x")) == "nan"


@pytest.mark.parametrize(
    ("row", "merge", "problem"),
    [
        (FIRST, {"id": "max"}, "a record key column"),
        (FIRST, {"at": "max"}, "an ordering column"),
        (FIRST, {"m": "sum"}, "has no column.*did you mean|the table"),
        (FIRST, {"place.city": "max"}, "a field inside a column"),
        (FIRST, {"n": "sum", "N": "max"}, "named twice"),
        (FIRST, {"place": "sum"}, "'sum' needs a number"),
        (FIRST, {"ok": "union"}, "'union' needs an array"),
        (FIRST, {"tags": "max"}, "'max' needs"),
        ({"id": "a", "at": 2}, {"n": "sum"}, "the batch lacks the column"),
        (FIRST | {"n": 2**31 - 1}, {"n": "sum"}, "does not fit int"),
        (FIRST | {"price": Decimal("99.00")}, {"price": "sum"}, "does not fit decimal"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_and_nothing_is_written(
    table: bl.Table, row: dict[str, Any], merge: dict[str, str], problem: str
) -> None:
    before = table.timeline()
    with pytest.raises(InputError, match=problem):
        table.upsert(batch(row), missing="keep", merge=merge)
    assert [one.requested_at for one in table.timeline()] == [one.requested_at for one in before]
    assert values(table, "n") == 1


@pytest.mark.parametrize(
    "given", [{"missing": "null"}, {"nulls": True}, {"merge": {}}, {"merge": {"n": "add"}}]
)
def test_an_unknown_word_is_refused(table: bl.Table, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        table.upsert(batch(FIRST), **given)


FUNCTIONS: dict[str, tuple[Callable[[pa.Table, pa.Table], Any], str]] = {
    "no table": (lambda old, new: new["n"], "returned ChunkedArray"),
    "fewer rows": (lambda old, new: new.slice(1), "got 1 rows and returned 0"),
    "other keys": (
        lambda old, new: new.set_column(0, "id", pa.array(["b"])),
        "changed the column 'id'",
    ),
    "other time": (lambda old, new: new.set_column(1, "at", pa.array([0])), "column 'at'"),
    "fewer columns": (lambda old, new: new.drop_columns(["n"]), "the table has"),
    "other name": (lambda old, new: new.rename_columns({"price": "prize"}), "did you mean"),
    "other type": (
        lambda old, new: new.set_column(2, "n", pa.array(["many"])),
        "column n.*return the types",
    ),
    "failing": (lambda old, new: 1 / 0, "raised ZeroDivisionError"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_returns_other_rows_is_refused_and_nothing_is_written(
    table: bl.Table, name: str
) -> None:
    function, problem = FUNCTIONS[name]
    with pytest.raises(InputError, match=rf"file group .*merge function.*{problem}"):
        table.upsert(batch(FIRST), merge=function)
    assert len(table.timeline()) == 1
    assert table.upsert(batch(FIRST | {"at": 2}), merge=lambda old, new: new.select(
        new.column_names[::-1]
    )).updated == 1  # fmt: skip
    assert values(table, "at") == 2


def test_a_sum_is_added_once_although_the_commit_is_tried_again(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.meanwhile import meanwhile

    meanwhile(monkeypatch, lambda: table.upsert(batch(FIRST), merge={"n": "sum"}))
    table.upsert(batch(FIRST), merge={"n": "sum"})
    assert values(table, "n") == 3


@pytest.mark.parametrize("table_type", TYPES)
def test_a_new_key_without_a_required_value_is_refused_with_its_name(
    table_type: str, new_path: Callable[[], str]
) -> None:
    table = bl.create_table(
        new_path(),
        schema=SCHEMA,
        record_key="id",
        ordering="at",
        index=bl.SimpleBucket(1),
        table_type=table_type,
    )
    storage = open_storage(table.path)  # A table of Hudi may require values.
    properties = dict(parse_properties(storage.read(PROPERTIES_FILE)))
    held = json.loads(properties["hoodie.table.create.schema"])
    (number,) = [one for one in held["fields"] if one["name"] == "n"]
    number["type"] = "int"
    del number["default"]
    properties["hoodie.table.create.schema"] = json.dumps(held)
    storage.put(PROPERTIES_FILE, render_properties(properties))
    table.upsert(batch(FIRST))
    assert not table.schema().field("n").nullable
    few = {"id": "a", "at": 2, "ok": True}
    table.upsert(batch(few), missing="keep")
    assert values(table, "n", "ok") == (1, True)
    for given in ({"missing": "keep"}, {"missing": "keep", "merge": {"ok": "max"}}):
        with pytest.raises(InputError, match=r"column n: the table requires.* 'new' gets none"):
            table.upsert(batch(few | {"at": 3, "ok": False}, few | {"id": "new"}), **given)
    with pytest.raises(InputError, match="requires a value"):
        table.upsert(batch(FIRST | {"n": None, "at": 9}))
    assert len(table.timeline()) == 2
    assert values(table, "n", "ok") == (1, True)


def test_files_and_dicts_of_some_columns_are_combined(table: bl.Table, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("id,at,n\na,2,7\nb,2,8\n")
    table.upsert(bl.files(str(tmp_path / "few.csv")), missing="keep")
    assert values(table, "n", "tags") == (7, ["u"])
    assert values(table, "n", "tags", key="b") == (8, None)
    ragged = [{"id": "a", "at": 3, "x": 9.0}, {"id": "b", "at": 3, "ok": True}]
    with pytest.raises(InputError, match="row 0 lacks 'ok'"):
        table.upsert(ragged, missing="keep")
    table.upsert(ragged, missing="keep", nulls="keep")
    assert [values(table, "n", "x", "ok", key=key) for key in "ab"] == [
        (7, 9.0, False),
        (8, None, True),
    ]
    with pytest.raises(InputError, match="missing='keep'"):
        table.upsert([{"id": "a", "at": 3, "x": 9.0}])


def test_a_new_column_and_a_partial_batch_come_together(table: bl.Table) -> None:
    few = pa.table({"id": ["a", "b"], "at": [2, 2], "more": ["new", "new"]})
    table.upsert(few, missing="keep", merge_schema="add_columns")
    assert values(table, "n", "more") == (1, "new")
    table.upsert(few.drop_columns(["more"]), missing="keep")
    assert values(table, "n", "more", key="b") == (None, "new")


OPTIONS = {
    "hoodie.table.name": "ruled",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "at",
    "hoodie.datasource.write.payload.class": "PartialUpdateAvroPayload",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
}


@pytest.mark.parametrize("table_type", TYPES)
def test_a_table_with_a_partial_update_mode_fills_nulls_for_every_writer_and_reader(
    table_type: str, new_path: Callable[[], str]
) -> None:
    options = OPTIONS | {"hoodie.datasource.write.table.type": table_type.upper()}
    path, names = new_path(), ["id", "at", "n", "ok", "x"]

    def rows(*tuples: tuple[Any, ...]) -> pa.Table:
        return batch(*(dict(zip(names, one, strict=True)) for one in tuples))

    bl.save(rows(("a", 1, 1, None, 1.0), ("b", 5, None, True, None)), path, options=options)
    table = bl.open_table(path)
    table.upsert(rows(("a", 2, None, True, 2.0), ("b", 3, 3, False, None), ("c", 1, None, None, 0)))
    expected = [("a", 2, 1, True, 2.0), ("b", 5, 3, True, None), ("c", 1, None, None, 0.0)]
    assert found(table, names) == expected
    assert table.to_arrow(columns=["n"], where="id = 'b'").to_pylist() == [{"n": 3}]
    table.upsert(rows(("c", 2, 4, None, None), ("c", 3, None, False, None)), merge={"n": "sum"})
    table.upsert(batch({"id": "a", "at": 4, "n": 5}), missing="keep")
    expected = [("a", 4, 5, True, 2.0), expected[1], ("c", 3, 4, False, 0.0)]
    assert found(table, names) == expected
    if table_type == "merge_on_read":
        table.compact()
        assert found(table, names) == expected
    earlier = table.to_arrow(as_of=table.timeline()[0].completed_at)
    assert earlier.num_rows == 2
    other = options | {"hoodie.datasource.write.payload.class": "DefaultHoodieRecordPayload"}
    with pytest.raises(BucketLakeError, match=r"partial\.update\.mode = 'NONE'.*IGNORE_DEFAULTS"):
        bl.save(rows(("a", 9, None, None, None)), path, options=other)


def found(table: bl.Table, names: list[str]) -> list[tuple[Any, ...]]:
    rows = table.to_arrow().sort_by("id").select(names).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_a_slice_with_late_rows_is_the_same_in_one_pass_and_in_several(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bucketlake.read import slice_reader

    path = new_path()
    options = OPTIONS | {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    for step in range(4):
        count = 30
        rows = pa.table(
            {
                "id": [f"k{n}" for n in range(count)],
                "at": [(n * 7 + step * 5) % 11 for n in range(count)],
                "n": [None if (n + step) % 3 else n * 10 + step for n in range(count)],
                "s": [None if (n * step) % 2 else f"{n}.{step}" for n in range(count)],
            }
        )
        bl.save(rows, path, options=options)
    table = bl.open_table(path)
    whole = table.to_arrow().sort_by("id")
    set_bounds(monkeypatch, slice_reader, LOG_BYTES_PER_PASS=100)
    assert table.to_arrow().sort_by("id").equals(whole)
    assert pc.sum(whole["n"].is_valid()).as_py() > 20
