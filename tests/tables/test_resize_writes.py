"""Writes while a resize is pending, and resizes while a table is written (RFC-42)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.rollback import withdraw_resize
from bucketlake.config.table_version import NEWEST_VERSION, OLDEST_VERSION
from bucketlake.errors import CommitConflictError, TimelineError
from bucketlake.format.clustering_plan import ClusteringPlan
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import PendingResize, resizes_of_plan
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.services.resize import execution as service
from bucketlake.storage import system_calls
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import opened_table
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.between import InterruptedEngine
from tests.bounds import set_bounds
from tests.choices import DEEP
from tests.inside import storage_of
from tests.meanwhile import meanwhile
from tests.ring_tables import (
    MERGE_ALL,
    SPLIT_ALL,
    copies_of,
    is_pending,
    keyed,
    keys_in,
    log_files,
    make_table,
    require_sound,
    ring_of,
    rows,
    timeline_of,
    values,
)

EXECUTE: dict[str, Any] = {"max_file_size": 1 << 40, "merge_threshold": 0.0}
"""Executes what is planned, and plans nothing."""

FIRST = keyed(range(40))


@pytest.fixture(params=["memory", "disk"] if DEEP else ["in turns"])
def path(request: pytest.FixtureRequest, new_path: Callable[[], str], tmp_path: Path) -> str:
    """A path for a table, in memory or on disk: a test in turn has one, in a deep run both."""
    place = request.param
    if not DEEP:
        place = ("memory", "disk")[crc32(request.node.name.encode()) % 2]
    return new_path() if place == "memory" else str(tmp_path / "t")


def filled(path: str, table_type: str = "merge_on_read", **options: Any) -> bl.Table:
    """A table with 40 rows in one partition of two buckets."""
    made = make_table(path, table_type=table_type, **options)
    made.upsert(rows(range(40)))
    return made


@pytest.fixture(params=[NEWEST_VERSION, OLDEST_VERSION] if DEEP else ["in turns"])
def table(request: pytest.FixtureRequest, path: str) -> bl.Table:
    """A table of the newest version, or of the oldest, where log files name their slice."""
    version = request.param
    if not DEEP:
        version = (NEWEST_VERSION, OLDEST_VERSION)[crc32(request.node.name.encode()) // 2 % 2]
    options = {} if version == NEWEST_VERSION else {"metadata_table": False}
    return filled(path, version=version, **options)


@pytest.fixture
def on_write(new_path: Callable[[], str]) -> bl.Table:
    return filled(new_path(), "copy_on_write")


def planned(table: bl.Table, **limits: Any) -> InstantTime:
    """Put a plan on the timeline that splits every bucket."""
    report = table.resize(**(SPLIT_ALL | limits), schedule_only=True)
    assert report.scheduled is not None
    return report.scheduled


def completed(table: bl.Table, resize: str) -> None:
    """Execute a plan, which must complete at once."""
    assert table.resize(**EXECUTE).instants == (resize,)


def resizes(table: bl.Table) -> list[str]:
    """Return the completed resizes."""
    return [i.requested_at for i in table.timeline() if i.action is Action.REPLACE_COMMIT]


def before_tasks_of_resize(monkeypatch: pytest.MonkeyPatch, other: Callable[[int], object]) -> None:
    """Let something happen after each resize is planned, before its tasks; it gets a number."""
    calls = [0]

    def before(*_: object) -> None:
        calls[0] += 1
        other(calls[0])

    set_bounds(monkeypatch, "bucketlake.engine", HERE=InterruptedEngine(before))


# ---- merge-on-read: copies ---------------------------------------------------------------------


def test_writes_during_a_resize_are_read_before_and_after_it_completes(table: bl.Table) -> None:
    old = table.buckets()
    resize = planned(table)
    table.upsert(rows(range(10), 1))
    table.insert(rows(range(100, 110), 2))
    table.delete(rows(range(20, 25)).select(["id", "day"]))
    expected = FIRST | keyed(range(10), 1) | keyed(range(100, 110), 2)
    for key in keyed(range(20, 25)):
        del expected[key]
    assert values(table) == expected
    assert {b.file_id for b in table.buckets()} == {b.file_id for b in old}
    assert values(table, where="id = 'k100'") == {"k100": 2}
    completed(table, resize)
    assert values(table) == expected
    assert values(table, where="id = 'k100'") == {"k100": 2}
    assert values(table, where="id = 'k21'") == {}
    assert {b.file_id for b in table.buckets()}.isdisjoint(b.file_id for b in old)
    require_sound(table)
    table.compact()
    assert values(table) == expected
    require_sound(table)


def test_rows_that_are_combined_during_a_resize_are_whole_before_and_after_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {row["id"]: row["text"] for row in table.to_arrow(columns=["id", "text"]).to_pylist()}
    add, batch = {"v": "sum"}, rows(range(30, 45), 2).drop_columns(["text"])
    resize = planned(table)
    expected = FIRST | keyed(range(30, 40), 4) | keyed(range(40, 45), 4)
    table.upsert(batch, missing="keep", merge=add)
    table.upsert(batch, missing="keep", merge=add)
    assert values(table) == expected
    # The resize completes between the tasks of a write and its commit, and another write follows.
    meanwhile(
        monkeypatch,
        lambda: (completed(table, resize), table.upsert(batch, missing="keep", merge=add)),
    )
    table.upsert(batch, missing="keep", merge=add)
    expected |= keyed(range(30, 45), 8)
    assert values(table) == expected
    table.compact()
    assert values(table) == expected
    found = {row["id"]: row["text"] for row in table.to_arrow(columns=["id", "text"]).to_pylist()}
    assert found == texts | dict.fromkeys(keyed(range(40, 45)))
    require_sound(table)


def test_the_newest_of_several_writes_in_one_resize_wins_after_it(table: bl.Table) -> None:
    resize = planned(table)
    for v in range(1, 8):
        table.upsert(rows(range(10), v))
    table.delete(rows([3]).select(["id", "day"]))
    table.upsert(rows([4], 99))
    expected = FIRST | keyed(range(10), 7) | {"k4": 99}
    del expected["k3"]
    assert values(table) == expected
    completed(table, resize)
    assert values(table) == expected
    table.compact()
    assert values(table) == expected
    require_sound(table)


def test_the_ordering_field_decides_among_copies_and_what_was_there(path: str) -> None:
    table = filled(path, ordering="v")
    resize = planned(table)
    table.upsert(rows(range(5), 9))
    table.upsert(rows(range(10), 4))
    table.upsert(rows(range(5), 2))
    expected = FIRST | keyed(range(10), 4) | keyed(range(5), 9)
    completed(table, resize)
    assert values(table) == expected
    require_sound(table)


def test_a_write_before_a_copy_in_time_order_does_not_win_over_it(table: bl.Table) -> None:
    """The base file of the resize has the older rows, and the copies the newer ones."""
    table.upsert(rows(range(10), 1))
    resize = planned(table)
    table.upsert(rows(range(5), 2))
    completed(table, resize)
    table.upsert(rows(range(3), 3))
    assert values(table) == FIRST | keyed(range(10), 1) | keyed(range(5), 2) | keyed(range(3), 3)


def test_writes_during_a_merge_of_buckets_are_kept(table: bl.Table) -> None:
    report = table.resize(**MERGE_ALL, schedule_only=True)
    assert report.scheduled is not None
    table.upsert(rows(range(30, 60), 1))
    table.upsert(rows(range(35, 40), 2))
    expected = FIRST | keyed(range(30, 60), 1) | keyed(range(35, 40), 2)
    assert values(table) == expected
    completed(table, report.scheduled)
    assert len(table.buckets()) == 1
    assert values(table) == expected
    require_sound(table)


def test_copies_are_of_split_groups_alone_and_hidden_until_completion(table: bl.Table) -> None:
    resize = planned(table, max_groups=1)
    table.upsert(rows(range(40), 1))
    (metadata,) = [
        commit
        for _, commit in timeline_of(table).read_commits(
            storage_of(table), [timeline_of(table).completed_commits()[-1]]
        )
    ]
    paths = {stat.path for stat in metadata.stats}
    copies = copies_of(table, resize)
    assert len(copies) == 2, "both halves of the one bucket"
    assert set(copies) < paths, "the commit names its copies"
    assert sum(stat.record_count for stat in metadata.stats) == 40, "rows are counted once"
    assert len(paths) == 5, "one log of the other bucket, two of the split one, two copies"
    assert {b.file_id for b in table.buckets()}.isdisjoint(
        name.file_id for path, name in log_files(table) if path in copies
    )
    completed(table, resize)
    assert values(table) == keyed(range(40), 1)


def test_new_keys_in_an_empty_child_make_a_bucket_of_copies_alone(path: str) -> None:
    low, high = keys_in(0, 1 << 28, 10), keys_in(1 << 30, (1 << 31) - 1, 10)
    table = make_table(path, bl.ConsistentBucket(1))
    table.upsert(rows(low))
    resize = planned(table)
    table.upsert(rows(high, 1))
    completed(table, resize)
    (bucket,) = [b for b in table.buckets() if b.path is None]
    assert bucket.log_files == 1
    assert values(table) == keyed(low) | keyed(high, 1)
    require_sound(table)
    table.compact()
    assert values(table) == keyed(low) | keyed(high, 1)
    require_sound(table)


def test_writes_to_other_partitions_and_new_ones_make_no_copies(path: str) -> None:
    table = make_table(path)
    table.upsert(rows(range(40), days="ab"))
    resize = planned(table, partitions=["a"])
    table.upsert(rows(range(1, 40, 2), 1, days="ab"))
    table.upsert(rows(range(3), 2, days="c"))
    assert copies_of(table, resize) == []
    completed(table, resize)
    require_sound(table)


def test_an_incremental_read_shows_each_row_of_a_write_during_a_resize_once(
    table: bl.Table,
) -> None:
    resize = planned(table)
    since = timeline_of(table).completed_commits()[-1].completed_at
    table.upsert(rows(range(5), 1))
    for _ in range(2):
        found = table.to_arrow(since=since)
        assert sorted(found["id"].to_pylist()) == sorted(keyed(range(5)))
        if is_pending(table, resize):
            completed(table, resize)


def test_time_travel_into_a_resize_reads_the_buckets_of_before(table: bl.Table) -> None:
    resize = planned(table)
    table.upsert(rows(range(5), 1))
    during = timeline_of(table).completed_commits()[-1].requested_at
    table.upsert(rows(range(8), 2))
    completed(table, resize)
    assert values(table, as_of=during) == FIRST | keyed(range(5), 1)
    assert values(table) == FIRST | keyed(range(8), 2)


# ---- links and copies --------------------------------------------------------------------------


def test_copies_on_a_disk_are_hard_links_that_take_no_space(tmp_path: Path) -> None:
    table = filled(str(tmp_path / "t"))
    resize = planned(table)
    known = {path for path, _ in log_files(table)}
    table.upsert(rows(range(40), 1))
    new = [path for path, _ in log_files(table) if path not in known]
    copies = copies_of(table, resize)
    assert len(new) == 2 * len(copies) == 8
    facts = [Path(table.path, path).stat() for path in new]
    assert {found.st_nlink for found in facts} == {2}
    assert len({found.st_ino for found in facts}) == len(copies)


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that allows no hard link."""
    monkeypatch.setattr(system_calls, "add_name", lambda file, name: False)


