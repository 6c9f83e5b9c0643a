"""Columns of Hudi's type BLOB: structs, which are written back as they were."""

from __future__ import annotations

from pathlib import Path
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


def test_bytes_of_references_are_read_on_demand_and_inside_of_a_base(tmp_path: Path) -> None:
    scans, table_path = tmp_path / "scans", str(tmp_path / "table")
    scans.mkdir()
    (scans / "a.bin").write_bytes(b"0123456789")
    (tmp_path / "secret").write_bytes(b"secret")
    table = bl.create_table(table_path, schema="id string, v blob", record_key="id")
    place = str(scans / "a.bin")
    blobs = {
        "own": bl.blob(b"page"),
        "part": bl.blob_reference(place, 2, 3),
        "tail": bl.blob_reference(place, 7),
        "whole": bl.blob_reference(place),
        "none": None,
    }
    rows = [{"id": key, "v": blob} for key, blob in blobs.items()]
    table.upsert(pa.Table.from_pylist(rows, table.schema()))
    stored = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    read = {key: bl.read_blob(blob, base=str(scans)) for key, blob in stored.items()}
    assert read == {
        "own": b"page", "part": b"234", "tail": b"789", "whole": b"0123456789", "none": None
    }  # fmt: skip
    for path, problem in (
        (str(tmp_path / "secret"), "leads out of"),
        (f"{scans}/../secret", "leads out of"),
        (f"{scans}x/a.bin", "leads out of"),
    ):
        with pytest.raises(InputError, match=problem):
            bl.read_blob(bl.blob_reference(path), base=str(scans))
    with pytest.raises(InputError, match="the file has 10 bytes, and not 5 from 8 on"):
        bl.read_blob(bl.blob_reference(place, 8, 5), base=str(scans))
    for start in (0, 1):
        with pytest.raises(bl.ObjectNotFoundError, match="gone"):
            bl.read_blob(bl.blob_reference(f"{scans}/gone", start), base=str(scans))
    with pytest.raises(InputError, match="it is none"):
        bl.read_blob({"type": "X"}, base=str(scans))
