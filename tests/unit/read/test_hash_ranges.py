"""What reads say of hash rings: ranges of buckets, and ring nodes in explanations."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.hashing.ring import HashRange

ROWS = pa.table({"id": [f"k{number}" for number in range(200)], "at": [*range(200)]})


def table_of(path: Path, index: bl.SimpleBucket | bl.ConsistentBucket) -> bl.Table:
    table = bl.create_table(str(path), schema=ROWS.schema, record_key=["id"], index=index)
    table.upsert(ROWS)
    return table


@pytest.fixture
def ring(table_path: Path) -> bl.Table:
    return table_of(table_path, bl.ConsistentBucket(4))


def test_buckets_of_a_ring_have_ranges_that_cover_it_once_also_after_a_resize(
    ring: bl.Table,
) -> None:
    for _ in range(2):
        found = sorted(ring.buckets(), key=lambda bucket: bucket.bucket_id or 0)
        ranges = [HashRange(*bucket.hash_range) for bucket in found if bucket.hash_range]
        assert len(ranges) == len(found) > 1
        assert sum(hash_range.share for hash_range in ranges) == 1.0
        assert [after.start for after in ranges[1:]] == [before.end for before in ranges[:-1]]
        ring.resize(max_file_size=1_000, max_groups=1)
    assert len(found) == 5


def test_buckets_of_other_kinds_have_no_range(table_path: Path) -> None:
    table = table_of(table_path, bl.SimpleBucket(4))
    assert {bucket.hash_range for bucket in table.buckets()} == {None}


def test_an_explanation_speaks_of_ring_nodes(ring: bl.Table) -> None:
    one = ring.explain("id = 'k7'")
    assert (one.file_groups_kept, len(one.bucket_ids or ())) == (1, 1)
    all_keys = ", ".join(f"'k{number}'" for number in range(200))
    assert ring.explain(f"id IN ({all_keys})").bucket_reason == "200 keys fall into all ring nodes"