@pytest.mark.usefixtures("no_links")
def test_a_disk_without_hard_links_gets_copies_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = filled(str(tmp_path / "t"))
    resize = planned(table)
    with caplog.at_level(logging.WARNING, "bucketlake"):
        table.upsert(rows(range(10), 1))
    (warning,) = [r.getMessage() for r in caplog.records if "resize" in r.getMessage()]
    copies = copies_of(table, resize)
    assert f"wrote {len(copies)} log files twice" in warning
    assert {Path(table.path, copy).stat().st_nlink for copy in copies} == {1}
    completed(table, resize)
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)


# ---- what happens between the pin of a write and its commit ------------------------------------


def test_a_write_that_does_not_know_the_plan_is_repeated_and_makes_copies(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[InstantTime] = []
    meanwhile(monkeypatch, lambda: made.append(planned(bl.open_table(table.path))))
    table.upsert(rows(range(10), 1))
    (resize,) = made
    assert copies_of(table, resize)
    assert values(table) == FIRST | keyed(range(10), 1)
    completed(table, resize)
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)


def test_a_write_that_served_a_resize_that_completed_meanwhile_goes_into_the_new_buckets(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize = planned(table)
    meanwhile(monkeypatch, lambda: completed(bl.open_table(table.path), resize))
    result = table.upsert(rows(range(10), 1))
    if not table.config().layout.logs_name_slices:
        assert copies_of(table, resize) == [], "its log files have the time of the write"
    own = [n for _, n in log_files(table) if result.instant in (n.instant, n.writer)]
    assert {name.file_id for name in own} > {b.file_id for b in table.buckets() if b.log_files}
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)
    table.compact()
    assert values(table) == FIRST | keyed(range(10), 1)


