"""Clusterings on the timeline, in any state: what reads, writes and services make of them.

Two tables are of real Hudi: a resize of consistent hashing (RFC-42) that is pending, with writes
since then in old and new file groups, and one that is completed, with writes after it. The fixture
``own`` makes tables of bucketlake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import TimelineError
from bucketlake.format.clustering_plan import ClusteringPlan, decode_clustering_plan
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.index.rings import noted_instants, stored_versions
from bucketlake.model.file_name import InstantTime
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.check.findings import Severity
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.archive_reader import newest_manifest, read_archive_file
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import opened_table
from tests.golden.objects import objects_of_table
from tests.golden.rows import plain_rows
from tests.storages import memory_of, objects_of

NAMES = ["id", "region", "ts", "qty", "note"]
OWN_SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
OWN_NAMES = OWN_SCHEMA.names


@pytest.fixture
def pending() -> MemoryStorage:
    return memory_of(objects_of_table("mor_resize_pending"))


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def own(request: pytest.FixtureRequest, new_path: Callable[[], str]) -> bl.Table:
    """A table of bucketlake with keys 0 to 39 in the days a and b."""
    made = bl.create_table(
        new_path(),
        schema=OWN_SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=bl.ConsistentBucket(2, max=16),
        table_type=request.param,
    )
    made.upsert(own_rows(range(40)))
    return made


def own_rows(numbers: range, v: int = 0) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": "ab"[n % 2], "v": n + 1000 * v} for n in numbers], OWN_SCHEMA
    )


def memory_of_table(table: bl.Table) -> Storage:
    return open_storage(table.path)


@pytest.fixture
def completed() -> MemoryStorage:
    return memory_of(objects_of_table("mor_resized"))


def resize_of(storage: Storage) -> Instant:
    """Return the resize of a table; it is one instant in every state."""
    table = bl.open_table(storage.root)
    actions = Action.CLUSTERING, Action.REPLACE_COMMIT
    [found] = [one for one in table.timeline() if one.action in actions]
    return found


def plan_of(storage: Storage) -> ClusteringPlan:
    requested = f".hoodie/timeline/{resize_of(storage).requested_at}.clustering.requested"
    return decode_clustering_plan(storage.read(requested), requested)


def opened(storage: Storage) -> bl.Table:
    """Open a table of Hudi with the index of its writers."""
    return bl.open_table(storage.root, index=bl.ConsistentBucket(2, max=8, hash_fields=["id"]))


def rows_of(table: bl.Table) -> list[dict[str, object]]:
    return plain_rows(table.to_arrow(), table.schema().names)


def sound(table: bl.Table) -> bool:
    """Check that the doctor finds nothing, and that the next write finds all rows."""
    found = table.doctor(check_keys=True, check_files=True, min_age_seconds=0)
    wrong = [finding for finding in found if finding.severity is not Severity.NOTE]
    assert not wrong, wrong
    before = rows_of(table)
    table.upsert(table.to_arrow())
    assert rows_of(table) == before
    return True


def live_groups(storage: Storage) -> set[tuple[str, str]]:
    config = bl.open_table(storage.root).config()
    slices = load_snapshot(opened_table(storage, config)).all_slices()
    return {(one.partition_path, one.file_id) for one in slices}


def live_groups_as_of(storage: Storage, instant: InstantTime) -> set[tuple[str, str]]:
    """Return the live file groups right before an instant was requested."""
    config = bl.open_table(storage.root).config()
    snapshot = load_snapshot(opened_table(storage, config))
    later = {i.requested_at for i in snapshot.timeline.instants if i.requested_at >= instant}
    slices = replace(snapshot, timeline=snapshot.timeline.without(later)).all_slices()
    return {(one.partition_path, one.file_id) for one in slices}


def files_of_instant(storage: Storage, instant: InstantTime) -> set[str]:
    """Return the data files with an instant in their names."""
    names = (path for path in objects_of(storage) if not path.startswith(".hoodie"))
    return {path for path in names if instant in path}


def is_ring_of(path: str, instant: InstantTime) -> bool:
    """Return whether a path is a version of a ring, or its marker."""
    return path.startswith(CONSISTENT.folder) and instant in path


def rings_of(storage: Storage, partition: str) -> list[str]:
    """Return the instants of the versions of a ring."""
    found = (stored for stored in stored_versions(storage) if stored.partition_path == partition)
    return sorted(version.instant for version in found)


def groups_of_instant(storage: Storage, instant: InstantTime) -> set[tuple[str, str]]:
    """Return the file groups of files with an instant in their names."""
    names = [path.split("/") for path in objects_of(storage) if not path.startswith(".hoodie")]
    return {
        (folder, name.removeprefix(".").partition("_")[0])
        for folder, name in names
        if instant in name
    }


def test_copies_of_a_pending_resize_are_in_no_slice_and_what_it_read_stays(
    pending: MemoryStorage,
) -> None:
    resize = resize_of(pending)
    assert (resize.action, resize.state) == (Action.CLUSTERING, State.REQUESTED)
    planned = {(one.partition_path, one.file_id) for one in plan_of(pending).slices}
    new = groups_of_instant(pending, resize.requested_at)
    assert new
    assert live_groups(pending) == planned
    assert not new & planned


def test_file_groups_of_a_completed_resize_take_the_place_of_those_it_read(
    completed: MemoryStorage,
) -> None:
    resize = resize_of(completed)
    assert (resize.action, resize.state) == (Action.REPLACE_COMMIT, State.COMPLETED)
    planned = {(one.partition_path, one.file_id) for one in plan_of(completed).slices}
    live = live_groups(completed)
    assert not live & planned
    assert groups_of_instant(completed, resize.requested_at) <= live


@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.clean(retain_commits=1),
        lambda table: table.archive(keep_min=1, keep_max=2),
        lambda table: table.compact(),
        lambda table: table.savepoint(),
        lambda table: table.upsert(table.to_arrow()),
    ],
    ids=["clean", "archive", "compact", "savepoint", "write"],
)
def test_writes_and_services_go_on_while_a_resize_is_pending_and_it_can_still_complete(
    pending: MemoryStorage, state: State, act: Callable[[bl.Table], object]
) -> None:
    table, resize = opened(pending), resize_of(pending)
    if state is State.INFLIGHT:
        name = replace(resize, state=state).to_file_name(LAYOUT_2)
        pending.put(f".hoodie/timeline/{name}", b"")
    before, planned = rows_of(table), plan_of(pending)
    act(table)
    assert rows_of(table) == before
    assert plan_of(pending) == planned
    assert all(pending.stat(path) for held in planned.slices for path in held.paths)
    assert resize.requested_at in table.resize().instants
    assert rows_of(table) == before
    assert not live_groups(pending) & {(s.partition_path, s.file_id) for s in planned.slices}
    assert sound(table)


def test_the_rollback_of_a_pending_resize_withdraws_it(pending: MemoryStorage) -> None:
    table, resize = opened(pending), resize_of(pending)
    before, held = rows_of(table), objects_of(pending)
    copies = [path for path in held if resize.requested_at in path.rpartition("/")[2]]
    described = table.rollback(resize.requested_at, dry_run=True)
    assert objects_of(pending) == held
    [undone] = described.commits
    assert (undone.instant, undone.operation) == (resize.requested_at, "CLUSTER")
    assert undone.partitions == ("eu", "us")
    assert undone.files == sum(not path.startswith(".hoodie") for path in copies) > 0
    assert table.rollback(resize.requested_at).commits == described.commits
    assert not files_of_instant(pending, resize.requested_at)
    assert all(one.requested_at != resize.requested_at for one in table.timeline())
    assert rows_of(table) == before
    assert sound(table)


def test_the_rollback_of_a_write_takes_its_copies_for_a_pending_resize_away(
    pending: MemoryStorage,
) -> None:
    table, resize = opened(pending), resize_of(pending)
    before, copies = rows_of(table), files_of_instant(pending, resize.requested_at)
    mistaken = table.upsert(table.to_arrow().slice(0, 6)).instant
    assert mistaken is not None
    assert files_of_instant(pending, resize.requested_at) > copies
    table.rollback(mistaken)
    assert files_of_instant(pending, resize.requested_at) == copies
    assert rows_of(table) == before
    table.resize()
    assert rows_of(table) == before
    assert sound(table)


def test_a_withdrawn_resize_leaves_nothing_that_later_looks_lost(
    pending: MemoryStorage,
) -> None:
    table, resize = opened(pending), resize_of(pending)
    table.rollback(resize.requested_at)
    table.compact()
    table.clean(retain_commits=1)
    table.archive(keep_min=3, keep_max=4)
    start = min(one.requested_at for one in table.timeline())
    assert start > resize.requested_at
    assert sound(table)


def test_the_rollback_of_a_completed_resize_keeps_the_rows_of_writes_meanwhile(
    own: bl.Table,
) -> None:
    groups = live_groups(memory_of_table(own))
    own.resize(max_file_size=1, split_into=2, schedule_only=True)
    own.upsert(own_rows(range(10, 30), 1))
    carried_out = own.resize(max_file_size=1 << 30, merge_threshold=0).instants
    # On copy-on-write the write overtook the plan.
    [planned] = carried_out or own.resize(max_file_size=1, split_into=2).instants
    before, storage = rows_of(own), memory_of_table(own)
    assert live_groups(storage) != groups
    report = own.rollback(planned)
    assert [commit.instant for commit in report.commits] == [planned]
    assert live_groups(storage) == groups
    assert rows_of(own) == before
    assert not files_of_instant(storage, planned)
    assert not [path for path in objects_of(storage) if is_ring_of(path, planned)]
    assert planned not in noted_instants(storage)
    assert sound(own)
    assert own.resize(max_file_size=1, split_into=2).instants
    assert rows_of(own) == before
    assert sound(own)


@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_a_commit_that_a_pending_resize_reads_is_not_rolled_back(
    pending: MemoryStorage, state: State
) -> None:
    table, resize = bl.open_table(pending.root), resize_of(pending)
    begin(pending, resize, state)
    before = objects_of(pending)
    with pytest.raises(TimelineError):
        table.rollback(table.timeline()[0].requested_at)
    assert objects_of(pending) == before


def begin(storage: MemoryStorage, resize: Instant, state: State) -> None:
    """Have the resize begun by its executor, or not yet."""
    if state is State.INFLIGHT:
        storage.put(f".hoodie/timeline/{replace(resize, state=state).to_file_name(LAYOUT_2)}", b"")


def test_a_clean_deletes_what_a_resize_replaced(completed: MemoryStorage) -> None:
    table = bl.open_table(completed.root)
    before = table.to_arrow()
    replaced = {one.file_id for one in plan_of(completed).slices}
    report = table.clean(retain_commits=1)
    assert {one.partition_path for one in report.partitions} == {"eu", "us"}
    assert not [path for path in objects_of(completed) for id_ in replaced if id_ in path]
    assert plain_rows(table.to_arrow(), before.column_names) == plain_rows(
        before, before.column_names
    )


def test_a_resize_is_archived_as_a_replace_commit_with_its_plan(completed: MemoryStorage) -> None:
    table, resize = bl.open_table(completed.root), resize_of(completed)
    before, plan = table.to_arrow(), plan_of(completed)
    table.clean(retain_commits=1)
    report = table.archive(keep_min=1, keep_max=2)
    assert resize in report.instants
    active = [path for path in objects_of(completed) if path.startswith(".hoodie/timeline/2")]
    assert not [path for path in active if resize.requested_at in path]
    folder = table.config().history_folder
    files = newest_manifest(completed, folder).files
    entries = [one for file in files for one in read_archive_file(completed, folder, file)]
    [entry] = [one for one in entries if one.requested_at == resize.requested_at]
    assert (entry.action, entry.completed_at) == ("replacecommit", resize.completed_at)
    assert entry.plan is not None
    assert decode_clustering_plan(entry.plan, "archive") == plan
    assert plain_rows(table.to_arrow(), before.column_names) == plain_rows(
        before, before.column_names
    )


def test_a_resize_that_later_writes_built_on_is_not_rolled_back(completed: MemoryStorage) -> None:
    table, resize = bl.open_table(completed.root), resize_of(completed)
    with pytest.raises(TimelineError, match="later commits build on it"):
        table.rollback(resize.requested_at)


def test_the_rollback_of_a_resize_of_hudi_with_later_writes_takes_its_rings_away(
    completed: MemoryStorage,
) -> None:
    table, resize = opened(completed), resize_of(completed)
    before = live_groups_as_of(completed, resize.requested_at)
    undone = [c.instant for c in table.rollback(resize.requested_at, cascade=True).commits]
    assert undone[-1] == resize.requested_at
    assert not [path for path in objects_of(completed) if is_ring_of(path, resize.requested_at)]
    assert live_groups(completed) == before
    assert sound(table)


def test_a_restore_to_before_a_resize_takes_its_file_groups_its_rings_and_its_plan_away(
    completed: MemoryStorage,
) -> None:
    table, resize = opened(completed), resize_of(completed)
    before = [one for one in table.timeline() if one.requested_at < resize.requested_at][-1]
    then = plain_rows(table.to_arrow(as_of=before.requested_at), NAMES)
    table.savepoint(before.requested_at)
    table.restore(before.requested_at)
    assert rows_of(table) == then
    assert all(one.requested_at != resize.requested_at for one in table.timeline())
    assert not files_of_instant(completed, resize.requested_at)
    assert not [path for path in objects_of(completed) if is_ring_of(path, resize.requested_at)]
    assert sound(table)


def test_a_restore_to_before_a_pending_resize_withdraws_it(pending: MemoryStorage) -> None:
    table, resize = opened(pending), resize_of(pending)
    before = [one for one in table.timeline() if one.requested_at < resize.requested_at][-1]
    then = plain_rows(table.to_arrow(as_of=before.requested_at), NAMES)
    table.savepoint(before.requested_at)
    assert table.restore(before.requested_at, dry_run=True).plans == (resize.requested_at,)
    assert table.restore(before.requested_at).plans == (resize.requested_at,)
    assert rows_of(table) == then
    assert all(one.requested_at != resize.requested_at for one in table.timeline())
    assert not files_of_instant(pending, resize.requested_at)
    assert sound(table)


def test_a_restore_withdraws_no_resize_that_was_planned_before_the_savepoint(
    pending: MemoryStorage,
) -> None:
    table, resize = opened(pending), resize_of(pending)
    before, files = rows_of(table), files_of_instant(pending, resize.requested_at)
    saved = table.savepoint()
    table.upsert(table.to_arrow().slice(0, 6))
    table.restore(saved)
    assert rows_of(table) == before
    assert files_of_instant(pending, resize.requested_at) == files
    assert resize.requested_at in table.resize().instants
    assert rows_of(table) == before
    assert sound(table)


def test_an_archived_resize_keeps_its_ring_for_bucketlake_and_for_hudi(
    completed: MemoryStorage,
) -> None:
    table, resize = opened(completed), resize_of(completed)
    markers = [path for path in objects_of(completed) if f"/{resize.requested_at}.commit" in path]
    assert len(markers) == 2
    for path in markers:  # As if the process had died after it completed the resize.
        completed.delete(path)
    before, groups = rows_of(table), live_groups(completed)
    table.clean(retain_commits=1)
    table.archive(keep_min=1, keep_max=2)
    assert not [one for one in table.timeline() if one.requested_at <= resize.requested_at]
    assert all(completed.stat(path) for path in markers)
    table.upsert(table.to_arrow())
    assert (rows_of(table), live_groups(completed)) == (before, groups)
    assert sound(table)


def test_a_clean_deletes_rings_with_the_file_groups_that_they_describe(own: bl.Table) -> None:
    storage = memory_of_table(own)
    for at in range(1, 5):
        own.upsert(own_rows(range(40), at))
        done = own.resize(max_file_size=1, split_into=2, max_groups=1, partitions=["a"]).instants
        assert done
    assert len(rings_of(storage, "a")) == 5
    saved = own.savepoint()
    own.insert_overwrite(own_rows(range(0, 40, 2), 6))
    own.insert_overwrite(own_rows(range(0, 40, 2), 7))
    own.clean(retain_commits=1)
    held = rings_of(storage, "a")
    assert len(held) == 4
    own.restore(saved)
    assert rows_of(own) == plain_rows(own_rows(range(40), 4), OWN_NAMES)
    assert sound(own)
    own.delete_savepoint(saved)
    own.upsert(own_rows(range(40), 9))
    own.clean(retain_commits=1)
    assert rings_of(storage, "a") == sorted(held)[:2]
    assert len(rings_of(storage, "b")) == 1
    assert sound(own)


def test_an_archival_forgets_the_notes_of_rings(own: bl.Table) -> None:
    storage = memory_of_table(own)
    for at in range(1, 5):
        own.resize(max_file_size=1, split_into=2, max_groups=1)
        own.upsert(own_rows(range(40), at))
    assert len(noted_instants(storage)) == 4
    before = rows_of(own)
    own.clean(retain_commits=1)
    own.archive(keep_min=1, keep_max=2)
    start = min(one.requested_at for one in own.timeline())
    assert all(instant >= start for instant in noted_instants(storage))
    assert rows_of(own) == before
    assert sound(own)
