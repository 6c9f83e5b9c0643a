"""Columns of vectors: each write keeps the numbers of each key, and wrong vectors are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError

SIZE = 4
KINDS = {"float": pa.float32(), "double": pa.float64(), "int8": pa.int8()}


def batch(keys: str, element: pa.DataType, *, fixed: bool, seed: int = 0) -> pa.Table:
    numbers = np.random.default_rng(seed).integers(-99, 99, (len(keys), SIZE))
    if fixed:
        values = numbers.reshape(-1).astype(element.to_pandas_dtype())
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), SIZE)
    else:
        vectors = pa.array(numbers.tolist(), pa.list_(pa.int64()))
    count = pa.array([seed] * len(keys), pa.int64())
    return pa.table({"id": list(keys), "n": count, "v": vectors})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("table_type", "log_format"),
    [("copy_on_write", "parquet"), ("merge_on_read", "parquet"), ("merge_on_read", "avro")],
)
def test_vectors_of_every_key_are_those_of_its_last_write(
    table_type: str, log_format: str, kind: str
) -> None:
    element = KINDS[kind]
    path = f"memory://vectors/{table_type}_{log_format}_{kind}"
    schema = f"id string, n bigint, v vector({SIZE}, {kind})"
    index = bl.SimpleBucket(2)
    bl.create_table(path, schema=schema, record_key="id", index=index, table_type=table_type)
    table = bl.open_table(path, log_format=log_format)
    expected: dict[str, dict[str, Any]] = {}

    def write(rows: pa.Table, **how: Any) -> None:
        table.upsert(rows, **how)
        for row in rows.to_pylist():
            expected[row["id"]] = {**expected.get(row["id"], {"v": None}), **row}

    def check() -> None:
        found = table.to_arrow()
        assert found.schema.field("v").type == pa.list_(element, SIZE)
        assert {row["id"]: row for row in found.to_pylist()} == expected

    write(batch("abc", element, fixed=True))
    write(batch("bd", element, fixed=False, seed=1))
    write(batch("ae", element, fixed=True, seed=2).slice(1))
    write(pa.table({"id": ["f", "a"], "n": [5, 6], "v": pa.nulls(2)}))
    write(pa.table({"id": ["b", "g"], "n": [7, 8]}), missing="keep")
    table.delete(pa.table({"id": ["c"]}))
    del expected["c"]
    check()
    if table_type == "merge_on_read":
        table.compact()
        check()
    two = batch("h", element, fixed=True)
    two = two.append_column("w", two["v"])  # Two columns of one type, which Avro defines once.
    table.upsert(two, merge_schema=True)
    expected |= {row["id"]: row for row in two.to_pylist()}
    for row in expected.values():
        row.setdefault("w", None)
    check()
    assert not table.doctor(check_files=True, check_keys=True)


@pytest.mark.parametrize(
    ("vector", "kind", "problem"),
    [
        ([1, 2, 3], "float", r"vector\(4\).*key 'bad'.*3 elements, expected 4"),
        ([1, 2, 3, 4, 5], "float", r"key 'bad'.*5 elements, expected 4"),
        ([1, None, 3, 4], "float", r"key 'bad'.*a null inside"),
        ([1, 2, 3, float("nan")], "int8", r"vector\(4, int8\).*key 'bad'.*nan"),
        ([1, 2, 3, 128], "int8", r"key 'bad'.*128"),
    ],
)
def test_wrong_vector_is_refused_with_its_key_before_anything_is_written(
    vector: list[float], kind: str, problem: str
) -> None:
    schema = f"id string, v vector({SIZE}, {kind})"
    path = f"memory://vectors/wrong_{kind}_{vector}"
    table = bl.create_table(path, schema=schema, record_key="id", index=bl.SimpleBucket(2))
    rows = pa.table({"id": ["good", "null", "bad"], "v": [[1.0] * SIZE, None, vector]})
    with pytest.raises(InputError, match=rf"column v: .*{problem}"):
        table.upsert(rows)
    assert not table.timeline()


def test_other_size_and_other_types_are_refused_and_lists_stay_lists() -> None:
    index = bl.SimpleBucket(2)
    table = bl.create_table(
        "memory://vectors/other", schema="id string, v vector(4)", record_key="id", index=index
    )
    for other in (pa.list_(pa.float32(), 5), pa.list_(pa.string()), pa.float32()):
        with pytest.raises(InputError, match=r"column v: the table holds vector\(4\), the batch"):
            table.upsert(pa.table({"id": ["a"], "v": pa.nulls(1, other)}))
    lists = bl.create_table(
        "memory://vectors/lists", schema="id string, v array<float>", record_key="id", index=index
    )
    lists.upsert(pa.table({"id": ["a"], "v": pa.array([[1, 2]], pa.list_(pa.float32(), 2))}))
    lists.upsert(pa.table({"id": ["b"], "v": pa.array([[1]], pa.list_(pa.float32(), 1))}))
    assert lists.to_arrow().sort_by("id")["v"].to_pylist() == [[1, 2], [1]]


@pytest.mark.parametrize("version", [6, 8])
def test_older_table_version_holds_no_vectors(version: int) -> None:
    held = rf"column v: .* cannot write a vector\(4\), so table version {version} does not hold it"
    rows, path = batch("a", pa.float32(), fixed=True), f"memory://vectors/version_{version}"
    how: dict[str, Any] = {"record_key": "id", "index": bl.SimpleBucket(2)}
    with pytest.raises(InputError, match=held):
        bl.create_table(path, rows, version=version, **how)
    older = bl.create_table(path, rows.select(["id", "n"]), version=version, **how)
    with pytest.raises(InputError, match=held):
        older.upsert(rows, merge_schema=True)
    newest = bl.create_table(f"{path}_newest", rows, **how)
    newest.upsert(rows)
    with pytest.raises(InputError, match=held):
        newest.downgrade(version)
    assert newest.to_arrow().equals(rows)


def test_texts_of_json_become_vectors(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "v": [1, 2.5]}\n{"id": "b", "v": null}\n')
    table = bl.create_table(
        "memory://vectors/json",
        schema="id string, v vector(2, double)",
        record_key="id",
        index=bl.SimpleBucket(1),
    )
    table.upsert(bl.files(str(tmp_path / "rows.jsonl")))
    assert table.to_arrow()["v"].to_pylist() == [[1, 2.5], None]