def test_a_resize_that_was_planned_and_completed_during_a_write_repeats_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: bl.open_table(table.path).resize(**SPLIT_ALL))
    table.upsert(rows(range(10), 1))
    assert len(ring_of(table)) == 4
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)


def test_a_second_resize_that_began_after_the_one_that_a_write_serves_repeats_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(table)
    later: list[InstantTime] = []

    def resize_on() -> None:
        other = bl.open_table(table.path)
        completed(other, first)
        later.append(planned(other))

    meanwhile(monkeypatch, resize_on)
    table.upsert(rows(range(10), 1))
    assert copies_of(table, later[0])
    completed(table, later[0])
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)


def test_a_plan_that_is_withdrawn_during_a_write_leaves_no_copies(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize = planned(table)
    meanwhile(monkeypatch, lambda: withdrawn(table, resize))
    table.upsert(rows(range(10), 1))
    assert copies_of(table, resize) == []
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)


def withdrawn(table: bl.Table, resize: InstantTime) -> None:
    target = open_target(opened_table(storage_of(table), table.config()), table.index)
    assert withdraw_resize(target.table, resize)


def test_writes_between_the_tasks_of_a_resize_and_its_completion_are_kept(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_tasks_of_resize(
        monkeypatch, lambda _: bl.open_table(table.path).upsert(rows(range(30, 50), 1))
    )
    report = table.resize(**SPLIT_ALL)
    assert len(report.instants) == 1
    assert resizes(table) == [*report.instants]
    assert values(table) == FIRST | keyed(range(30, 50), 1)
    require_sound(table)


# ---- undoing -----------------------------------------------------------------------------------


def test_a_rollback_of_a_write_takes_its_copies_away(table: bl.Table) -> None:
    resize = planned(table)
    table.upsert(rows(range(10), 1))
    kept = copies_of(table, resize)
    undone = table.upsert(rows(range(5, 15), 2)).instant
    assert undone is not None
    table.rollback(undone)
    assert copies_of(table, resize) == kept
    assert values(table) == FIRST | keyed(range(10), 1)
    completed(table, resize)
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)


