"""Tables of Hudi whose files lack the partition columns: bucketlake reads them as Hudi does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import UnsupportedFeatureError
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import HudiPeer

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [("id", pa.string()), ("num", pa.int32()), ("place", pa.string()), ("ts", pa.int64())]
)
STYLES = {
    "plain": {},
    "hive": {
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
    },
}


def rows(numbers: range, ts: int, *, encoded: bool) -> pa.Table:
    places = [None, "a b/c" if encoded else "a b", "ü"]
    made = [{"id": f"k{n}", "num": n % 2, "place": places[n % 3], "ts": ts} for n in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.mark.parametrize("style", STYLES)
def test_values_come_from_the_partition_path(hudi: HudiPeer, tmp_path: Path, style: str) -> None:
    path, encoded = tmp_path / "t", style == "hive"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "num,place",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.drop.partition.columns": "true",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
        **STYLES[style],
    }
    hudi.write(path, rows(range(6), 1, encoded=encoded), options, "overwrite")
    hudi.write(path, rows(range(3), 2, encoded=encoded), options)
    table = bl.open_table(str(path))
    expected = rows_of(hudi.read(path), SCHEMA)
    assert rows_of(table.to_arrow(), SCHEMA) == expected
    assert {row["num"] for row in expected} == {"0", "1"}
    some = table.to_arrow(where="num = '1' AND place IS NULL", columns=["place", "num"])
    assert some.to_pylist() == [{"place": None, "num": "1"}]
    assert table.count() == 6
    assert table.count(where="place = 'ü'") == 2
    updates = table.changes_to_arrow(where="ts = 2", since=table.timeline()[0].completed_at)
    assert in_order([row["after"] for row in updates.to_pylist()], SCHEMA) == [
        row for row in expected if row["ts"] == 2
    ]
    with pytest.raises(UnsupportedFeatureError, match="files lack the partition columns"):
        table.upsert(rows(range(1), 3, encoded=encoded))
