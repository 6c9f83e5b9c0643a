"""Columns of Hudi's type BLOB: structs, which are written back as they were."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.read.snapshot import load_snapshot
from bucketlake.timeline.table_properties import table_at
from tests.golden.objects import objects_of_table
from tests.storages import memory_of


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("name", ["cow_blob", "mor_blob"])
def test_blobs_of_hudi_are_written_back_as_they_are(name: str, log_format: str) -> None:
    storage = memory_of(objects_of_table(name))
    table = bl.open_table(storage.root, bl.SimpleBucket(2), log_format=log_format)
    expected: dict[str, dict[str, Any]] = {row["id"]: row for row in table.to_arrow().to_pylist()}
    schema = table.schema()
    given: list[dict[str, Any]] = [row | {"ts": 9} for row in list(expected.values())[:4]]
    given.append(
        {"id": "n", "region": "a", "v": {"type": "INLINE", "data": b"\0\xff", "reference": None}}
    )
    table.upsert(pa.Table.from_pylist(given, schema))
    expected |= {row["id"]: {"ts": None} | row for row in given}
    if name == "mor_blob":
        table.compact()
    wider = pa.schema([*schema, ("extra", pa.int64())])
    more = {"id": "m", "region": "b", "ts": 1, "v": None, "extra": 5}
    table.upsert(pa.Table.from_pylist([more], wider), merge_schema=True)
    expected = {key: row | {"extra": None} for key, row in expected.items()} | {"m": more}
    assert {row["id"]: row for row in table.to_arrow().to_pylist()} == expected
    text = load_snapshot(table_at(storage)).schema_text
    assert text is not None
    assert '"logicalType":"blob"' in text  # Although the schema was printed anew.


def test_blob_without_its_type_is_refused_and_older_versions_hold_none() -> None:
    storage = memory_of(objects_of_table("cow_blob"))
    schema = bl.open_table(storage.root).schema()
    how: dict[str, Any] = {"record_key": "id", "index": bl.SimpleBucket(2)}
    with pytest.raises(InputError, match=r"column v: .* cannot write a blob"):
        bl.create_table("memory://blobs/older", schema=schema, version=8, **how)
    table = bl.create_table("memory://blobs/new", schema=schema, **how)
    assert table.schema().field("v").type == schema.field("v").type
    for kind, problem in (
        (None, "the table requires a value"),
        ("X", "value X of key 'a'.*INLINE"),
    ):
        row = {"id": "a", "v": {"type": kind, "data": b"x", "reference": None}}
        with pytest.raises(InputError, match=rf"column v\.type: .*{problem}"):
            table.upsert(pa.Table.from_pylist([{"id": "b", "v": None}, row], schema))
