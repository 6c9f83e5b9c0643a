"""Batches as people have them: without types, without rows, of many libraries, with odd columns."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.write import pack
from tests.bounds import set_bounds

_NULL = pa.null()
_SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "v": pa.int64(),
        "l": pa.list_(pa.int64()),
        "m": pa.map_(pa.string(), pa.int64()),
        "s": pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
    }
)
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "1",
}
_SIMPLE = pa.schema({"id": pa.string(), "v": pa.int64()})


def _table(path: str, schema: pa.Schema = _SIMPLE, **given: Any) -> bl.Table:
    given = {"record_key": "id", "index": bl.SimpleBucket(1)} | given
    return bl.create_table(path, schema=schema, **given)


def _rows(table: bl.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_arrow().to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


def _commits(table: bl.Table) -> int:
    return len(table.timeline())


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize(
    ("columns", "stored"),
    [
        (
            {"v": _NULL, "l": _NULL, "m": _NULL, "s": _NULL},
            {"v": None, "l": None, "m": None, "s": None},
        ),
        (
            {
                "v": pa.dictionary(pa.int32(), _NULL),
                "l": pa.list_(_NULL),
                "m": pa.map_(pa.string(), _NULL),
                "s": pa.struct([("a", _NULL), ("b", pa.list_(_NULL))]),
            },
            {"v": None, "l": [], "m": [], "s": {"a": None, "b": []}},
        ),
        (
            {
                "v": pa.run_end_encoded(pa.int32(), _NULL),
                "l": pa.large_list(_NULL),
                "m": pa.map_(pa.string(), _NULL),
                "s": pa.struct([("a", _NULL), ("b", pa.list_(pa.struct([("c", _NULL)])))]),
            },
            {"v": None, "l": [], "m": [("k", None)], "s": {"a": None, "b": [{"c": None}]}},
        ),
        (
            {
                "v": _NULL,
                "l": pa.list_view(_NULL),
                "m": _NULL,
                "s": pa.struct([("a", _NULL), ("b", _NULL)]),
            },
            {"v": None, "l": [], "m": None, "s": {"a": None, "b": None}},
        ),
    ],
    ids=["columns", "elements", "encoded", "views"],
)
def test_null_type_at_any_depth_takes_the_type_of_the_table(
    new_path: Callable[[], str],
    columns: dict[str, pa.DataType],
    stored: dict[str, Any],
    table_type: str,
    merge: bool,
) -> None:
    table = _table(new_path(), _SCHEMA, table_type=table_type)
    plain = {"v": pa.nulls(1)}
    batch = {"id": pa.array(["a"])} | {
        name: _encoded(kind) if name == "v" else pa.array([stored[name]], kind)
        for name, kind in columns.items()
    }
    assert {*plain} <= {*batch}
    for _ in range(2):
        assert table.upsert(pa.table(batch), merge_schema=merge).written == 1
    assert _rows(table) == [{"id": "a"} | stored]
    assert table.schema() == _SCHEMA


def _encoded(kind: pa.DataType) -> pa.Array:
    nulls = pa.nulls(1)
    if pa.types.is_dictionary(kind):
        return nulls.dictionary_encode()
    if pa.types.is_run_end_encoded(kind):
        return pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), nulls)
    return nulls


@pytest.mark.parametrize("merge", [False, True])
def test_null_column_or_field_that_the_table_lacks_is_ignored_with_a_warning(
    new_path: Callable[[], str], merge: bool
) -> None:
    table = _table(new_path(), pa.schema({"id": pa.string(), "s": pa.struct([("a", pa.int64())])}))
    nulls = pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int64()), ("b", _NULL)]))
    batch = pa.table({"id": ["a"], "s": nulls, "x": pa.nulls(1)})
    with pytest.warns(UserWarning, match="column (x|s.b) is ignored; the table has no such column"):
        table.upsert(batch, merge_schema=merge)
    assert _rows(table) == [{"id": "a", "s": {"a": 1}}]


@pytest.mark.parametrize("merge", [False, True])
def test_new_column_of_unknown_elements_is_refused_and_nothing_is_written(
    new_path: Callable[[], str], merge: bool
) -> None:
    table = _table(new_path())
    batch = pa.table({"id": ["a"], "v": [1], "x": pa.array([[]], pa.list_(_NULL))})
    with pytest.raises(InputError, match=r"column x\[\]: .*does not tell its type"):
        table.upsert(batch, merge_schema=merge)
    assert _commits(table) == 0


def test_created_table_with_a_null_type_is_refused_and_save_leaves_the_column_out(
    new_path: Callable[[], str],
) -> None:
    with pytest.raises(InputError, match="column x: it has the null type"):
        _table(new_path(), _SIMPLE.append(pa.field("x", _NULL)))
    path = new_path()
    with pytest.warns(UserWarning, match="column x is ignored"):
        bl.save(pd.DataFrame({"id": ["a"], "x": [None]}), path, options=_OPTIONS)
    assert bl.open_table(path).schema().names == ["id"]


def test_delete_flag_without_a_type_deletes_nothing(new_path: Callable[[], str]) -> None:
    table = _table(new_path())
    flag = pa.nulls(1)
    assert table.upsert(pa.table({"id": ["a"], "v": [1], "_hoodie_is_deleted": flag})).inserted == 1


@pytest.mark.parametrize(
    "empty",
    [
        [],
        pd.DataFrame(),
        pd.DataFrame({"id": ["a"], "v": [1]}).query("v > 5"),
        pd.DataFrame(columns=["id", "wrong"]),
        pl.DataFrame(),
        pa.table({"id": pa.array([], pa.float64())}),
    ],
    ids=["list", "no columns", "query", "other columns", "polars", "other type"],
)
def test_no_rows_make_no_commit_whatever_their_columns_are(
    new_path: Callable[[], str], empty: Any
) -> None:
    table = _table(new_path())
    table.upsert([{"id": "a", "v": 1}])
    for write in (table.upsert, table.insert, table.bulk_insert, table.insert_overwrite):
        assert write(empty).instant is None
    assert table.delete(empty).instant is None
    assert bl.save(empty, table.path, options=_OPTIONS).instant is None
    assert _commits(table) == 1
    table.insert_overwrite(empty, whole_table=True)
    assert _rows(table) == []


def test_save_without_rows_and_types_makes_no_table(new_path: Callable[[], str]) -> None:
    path = new_path()
    for mode in ("append", "overwrite"):
        assert bl.save(pd.DataFrame(), path, mode, _OPTIONS).instant is None
    assert bl.save([{"id": "a"}], path, options=_OPTIONS).inserted == 1


def _batches() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": ["a"], "v": [1]})


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.Table.from_batches(_batches()),
        lambda: next(_batches()),
        lambda: pa.RecordBatchReader.from_batches(_SIMPLE, _batches()),
        lambda: ds.dataset(pa.Table.from_batches(_batches())),
        lambda: ds.dataset(pa.Table.from_batches(_batches())).scanner(),
        lambda: list(_batches()),
        lambda: [{"id": "a", "v": 1}],
        lambda: pl.LazyFrame({"id": ["a"], "v": [1]}),
        lambda: pl.DataFrame({"id": ["a"], "v": [1]}),
        lambda: pd.DataFrame({"id": ["a"], "v": [1]}),
    ],
    ids=["table", "batch", "reader", "dataset", "scanner", "batches", "dicts", "lazy", "pl", "pd"],
)
def test_rows_of_each_form_are_written_and_deleted(
    new_path: Callable[[], str], make: Callable[[], Any]
) -> None:
    table = _table(new_path())
    assert table.upsert(make()).inserted == 1
    assert table.delete(make()).deleted == 1
    assert bl.save(make(), new_path(), options=_OPTIONS).inserted == 1


def test_keys_that_only_later_dicts_have_are_written(new_path: Callable[[], str]) -> None:
    table = _table(new_path())
    table.upsert([{"id": "a"}, {"id": "b", "v": 2}])
    assert _rows(table) == [{"id": "a", "v": None}, {"id": "b", "v": 2}]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"id": ["a"]}, "type dict"),
        ([1, "a"], "list of int, str"),
        (None, "NoneType"),
        (iter([]), "list_iterator"),
        ([{}], "no columns"),
        ([{"id": "a", 1: 2}], "column name 1 is no text"),
        ([{"id": "a", "v": 1}, {"id": "b", "v": "x"}], "column v"),
        ([pa.record_batch({"id": ["a"], "v": [1]}), pa.record_batch({"id": ["b"]})], "some lack"),
        (pl.DataFrame({"id": ["a"], "v": [uuid.UUID(int=1)]}), "column v.*Object.*UUID"),
        (pl.LazyFrame({"id": ["a"], "v": [object()]}), "column v.*Object"),
        (pl.DataFrame({"id": ["a"], "v": pl.Series([1], dtype=pl.Int128)}), "column v.*Int128"),
        (pd.DataFrame({"id": ["a"], "v": [object()]}), "column v.*pandas type object"),
        (pd.DataFrame({"id": ["a", "b"], "v": [1, "x"]}), "column v.*pandas type object"),
    ],
)
def test_data_without_an_arrow_form_is_refused_by_type_and_column(
    new_path: Callable[[], str], data: Any, named: str
) -> None:
    table = _table(new_path())
    with pytest.raises(InputError, match=named):
        table.upsert(data)
    assert _commits(table) == 0


def test_error_of_a_reader_is_raised_as_it_is(new_path: Callable[[], str]) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from _batches()
        raise RuntimeError("boom")

    table = _table(new_path())
    with pytest.raises(RuntimeError, match=r"^boom$"):
        table.upsert(pa.RecordBatchReader.from_batches(_SIMPLE, broken()))


def test_index_of_pandas_is_no_column_unless_the_table_has_it(
    new_path: Callable[[], str],
) -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "v": [1, 2]})
    named = frame.set_index(pd.Index([7, 8], name="row"))
    for given in (frame[frame.v > 1], named, pa.Table.from_pandas(frame, preserve_index=True)):
        table = _table(new_path())
        table.upsert(given, merge_schema=True)
        assert table.schema().names == ["id", "v"]
        path = new_path()
        bl.save(given, path, options=_OPTIONS)
        assert bl.open_table(path).schema().names == ["id", "v"]
    for by_key in (frame.set_index("id"), pa.Table.from_pandas(frame.set_index("id"))):
        table = _table(new_path())
        assert table.upsert(by_key).inserted == 2
        assert table.delete(by_key).deleted == 2
        assert bl.save(by_key, new_path(), options=_OPTIONS).inserted == 2


def test_range_index_with_the_name_of_the_key_is_the_key(new_path: Callable[[], str]) -> None:
    table = _table(new_path(), pa.schema({"id": pa.int64(), "v": pa.int64()}))
    table.upsert(pd.DataFrame({"v": [1, 2]}, index=pd.RangeIndex(2, name="id")))
    assert _rows(table) == [{"id": 0, "v": 1}, {"id": 1, "v": 2}]


def test_meta_columns_of_a_batch_and_of_a_schema_are_dropped(new_path: Callable[[], str]) -> None:
    batch = pa.table({"_hoodie_commit_time": ["1"], "_hoodie_operation": ["I"], "id": ["a"]})
    table = _table(new_path(), batch.schema)
    table.upsert(batch, merge_schema=True)
    assert table.schema().names == ["id"]
    assert bl.save(batch, new_path(), options=_OPTIONS).inserted == 1


def test_extension_types_with_a_stored_type_are_written_as_values(
    new_path: Callable[[], str],
) -> None:
    keys = [uuid.UUID(int=5), uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")]
    columns = {
        "id": pa.array([key.bytes for key in keys], pa.uuid()),
        "u": pa.array([keys[1].bytes, None], pa.uuid()),
        "j": pa.array(["{}", None], pa.json_()),
        "w": pa.array([None, "[1]"], pa.json_(pa.string_view())),
        "b": pa.array([2, None], pa.int8()).cast(pa.bool8()),
        "l": pa.ListArray.from_arrays([0, 1, 1], pa.array([keys[0].bytes], pa.uuid())),
    }
    batch = pa.table(columns)
    table = _table(new_path(), batch.schema)
    table.upsert(batch.slice(1))
    table.upsert(batch)
    assert _rows(table) == [
        dict(zip(columns, row, strict=True))
        for row in (
            (str(keys[0]), str(keys[1]), "{}", None, True, [str(keys[0])]),
            (str(keys[1]), None, None, "[1]", None, []),
        )
    ]
    assert table.delete(batch).deleted == 2


def test_extension_type_without_a_stored_type_is_refused_and_its_storage_is_taken(
    new_path: Callable[[], str],
) -> None:
    storage = pa.array([1])
    odd = pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "x", "y"), storage)
    batch = pa.table({"id": ["a"], "v": odd})
    with pytest.raises(InputError, match=r"column v.*cast it to its storage type, int64"):
        _table(new_path(), batch.schema)
    table = _table(new_path())
    with pytest.raises(InputError, match=r"column v.*cast it to its storage type, int64"):
        table.upsert(batch)
    assert table.upsert(batch.set_column(1, "v", batch["v"].cast(pa.int64()))).inserted == 1


def test_key_column_keeps_its_type_and_no_advice_leads_nowhere(
    new_path: Callable[[], str],
) -> None:
    table = _table(new_path(), pa.schema({"id": pa.float32()}))
    for merge in (False, True):
        with pytest.raises(InputError, match=r"keeps its type; cast the batch's column to float$"):
            table.upsert(pa.table({"id": [0.5]}), merge_schema=merge)
    table = _table(new_path(), pa.schema({"id": pa.decimal128(10, 2)}))
    finer = pa.table({"id": pa.array([1]).cast(pa.decimal128(22, 3))})
    for merge in (False, True):
        assert table.upsert(finer, merge_schema=merge).written == 1
    with pytest.raises(InputError) as raised:
        table.upsert(pa.table({"id": pa.array(["1.005"]).cast(pa.decimal128(22, 3))}))
    assert "widen" not in str(raised.value)
    assert table.delete(finer).deleted == 1


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every few records of a table be a part, which a thread tags and routes."""
    set_bounds(monkeypatch, pack, _PART_ROWS_MIN=2)


@pytest.mark.usefixtures("small_parts")
def test_the_later_of_equal_records_stays_whatever_part_it_is_in(table_path: str) -> None:
    table = _table(table_path, index=bl.SimpleBucket(4))
    keys = [f"k{number % 30}" for number in range(120)]
    result = table.upsert(pa.table({"id": keys, "v": range(120)}))
    assert result.inserted == 30
    assert [row["v"] for row in table.to_arrow(columns=["v"]).sort_by("v").to_pylist()] == [
        *range(90, 120)
    ]


@pytest.mark.usefixtures("small_parts")
def test_a_record_without_a_key_in_any_part_is_refused_before_anything_is_written(
    table_path: str,
) -> None:
    table = _table(table_path)
    with pytest.raises(InputError, match="id"):
        table.upsert(pa.table({"id": ["a"] * 50 + [None] + ["b"] * 50, "v": range(101)}))
    assert _commits(table) == 0
