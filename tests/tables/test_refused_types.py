"""A column of a type that is not supported: the others are read, and no write loses its values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.format.avro import tree
from bucketlake.format.base_file import BaseFileReader
from tests.memory_catalog import MemoryCatalog

ROWS = pa.table({"id": ["a", "b"], "n": [1, 2], "day": [dt.date(2026, 11, 2), None]})
NEEDS_IT = r"column day: type date is not supported; read the table with Hudi"


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_column_of_a_refused_type_spares_the_others_and_is_never_lost(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"memory://refused_types/{table_type}"
    index = bl.SimpleBucket(2)
    bl.create_table(path, ROWS, record_key="id", index=index, table_type=table_type)
    table = bl.open_table(path, log_format="avro")
    table.upsert(ROWS)
    table.upsert(ROWS.slice(1))
    monkeypatch.setattr(tree, "_REFUSED_LOGICAL", frozenset({"date"}))
    table = bl.open_table(path, log_format="avro")
    assert table.schema().names == ["id", "n"]
    assert table.to_arrow(columns=["n", "id"], where="n > 1").to_pylist() == [{"n": 2, "id": "b"}]
    assert table.scan().count() == 2
    assert table.to_arrow(columns=["id"], since="00000000000000").num_rows == 2
    assert table.changes_to_arrow(columns=["id"]).num_rows == 2
    assert table.scan(columns=["id"]).explain().file_groups_kept == 2
    assert "day" in str(table.doctor(check_files=True, check_keys=True))
    needing: list[Callable[[], object]] = [
        table.to_arrow,
        lambda: table.to_arrow(columns=["DAY"]),
        lambda: table.to_arrow(columns=["id"], where="day > '2026-11-01'"),
        lambda: table.upsert(ROWS),
        lambda: table.upsert(ROWS.select(["id", "n"]), missing="keep"),
        lambda: table.delete(ROWS.select(["id"])),
        lambda: table.insert_overwrite(ROWS),
        lambda: table.update({"n": "n + 1"}, where="n > 0"),
    ]
    needing += [
        lambda: bl.sync(table, MemoryCatalog(), "lake.refused"),
        lambda: table.rescale({"a": 3}, default=2),
    ]
    if table_type == "merge_on_read":
        needing.append(table.compact)
    for call in needing:
        with pytest.raises(UnsupportedFeatureError, match=NEEDS_IT):
            call()
    table.clean()
    table.archive()
    monkeypatch.undo()
    assert bl.open_table(path).to_arrow().sort_by("id").equals(ROWS)


def test_base_file_with_a_column_of_another_type_gives_the_others() -> None:
    sink = pa.BufferOutputStream()
    rows = pa.table({"at": pa.array([1], pa.time64("us")), "n": pa.array([7], pa.int64())})
    pq.write_table(rows, sink)
    with BaseFileReader.of_bytes(sink.getvalue(), "f.parquet") as reader:
        assert reader.read(["n"]).to_pylist() == [{"n": 7}]
        for columns in (["at"], None):
            with pytest.raises(InputError, match=r"column at: type time64\[us\] cannot be stored"):
                reader.read(columns)
