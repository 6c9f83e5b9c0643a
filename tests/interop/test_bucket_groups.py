"""Buckets of several file groups (RFC-29, pattern 2), read and written by real Hudi and hudi-rs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import bucketlake as bl
from tests.interop.peer.client import HudiPeer, PeerError
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, rows
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

SIZE = 6_000

# Hudi's bucket index refuses buckets of several groups; this one looks keys up in base files.
SIMPLE_INDEX = {"hoodie.index.type": "SIMPLE"}


def grown(hudi: HudiPeer, path: Path, *, merge_on_read: bool) -> SharedTable:
    """A table of ours whose buckets got several groups, read by all after each step."""
    kind = TableKind(merge_on_read=merge_on_read, max_file_size=SIZE)
    table = SharedTable(hudi, path, kind)
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(1500), 1))
    table.assert_read_by_all(kind.bucket_options())
    table.upsert(BUCKETLAKE, rows(range(1000, 3000), 2))
    table.assert_read_by_all()
    table.delete(BUCKETLAKE, rows(range(0, 3000, 5), 0))
    table.upsert(BUCKETLAKE, rows(range(0, 3000, 10), 3))
    table.assert_read_by_all(kind.bucket_options())
    groups = Counter((one.partition_path, one.bucket_id) for one in table.ours.buckets())
    assert min(groups.values()) > 1, groups
    return table


@pytest.mark.every_case
@pytest.mark.parametrize("merge_on_read", [False, True], ids=["copy on write", "merge on read"])
def test_hudi_and_hudi_rs_read_buckets_of_several_groups(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    table = grown(hudi, tmp_path / "shared", merge_on_read=merge_on_read)
    if merge_on_read:
        table.ours.compact()
        table.assert_read_by_all()
        table.upsert(BUCKETLAKE, rows(range(2900, 3100), 4))
        table.assert_read_by_all()
    # Its bucket index looks at file names, finds two groups of a bucket, and stops.
    with pytest.raises(PeerError, match=r"belongs to the same bucket|multiple files"):
        table.write(HUDI, rows(range(10), 9))
    table.assert_read_by_all()


def test_hudi_writes_such_a_table_by_an_index_that_looks_keys_up(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = grown(hudi, tmp_path / "shared", merge_on_read=False)
    for ts in (5, 7):
        # Known keys alone: its new keys go into groups that are of no bucket.
        table.upsert(HUDI, rows(range(1, 2000, 10), ts), SIMPLE_INDEX)
        table.assert_read_by_all()
        table.upsert(BUCKETLAKE, rows(range(1, 3200, 7), ts + 1))
        table.assert_read_by_all()
    assert table.ours.doctor(check_keys=True) == []


def test_a_table_of_hudi_gets_buckets_of_several_groups_without_a_rewrite(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = SharedTable(hudi, tmp_path / "shared", TableKind())
    table.upsert(HUDI, rows(range(300), 1))
    table.upsert(BUCKETLAKE, rows(range(200, 400), 2))
    before = {one.path for one in table.ours.buckets()}
    converted = bl.convert(str(table.path), bl.SimpleBucket(3, max_file_size=SIZE))
    assert {one.path for one in converted.buckets()} == before
    table.kind = TableKind(max_file_size=SIZE)
    table.upsert(BUCKETLAKE, rows(range(100, 3000), 3))
    table.assert_read_by_all()
    bl.convert(str(table.path), bl.SimpleBucket(3))
    table.kind = TableKind()
    table.upsert(HUDI, rows(range(0, 3000, 9), 4))
    table.assert_read_by_all()
    table.upsert(BUCKETLAKE, rows(range(0, 3000, 11), 5))
    table.assert_read_by_all()
