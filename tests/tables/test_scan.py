"""A scan is a value: nothing is read before a terminal runs, and libraries take it as a stream."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest

import bucketlake as bl

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64())])


def rows(count: int, day: str) -> pa.Table:
    ids = [f"{day}{number}" for number in range(count)]
    return pa.table({"id": ids, "day": [day] * count, "n": [*range(count)]}, SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    table = bl.create_table(
        str(tmp_path / "stock"), schema=SCHEMA, record_key="id", partition_by="day",
        index=bl.SimpleBucket(2),
    )  # fmt: skip
    table.upsert(rows(10, "a"))
    table.upsert(rows(10, "b"))
    return table


def test_a_scan_sees_the_newest_commit_of_each_of_its_terminals(table: bl.Table) -> None:
    scan = table.scan("n < 3", columns=["id"])
    assert scan.count() == 6
    table.upsert(rows(3, "c"))
    assert scan.count() == scan.to_arrow().num_rows == 9
    assert pickle.loads(pickle.dumps(scan)).count() == 9
    assert repr(scan) == f"Scan(path={table.path!r}, where='n < 3', columns=('id',))"


def test_libraries_take_a_table_and_a_scan_as_they_are(table: bl.Table) -> None:
    scan = table.scan("n < 3", columns=["id", "n"])
    assert polars.DataFrame(table).shape == (20, 3)
    assert polars.DataFrame(scan).sort("id")["id"].to_list() == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert pa.table(scan).column_names == ["id", "n"]
    assert pa.RecordBatchReader.from_stream(scan).read_all().num_rows == 6
    wide = pa.schema([("id", pa.large_string()), ("n", pa.int64())])
    assert pa.table(scan, schema=wide).schema == wide


def test_pandas_takes_a_scan_as_it_is(table: bl.Table) -> None:
    pandas = pytest.importorskip("pandas", "3.0")
    assert len(pandas.DataFrame.from_arrow(table.scan("n < 3"))) == 6


def test_duckdb_takes_a_table_and_a_scan_as_they_are(table: bl.Table) -> None:
    duckdb = pytest.importorskip("duckdb")
    scan, stock = table.scan(columns="n"), table
    assert duckdb.sql("SELECT sum(n) FROM scan").fetchone() == (90,)
    assert duckdb.sql("SELECT count(*) FROM stock").fetchone() == (20,)
    assert (scan, stock) == (table.scan(columns="n"), table)


def test_another_table_is_a_source_of_a_write(table: bl.Table, tmp_path: Path) -> None:
    copy = bl.create_table(str(tmp_path / "copy"), table, record_key="id", index=bl.SimpleBucket(1))
    assert copy.count() == 20
    assert copy.upsert(table.scan("day = 'a'")).inserted == 0
    copy.delete(table.scan("day = 'b'"))
    assert copy.count() == 10


def test_a_stream_reads_a_file_when_it_is_consumed(table: bl.Table, tmp_path: Path) -> None:
    batches = table.scan().to_batches()
    first = next(batch for batch in batches if batch.num_rows)
    assert first.num_rows < 20
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(bl.BucketLakeError) as caught:
        batches.read_all()
    assert caught.value.table == table.path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ["x"]}, "no column 'x'"),
        ({"columns": ["id", "ID"]}, "named twice"),
        ({"as_of": "2024-01-01", "since": "2024-01-01"}, "either as_of"),
        ({"where": "soundex(id) = 'A'"}, "Spark"),
    ],
)
@pytest.mark.parametrize("terminal", ["to_arrow", "to_batches", "count", "show", "explain"])
def test_terminals_refuse_a_wrong_option_alike(
    table: bl.Table, terminal: str, options: dict[str, Any], words: str
) -> None:
    scan = table.scan(**options)
    if (words, terminal) == ("Spark", "explain"):
        assert scan.explain().file_groups_kept == 4  # Spark would read the file groups.
        return
    with pytest.raises(bl.BucketLakeError, match=words) as caught:
        getattr(scan, terminal)()
    assert caught.value.table == table.path


def test_a_wrong_argument_is_refused_before_a_terminal_runs(table: bl.Table) -> None:
    wrong: list[dict[str, Any]] = [
        {"where": 1}, {"columns": {"id"}}, {"since": "soon"}, {"read_optimized": "no"},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(bl.ConfigError, match=next(iter(options))):
            table.scan(**options)
    with pytest.raises(TypeError, match=r"Table\.to_arrow\(\) .* did you mean 'columns'"):
        table.to_arrow(colums=["id"])  # type: ignore[call-arg]


KEYS = [{"id": "a1", "day": "a"}, {"id": "b2", "day": "a"}, {"id": "none", "day": "b"}]


@pytest.mark.parametrize(
    "given",
    [
        lambda keys: keys,
        pa.Table.from_pylist,
        polars.DataFrame,
        lambda keys: pa.Table.from_pylist(keys).to_pandas(),
        lambda keys: pa.Table.from_pylist(keys).append_column("more", pa.array([1, 2, 3])),
    ],
)
def test_keys_of_any_kind_of_rows_choose_the_rows(table: bl.Table, given: Any) -> None:
    scan = table.scan(keys=given(KEYS))
    assert scan.to_arrow()["id"].to_pylist() == ["a1"]  # The row b2 is in another partition.
    assert scan.count() == pickle.loads(pickle.dumps(scan)).count() == 1
    assert "keys='3 rows'" in repr(scan)
    without_day = [{"id": key["id"]} for key in KEYS]
    assert sorted(table.to_arrow(keys=given(without_day))["id"].to_pylist()) == ["a1", "b2"]
    assert table.count(keys=given(without_day), where="n > 1") == 1


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (("n", [1, 2, 77]), ["a1", "a2", "b1", "b2"]),
        (("N", np.array([1], np.int32)), ["a1", "b1"]),
        (("n", pa.chunked_array([[1], [None]])), ["a1", "b1"]),
        (("n", polars.Series([1, 2])), ["a1", "a2", "b1", "b2"]),
        (("id", pa.table({"id": ["b9"]})), ["b9"]),
        ((["day", "n"], pa.table({"n": [1, 3], "day": ["a", "b"]})), ["a1", "b3"]),
        ((["day", "n"], [{"n": 1, "day": "b"}]), ["b1"]),
        (("id", []), []),
        (("_hoodie_record_key", ["a4"]), ["a4"]),
    ],
)
def test_values_of_columns_choose_the_rows(table: bl.Table, where: Any, found: list[str]) -> None:
    assert sorted(table.to_arrow(where=where, columns=["id"])["id"].to_pylist()) == found
    assert table.count(where=where) == len(found)


def test_null_in_keys_is_a_value_and_in_a_list_is_none(tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key=["id", "n"])
    table.upsert(pa.table({"id": ["a", "a"], "day": ["d", "d"], "n": [1, None]}, SCHEMA))
    assert table.to_arrow(keys=[{"id": "a", "n": None}])["n"].to_pylist() == [None]
    assert table.to_arrow(where=("n", [None, 1]))["n"].to_pylist() == [1]


def test_keys_prune_as_a_condition_does(table: bl.Table) -> None:
    pairs = [{"id": f"a{number}", "day": "a"} for number in range(10)]
    found = table.scan(keys=pairs[:1]).explain()
    assert (found.partitions_kept, found.file_groups_kept) == (1, 1)
    assert table.scan(keys=pairs).explain().partitions_kept == 1
    text = " OR ".join(f"(id = '{pair['id']}' AND day = 'a')" for pair in pairs)
    assert table.explain(text) == table.scan(keys=pairs).explain()
    assert table.count(where=text) == table.count(keys=pairs) == 10
    assert table.explain(("day", ["b"])).partitions_kept == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keys": [{"day": "a"}]}, "no such column"),
        ({"where": ("x", [1])}, "no column 'x'"),
        ({"where": ("n", ["one"])}, "column n: string does not fit"),
        ({"where": ("n", [1]), "keys": KEYS}, "give one of them"),
        ({"where": ("n", 5)}, "give values"),
        ({"where": ("n",)}, "where"),
        ({"keys": [1, 2]}, "keys: a list of int"),
    ],
)
def test_keys_that_fit_no_column_are_refused(
    table: bl.Table, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(bl.BucketLakeError, match=words):
        table.count(**options)


def test_changes_take_no_keys(table: bl.Table) -> None:
    with pytest.raises(bl.ConfigError, match="where"):
        table.changes_to_arrow(where=("n", [1]))  # type: ignore[arg-type]
