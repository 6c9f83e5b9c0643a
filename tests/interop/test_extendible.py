"""Real Hudi and hudi-rs read a table of extendible hashing before, during and after its resizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.choices import combinations
from tests.interop.model import Model, in_order, rows_of
from tests.interop.peer.client import HudiPeer, PeerError, read_with_hudi_rs
from tests.interop.table_kind import REGIONS, TableKind

pytestmark = pytest.mark.interop


@dataclass(frozen=True)
class ExtendibleKind(TableKind):
    """A table whose partitions have directories; only bucketlake writes it."""

    @property
    def index(self) -> bl.ExtendibleBucket:  # type: ignore[override]
        return bl.ExtendibleBucket(2, max_depth=3)


class ReadTable:
    """A table of bucketlake's, the model of it, and everybody who reads it."""

    def __init__(self, hudi: HudiPeer, path: Path, kind: ExtendibleKind) -> None:
        self.hudi, self.path, self.kind = hudi, path, kind
        self.ours, self.model = kind.create(path), Model(kind)

    def rows(self, numbers: range, ts: int) -> list[dict[str, object]]:
        return [
            {"id": f"k{n}", "region": REGIONS[n % 3], "ts": ts, "v": n + ts, "note": f"at {ts}"}
            for n in numbers
        ]

    def upsert(self, numbers: range, ts: int) -> None:
        rows = self.rows(numbers, ts)
        self.model.upsert(rows)
        self.ours.upsert(self.kind.rows(rows))

    def delete(self, numbers: range) -> None:
        rows = self.rows(numbers, 0)
        self.model.delete(rows)
        self.ours.delete(self.kind.rows(rows).select([*self.kind.record_key, "region"]))

    def check(self) -> None:
        """All readers find the rows of the model."""
        schema = self.kind.schema
        expected = in_order(self.model.rows.values(), schema)
        assert rows_of(self.ours.to_arrow(), schema) == expected
        # With a metadata table, hudi-rs returns no rows of log files without a base file.
        if not self.kind.metadata_table or all(bucket.path for bucket in self.ours.buckets()):
            assert rows_of(read_with_hudi_rs(self.path), schema) == expected
        assert rows_of(self.hudi.read(self.path), schema) == expected


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("merge_on_read", "with_metadata_table"), combinations([False, True], [False, True])
)
def test_all_read_the_same_rows_before_during_and_after_resizes(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool, with_metadata_table: bool
) -> None:
    kind = ExtendibleKind(merge_on_read=merge_on_read, metadata_table=with_metadata_table)
    table = ReadTable(hudi, tmp_path / "directories", kind)
    table.upsert(range(60), 1)
    table.check()
    if merge_on_read and with_metadata_table:
        table.ours.compact()
    plan = table.ours.resize(max_file_size=1, merge_threshold=0, schedule_only=True)
    assert plan.scheduled is not None
    table.check()
    table.upsert(range(40, 90), 2)
    table.delete(range(10))
    table.check()
    assert table.ours.resize(max_file_size=1, merge_threshold=0).instants
    assert len(table.ours.buckets()) > 12
    table.check()
    table.upsert(range(20, 100), 3)
    table.check()
    table.ours.resize(max_file_size=1 << 30, schedule_only=True)
    table.upsert(range(0, 100, 3), 4)
    table.check()
    assert table.ours.resize(max_file_size=1 << 30).instants
    table.check()
    assert table.ours.doctor(check_keys=True) == []
    if merge_on_read:
        table.ours.compact()
        table.check()


def test_hudi_cannot_carry_out_a_plan_and_does_no_harm(hudi: HudiPeer, tmp_path: Path) -> None:
    table = ReadTable(hudi, tmp_path / "planned", ExtendibleKind(merge_on_read=True))
    table.upsert(range(60), 1)
    plan = table.ours.resize(max_file_size=1, merge_threshold=0, schedule_only=True)
    table.upsert(range(50, 70), 2)
    with pytest.raises(PeerError, match="NullPointerException"):
        hudi.sql(f"CALL run_clustering(path => '{table.path}', op => 'execute')")
    table.check()
    assert plan.scheduled in table.ours.resize(max_file_size=1 << 30, merge_threshold=0).instants
    table.check()
    assert table.ours.doctor(check_keys=True) == []


def test_hudi_refuses_the_engine_when_a_job_names_it(hudi: HudiPeer, tmp_path: Path) -> None:
    table = ReadTable(hudi, tmp_path / "named", ExtendibleKind())
    table.upsert(range(20), 1)
    more = table.kind.rows(table.rows(range(5), 2))
    with pytest.raises(PeerError, match="EXTENDIBLE_HASHING"):
        hudi.write(table.path, more, table.kind.write_options(table.path))
    table.check()


@pytest.mark.parametrize("index", [bl.ConsistentBucket(2), bl.ExtendibleBucket(2)], ids=str)
def test_nodes_begin_with_a_base_file_that_hudi_rs_reads(tmp_path: Path, index: Any) -> None:
    """hudi-rs 0.5.0 skips groups of log files alone in a table with a metadata table."""
    rows = pa.table({"id": [f"k{n}" for n in range(20)], "v": pa.array(range(20), pa.int64())})
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=rows.schema,
        record_key="id",
        index=index,
        table_type="merge_on_read",
    )
    table.upsert(rows)
    assert read_with_hudi_rs(table.path).num_rows == 20
    table.upsert(rows.slice(5, 10))
    assert read_with_hudi_rs(table.path).num_rows == 20