def test_copies_that_a_rollback_of_hudi_left_are_gone_once_the_resize_completes(
    table: bl.Table,
) -> None:
    """Hudi finds files by the instant in their names; its readers would show the copies then."""
    planned = table.resize(**SPLIT_ALL, schedule_only=True).scheduled
    table.upsert(rows(range(5), 1))
    kept = copies_of(table, planned)
    undone = table.upsert(rows(range(3, 9), 2)).instant
    storage = storage_of(table)
    left = {path: storage.read(path) for path in {*copies_of(table, planned)} - {*kept}}
    assert left
    table.rollback(undone)
    for path, content in left.items():
        storage.put(path, content)
    assert table.resize(**EXECUTE).instants == (planned,)
    assert copies_of(table, planned) == kept
    assert values(table) == FIRST | keyed(range(5), 1)
    require_sound(table)


def test_a_write_during_a_resize_is_rolled_back_after_its_completion(table: bl.Table) -> None:
    resize = planned(table)
    undone = table.upsert(rows(range(5, 15), 2)).instant
    assert undone is not None
    completed(table, resize)
    table.rollback(undone)
    assert values(table) == FIRST
    require_sound(table)


def test_a_delete_during_a_resize_is_rolled_back_after_its_completion(table: bl.Table) -> None:
    resize = planned(table)
    undone = table.delete(rows(range(40)).select(["id", "day"])).instant
    assert undone is not None
    completed(table, resize)
    assert values(table) == {}
    table.rollback(undone)
    assert values(table) == FIRST
    require_sound(table)


