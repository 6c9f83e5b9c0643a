"""What ``Table.buckets`` tells of rows, bytes, growth and skew, from the metadata of commits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.index.bucket_hash import assign_buckets
from bucketlake.read.buckets import RECENT_COMMITS, SKEW_BYTES_MIN, PartitionSizes
from bucketlake.storage.memory import forget
from bucketlake.table import handle_of
from tests.pinned import snapshot_as_of
from tests.ring_tables import SPLIT_ALL

SCHEMA = pa.schema(
    [("device", pa.string()), ("n", pa.int64()), ("day", pa.string()), ("noise", pa.binary())]
)
_NUMBERS = count()


@pytest.fixture
def path() -> Iterator[str]:
    name = f"skew-{next(_NUMBERS)}"
    yield f"memory://{name}"
    forget(name)


def make(path: str, index: Any, **given: Any) -> bl.Table:
    given = {"partition_by": "day", "record_key": ["device", "n"]} | given
    return bl.create_table(path, schema=SCHEMA, index=index, **given)


def rows(devices: list[str], day: str, *, each: int = 1, noise_bytes: int = 0) -> pa.Table:
    """Return rows of some devices; the noise of a row cannot be compressed."""
    draw = np.random.default_rng(len(devices))
    made = [
        {"device": device, "n": n, "day": day, "noise": draw.bytes(noise_bytes)}
        for device in devices
        for n in range(each)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def by_path(table: bl.Table) -> dict[str, PartitionSizes]:
    return {sizes.partition_path: sizes for sizes in table.buckets().partitions}


# ---- rows and growth ----------------------------------------------------------------------------


def history_of_writes(table: bl.Table) -> None:
    """Write to a table in all ways that move, add and remove file groups."""
    devices = [f"d{number}" for number in range(40)]
    table.upsert(rows(devices, "a"))
    table.upsert(rows(devices[:9], "b", each=3))
    table.upsert(rows(devices[:20], "a", each=2))
    table.delete(rows(devices[:5], "a").select(["device", "n", "day"]))
    table.insert_overwrite(rows(devices[:3], "b"))
    table.delete_partitions("b")
    table.upsert(rows(devices, "c", noise_bytes=50))


def require_true_growth(table: bl.Table) -> None:
    """Check the size after each commit against the table as of that commit."""
    growth = table.buckets().growth
    commits = [entry for entry in table.timeline() if entry.action.writes_data]
    assert [size.instant for size in growth] == [entry.requested_at for entry in commits]
    for size in growth:
        then = snapshot_as_of(handle_of(table).open(), size.instant).all_slices()
        assert size.size_bytes == sum(held.size_bytes for held in then)
        assert size.log_bytes == sum(held.log_bytes for held in then)
        assert size.file_groups == len(then)


@pytest.mark.parametrize(
    "index",
    [
        bl.SimpleBucket(4),
        bl.SimpleBucket(2, max_file_size=3_000),
        bl.DynamicBucket(max_records=10),
        bl.ExtendibleBucket(2),
    ],
)
def test_rows_and_bytes_after_each_commit_are_those_of_that_time(path: str, index: Any) -> None:
    table = make(path, index)
    history_of_writes(table)
    require_true_growth(table)
    found = table.buckets()
    for size in found.growth:
        assert size.rows == table.count(as_of=size.instant)
    assert sum(bucket.rows or 0 for bucket in found) == table.count()
    assert sum(sizes.rows or 0 for sizes in found.partitions) == table.count()
    assert {sizes.partition_path for sizes in found.partitions} == {"a", "c"}


@pytest.mark.parametrize("index", [bl.SimpleBucket(4), bl.ConsistentBucket(2), bl.DynamicBucket()])
def test_log_files_count_until_they_are_compacted(path: str, index: Any) -> None:
    table = make(path, index, table_type="merge_on_read")
    history_of_writes(table)
    before = table.buckets()
    assert before.growth[-1].log_bytes == sum(bucket.log_bytes for bucket in before) > 0
    assert all((bucket.log_bytes > 0) == (bucket.log_files > 0) for bucket in before)
    table.compact()
    after = table.buckets()
    assert after.growth[-1].log_bytes == sum(bucket.log_bytes for bucket in after) == 0
    assert sum(bucket.rows or 0 for bucket in after) == table.count()
    require_true_growth(table)


def test_a_resize_moves_bytes_and_changes_no_rows(path: str) -> None:
    table = make(path, bl.ConsistentBucket(2), table_type="merge_on_read")
    table.upsert(rows([f"d{number}" for number in range(40)], "a"))
    table.resize(**SPLIT_ALL)
    require_true_growth(table)
    assert [size.rows for size in table.buckets().growth] == [40, 40]
    assert len(table.buckets()) == 4


def test_a_table_without_commits_has_no_sizes(path: str) -> None:
    found = make(path, bl.SimpleBucket(4)).buckets()
    assert (found, found.partitions, found.growth) == ([], [], [])


def test_rows_of_archived_commits_are_unknown_and_bytes_stay_true(path: str) -> None:
    table = make(path, bl.SimpleBucket(1))
    table.upsert(rows(["d0"], "old"))
    for day in "abcdef":
        table.upsert(rows(["d0", "d1"], day))
    table.archive(keep_min=2, keep_max=3)
    found = table.buckets()
    assert {b.partition_path for b in found if b.rows is None} >= {"old"}
    assert {b.partition_path for b in found if b.rows == 2} >= {"f"}
    assert by_path(table)["old"].rows is None
    assert [size.rows for size in found.growth] == [None] * len(found.growth)
    require_true_growth(table)


def test_growth_and_written_records_are_those_of_the_last_writes(path: str) -> None:
    table = make(path, bl.SimpleBucket(1))
    table.upsert(rows(["d0"], "a", each=50, noise_bytes=50))
    early = table.buckets()[0].size_bytes
    for number in range(RECENT_COMMITS):
        table.upsert(rows([f"d{number}"], "a" if number % 2 else "b", noise_bytes=2_000))
    grown = {bucket.partition_path: bucket for bucket in table.buckets()}
    assert grown["a"].growth_bytes == grown["a"].size_bytes - early
    assert grown["b"].growth_bytes == grown["b"].size_bytes
    assert [grown[day].written for day in "ab"] == [5, 5]
    parts = by_path(table)
    assert [parts[day].growth_bytes for day in "ab"] == [grown[day].growth_bytes for day in "ab"]
    assert [parts[day].written for day in "ab"] == [5, 5]
    table.delete_partitions("b")
    table.upsert(rows(["d0"], "b"))
    assert (
        by_path(table)["a"].growth_bytes < grown["a"].growth_bytes
    )  # The first of its writes is the eleventh now.


# ---- skew ---------------------------------------------------------------------------------------


NOISE = 1_500
EACH = SKEW_BYTES_MIN // NOISE + 100  # Rows of more than the smallest skew.


def test_the_largest_bucket_is_compared_with_all_buckets_and_its_hot_value_is_named(
    path: str,
) -> None:
    table = make(path, bl.SimpleBucket(8, hash_fields=["device"]))
    crowd = [f"d{number}" for number in range(EACH)]
    table.upsert(rows(["hot"], "hot", each=EACH, noise_bytes=NOISE))
    table.upsert(rows(crowd, "even", noise_bytes=NOISE))
    table.upsert(rows(["hot"], "small", each=20))
    found = by_path(table)
    assert [*found] == ["hot", "even", "small"], "the skewed partition comes first"
    hot, even, small = found.values()
    assert (hot.is_skewed, hot.max_over_mean, hot.buckets) == (True, 8.0, 8)
    assert hot.hot_value == "device=hot"
    assert hot.largest_bucket == assign_buckets(["hot"], 8).tolist()[0]
    assert hot.skew is not None
    assert "8 times the mean of 8 buckets, and all its rows have device=hot" in hot.skew
    assert (even.is_skewed, even.hot_value, even.skew) == (False, None, None)
    assert 1 <= even.max_over_mean < 2
    assert (small.is_skewed, small.max_over_mean) == (False, 8.0), "a small bucket costs nothing"
    assert sum(sizes.share for sizes in found.values()) == pytest.approx(1, abs=0.001)


def test_a_hot_bucket_of_several_values_names_none(path: str) -> None:
    table = make(path, bl.SimpleBucket(8, hash_fields=["device"]))
    buckets = assign_buckets([f"d{number}" for number in range(50)], 8).tolist()
    beside = next(n for n in range(1, 50) if buckets[n] == buckets[0])
    table.upsert(rows(["d0"], "a", each=EACH, noise_bytes=NOISE))
    table.upsert(rows([f"d{beside}"], "a"))
    [sizes] = table.buckets().partitions
    assert (sizes.is_skewed, sizes.hot_value) == (True, None)
    assert sizes.skew is not None
    assert "each write waits for its task" in sizes.skew


def test_a_hot_value_is_named_only_where_there_are_statistics(path: str) -> None:
    table = make(path, bl.SimpleBucket(8, hash_fields=["device"]), metadata_table=False)
    table.upsert(rows(["hot"], "a", each=EACH, noise_bytes=NOISE))
    [sizes] = table.buckets().partitions
    assert (sizes.is_skewed, sizes.hot_value) == (True, None)


def test_file_groups_of_one_bucket_count_together(path: str) -> None:
    table = make(path, bl.SimpleBucket(4, hash_fields=["device"], max_file_size=300_000))
    for number in range(3):
        table.upsert(
            rows([f"hot{number}"] if number else ["hot"], "a", each=EACH, noise_bytes=NOISE)
        )
    [sizes] = table.buckets().partitions
    by_bucket: dict[int | None, int] = {}
    for bucket in table.buckets():
        by_bucket[bucket.bucket_id] = by_bucket.get(bucket.bucket_id, 0) + bucket.size_bytes
    assert sizes.file_groups > len(by_bucket)
    largest = max(by_bucket.values())
    assert sizes.max_over_mean == pytest.approx(largest * 4 / sizes.size_bytes, abs=0.01)


def test_dynamic_buckets_are_never_skewed_because_their_size_is_limited(path: str) -> None:
    table = make(path, bl.DynamicBucket(max_records=EACH, assigners=1))
    table.upsert(rows(["hot"], "a", each=EACH, noise_bytes=NOISE))
    table.upsert(rows(["cold"], "a", each=3))
    [sizes] = table.buckets().partitions
    assert sizes.max_over_mean > 1.5
    assert (sizes.buckets, sizes.is_skewed) == (None, False)


# ---- the timeline -------------------------------------------------------------------------------


def test_the_timeline_tells_what_each_commit_wrote_and_how_long_it_took(path: str) -> None:
    table = make(path, bl.SimpleBucket(2))
    table.upsert(rows([f"d{n}" for n in range(20)], "a"))
    table.upsert(rows([f"d{n}" for n in range(20)], "b"))
    table.savepoint()
    first, second, savepoint = table.timeline()
    sizes = {path: sum(b.size_bytes for b in table.buckets() if b.partition_path == path)
             for path in "ab"}  # fmt: skip
    assert (first.written_bytes, second.written_bytes) == (sizes["a"], sizes["b"])
    assert (first.partitions, second.partitions, savepoint.partitions) == (1, 1, None)
    assert first.seconds is not None
    assert 0 < first.seconds < 60


def test_a_table_that_stores_no_completion_times_has_no_durations(path: str) -> None:
    table = make(path, bl.SimpleBucket(2), version=6, metadata_table=False)
    table.upsert(rows(["d0"], "a"))
    [entry] = table.timeline()
    assert (entry.written, entry.seconds) == (1, None)
