"""Tables that were broken in several ways, with Hudi's help, are read and written by Hudi again."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake.services.check.findings import FindingKind
from tests.broken_tables import copied, later, newest
from tests.interop.model import rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, rows
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("merge_on_read", [False, True], ids=["copy_on_write", "merge_on_read"])
def test_a_table_that_is_repaired_is_read_and_written_by_hudi(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    table = SharedTable(hudi, tmp_path / "t", TableKind(merge_on_read=merge_on_read))
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(40), 1))
    table.upsert(HUDI, rows(range(10, 50), 2))
    # A job of Hudi's with another bucket count, as RFC-29 warns of: keys are there twice.
    table.upsert(HUDI, rows(range(20, 45), 3), {"hoodie.bucket.index.num.buckets": "8"})
    held = next(b.path for b in table.ours.buckets() if b.path is not None)
    copied(table.ours, held, instant=later(newest(table.ours)))
    (table.path / "eu" / ".hoodie_partition_metadata").unlink()
    (table.path / "eu" / "..hoodie_partition_metadata.crc").unlink(missing_ok=True)
    (table.path / ".hoodie" / "lock").touch()
    schema = table.kind.schema
    seen = rows_of(hudi.read(table.path, {}), schema)
    assert {row["region"] for row in seen} == {"us"}
    assert len(seen) > len({row["id"] for row in seen})

    report = table.ours.repair(dry_run=False, check_keys=True, min_age_seconds=0)

    assert {one.kind for one in report.repaired} >= {
        FindingKind.PARTITION_NOT_MARKED,
        FindingKind.ORPHAN_FILE,
        FindingKind.LEFTOVER_LOCK,
        FindingKind.BUCKET_UNKNOWN,
    }
    assert report.left == ()
    table.assert_read_by_all()
    table.upsert(HUDI, rows(range(15, 60), 5))
    table.upsert(BUCKETLAKE, rows(range(5, 55), 6))
    table.delete(HUDI, rows(range(2), 0))
    table.assert_read_by_all()
    assert table.ours.doctor(check_keys=True, check_files=True, min_age_seconds=0) == []
