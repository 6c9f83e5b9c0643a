"""Hudi and bucketlake take turns on tables whose key and ordering fields are inside a struct."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.choices import combinations
from tests.interop.model import Row
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        ("header", pa.struct([("eid", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])),
        ("other", pa.string()),
        ("v", pa.int64()),
    ]
)


def row(eid: int, ts: int, v: int) -> Row:
    """Return a row; day and the second field of the key follow from the first."""
    return {"header": {"eid": eid, "day": "ab"[eid % 2], "ts": ts}, "other": f"x{eid % 3}", "v": v}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("merge_on_read", "first"), combinations([False, True], [BUCKETLAKE, HUDI])
)
def test_writers_take_turns_on_keys_inside_a_struct(
    hudi: HudiPeer, tmp_path: Path, *, merge_on_read: bool, first: Writer
) -> None:
    kind = TableKind(
        schema=SCHEMA,
        record_key=("header.eid", "other"),
        partition_by=("header.day",),
        ordering="header.ts",
        hash_fields=("header.eid",),
        hive_style=True,
        merge_on_read=merge_on_read,
    )
    table, second = SharedTable(hudi, tmp_path / "nested", kind), HUDI
    if first is BUCKETLAKE:
        table.begin()
    else:
        second = BUCKETLAKE
    table.write(first, [row(eid, 5, eid) for eid in range(8)])
    # Late, newer, of equal time, and new.
    table.write(second, [row(0, 4, 10), row(1, 6, 11), row(2, 5, 12), row(8, 1, 18)])
    table.write(first, [row(1, 5, 21), row(3, 7, 23), row(9, 1, 29)])
    table.hudi_runs("delete", [row(4, 9, 0)])
    table.ours.delete(kind.rows([row(5, 0, 0)]))
    table.write(second, [row(3, 6, 33), row(6, 8, 36)])
    expected = {0: 0, 1: 11, 2: 12, 3: 23, 6: 36, 7: 7, 8: 18, 9: 29}
    for read in (table.ours.to_arrow(), hudi.read(table.path)):
        assert values(read) == expected
    for condition in ("header.eid = 6", "header.day = 'a' AND header.ts > 6"):
        ours = table.ours.to_arrow(where=condition)
        assert values(ours) == values(hudi.read(table.path, where=condition)) == {6: 36}
    assert table.ours.doctor(check_keys=True) == []


def values(rows: pa.Table) -> dict[int, int]:
    found = {held["header"]["eid"]: held["v"] for held in rows.to_pylist()}
    assert len(found) == rows.num_rows
    return found
