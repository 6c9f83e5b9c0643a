"""Table.resize: what is planned and done, rounds that converge, limits that are kept (RFC-42)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, InputError, TimelineError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.hashing.xx_hash import RING_HASH_MAX, hash_ring_keys
from bucketlake.index.rings import load_ring
from bucketlake.read.slice_reader import SliceReader
from bucketlake.services.resize.service import ResizeReport
from bucketlake.timeline.instant import Action
from tests.inside import storage_of
from tests.ring_tables import (
    MERGE_ALL,
    SPLIT_ALL,
    is_pending,
    keyed,
    keys_in,
    make_table,
    require_sound,
    ring_of,
    rows,
    timeline_of,
    values,
)
from tests.spies import spy


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(new_path: Callable[[], str], table_type: str) -> bl.Table:
    """A table of 80 rows in partitions a and b, with two buckets each."""
    made = make_table(new_path(), table_type=table_type)
    made.upsert(rows(range(80), days="ab"))
    return made


def data_files(table: bl.Table) -> dict[str, int]:
    """Return the size of each data file."""
    return {
        stored.path: stored.size_bytes
        for stored in storage_of(table).list("")
        if ".hoodie" not in stored.path
    }


def rounds(table: bl.Table, limit: int, **options: Any) -> Iterator[ResizeReport]:
    """Resize until there is nothing to do; fail after ``limit`` rounds."""
    for _ in range(limit):
        report = table.resize(**options)
        if not report.buckets:
            return
        yield report
    raise AssertionError(f"{limit} resizes were not enough")


# ---- one resize --------------------------------------------------------------------------------


def test_a_dry_run_tells_what_the_resize_then_does_and_changes_nothing(table: bl.Table) -> None:
    before = {stored.path for stored in storage_of(table).list("")}
    planned = table.resize(**SPLIT_ALL, dry_run=True)
    assert {stored.path for stored in storage_of(table).list("")} == before
    assert (planned.instants, planned.scheduled, planned.left) == ((), None, 0)
    assert [found.action for found in planned.buckets] == ["split"] * 4
    done = table.resize(**SPLIT_ALL)
    assert done.buckets == planned.buckets
    assert done.instants == (done.scheduled,)
    ends = [end for found in done.buckets for _, end in found.new_ranges]
    assert sorted(ends) == sorted([*ring_of(table, "a").values, *ring_of(table, "b").values])
    assert values(table) == keyed(range(80))
    require_sound(table)


def test_a_plan_is_executed_by_the_next_call_whoever_makes_it(table: bl.Table) -> None:
    before = table.buckets()
    report = table.resize(**SPLIT_ALL, schedule_only=True)
    assert report.scheduled is not None
    assert report.instants == ()
    assert len(report.buckets) == 4
    assert is_pending(table, report.scheduled)
    assert table.buckets() == before
    assert table.doctor(check_keys=True, check_files=True) == []
    other = bl.open_table(table.path)
    assert other.resize(max_file_size=1 << 40, merge_threshold=0.0).instants == (report.scheduled,)
    assert len(ring_of(table)) == 4
    assert values(table) == keyed(range(80))
    require_sound(table)


def test_a_second_plan_for_a_partition_waits_for_the_first(table: bl.Table) -> None:
    first = table.resize(**SPLIT_ALL, partitions=["a"], schedule_only=True)
    again = table.resize(**SPLIT_ALL, schedule_only=True)
    assert {found.partition_path for found in again.buckets} == {"b"}
    assert table.resize(**SPLIT_ALL, schedule_only=True).scheduled is None
    done = table.resize(max_file_size=1 << 40, merge_threshold=0.0)
    assert done.instants == (first.scheduled, again.scheduled)
    assert [len(ring_of(table, day)) for day in "ab"] == [4, 4]
    require_sound(table)


def test_a_table_in_balance_is_left_alone(table: bl.Table) -> None:
    before = timeline_of(table).completed_commits()
    report = table.resize(max_file_size=8_000)
    assert report == ResizeReport(())
    assert timeline_of(table).completed_commits() == before


def test_only_the_chosen_buckets_are_rewritten(table: bl.Table) -> None:
    before, files = table.buckets(), data_files(table)
    largest = max(before, key=lambda b: b.size_bytes)
    (split,) = table.resize(**SPLIT_ALL, max_groups=1).buckets
    assert split.file_ids == (largest.file_id,)
    assert split.size_bytes == largest.size_bytes
    kept = [b for b in before if b.file_id != largest.file_id]
    assert {(b.file_id, b.path, b.instant) for b in kept} < {
        (b.file_id, b.path, b.instant) for b in table.buckets()
    }
    new = {path: size for path, size in data_files(table).items() if path not in files}
    assert len(new) == 2
    assert sum(new.values()) < 2 * largest.size_bytes
    assert files.items() <= data_files(table).items()


def test_limits_leave_the_rest_to_the_next_resize_and_say_how_much(table: bl.Table) -> None:
    report = table.resize(**SPLIT_ALL, max_groups=3)
    assert (len(report.buckets), report.left) == (3, 1)
    report = table.resize(**SPLIT_ALL, max_bytes=1)
    assert len(report.buckets) == 1
    report = table.resize(**SPLIT_ALL, max_partitions=1, dry_run=True)
    assert len({found.partition_path for found in report.buckets}) == 1
    require_sound(table)


def test_other_partitions_than_the_named_ones_are_not_resized(table: bl.Table) -> None:
    ring = ring_of(table, "a")
    report = table.resize(**SPLIT_ALL, partitions=["b"])
    assert {found.partition_path for found in report.buckets} == {"b"}
    assert ring_of(table, "a") == ring
    assert len(ring_of(table, "b")) == 4
    with pytest.raises(InputError, match="nowhere"):
        table.resize(**SPLIT_ALL, partitions=["nowhere"])


def test_a_table_without_partitions_is_resized(
    new_path: Callable[[], str], table_type: str
) -> None:
    table = make_table(new_path(), table_type=table_type, partition_by=[])
    table.upsert(rows(range(50)))
    assert len(table.resize(**SPLIT_ALL).buckets) == 2
    table.upsert(rows(range(40, 60), 1))
    assert values(table) == keyed(range(40)) | keyed(range(40, 60), 1)
    require_sound(table)
    table.resize(**MERGE_ALL)
    assert len(ring_of(table, "")) == 1
    assert values(table) == keyed(range(40)) | keyed(range(40, 60), 1)
    require_sound(table)


@pytest.mark.parametrize("split_at", ["middle", "balanced"])
def test_hash_fields_choose_the_bucket_before_and_after(
    new_path: Callable[[], str], table_type: str, split_at: str
) -> None:
    index = bl.ConsistentBucket(2, hash_fields=["id"])
    table = make_table(new_path(), index, table_type=table_type, record_key=["id", "day"])
    table.upsert(rows(range(60), days="ab"))
    table.resize(**SPLIT_ALL, split_at=split_at)
    table.upsert(rows(range(50, 70), 1, days="ab"))
    assert values(table) == keyed(range(50)) | keyed(range(50, 70), 1)
    ring = ring_of(table)
    hashes = hash_ring_keys(pa.array([f"k{n}" for n in range(0, 70, 2)]))
    homes = [
        table.locate({"id": f"k{n}", "day": "a"})[0].file_id.removesuffix("-0")
        for n in range(0, 70, 2)
    ]
    assert homes == [ring.prefixes[place] for place in ring.locate(hashes)]
    require_sound(table)


def test_splits_and_merges_go_into_one_resize(new_path: Callable[[], str], table_type: str) -> None:
    table = make_table(new_path(), bl.ConsistentBucket(8), table_type=table_type)
    step = RING_HASH_MAX // 8
    large = keys_in(0, step - 8, 40, tag="l")
    small = [
        key
        for place in range(3, 6)
        for key in keys_in(step * place + 8, step * place + step - 8, 1, tag=f"s{place}-")
    ]
    table.upsert(rows([*large, *small]))
    report = table.resize(max_file_size=10_000, split_threshold=1.0, merge_threshold=0.5)
    assert sorted(found.action for found in report.buckets) == ["merge", "split"]
    assert values(table) == keyed([*large, *small])
    require_sound(table)


def test_time_travel_reads_the_buckets_and_prunes_by_the_ring_of_then(table: bl.Table) -> None:
    then = timeline_of(table).completed_commits()[-1].requested_at
    before = {b.file_id for b in table.buckets()}
    table.resize(**SPLIT_ALL)
    table.upsert(rows(range(80), 1, days="ab"))
    assert values(table, as_of=then) == keyed(range(80))
    assert values(table, as_of=then, where="id = 'k7'") == {"k7": 0}
    assert values(table, where="id = 'k7'") == {"k7": 1}
    assert table.explain(where="day = 'b' AND id = 'k7'").file_groups_kept == 1
    assert before.isdisjoint(b.file_id for b in table.buckets())


def test_an_incremental_read_shows_no_row_of_a_resize(table: bl.Table) -> None:
    then = table.timeline()[-1].completed_at
    table.resize(**SPLIT_ALL)
    assert table.to_arrow(since=then).num_rows == 0
    table.upsert(rows(range(3), 1, days="ab"))
    assert sorted(table.to_arrow(since=then)["id"].to_pylist()) == ["k0", "k1", "k2"]


def test_a_rollback_of_a_resize_restores_ring_and_buckets(table: bl.Table) -> None:
    before, ring = table.buckets(), ring_of(table)
    (instant,) = table.resize(**SPLIT_ALL).instants
    table.rollback(instant)
    assert table.buckets() == before
    assert ring_of(table) == ring
    assert values(table) == keyed(range(80))
    require_sound(table)
    table.upsert(rows(range(10), 1, days="ab"))
    assert len(table.resize(**SPLIT_ALL).buckets) == 4
    assert values(table) == keyed(range(80)) | keyed(range(10), 1)
    require_sound(table)


def test_a_resize_is_for_tables_with_rings_alone(new_path: Callable[[], str]) -> None:
    table = bl.create_table(
        new_path(), schema=rows([]).schema, record_key=["id"], index=bl.SimpleBucket(2)
    )
    table.upsert(rows(range(5)))
    with pytest.raises(ConfigError, match="ConsistentBucket"):
        table.resize(**SPLIT_ALL)


def test_an_empty_table_has_nothing_to_resize(new_path: Callable[[], str]) -> None:
    assert make_table(new_path()).resize(**SPLIT_ALL) == ResizeReport(())


# ---- several rounds ----------------------------------------------------------------------------


def test_splits_and_merges_of_many_rounds_keep_every_row(table: bl.Table) -> None:
    """RFC-42, test plan 2."""
    expected = keyed(range(80))
    for turn in range(3):
        table.resize(**SPLIT_ALL, split_into=3)
        table.upsert(rows(range(turn, 100, 7), turn + 1, days="ab"))
        expected |= keyed(range(turn, 100, 7), turn + 1)
        table.resize(**SPLIT_ALL, split_at="balanced")
        assert values(table) == expected
        table.resize(**MERGE_ALL)
        assert values(table) == expected
        assert [len(ring_of(table, day)) for day in "ab"] == [1, 1]
        require_sound(table)


@pytest.mark.parametrize("split_at", ["middle", "balanced"])
def test_keys_of_a_tiny_hash_range_are_spread_over_several_buckets(
    new_path: Callable[[], str], table_type: str, split_at: str
) -> None:
    """RFC-42, test plan 3: most data in a small hash range."""
    table = make_table(new_path(), bl.ConsistentBucket(4), table_type=table_type)
    start = 1_000_000_000
    narrow = keys_in(start, start + (1 << 23), 60)
    table.upsert(rows([*narrow, *range(4)]))
    limits = {"max_file_size": 4_000, "split_threshold": 1.5, "merge_threshold": 0.1}
    done = [*rounds(table, 16, **limits, split_at=split_at, split_into=4)]
    assert values(table) == keyed([*narrow, *range(4)])
    require_sound(table)
    assert max(b.size_bytes for b in table.buckets()) <= 6_000
    homes = {bucket.file_id for key in narrow for bucket in table.locate(key)}
    assert len(homes) >= 6
    if split_at == "balanced":
        assert len(done) <= 4
    table.upsert(rows(narrow, 1))
    assert values(table) == keyed(narrow, 1) | keyed(range(4))


@pytest.mark.parametrize("split_at", ["middle", "balanced"])
def test_rows_of_one_hash_are_not_split_for_ever(
    new_path: Callable[[], str], table_type: str, split_at: str
) -> None:
    """RFC-42, test plan 3: one hot key; its range ends as one hash, which nothing splits."""
    index = bl.ConsistentBucket(2, hash_fields=["id"])
    table = make_table(new_path(), index, table_type=table_type, record_key=["id", "v"])
    # Rows of the key differ in the field that chooses no bucket.
    hot = rows(range(100, 140)).set_column(0, "id", pa.array(["hot"] * 40))
    table.upsert(hot.set_column(2, "v", pa.array([*range(40)])))
    table.upsert(rows(range(10)))
    done = [*rounds(table, 33, max_file_size=4_000, merge_threshold=0.0, split_at=split_at)]
    assert table.to_arrow().num_rows == 50
    require_sound(table)
    ring = ring_of(table)
    home = int(ring.values[ring.locate(hash_ring_keys(pa.array(["hot"])))[0]])
    assert ring.middle(home) is None
    if split_at == "balanced":
        assert len(done) <= 3
    assert table.resize(max_file_size=4_000, merge_threshold=0.0).buckets == ()


@pytest.mark.parametrize("split_at", ["middle", "balanced"])
def test_the_largest_and_the_least_number_of_buckets_are_kept(
    new_path: Callable[[], str], table_type: str, split_at: str
) -> None:
    index = bl.ConsistentBucket(3, min=2, max=7)
    table = make_table(new_path(), index, table_type=table_type)
    table.upsert(rows(range(80)))
    for report in rounds(table, 8, **SPLIT_ALL, split_at=split_at, split_into=3):
        assert report.buckets
    assert len(ring_of(table)) == 7
    for report in rounds(table, 8, **MERGE_ALL):
        assert report.buckets
    assert len(ring_of(table)) == 2
    assert values(table) == keyed(range(80))
    require_sound(table)


def test_balanced_splits_make_buckets_of_like_size_and_count_keys_once(
    new_path: Callable[[], str], table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(new_path(), bl.ConsistentBucket(1), table_type=table_type)
    low, rest = keys_in(0, 1 << 26, 60), [*range(20)]
    table.upsert(rows([*low, *rest]))
    table.resize(**SPLIT_ALL, split_at="balanced")
    sizes = [b.size_bytes for b in table.buckets()]
    assert max(sizes) < 1.2 * min(sizes), sizes

    metadata = load_ring(storage_of(table), timeline_of(table), "a")
    assert metadata is not None
    assert {stats.row_count for stats in metadata.stats.values()} == {40}

    read = spy(monkeypatch, SliceReader, "read", lambda _, file_slice, __: file_slice.file_id)
    table.resize(**SPLIT_ALL, split_at="balanced", dry_run=True)
    assert read == []


def test_empty_children_of_a_split_take_rows_later(
    new_path: Callable[[], str], table_type: str
) -> None:
    table = make_table(new_path(), bl.ConsistentBucket(1), table_type=table_type)
    low, high = keys_in(0, 1 << 28, 10), keys_in(1 << 30, RING_HASH_MAX, 10)
    table.upsert(rows(low))
    table.resize(**SPLIT_ALL)
    assert len(ring_of(table)) == 2
    assert len(table.buckets()) == 1
    table.upsert(rows(high, 1))
    assert len(table.buckets()) == 2
    assert values(table) == keyed(low) | keyed(high, 1)
    require_sound(table)


# ---- beside other services ---------------------------------------------------------------------


def test_a_clean_and_an_archive_after_resizes_keep_the_newest_ring(
    new_path: Callable[[], str], table_type: str
) -> None:
    table = make_table(new_path(), table_type=table_type)
    expected: dict[str, int] = {}
    for turn in range(6):
        table.upsert(rows(range(turn, 60 + turn), turn))
        expected |= keyed(range(turn, 60 + turn), turn)
        table.resize(**(SPLIT_ALL if turn % 2 == 0 else MERGE_ALL))
    ring = ring_of(table)
    table.clean(retain_commits=1)
    table.archive(keep_min=2, keep_max=3)
    assert ring_of(table) == ring
    assert values(table) == expected
    require_sound(table)
    table.upsert(rows(range(10), 9))
    table.resize(**SPLIT_ALL)
    assert values(table) == expected | keyed(range(10), 9)
    require_sound(table)


def test_buckets_of_a_planned_compaction_are_left_to_it(new_path: Callable[[], str]) -> None:
    table = make_table(new_path())
    table.upsert(rows(range(40)))
    table.upsert(rows(range(20), 1))
    assert table.compact(schedule_only=True).slices
    assert table.resize(**SPLIT_ALL).buckets == ()
    table.compact()
    assert len(table.resize(**SPLIT_ALL).buckets) == 2
    assert values(table) == keyed(range(40)) | keyed(range(20), 1)
    require_sound(table)


def test_a_resize_on_disk_writes_base_files_that_any_reader_opens(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    table.upsert(rows(range(40)))
    table.upsert(rows(range(10), 1))
    (instant,) = table.resize(**SPLIT_ALL).instants
    paths = [b.path for b in table.buckets()]
    assert all(path is not None and path.endswith(f"_{instant}.parquet") for path in paths)
    found = [BaseFileReader(storage_of(table), str(path)) for path in paths]
    assert sum(reader.row_count for reader in found) == 40
    (replace,) = [i for i in table.timeline() if i.action is Action.REPLACE_COMMIT]
    assert replace.requested_at == instant


def test_a_resize_that_is_completed_cannot_be_withdrawn_by_a_rollback_of_its_base(
    table: bl.Table,
) -> None:
    first = timeline_of(table).completed_commits()[0].requested_at
    table.resize(**SPLIT_ALL)
    with pytest.raises(TimelineError, match="cascade"):
        table.rollback(first)
    table.rollback(first, cascade=True)
    assert values(table) == {}
