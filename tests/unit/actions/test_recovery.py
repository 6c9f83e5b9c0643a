"""What a write does with the remains of others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import recovery
from bucketlake.actions.pending import begin_instant
from bucketlake.config.paths_of_table import MARKER_FOLDER
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Paths, Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action, InstantClock, shift_instant, system_now_ms
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.markers import Marker, MarkerType, write_markers
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.outcome import is_rolled_back
from bucketlake.timeline.transitions import create_requested, instant_path, to_inflight
from tests.faulty_storage import FaultyStorage
from tests.inside import storage_of, timeline_of

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A table with one commit."""
    made = bl.create_table(new_path(), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1))
    upsert(made)
    return made


def upsert(table: bl.Table) -> InstantTime:
    result = table.upsert(pa.table({"id": ["a"], "v": [1]}, SCHEMA))
    assert result.instant is not None
    return result.instant


def leave_file(table: bl.Table, instant: InstantTime) -> str:
    """Do as a task of that instant does: a marker, then a file of a bucket that is new."""
    name = f"00000000-0000-4000-8000-000000000000-0_1-0-1_{instant}.parquet"
    storage = storage_of(table)
    write_markers(storage, instant, [Marker("", name, MarkerType.CREATE)])
    storage.put(name, b"rows")
    return name


def later(instant: InstantTime) -> InstantTime:
    return shift_instant(instant, timedelta(milliseconds=1))


def pending_write(table: bl.Table, storage: Storage) -> InstantTime:
    """Put a write on the timeline that has no heartbeat."""
    opened, instant = (
        opened_table(storage, table.config()),
        later(table.timeline()[-1].requested_at),
    )
    create_requested(opened, instant, Action.COMMIT)
    to_inflight(opened, instant, Action.COMMIT)
    return instant


def settled(table: bl.Table, storage: Storage) -> None:
    opened = opened_table(storage, table.config())
    recovery.settle_failed_writes(opened, load_timeline(opened))


def test_a_living_writer_is_left_alone(table: bl.Table) -> None:
    storage = storage_of(table)
    instant = pending_write(table, storage)
    with beating(storage, instant, is_new=False):
        settled(table, storage)
        assert timeline_of(table).find(instant) is not None
    settled(table, storage)
    assert timeline_of(table).find(instant) is None


def test_a_write_that_is_rolled_back_can_never_commit(table: bl.Table) -> None:
    storage = storage_of(table)
    instant = pending_write(table, storage)
    settled(table, storage)
    assert is_rolled_back(storage, instant)


def test_a_write_that_begins_during_a_sweep_is_left_alone(table: bl.Table) -> None:
    storage, left = storage_of(table), list[str]()

    class BegunMeanwhile(FaultyStorage):
        def list_folders(self, folder: str) -> Paths:
            if folder == MARKER_FOLDER:
                left.append(leave_file(table, pending_write(table, storage)))
            return super().list_folders(folder)

    settled(table, BegunMeanwhile(storage))
    assert [storage.stat(path) is not None for path in left] == [True]


def test_files_of_a_late_task_go_after_another_program_rolled_its_write_back(
    table: bl.Table,
) -> None:
    instant = later(upsert(table))
    left = leave_file(table, instant)
    upsert(table)
    storage = storage_of(table)
    assert storage.stat(left) is None
    assert not list(storage.list(f".hoodie/.temp/{instant}"))


def test_a_file_that_came_after_the_rollback_goes_once_no_task_can_be_at_work(
    table: bl.Table,
) -> None:
    """Whoever slept since before the rollback put it, and died before it looked once more."""
    storage, config, waited_ms = storage_of(table), table.config(), 0
    clock = InstantClock(config.timeline_timezone, lambda: system_now_ms() + waited_ms)
    timeline = load_timeline(opened_table(storage, config))
    with begin_instant(OpenTable(storage, config, clock, NO_LOCK), timeline, Action.COMMIT) as (
        instant,
        _,
    ):
        to_inflight(opened_table(storage, config), instant, Action.COMMIT)
        name = leave_file(table, instant)
    recovery.settle_failed_writes(
        OpenTable(storage, config, clock, NO_LOCK), load_timeline(opened_table(storage, config))
    )
    assert storage.stat(name) is None
    storage.put(name, b"rows")
    waited_ms = 240_000
    recovery.settle_failed_writes(
        OpenTable(storage, config, clock, NO_LOCK), load_timeline(opened_table(storage, config))
    )
    assert storage.stat(name) is not None
    waited_ms = 301_000
    recovery.settle_failed_writes(
        OpenTable(storage, config, clock, NO_LOCK), load_timeline(opened_table(storage, config))
    )
    assert storage.stat(name) is None
    assert not list(storage.list(".hoodie/.temp"))


def test_a_second_action_that_stayed_at_the_time_of_a_commit_goes(table: bl.Table) -> None:
    """Its writer had to draw another time, and storage did not let it take this one off."""
    storage, [committed] = storage_of(table), table.timeline()
    stray = f".hoodie/timeline/{committed.requested_at}.replacecommit.requested"
    storage.put(stray, b"")
    upsert(table)
    assert storage.stat(stray) is None
    assert [one.action for one in table.timeline()] == [Action.COMMIT, Action.COMMIT]


def test_files_of_an_archived_commit_stay(table: bl.Table) -> None:
    """Archival may leave older instants behind, so an archived one may be newer than they are."""
    storage, [first] = storage_of(table), timeline_of(table).completed_commits()
    path = instant_path(table.config(), first)
    content = storage.read(path)
    archived = upsert(table)
    for _ in range(3):
        upsert(table)
    table.archive(keep_min=1, keep_max=2)
    storage.put(path, content)
    left = leave_file(table, archived), leave_file(table, later(archived))
    upsert(table)
    assert [storage.stat(name) is None for name in left] == [False, True]


def test_files_older_than_the_timeline_stay(table: bl.Table) -> None:
    """They may belong to a commit that was archived."""
    left = leave_file(table, InstantTime("20200101000000000"))
    storage, config = storage_of(table), table.config()
    clock = InstantClock(config.timeline_timezone)
    recovery.settle_failed_writes(
        OpenTable(storage, config, clock, NO_LOCK), load_timeline(opened_table(storage, config))
    )
    assert storage.stat(left) is not None


def test_pending_work_of_another_program_is_refused_and_nothing_is_settled(
    table: bl.Table,
) -> None:
    """What is pending may be a commit that the other program is about to take back."""
    storage = storage_of(table)
    instant = later(table.timeline()[-1].requested_at)
    storage.put(f".hoodie/timeline/{instant}.commit.requested", b"")
    storage.put(f".hoodie/timeline/{instant}.inflight", b"")
    storage.put(f".hoodie/timeline/{later(instant)}.clustering.requested", b"")
    with pytest.raises(UnsupportedFeatureError, match="a clustering of another program"):
        upsert(table)
    assert storage.stat(f".hoodie/timeline/{instant}.inflight") is not None
