"""Resizes of consistent hashing (RFC-42) that real Hudi plans or executes, read by everyone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bucketlake.config.table_version import LAYOUT_2
from bucketlake.format.clustering_plan import (
    ClusteringPlan,
    encode_clustering_plan,
)
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.timeline.instant import Instant, State
from tests.interop.consistent import (
    DEFAULT_EXECUTION_STRATEGY,
    EXECUTION_STRATEGY,
    MERGE_ALL,
    SORT_ALL,
    ConsistentKind,
    ConsistentTable,
    children,
)
from tests.interop.peer.client import HudiPeer, PeerError
from tests.interop.shared_table import BUCKETLAKE, HUDI, rows
from tests.interop.test_consistent_turns import begun, take_turns

pytestmark = pytest.mark.interop

KINDS = {
    "one partition field": ConsistentKind(),
    "hive style, key of two fields": ConsistentKind(
        record_key=("id", "region"), hash_fields=("id", "region"), hive_style=True
    ),
    "no partitions": ConsistentKind(partition_by=()),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_table_that_hudi_resizes_is_read_exactly_at_every_step(
    hudi: HudiPeer, tmp_path: Path, kind: ConsistentKind
) -> None:
    resize_twice(ConsistentTable(hudi, tmp_path / "resized", kind))


def test_a_table_that_the_release_before_resizes_is_read_exactly_at_every_step(
    hudi_1_1: HudiPeer, tmp_path: Path
) -> None:
    resize_twice(ConsistentTable(hudi_1_1, tmp_path / "resized"))


def test_bucketlake_takes_turns_with_the_release_before(hudi_1_1: HudiPeer, tmp_path: Path) -> None:
    take_turns(begun(hudi_1_1, tmp_path / "turns"), BUCKETLAKE)


def resize_twice(table: ConsistentTable) -> None:
    """Split every bucket while Hudi upserts and deletes, then merge what came of it."""
    table.upsert(HUDI, rows(range(40), 1))
    table.delete(HUDI, rows(range(4), 1))
    table.assert_read_by_all()
    [partition, *_] = {path for path, _ in table.file_groups()}
    before = table.ring(partition)
    planned = table.schedule_resize()
    assert planned is not None
    table.assert_read_by_all()
    for ts in (2, 3):
        table.upsert(HUDI, rows(range(10 * ts, 10 * ts + 30), ts))
        # Hudi reads copies of several writes in no order of theirs: a delete meets no other copy.
        table.delete(HUDI, rows(range(3 * ts, 3 * ts + 3), ts))
        table.assert_read_by_all()
    copies = list(table.path.rglob(f".*_{planned.requested_at}.log.*"))
    assert copies, "no record of the writes meanwhile is in the new file groups"
    table.execute_resizes()
    assert [one.requested_at for one in table.completed_resizes()] == [planned.requested_at]
    table.assert_read_by_all()
    assert len(table.ring(partition).nodes) == 2 * len(before.nodes)
    table.upsert(HUDI, rows(range(30, 80), 4))
    table.assert_read_by_all()
    table.resize(MERGE_ALL)
    table.assert_read_by_all()
    assert len(table.ring(partition).nodes) < 2 * len(before.nodes)
    table.upsert(HUDI, rows(range(0, 80, 3), 5))
    table.assert_read_by_all()


def test_the_default_strategy_of_hudi_cannot_resize_a_table_without_partitions(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """A defect of 1.2.0. Its writes and all reads go on, and the other strategy then does it."""
    table = ConsistentTable(hudi, tmp_path / "whole", ConsistentKind(partition_by=()))
    table.upsert(HUDI, rows(range(40), 1))
    assert table.schedule_resize() is not None
    table.upsert(HUDI, rows(range(30, 60), 2))
    with pytest.raises(PeerError, match="Partition should not be null or empty"):
        table.execute_resizes(
            {"hoodie.clustering.execution.strategy.class": DEFAULT_EXECUTION_STRATEGY}
        )
    assert [one.state for one in table.pending_resizes()] == [State.INFLIGHT]
    table.upsert(HUDI, rows(range(50, 70), 3))
    table.assert_read_by_all()
    table.execute_resizes()
    assert not table.pending_resizes()
    table.assert_read_by_all()


@pytest.mark.parametrize("strategy", [EXECUTION_STRATEGY, DEFAULT_EXECUTION_STRATEGY])
def test_times_of_rows_after_a_resize_follow_the_executing_strategy_of_hudi(
    hudi: HudiPeer, tmp_path: Path, strategy: str
) -> None:
    table = ConsistentTable(hudi, tmp_path / "times")
    table.upsert(HUDI, rows(range(20), 1))
    [written] = table.ours.timeline()
    table.resize({"hoodie.clustering.execution.strategy.class": strategy})
    [resized] = table.completed_resizes()
    times = table.hudi.read(table.path, columns=["_hoodie_commit_time"])
    kept = strategy == EXECUTION_STRATEGY
    expected = written.requested_at if kept else resized.requested_at
    assert set(times["_hoodie_commit_time"].to_pylist()) == {expected}


@pytest.mark.parametrize("again", [{}, MERGE_ALL, SORT_ALL], ids=["split", "merge", "rewrite"])
def test_hudi_executes_a_resize_whose_plan_is_in_our_bytes(
    hudi: HudiPeer, tmp_path: Path, again: dict[str, str]
) -> None:
    """First of slices that are only logs, then of slices with base files."""
    table = ConsistentTable(hudi, tmp_path / "planned")
    table.upsert(HUDI, rows(range(40), 1))
    for ts, options in enumerate(({}, again), 2):
        planned = table.schedule_resize(options)
        assert planned is not None
        plan = rewrite_plan(table, planned)
        has_base_files = {one.base_file is not None for one in plan.slices}
        assert has_base_files == {ts == 3}
        table.upsert(HUDI, rows(range(20, 60), ts))
        table.delete(HUDI, rows(range(4 * ts, 4 * ts + 4), ts))
        table.execute_resizes()
        assert not table.pending_resizes()
        table.assert_read_by_all()
        assert set(table.ring("eu").nodes.items()) >= new_nodes(plan, "eu")
    table.upsert(HUDI, rows(range(0, 80, 3), 4))
    table.assert_read_by_all()


def rewrite_plan(table: ConsistentTable, planned: Instant) -> ClusteringPlan:
    """Decode the plan of a pending resize, and put it back as our planner would write it."""
    plan = table.plan_of(planned)
    groups = []
    for group in plan.groups:
        assert group.resize is not None
        nodes = json.loads(group.resize.child_nodes)
        facts = replace(group.resize, child_nodes=json.dumps(nodes, separators=(",", ":")))
        groups.append(type(group).of_resize(group.slices, group.output_count, facts))
    plan = replace(plan, groups=tuple(groups), missing_partitions=None)
    path = timeline_file(table, replace(planned, state=State.REQUESTED))
    overwrite(path, encode_clustering_plan(plan, str(table.path)))
    return plan


def new_nodes(plan: ClusteringPlan, partition: str) -> set[tuple[int, str]]:
    """Return the nodes that a plan puts on the ring of a partition."""
    return {(value, prefix) for value, prefix in children(plan, partition) if prefix is not None}


def test_hudi_goes_on_after_a_resize_that_is_completed_in_our_bytes(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = ConsistentTable(hudi, tmp_path / "completed")
    table.upsert(HUDI, rows(range(40), 1))
    table.resize()
    [done] = table.completed_resizes()
    path = timeline_file(table, done)
    metadata = decode_commit_metadata(path.read_bytes(), path.name)
    assert metadata.operation == "CLUSTER"
    assert {stat.previous_commit for stat in metadata.stats} == {"null"}
    assert all(stat.opens_group and not stat.update_count for stat in metadata.stats)
    before = table.rings("eu")[0].file_ids
    assert set(metadata.replaced_file_ids["eu"]) == before
    overwrite(path, encode_commit_metadata(metadata))
    table.assert_read_by_all()
    table.upsert(HUDI, rows(range(20, 60), 2))
    table.delete(HUDI, rows(range(4), 2))
    table.assert_read_by_all()
    table.resize(MERGE_ALL)
    table.upsert(HUDI, rows(range(0, 80, 3), 3))
    table.assert_read_by_all()


def timeline_file(table: ConsistentTable, instant: Instant) -> Path:
    return table.path / ".hoodie" / "timeline" / instant.to_file_name(LAYOUT_2)


def overwrite(path: Path, content: bytes) -> None:
    """Put other content into a file of Hudi's, which keeps a checksum beside it."""
    path.write_bytes(content)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
