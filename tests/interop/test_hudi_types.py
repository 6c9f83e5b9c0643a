"""Vectors, blobs and variants in turns: what either writer stores, both read, merge and compact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.model.column_type import BLOB, with_arrays
from bucketlake.model.variant import VARIANT
from bucketlake.spark.spark_schema import spark_from_arrow
from bucketlake.timeline.instant import Action
from tests.interop.peer.client import HudiPeer, PeerError
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

TYPES = {
    "v": pa.list_(pa.float32(), 3),
    "w": pa.list_(pa.float32(), 3),  # Avro defines the type of both once.
    "x": pa.list_(pa.int8(), 2),
    "y": pa.list_(pa.float64(), 3),
    "b": BLOB,
}
SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), *TYPES.items()]
)
KIND = TableKind(schema=SCHEMA, metadata_table=True)
INLINE = {"type": "INLINE", "data": b"\0\xff", "reference": None}
PLACE = {"external_path": "files/7.bin", "offset": 3, "length": None, "managed": False}
OUT_OF_LINE = {"type": "OUT_OF_LINE", "data": None, "reference": PLACE}


def rows(numbers: range, ts: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"k{n}",
            "region": "eu" if n % 2 else "us",
            "ts": ts,
            "v": [n + 0.5, -0.0, ts * 1.25],
            "w": None if n % 4 == 0 else [float(n), float("inf"), ts / 4],
            "x": [n - 100, ts],
            "y": [n / 3, 1e300, -ts / 7],
            "b": (None, INLINE, OUT_OF_LINE)[n % 3],
        }
        for n in numbers
    ]


def as_spark_has_them(batch: list[dict[str, Any]]) -> pa.Table:
    """Return rows as Spark has them, with the metadata by which Hudi knows its types."""
    told = {"org.apache.spark.sql.parquet.row.metadata": spark_from_arrow(SCHEMA).json()}
    return pa.Table.from_pylist(batch, with_arrays(SCHEMA).with_metadata(told))


@pytest.mark.parametrize("merge_on_read", [False, True], ids=["cow", "mor"])
@pytest.mark.parametrize("first", list(Writer))
def test_values_of_both_writers_are_those_of_the_last_write(
    hudi: HudiPeer, tmp_path: Path, first: Writer, merge_on_read: bool
) -> None:
    table = SharedTable(hudi, tmp_path / "vectors", replace(KIND, merge_on_read=merge_on_read))
    expected: dict[str, dict[str, Any]] = {}

    def write(writer: Writer, batch: list[dict[str, Any]], log_format: str = "parquet") -> None:
        expected.update({row["id"]: row for row in batch})
        if writer is HUDI:
            hudi.write(table.path, as_spark_has_them(batch), table.options)
        else:
            opened = bl.open_table(str(table.path), index=KIND.index, log_format=log_format)
            opened.upsert(pa.Table.from_pylist(batch, SCHEMA))
        for read in (table.ours.to_arrow(), hudi.read(table.path)):
            found = {row["id"]: row for row in read.select(SCHEMA.names).to_pylist()}
            assert found == expected, writer

    if first is BUCKETLAKE:
        table.begin()
    second = HUDI if first is BUCKETLAKE else BUCKETLAKE
    write(first, rows(range(12), 1))
    write(second, rows(range(8, 16), 2))
    write(BUCKETLAKE, rows(range(4, 10), 3), "avro")
    if merge_on_read:
        table.options["hoodie.compact.inline"] = "true"
        table.options["hoodie.compact.inline.max.delta.commits"] = "1"
    write(HUDI, rows(range(6, 18), 4))
    write(BUCKETLAKE, rows(range(5), 5))
    assert Action.COMMIT in {entry.action for entry in table.ours.timeline()}  # Of a compaction.
    assert not table.ours.doctor(check_files=True)


ON_SPARK_4 = r"VARIANT type is only supported in Spark 4\.0"
VARIANTS = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", VARIANT)])


@pytest.mark.parametrize("merge_on_read", [False, True], ids=["cow", "mor"])
def test_hudi_keeps_variants_when_it_writes_rows_without_them(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    """Hudi's bundle for Spark 3.5 can rewrite base files of such a table, and do nothing more."""
    kind = replace(KIND, schema=VARIANTS, merge_on_read=merge_on_read, partition_by=())
    table = SharedTable(hudi, tmp_path / "variants", kind)
    options = {"hoodie.write.set.null.for.missing.columns": "true"}
    expected: dict[str, tuple[int, int | None]] = {}

    def write(writer: Writer, numbers: range, ts: int, log_format: str = "parquet") -> None:
        held = [None if n % 4 == 0 or writer is HUDI else n + ts for n in numbers]
        expected.update({f"k{n}": (ts, v) for n, v in zip(numbers, held, strict=True)})
        values = [v and {"metadata": b"\1\0\0", "value": bytes([12, v])} for v in held]
        ids = [f"k{n}" for n in numbers]
        batch = pa.table([ids, [ts] * len(ids), pa.array(values, VARIANT)], VARIANTS)
        if writer is HUDI:
            hudi.write(table.path, batch.drop_columns(["v"]), {**table.options, **options})
        else:
            bl.open_table(str(table.path), index=kind.index, log_format=log_format).upsert(batch)

    def check() -> None:
        found = table.ours.to_arrow().to_pylist()
        assert {
            row["id"]: (row["ts"], row["v"] and row["v"]["value"][1]) for row in found
        } == expected

    table.begin()
    write(BUCKETLAKE, range(8), 1)
    write(HUDI, range(2), 2)  # Null, as the rows that it gave have no value.
    check()
    write(BUCKETLAKE, range(3, 6), 3)
    write(BUCKETLAKE, range(5, 7), 4, "avro")
    if merge_on_read:
        inline = {
            "hoodie.compact.inline": "true",
            "hoodie.compact.inline.max.delta.commits": "1",
        }
        options |= inline
        with pytest.raises(PeerError, match=ON_SPARK_4):  # The compaction alone fails.
            write(HUDI, range(9, 11), 5)
        check()
        options = {name: value for name, value in options.items() if name not in inline}
        table.ours.compact()
    else:
        write(HUDI, range(9, 11), 5)
    assert Action.COMMIT in {entry.action for entry in table.ours.timeline()}
    check()
    keys = pa.table({"id": ["k3"], "ts": pa.array([9], pa.int64())})
    deletes = {"hoodie.datasource.write.operation": "delete"}
    hudi.write(table.path, keys, {**table.options, **options, **deletes})
    del expected["k3"]
    write(BUCKETLAKE, range(7, 12), 10)
    check()
    assert not table.ours.doctor(check_files=True)
    with pytest.raises(PeerError, match=ON_SPARK_4):
        hudi.read(table.path, columns=["id", "ts"])