def test_a_write_to_a_bucket_that_a_resize_left_alone_is_rolled_back_after_it(
    table: bl.Table,
) -> None:
    first = int(ring_of(table).values[0])
    large, small = keys_in(0, first, 40), keys_in(first, (1 << 31) - 1, 5, tag="y")
    table.upsert(rows(large))
    undone = table.upsert(rows(small, 1)).instant
    assert undone is not None
    (split,) = table.resize(**SPLIT_ALL, max_groups=1).buckets
    assert split.old_ranges[0][1] == first
    table.rollback(undone)
    assert len(ring_of(table)) == 3
    assert values(table) == FIRST | keyed(large)
    require_sound(table)


def test_a_write_before_a_resize_of_its_bucket_is_rolled_back_with_it_alone(
    table: bl.Table,
) -> None:
    undone = table.upsert(rows(range(10), 1)).instant
    assert undone is not None
    (resize,) = table.resize(**SPLIT_ALL).instants
    with pytest.raises(TimelineError, match=f"later commits build on it .{resize}"):
        table.rollback(undone)
    table.rollback(undone, cascade=True)
    assert values(table) == FIRST
    require_sound(table)


def test_a_rollback_of_a_resize_keeps_the_writes_that_served_it(table: bl.Table) -> None:
    ring = ring_of(table)
    resize = planned(table)
    table.upsert(rows(range(10), 1))
    completed(table, resize)
    table.rollback(resize)
    assert ring_of(table) == ring
    assert values(table) == FIRST | keyed(range(10), 1)
    assert copies_of(table, resize) == []
    require_sound(table)
    table.upsert(rows(range(5), 2))
    table.resize(**SPLIT_ALL)
    assert values(table) == FIRST | keyed(range(10), 1) | keyed(range(5), 2)
    require_sound(table)


def test_a_withdrawn_plan_leaves_neither_copies_nor_rings_nor_itself(table: bl.Table) -> None:
    versions = [stored.path for stored in storage_of(table).list(CONSISTENT.folder)]
    resize = planned(table)
    table.upsert(rows(range(10), 1))
    withdrawn(table, resize)
    assert not is_pending(table, resize)
    assert copies_of(table, resize) == []
    assert [stored.path for stored in storage_of(table).list(CONSISTENT.folder)] == versions
    assert values(table) == FIRST | keyed(range(10), 1)
    # The metadata table forgets the copies with the next commit: an instant of its own counts only
    # if it is older than one of the table.
    table.upsert(rows(range(3), 2))
    require_sound(table)
    table.resize(**SPLIT_ALL)
    assert values(table) == FIRST | keyed(range(10), 1) | keyed(range(3), 2)
    require_sound(table)


