"""What a notebook asks first: how many rows, which ones, as a data frame."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.base_file import BaseFileReader
from tests.spies import forbid, spy

ROWS = pa.table({"id": [f"k{n:02}" for n in range(20)], "day": ["ab"[n % 2] for n in range(20)]})
ROWS = ROWS.append_column("n", pa.array(range(20)))


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(new_path: Callable[[], str], request: pytest.FixtureRequest) -> bl.Table:
    made = bl.create_table(
        new_path(),
        schema=ROWS.schema,
        record_key="id",
        partition_by="day",
        table_type=request.param,
    )
    made.upsert(ROWS)
    return made


def test_rows_are_counted_with_updates_and_deletes(table: bl.Table) -> None:
    first = table.timeline()[-1].requested_at
    table.upsert(ROWS.slice(0, 5))
    table.delete(ROWS.slice(3, 4))
    assert table.count() == 16
    assert table.count(where="day = 'a' AND n >= 8") == 6
    assert table.count(as_of=first) == 20


def test_whole_base_files_are_counted_without_reading_rows(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, BaseFileReader, "iter_chunks")
    assert table.count() == 20


def test_a_count_under_a_condition_reads_the_columns_that_it_tests(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bl.create_table(new_path(), schema=ROWS.schema, record_key="id", partition_by="day")
    table.upsert(ROWS)
    read: set[str] = set()
    spy(monkeypatch, BaseFileReader, "iter_chunks", lambda _, columns, **__: read.update(columns))
    assert table.count(where="n >= 8") == 12
    assert read == {"n"}
    assert table.count(where="id > 'k08' OR day = 'a'") == 16
    assert read == {"n", "id", "day"}


def test_first_rows_are_shown_and_no_more_files_are_read(
    table: bl.Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = spy(monkeypatch, BaseFileReader, "iter_chunks", lambda *_, **__: None)
    table.show(1, columns=["n", "id"])
    head, rule, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["n", "id"]
    assert len(lines) == 1
    assert len(read) == 1
    assert len(table.buckets()) > 1
    table.show(where="id = 'k07'")
    assert capsys.readouterr().out.splitlines()[2].split() == ["k07", "b", "7"]
    table.show(where="id = 'nobody'")
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert rule


def test_table_is_a_data_frame_of_pandas_and_polars(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    assert table.to_pandas(where="n < 3", columns=["n"])["n"].sum() == 3
    assert isinstance(table.to_polars(), polars.DataFrame)
    assert table.to_polars(columns=["n"])["n"].sum() == 190
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnsupportedFeatureError, match="pip install polars"):
        table.to_polars()
