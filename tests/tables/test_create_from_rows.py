"""``create_table`` from rows: their columns, or the rows too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import bucketlake as bl
from bucketlake import writing
from bucketlake.errors import AlreadyExistsError, BucketLakeError, ConfigError, InputError
from tests.spies import breaks

ROWS = pa.table({"id": ["a", "b", "a"], "n": [1, 2, 3]})
COLUMNS = pa.schema({"id": pa.string(), "n": pa.int64()})


def _as_files(rows: pa.Table, folder: Path) -> Any:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    return bl.files(str(file))


FORMS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "arrow": lambda rows, _: rows,
    "batch": lambda rows, _: rows.to_batches()[0],
    "reader": lambda rows, _: rows.to_reader(),
    "dataset": lambda rows, _: ds.dataset(rows),
    "scanner": lambda rows, _: ds.dataset(rows).scanner(),
    "pandas": lambda rows, _: rows.to_pandas(),
    "polars": lambda rows, _: pl.from_arrow(rows),
    "lazy": lambda rows, _: pl.from_arrow(rows).lazy(),  # type: ignore[union-attr]
    "dicts": lambda rows, _: rows.to_pylist(),
    "files": _as_files,
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_make_a_table_with_the_same_rows(tmp_path: Path, form: str) -> None:
    path = f"memory://from/{form}"
    table = bl.create_table(path, FORMS[form](ROWS, tmp_path), record_key="id", ordering="n")
    assert [(row["id"], row["n"]) for row in table.to_arrow().to_pylist()] == [("a", 3), ("b", 2)]
    assert table.schema() == COLUMNS
    assert len(table.timeline()) == 1


@pytest.mark.parametrize("form", FORMS)
def test_schema_takes_the_columns_of_rows_and_no_row(tmp_path: Path, form: str) -> None:
    rows = ROWS.append_column("_hoodie_is_deleted", [[False] * 3])
    rows = rows.append_column("_hoodie_commit_time", [["1"] * 3])
    path = f"memory://columns/{form}"
    table = bl.create_table(path, schema=FORMS[form](rows, tmp_path), record_key="id")
    assert (table.schema(), table.count(), table.timeline()) == (COLUMNS, 0, [])


def test_a_reader_is_not_consumed_and_a_lazy_frame_not_collected_for_their_columns() -> None:
    reader = ROWS.to_reader()
    bl.create_table("memory://columns/of-reader", schema=reader, record_key="id")
    assert reader.read_all() == ROWS
    fails = pl.LazyFrame({"id": ["a"]}).map_batches(lambda _: 1 / 0, schema={"id": pl.String})
    table = bl.create_table("memory://columns/of-lazy", schema=fails, record_key="id")
    assert table.schema() == pa.schema({"id": pa.string()})


def test_schema_may_be_text_and_casts_the_first_rows(tmp_path: Path) -> None:
    text = "id string NOT NULL, n int, tags array<string>"
    table = bl.create_table(str(tmp_path / "t"), schema=text, record_key="id")
    assert table.schema().field("tags").type == pa.list_(pa.field("element", pa.string()))
    with pytest.raises(ConfigError, match=r"schema = 'id strin'.*did you mean 'string'"):
        bl.create_table(str(tmp_path / "u"), schema="id strin", record_key="id")
    made = bl.create_table(str(tmp_path / "v"), ROWS, schema="n bigint, id string", record_key="id")
    assert (made.schema().types, made.count()) == ([pa.int64(), pa.string()], 2)


def test_a_new_table_takes_the_rows_of_another_without_its_meta_columns(tmp_path: Path) -> None:
    first = bl.create_table(str(tmp_path / "a"), ROWS, record_key="id")
    frame = pd.read_parquet(next((tmp_path / "a").glob("*.parquet")))
    assert "_hoodie_record_key" in frame.columns
    second = bl.create_table(str(tmp_path / "b"), frame, record_key="id")
    assert second.schema() == first.schema()


def test_rows_that_delete_are_not_stored() -> None:
    rows = pa.table({"id": ["a", "b", "c"], "op": ["I", "D", "I"]})
    rows = rows.append_column("_hoodie_is_deleted", [[False, False, True]])
    table = bl.create_table(
        "memory://from/deletes", rows, record_key="id", delete_marker=("op", "D")
    )
    assert table.to_arrow().to_pylist() == [{"id": "a", "op": "I"}]


def test_no_rows_make_an_empty_table() -> None:
    table = bl.create_table("memory://from/nothing", ROWS.slice(0, 0), record_key="id")
    assert (table.schema(), table.timeline()) == (COLUMNS, [])


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (ROWS.append_column("k", [[None, "x", "y"]]), {"record_key": "k"}, "null"),
        (ROWS, {"record_key": "di"}, "names column 'di'"),
        (ROWS, {"record_key": "id", "schema": "id string"}, "n"),
        (5, {"record_key": "id"}, "data of type int"),
        ("landing/*.csv", {"record_key": "id"}, "bl.files"),
    ],
)
def test_rows_that_are_refused_leave_no_table(
    tmp_path: Path, rows: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BucketLakeError, match=words):
        bl.create_table(str(tmp_path / "t"), rows, **options)
    assert not (tmp_path / "t").exists()


def test_a_table_that_is_there_stays(tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "t"), ROWS, record_key="id")
    with pytest.raises(AlreadyExistsError):
        bl.create_table(str(tmp_path / "t"), ROWS, record_key="id")
    assert table.count() == 2


def test_a_first_write_that_fails_leaves_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, writing, "write_records", InputError("write", "it failed", "try again"))
    with pytest.raises(InputError, match="it failed"):
        bl.create_table(str(tmp_path / "t"), ROWS, record_key="id")
    assert not list((tmp_path / "t").rglob("*"))
    monkeypatch.undo()
    assert bl.create_table(str(tmp_path / "t"), ROWS, record_key="id").count() == 2


@pytest.mark.parametrize("schema", [None, 5, {"id": "string"}, pa.string()])
def test_a_schema_of_another_kind_is_refused_with_what_is_taken(schema: Any) -> None:
    with pytest.raises(ConfigError, match=r"schema = .* give (it|the schema)"):
        bl.create_table("memory://columns/none", schema=schema, record_key="id")


def test_columns_that_nest_too_deeply_to_be_read_again_are_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    value: Any = 1
    for _ in range(80):
        value = {"a": value}
    deep = pa.table({"id": ["a"], "deep": [value]})
    asked = "column deep: its type nests too deeply: expected at most 200 .* found 324"
    for rows, schema in ((None, deep.schema), (deep, None)):
        with pytest.raises(InputError, match=asked):
            bl.create_table(str(tmp_path / "new"), rows, schema=schema, record_key="id")
        assert not (tmp_path / "new").exists()
    table = bl.create_table(str(tmp_path / "old"), ROWS.select(["id"]), record_key="id")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=asked):
        table.upsert(deep, merge_schema=True)
    assert sorted(tmp_path.rglob("*")) == before