def test_a_write_that_failed_in_its_tasks_leaves_the_plan_and_no_copy(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize = planned(table)

    def fail() -> None:
        raise RuntimeError("a task failed")

    meanwhile(monkeypatch, fail)
    with pytest.raises(RuntimeError, match="a task failed"):
        table.upsert(rows(range(10), 1))
    assert copies_of(table, resize) == []
    completed(table, resize)
    assert values(table) == FIRST
    require_sound(table)


def test_a_write_that_the_plan_read_cannot_be_rolled_back_meanwhile(table: bl.Table) -> None:
    first = timeline_of(table).completed_commits()[-1].requested_at
    resize = planned(table)
    with pytest.raises(TimelineError, match=resize):
        table.rollback(first)
    completed(table, resize)


# ---- overwrites, deletes of partitions, and services -------------------------------------------


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("deletes", [False, True])
def test_an_overwrite_of_the_partition_ends_the_resize(
    new_path: Callable[[], str], table_type: str, *, deletes: bool
) -> None:
    table = filled(new_path(), table_type)
    resize = planned(table)
    table.upsert(rows(range(10), 1))
    if deletes:
        table.delete_partitions(["a"])
    else:
        table.insert_overwrite(rows(range(5), 2))
    expected = {} if deletes else keyed(range(5), 2)
    assert values(table) == expected
    assert table.resize(**EXECUTE).instants == ()
    assert not is_pending(table, resize)
    assert copies_of(table, resize) == []
    table.upsert(rows(range(3, 9), 3))
    assert values(table) == expected | keyed(range(3, 9), 3)
    require_sound(table)
    table.resize(**SPLIT_ALL)
    assert values(table) == expected | keyed(range(3, 9), 3)
    require_sound(table)


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_an_overwrite_between_the_plan_and_the_completion_wins(
    new_path: Callable[[], str], table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(new_path(), table_type)

    def overwrite(number: int) -> None:
        if number == 1:
            bl.open_table(table.path).insert_overwrite(rows(range(60, 70), 2))

    before_tasks_of_resize(monkeypatch, overwrite)
    table.resize(**SPLIT_ALL)
    assert values(table) == keyed(range(60, 70), 2)
    assert len(ring_of(table)) == 4
    require_sound(table)


def test_a_resize_during_an_overwrite_repeats_the_overwrite_or_leaves_it_alone(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: bl.open_table(table.path).resize(**SPLIT_ALL))
    table.insert_overwrite(rows(range(5), 2))
    assert values(table) == keyed(range(5), 2)
    require_sound(table)
    table.upsert(rows(range(10), 3))
    assert values(table) == keyed(range(10), 3)
    require_sound(table)


def test_services_during_a_resize_leave_what_it_reads_and_the_copies(table: bl.Table) -> None:
    for v in range(1, 5):
        table.upsert(rows(range(v), v))
    resize = planned(table)
    table.upsert(rows(range(10), 9))
    copies = copies_of(table, resize)
    assert table.compact().slices == (), "a compaction takes no group of the plan"
    table.clean(retain_commits=1)
    table.archive(keep_min=2, keep_max=3)
    assert copies_of(table, resize) == copies
    assert is_pending(table, resize)
    expected = FIRST | keyed(range(10), 9)
    assert values(table) == expected
    table.upsert(rows(range(5, 12), 10))
    completed(table, resize)
    assert values(table) == expected | keyed(range(5, 12), 10)
    require_sound(table)
    table.compact()
    table.clean(retain_commits=1)
    table.archive(keep_min=2, keep_max=3)
    assert values(table) == expected | keyed(range(5, 12), 10)
    require_sound(table)


# ---- several resizes ---------------------------------------------------------------------------


def test_one_of_two_resizes_that_execute_one_plan_loses_with_a_clear_error(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC-42, test plan 5."""
    resize = planned(table)
    errors: list[CommitConflictError] = []

    def other(number: int) -> None:
        if number > 1:
            return
        with ThreadPoolExecutor(1) as pool, pytest.raises(CommitConflictError) as caught:
            pool.submit(bl.open_table(table.path).resize, **EXECUTE).result()
        errors.append(caught.value)

    before_tasks_of_resize(monkeypatch, other)
    completed(table, resize)
    (error,) = errors
    assert error.instant == resize
    assert "another process carries this resize out" in str(error)
    assert resizes(table) == [resize]
    assert values(table) == FIRST
    require_sound(table)


def test_plans_of_two_processes_are_of_different_partitions(path: str) -> None:
    """RFC-42, test plan 5."""
    table = make_table(path)
    table.upsert(rows(range(60), days="abc"))
    with ThreadPoolExecutor(3) as pool:
        plans = [
            pool.submit(bl.open_table(table.path).resize, **SPLIT_ALL, schedule_only=True)
            for _ in range(3)
        ]
        found = [plan.result() for plan in plans]
    made = [b.partition_path for report in found for b in report.buckets]
    assert sorted(made) == ["a", "a", "b", "b", "c", "c"]
    table.upsert(rows(range(30), 1, days="abc"))
    table.resize(**EXECUTE)
    assert [len(ring_of(table, day)) for day in "abc"] == [4, 4, 4]
    assert values(table) == keyed(range(60)) | keyed(range(30), 1)
    require_sound(table)


def test_resizes_and_writers_in_threads_lose_nothing(path: str) -> None:
    """RFC-42, test plans 4 and 5: writers, readers and resizes side by side."""
    table = make_table(path)
    table.upsert(rows(range(40), days="ab"))
    stop = threading.Event()

    def read() -> int:
        count = 0
        while not stop.is_set():
            held = values(bl.open_table(path))
            assert held.keys() >= keyed(range(40)).keys()
            count += 1
        return count

    def write(number: int) -> None:
        mine = bl.open_table(path)
        for v in range(1, 6):
            persistently(lambda v=v: mine.upsert(rows(range(number * 100, number * 100 + 10), v)))

    def resize() -> None:
        mine = bl.open_table(path)
        for turn in range(3):
            persistently(lambda turn=turn: mine.resize(**(SPLIT_ALL, MERGE_ALL)[turn % 2]))

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(read)
        others = [pool.submit(write, 1), pool.submit(write, 2), pool.submit(resize)]
        try:
            for other in others:
                other.result()
        finally:
            stop.set()
        assert reader.result() > 0
    expected = keyed(range(40)) | keyed(range(100, 110), 5) | keyed(range(200, 210), 5)
    assert values(table) == expected
    persistently(lambda: table.resize(**EXECUTE))
    assert values(table) == expected
    require_sound(table)


def persistently(work: Callable[[], object]) -> None:
    """Repeat what meets another writer."""
    for _ in range(100):
        try:
            work()
        except CommitConflictError:
            continue
        return
    raise AssertionError("every attempt met another writer")


# ---- writers that know no resize ---------------------------------------------------------------


def foreign_write(table: bl.Table, monkeypatch: pytest.MonkeyPatch, data: pa.Table) -> None:
    """Write as a program does that looks for no plan: into the old buckets, without copies."""
    with monkeypatch.context() as patched:
        patched.setattr(RingLayout, "is_kept_by", lambda *_, **__: True)
        patched.setattr("bucketlake.index.ring_state.pending_resizes", lambda *_: iter(()))
        target = open_target(opened_table(storage_of(table), table.config()), table.index)
        write_records(target, Operation.UPSERT, ArrowSource(data))


def test_a_write_without_copies_has_the_resize_planned_again_and_nothing_is_lost(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize = planned(table)
    foreign_write(table, monkeypatch, rows(range(10), 1))
    assert copies_of(table, resize) == []
    report = table.resize(**SPLIT_ALL)
    assert not is_pending(table, resize)
    assert resizes(table) == [*report.instants]
    assert resize not in report.instants
    assert len(ring_of(table)) == 4
    assert values(table) == FIRST | keyed(range(10), 1)
    require_sound(table)


def test_writes_with_and_without_copies_in_one_resize_are_all_kept(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(number: int) -> None:
        if number == 1:
            other = bl.open_table(table.path)
            other.upsert(rows(range(10), 1))
            foreign_write(other, monkeypatch, rows(range(5, 15), 2))
            other.upsert(rows(range(12, 20), 3))

    before_tasks_of_resize(monkeypatch, write)
    report = table.resize(**SPLIT_ALL)
    assert resizes(table) == [*report.instants]
    expected = FIRST | keyed(range(10), 1) | keyed(range(5, 15), 2) | keyed(range(12, 20), 3)
    assert values(table) == expected
    require_sound(table)
    assert [b.log_files for b in table.buckets()] == [0, 0, 0, 0], "the plan reads all writes"


def test_a_program_that_never_makes_copies_stops_the_resize_with_an_error(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_tasks_of_resize(
        monkeypatch,
        lambda number: foreign_write(
            bl.open_table(table.path), monkeypatch, rows(range(10), number)
        ),
    )
    with pytest.raises(CommitConflictError, match="in each of 10 rounds"):
        table.resize(**SPLIT_ALL)
    assert not timeline_of(table).pending_clusterings()
    assert len(ring_of(table)) == 2
    assert values(table) == FIRST | keyed(range(10), service.ROUNDS_MAX)
    require_sound(table)


# ---- copy-on-write -----------------------------------------------------------------------------


def test_a_copy_on_write_table_plans_anew_after_a_write(
    on_write: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def write(number: int) -> None:
        tries.append(number)
        if number <= 2:
            bl.open_table(on_write.path).upsert(rows(range(30, 50), number))

    before_tasks_of_resize(monkeypatch, write)
    report = on_write.resize(**SPLIT_ALL)
    assert tries == [1, 2, 3]
    assert resizes(on_write) == [*report.instants]
    assert values(on_write) == FIRST | keyed(range(30, 50), 2)
    assert len(ring_of(on_write)) == 4
    require_sound(on_write)


def test_a_write_to_another_bucket_does_not_disturb_a_copy_on_write_resize(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(new_path(), table_type="copy_on_write")
    table.upsert(rows(range(80), days="ab"))
    tries: list[int] = []

    def write(number: int) -> None:
        tries.append(number)
        bl.open_table(table.path).upsert(rows(range(1, 80, 2), number, days="ab"))

    before_tasks_of_resize(monkeypatch, write)
    table.resize(**SPLIT_ALL, partitions=["a"])
    assert tries == [1]
    require_sound(table)


def test_a_plan_of_a_copy_on_write_table_that_a_write_overtook_is_withdrawn(
    on_write: bl.Table,
) -> None:
    resize = planned(on_write)
    on_write.upsert(rows(range(3), 1))
    report = on_write.resize(**SPLIT_ALL)
    assert not is_pending(on_write, resize)
    assert resize not in report.instants
    assert values(on_write) == FIRST | keyed(range(3), 1)
    require_sound(on_write)


def test_a_write_that_began_before_a_copy_on_write_resize_completed_is_repeated(
    on_write: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: bl.open_table(on_write.path).resize(**SPLIT_ALL))
    on_write.upsert(rows(range(10), 1))
    assert values(on_write) == FIRST | keyed(range(10), 1)
    assert len(on_write.buckets()) == 4
    require_sound(on_write)


def test_a_resize_completes_under_a_steady_stream_of_copy_on_write_writers(
    on_write: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers wait after three rounds, so the number of tries is bounded."""
    stop = threading.Event()
    written = [0, 0]
    tries: list[int] = []
    wrote = threading.Condition()

    def write(number: int) -> None:
        mine = bl.open_table(on_write.path)
        while not stop.is_set():
            v = written[number] + 1
            persistently(lambda v=v: mine.upsert(rows(range(100 * number, 100 * number + 20), v)))
            with wrote:
                written[number] = v
                wrote.notify_all()

    def between(number: int) -> None:
        tries.append(number)
        if number <= service.ROUNDS_BESIDE_WRITERS:  # A write comes in between for certain.
            with wrote:
                before = sum(written)
                assert wrote.wait_for(lambda: sum(written) > before, 30)

    before_tasks_of_resize(monkeypatch, between)
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, number) for number in (0, 1)]
        try:
            report = on_write.resize(**SPLIT_ALL)
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    assert service.ROUNDS_BESIDE_WRITERS < len(tries) < service.ROUNDS_MAX
    assert resizes(on_write) == [*report.instants]
    expected = FIRST | keyed(range(20), written[0]) | keyed(range(100, 120), written[1])
    assert values(on_write) == expected
    assert not timeline_of(on_write).pending_clusterings()
    require_sound(on_write)


def test_a_resize_completes_under_a_steady_stream_of_merge_on_read_writers_at_once(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    written = [0, 0]
    tries: list[int] = []
    wrote = threading.Condition()

    def write(number: int) -> None:
        mine = bl.open_table(table.path)
        while not stop.is_set():
            v = written[number] + 1
            persistently(lambda v=v: mine.upsert(rows(range(100 * number, 100 * number + 20), v)))
            with wrote:
                written[number] = v
                wrote.notify_all()

    def between(number: int) -> None:
        tries.append(number)
        with wrote:
            before = sum(written)
            assert wrote.wait_for(lambda: sum(written) > before + 1, 30)

    before_tasks_of_resize(monkeypatch, between)
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, number) for number in (0, 1)]
        try:
            report = table.resize(**SPLIT_ALL)
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    assert tries == [1]
    assert resizes(table) == [*report.instants]
    assert values(table) == FIRST | keyed(range(20), written[0]) | keyed(
        range(100, 120), written[1]
    )
    require_sound(table)


def test_a_plan_names_the_ring_that_it_was_made_from(table: bl.Table) -> None:
    resize = planned(table)
    timeline = timeline_of(table)
    (pending,) = timeline.pending_clusterings()
    plan: ClusteringPlan = timeline.read_clustering_plan(storage_of(table), pending)
    (found,) = resizes_of_plan(resize, plan)
    assert isinstance(found, PendingResize)
    assert found.sequence_number == 0
    assert {i for g in found.groups for i in g.file_ids} == {b.file_id for b in table.buckets()}
