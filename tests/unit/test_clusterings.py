"""Clusterings on the timeline, in any state: what reads, writes and services make of them.

The tables are of real Hudi: a resize of consistent hashing (RFC-42) that is pending, with writes
since then in old and new file groups, and one that is completed, with writes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import bucketlake as bl
from bucketlake.errors import TimelineError
from bucketlake.format.clustering_plan import ClusteringPlan, decode_clustering_plan
from bucketlake.model.file_name import InstantTime
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.archive_reader import newest_manifest, read_archive_file
from bucketlake.timeline.instant import Action, Instant, State
from tests.golden.objects import objects_of_table
from tests.golden.rows import plain_rows
from tests.storages import memory_of, objects_of


@pytest.fixture
def pending() -> MemoryStorage:
    return memory_of(objects_of_table("mor_resize_pending"))


@pytest.fixture
def completed() -> MemoryStorage:
    return memory_of(objects_of_table("mor_resized"))


def resize_of(storage: MemoryStorage) -> Instant:
    """Return the resize of a table; it is one instant in every state."""
    table = bl.open_table(storage.root)
    actions = Action.CLUSTERING, Action.REPLACE_COMMIT
    [found] = [one for one in table.timeline() if one.action in actions]
    return found


def plan_of(storage: MemoryStorage) -> ClusteringPlan:
    requested = f".hoodie/timeline/{resize_of(storage).requested_at}.clustering.requested"
    return decode_clustering_plan(storage.read(requested), requested)


def live_groups(storage: MemoryStorage) -> set[tuple[str, str]]:
    config = bl.open_table(storage.root).config()
    slices = load_snapshot(storage, config).all_slices()
    return {(one.partition_path, one.file_id) for one in slices}


def groups_of_instant(storage: MemoryStorage, instant: InstantTime) -> set[tuple[str, str]]:
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
    ],
    ids=["clean", "archive", "compact", "savepoint"],
)
def test_services_beside_a_pending_resize_leave_its_plan_its_copies_and_what_it_reads(
    pending: MemoryStorage, state: State, act: Callable[[bl.Table], object]
) -> None:
    table, resize = bl.open_table(pending.root), resize_of(pending)
    begin(pending, resize, state)
    needed = {path for planned in plan_of(pending).slices for path in planned.paths}
    needed |= {path for path in objects_of(pending) if resize.requested_at in path}
    before = table.to_arrow()
    act(table)
    assert needed <= objects_of(pending).keys()
    assert plain_rows(table.to_arrow(), before.column_names) == plain_rows(
        before, before.column_names
    )


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
        storage.put(f".hoodie/timeline/{replace(resize, state=state).to_file_name(2)}", b"")


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


def test_a_restore_to_before_a_resize_takes_its_file_groups_and_its_plan_away(
    completed: MemoryStorage,
) -> None:
    table, resize = bl.open_table(completed.root), resize_of(completed)
    before = [one for one in table.timeline() if one.requested_at < resize.requested_at][-1]
    then = table.to_arrow(as_of=before.requested_at)
    table.savepoint(before.requested_at)
    table.restore(before.requested_at)
    assert plain_rows(table.to_arrow(), then.column_names) == plain_rows(then, then.column_names)
    assert all(one.requested_at != resize.requested_at for one in table.timeline())
    assert not groups_of_instant(completed, resize.requested_at)
