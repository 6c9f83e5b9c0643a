"""Columns of variants: each write keeps the value of each key, and broken ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.model.variant import SPARK_VARIANT, VARIANT
from bucketlake.spark import spark_schema
from tests.golden.objects import objects_of_table
from tests.storages import memory_of

SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64(), "v": VARIANT})
WHOLE = {"metadata": b"\x01\x01\x00\x01a", "value": b"\x02\x01\x00\x00\x02\x0c\x02"}  # {"a": 2}
NONE = {"metadata": b"\x01\x00\x00", "value": b"\x00"}  # null of JSON


def number(n: int) -> dict[str, bytes]:
    """Return the variant of a number from 0 to 127."""
    return {"metadata": b"\x01\x00\x00", "value": bytes([12, n])}


@pytest.mark.parametrize(
    ("table_type", "log_format"),
    [("copy_on_write", "parquet"), ("merge_on_read", "parquet"), ("merge_on_read", "avro")],
)
def test_variants_of_every_key_are_those_of_its_last_write(
    table_type: str, log_format: str
) -> None:
    path = f"memory://variants/{table_type}_{log_format}"
    how: dict[str, Any] = {"record_key": "id", "index": bl.SimpleBucket(2)}
    schema = "id string, n bigint, v variant"
    bl.create_table(path, schema=schema, table_type=table_type, **how)
    table = bl.open_table(path, log_format=log_format)
    expected: dict[str, dict[str, Any]] = {}

    def write(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA, **how: Any) -> None:
        names = [name for name in schema.names if name in rows[0]]
        given = pa.schema([schema.field(name) for name in names])
        table.upsert(pa.Table.from_pylist(rows, given), **how)
        for row in rows:
            expected[row["id"]] = {**expected.get(row["id"], {"v": None}), **row}

    def check() -> None:
        found = table.to_arrow()
        assert found.schema.field("v").type == VARIANT
        assert {row["id"]: row for row in found.to_pylist()} == expected

    write([{"id": key, "n": n, "v": number(n)} for n, key in enumerate("abcdef")])
    spark_order = SCHEMA.set(2, pa.field("v", SPARK_VARIANT))
    write([{"id": "b", "n": 7, "v": WHOLE}, {"id": "g", "n": 8, "v": None}], spark_order)
    loose = pa.struct({"value": pa.binary(), "metadata": pa.binary()})  # As pa.table() infers it.
    write([{"id": "a", "n": 9, "v": NONE}], SCHEMA.set(2, pa.field("v", loose)))
    write([{"id": "b", "n": 1}, {"id": "h", "n": 2}], missing="keep")
    table.delete(pa.table({"id": ["c"]}))
    del expected["c"]
    check()
    if table_type == "merge_on_read":
        table.compact()
        check()
    two = pa.table(
        {"id": ["i"], "n": [1], "v": pa.array([WHOLE], VARIANT), "w": pa.array([NONE], VARIANT)}
    )
    table.upsert(two, merge_schema=True)  # Avro defines the type of both columns once.
    expected["i"] = two.to_pylist()[0]
    for row in expected.values():
        row.setdefault("w", None)
    check()
    assert not table.doctor(check_files=True, check_keys=True)


@pytest.mark.parametrize(
    ("metadata", "value", "problem"),
    [
        (b"", b"\x00", "it is cut"),
        (b"\x02\x00\x00", b"\x00", "unknown version"),
        (b"\x01\x01\x00\x09a", b"\x00", "its metadata are cut"),
        (b"\x01\x02\x00\x02\x01ab", b"\x00", "names in no order"),
        (b"\x01\x00\x00", b"", "it is cut"),
        (b"\x01\x00\x00", b"\x0c", "its value is cut"),
        (b"\x01\x00\x00", b"\xfc", "a value of an unknown type"),
        (b"\x01\x00\x00", b"\x02\x01\x00\x00\x02\x0c\x02", "whose name is not in its metadata"),
        (b"\x01\x01\x00\x01a", b"\x02\x01\x00\x00\x03\x0c\x02", "its value is cut"),
        (
            b"\x01\x00\x00",
            b"\x03\x04\0\0\0\0\x0c\x03\x08\0\0\0\0\0\0\0\0\x01\0",
            "its parts overlap",
        ),
    ],
)
def test_broken_variant_is_refused_with_its_key_before_anything_is_written(
    metadata: bytes, value: bytes, problem: str
) -> None:
    path = f"memory://variants/broken_{metadata.hex()}_{value.hex()}"
    table = bl.create_table(path, schema=SCHEMA, record_key="id", index=bl.SimpleBucket(2))
    bad = {"metadata": metadata, "value": value}
    rows = [{"id": key, "v": held} for key, held in (("good", WHOLE), ("no", None), ("bad", bad))]
    with pytest.raises(InputError, match=rf"column v: .*key 'bad'.*{problem}"):
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    assert not table.timeline()


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("v", {"metadata": b"\1\0\0"}, r"column v\.value: the table requires .* of key 'bad'"),
        ("v", '{"a": 1}', r"column v: .*bl\.variant"),
        ("b", b"raw", r"column b: .*bl\.blob"),
        (
            "b",
            {**bl.blob(b""), "type": None},
            r"column b\.type: .* requires .* of key 'bad'",
        ),
        (
            "b",
            {**bl.blob(b""), "type": "ELSEWHERE"},
            r"column b\.type: .*key 'bad'.*INLINE or",
        ),
        ("b", {**bl.blob(b""), "type": "OUT_OF_LINE"}, "column b: .*key 'bad'.*has no reference"),
    ],
)
def test_value_that_is_none_of_its_type_is_refused_with_column_and_key(
    tmp_path: Path, column: str, value: Any, problem: str
) -> None:
    schema = "id string, v variant, b blob"
    table = bl.create_table(str(tmp_path / "table"), schema=schema, record_key="id")
    rows: list[dict[str, Any]] = [{"id": "no"}, {"id": "bad", column: value}]
    if isinstance(value, dict):
        rows.append({"id": "good", "v": WHOLE, "b": bl.blob(b"")})
    with pytest.raises(InputError, match=problem):
        table.upsert(rows)
    assert not table.timeline()


def test_variant_is_one_value_and_no_key_partition_or_order() -> None:
    how: dict[str, Any] = {"schema": SCHEMA, "index": bl.SimpleBucket(2)}
    for role in ("record_key", "partition_by", "ordering"):
        for path in ("v", "v.value"):
            given = {"record_key": "id", role: path}
            with pytest.raises((InputError, bl.ConfigError), match=r"column v.*variant"):
                bl.create_table(f"memory://variants/{role}_{path}", **how, **given)
    table = bl.create_table("memory://variants/one", record_key="id", **how)
    table.upsert(pa.Table.from_pylist([{"id": "a", "n": 1, "v": WHOLE}], SCHEMA))
    fields = [*VARIANT, pa.field("more", pa.int64())]
    for other in (pa.string(), pa.struct(fields), pa.struct([fields[0]])):
        rows = pa.table({"id": ["a"], "n": [1], "v": pa.nulls(1, other)})
        with pytest.raises(InputError, match="column v: the table holds variant, the batch"):
            table.upsert(rows, merge_schema=True)
    assert table.schema() == SCHEMA


@pytest.mark.parametrize("version", [6, 8])
def test_older_table_version_holds_no_variants(version: int) -> None:
    held = rf"column v: .* cannot write a variant, so table version {version} does not hold it"
    how: dict[str, Any] = {"record_key": "id", "index": bl.SimpleBucket(2)}
    with pytest.raises(InputError, match=held):
        bl.create_table("memory://variants/older", schema=SCHEMA, version=version, **how)
    newest = bl.create_table(f"memory://variants/newest_{version}", schema=SCHEMA, **how)
    newest.upsert(pa.Table.from_pylist([{"id": "a", "n": 1, "v": WHOLE}], SCHEMA))
    with pytest.raises(InputError, match=held):
        newest.downgrade(version)
    assert newest.to_arrow()["v"].to_pylist() == [WHOLE]


@pytest.mark.parametrize("name", ["cow_variant", "mor_variant"])
def test_variants_of_hudi_are_read_and_written_back(name: str) -> None:
    storage = memory_of(objects_of_table(name))
    table = bl.open_table(storage.root, bl.SimpleBucket(2))
    expected = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert table.schema().field("v").type == VARIANT
    row = {"id": "k0", "region": "a", "ts": 9, "v": WHOLE}
    table.upsert(pa.Table.from_pylist([row], table.schema()))
    expected["k0"] = row
    if name == "mor_variant":
        table.compact()
    assert {row["id"]: row for row in table.to_arrow().to_pylist()} == expected


def test_json_becomes_variants_and_variants_become_json() -> None:
    texts = ['{"a":{"b":[1,-2.5,"x",null,true]}}', "null", '"text"', "[]", "12345678901"]
    rows = [{"id": str(n), "v": bl.variant(text)} for n, text in enumerate(texts)]
    table = bl.create_table(
        "memory://variants/json", schema="id string, v variant", record_key="id"
    )
    table.upsert(pa.Table.from_pylist([*rows, {"id": "none", "v": None}], table.schema()))
    stored = {row["id"]: bl.variant_json(row["v"]) for row in table.to_arrow().to_pylist()}
    assert stored.pop("none") is None
    assert [json.loads(stored[str(n)] or "") for n in range(5)] == [*map(json.loads, texts)]
    with pytest.raises(InputError, match="it is no JSON"):
        bl.variant("{")
    with pytest.raises(InputError, match="it is none"):
        bl.variant_json({"metadata": b"", "value": b""})


def test_json_of_variants_needs_a_pyspark_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_schema, "VARIANT_VALUE", None)  # As in PySpark 3.5.
    for call in (
        lambda: bl.variant("{}"),
        lambda: bl.variant_json({"metadata": b"", "value": b""}),
    ):
        with pytest.raises(UnsupportedFeatureError, match="install pyspark 4"):
            call()
