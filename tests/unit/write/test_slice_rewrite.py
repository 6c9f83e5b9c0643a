"""The task of a resize: rows to their nodes, the same files in each attempt (RFC-42)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.hashing.ring import Ring
from bucketlake.hashing.xx_hash import RING_HASH_MAX, hash_ring_keys
from bucketlake.index.ring_state import file_id_of_node
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import FILE_NAME
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.base import Storage
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.slice_rewrite import ResizeJob, Resizer, distribution_of
from tests.inside import storage_of
from tests.ring_tables import keyed, make_table, ring_of, rows, timeline_of, values

INFLIGHT = ".hoodie/timeline/pending"
PREFIXES = [f"0000000{n}-0000-4000-8000-000000000000" for n in range(4)]


@dataclass(frozen=True)
class Work:
    """A group of a plan of one table, ready to be run."""

    table: bl.Table
    storage: Storage
    resizer: Resizer
    slices: tuple[FileSlice, ...]

    def split(self, *points: int) -> ResizeJob:
        """Return a job that splits the second node of the ring."""
        ends = (*points, RING_HASH_MAX)
        start = int(ring_of(self.table).values[0])
        return ResizeJob(self.slices[1:], Ring.of(dict(zip(ends, PREFIXES, strict=False))), start)

    def merge(self) -> ResizeJob:
        """Return a job that merges both nodes."""
        return ResizeJob(self.slices, Ring.of({RING_HASH_MAX: PREFIXES[0]}), RING_HASH_MAX)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys in the file of a node."""
        (path,) = [
            stored.path
            for stored in self.storage.list("a")
            if stored.path.startswith(f"a/{file_id_of_node(prefix)}_")
        ]
        return [str(key) for key in self.rows(path)["id"].to_pylist()]

    def rows(self, path: str) -> pa.Table:
        """Return the rows of a file."""
        with BaseFileReader(self.storage, path) as reader:
            names = [*self.resizer.reader.schema.names]
            return reader.read(names)


@pytest.fixture
def work(new_path: Callable[[], str]) -> Work:
    table = make_table(new_path())
    table.upsert(rows(range(40)))
    table.upsert(rows(range(0, 40, 3), 1))
    return of_table(table)


def of_table(table: bl.Table) -> Work:
    storage = storage_of(table)
    timeline = timeline_of(table)
    snapshot = load_snapshot(table_at(storage), timeline)
    instant = InstantTime(str(int(timeline.completed_commits()[-1].requested_at) + 1_000_000))
    storage.put(INFLIGHT, b"")
    resizer = Resizer(SliceReader.of_snapshot(snapshot), instant, snapshot.schema, INFLIGHT)
    found = {held.file_id: held for held in snapshot.all_slices()}
    ring = ring_of(table)
    slices = tuple(found[file_id_of_node(prefix)] for prefix in ring.prefixes)
    return Work(table, storage, resizer, slices)


def test_each_row_goes_to_the_node_that_holds_its_hash(work: Work) -> None:
    points = [1_300_000_000, 1_800_000_000]
    result = work.resizer.resize(work.split(*points))
    ring = Ring.of(dict(zip([*points, RING_HASH_MAX], PREFIXES, strict=False)))
    old = hash_ring_keys(pa.array([*keyed(range(40))]))
    second = [f"k{n}" for n in range(40) if old[n] > ring_of(work.table).values[0]]
    homes = ring.locate(hash_ring_keys(pa.array(second)))
    for position, prefix in enumerate(ring.prefixes):
        expected = [key for key, home in zip(second, homes, strict=True) if home == position]
        assert expected, "the test needs keys in each part"
        assert sorted(work.keys(prefix)) == sorted(expected)
    assert sum(stat.record_count for stat in result.stats) == len(second)
    assert all(stat.opens_group for stat in result.stats)
    assert result.distributions.keys() == set(PREFIXES[:3])


def test_rows_keep_the_time_of_their_commit_and_name_their_new_file(work: Work) -> None:
    columns = ["id", "v", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"]
    before = {row["id"]: row for row in work.table.to_arrow(columns=columns).to_pylist()}
    assert len({row["_hoodie_commit_time"] for row in before.values()}) == 2
    result = work.resizer.resize(work.merge())
    (stat,) = result.stats
    found = work.rows(stat.path)
    assert {row["id"]: row for row in found.select(columns).to_pylist()} == before
    assert set(found[FILE_NAME].to_pylist()) == {stat.path.removeprefix("a/")}


def test_a_repeated_attempt_finds_the_files_and_returns_the_same_facts(work: Work) -> None:
    first = work.resizer.resize(work.split(1_500_000_000))
    held = {stat.path: work.storage.read(stat.path) for stat in first.stats}
    again = work.resizer.resize(work.split(1_500_000_000))
    assert again.stats == first.stats
    assert {stat.path: work.storage.read(stat.path) for stat in again.stats} == held
    # An attempt that died after its first file is carried on to the same bytes.
    work.storage.delete(first.stats[1].path)
    assert work.resizer.resize(work.split(1_500_000_000)) == first
    assert {stat.path: work.storage.read(stat.path) for stat in first.stats} == held


def test_a_node_without_rows_gets_no_file_in_any_attempt(work: Work) -> None:
    start = int(ring_of(work.table).values[0])
    for _ in range(2):
        result = work.resizer.resize(work.split(start + 1))
        assert [stat.file_id for stat in result.stats] == [file_id_of_node(PREFIXES[1])]
        assert result.distributions.keys() == {PREFIXES[1]}


def test_keys_that_were_deleted_are_in_no_new_file(work: Work) -> None:
    work.table.delete(rows(range(0, 40, 2)).select(["id", "day"]))
    later = of_table(work.table)
    later.resizer.resize(later.merge())
    assert sorted(later.keys(PREFIXES[0])) == sorted(keyed(range(1, 40, 2)))
    assert values(work.table).keys() == keyed(range(1, 40, 2)).keys()


def test_an_attempt_after_the_resize_was_withdrawn_leaves_no_file(work: Work) -> None:
    claim_rollback(work.storage, work.resizer.instant)
    before = {stored.path for stored in work.storage.list("a")}
    with pytest.raises(CommitConflictError):
        work.resizer.resize(work.merge())
    assert {stored.path for stored in work.storage.list("a")} == before
    work.storage.delete(INFLIGHT)
    with pytest.raises(CommitConflictError):
        work.resizer.resize(work.merge())


def test_the_distribution_of_keys_is_in_the_order_of_a_range_across_the_ring_end() -> None:
    start = RING_HASH_MAX - 4
    hashes = np.array(
        [3, RING_HASH_MAX, 0, RING_HASH_MAX - 3, 1, 2, 4, RING_HASH_MAX - 1], np.int32
    )
    found = distribution_of(hashes, start)
    assert found.row_count == 8
    assert found.quantiles == (RING_HASH_MAX - 1, RING_HASH_MAX, 0, 1, 2, 3, 4)
    assert distribution_of(np.array([7], np.int32), 0).quantiles == (7,) * 7
