"""What the simulation found beside resizes: deaths, races, and other writers (RFC-42)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.actions.pending import begin_instant
from bucketlake.actions.rollback import withdraw_resize
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER
from bucketlake.errors import AlreadyExistsError, CommitConflictError
from bucketlake.flow.threads import HERE
from bucketlake.index.hashing_config import INITIAL_INSTANT
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import RingSource
from bucketlake.index.rings import save_rings, stored_versions
from bucketlake.model.file_name import InstantTime
from bucketlake.services.resize import execution as service
from bucketlake.services.resize import planning
from bucketlake.services.resize.service import ResizeLimits
from bucketlake.services.undo.rollback_commits import roll_back
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.instant import Action, table_clock
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.timeline.transitions import create_requested
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.faulty_storage import Fault, FaultyStorage, Moment, SimulatedCrash
from tests.inside import opened, storage_of, upsert_once
from tests.meanwhile import PUTS, dying, meanwhile
from tests.metadata_truth import require_true_files
from tests.ring_tables import (
    SPLIT_ALL,
    is_pending,
    keyed,
    make_table,
    require_sound,
    rows,
    timeline_of,
    values,
)
from tests.waiting import SECONDS_MAX

FIRST = keyed(range(40))
EXECUTE: dict[str, Any] = {"max_file_size": 1 << 40, "merge_threshold": 0.0}
"""Executes what is planned, and plans nothing."""


def filled(path: str, table_type: str = "merge_on_read") -> bl.Table:
    made = make_table(path, table_type=table_type)
    made.upsert(rows(range(40)))
    return made


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    return filled(new_path())


def planned(table: bl.Table) -> InstantTime:
    scheduled = table.resize(**SPLIT_ALL, schedule_only=True).scheduled
    assert scheduled is not None
    return scheduled


def test_a_write_that_served_a_resize_conflicts_with_a_later_write_to_the_new_bucket(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the later instant of the other write wins, although it committed first."""
    planned(table)

    def other() -> None:
        bl.open_table(table.path).resize(**EXECUTE)
        bl.open_table(table.path).upsert(rows([3], 1))

    meanwhile(monkeypatch, other)
    with pytest.raises(CommitConflictError, match="changed"):
        upsert_once(table, rows([3], 2))
    meanwhile(monkeypatch, lambda: None)
    table.upsert(rows([3], 2))
    assert values(table) == FIRST | keyed([3], 2)
    require_sound(table)


def test_a_rollback_of_a_process_that_died_while_a_resize_was_planned_is_ended_first(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its plan would be withdrawn for ever."""
    undone = table.upsert(rows([1], 1)).instant
    assert undone is not None

    def dies_meanwhile() -> None:
        faulty = FaultyStorage(storage_of(table), [Fault(5, Moment.AFTER)], reads_count=False)
        with pytest.raises(SimulatedCrash):
            roll_back(opened_table(faulty, table.config()), None, undone)
        assert any(i.action is Action.ROLLBACK for i in timeline_of(table).pending())

    meanwhile(monkeypatch, dies_meanwhile, PUTS, ".clustering.requested")
    assert table.resize(**SPLIT_ALL).instants
    assert values(table) in (FIRST, FIRST | keyed([1], 1))
    assert not timeline_of(table).pending()
    require_sound(table)


def test_a_plan_that_draws_the_time_of_a_write_leaves_the_markers_of_the_write(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a rollback of the write would not find its files."""
    table = filled(new_path(), "copy_on_write")
    set_bounds(monkeypatch, service, ROUNDS_BESIDE_WRITERS=0)
    drawn: list[InstantTime] = []
    create = planning.create_requested

    def taken(opened: OpenTable, instant: InstantTime, *rest: Any) -> Any:
        if drawn:
            return create(opened, instant, *rest)
        drawn.append(instant)
        path = f".hoodie/.temp/{instant}/a/x_1-0-1_{instant}.parquet.marker.CREATE"
        opened.storage.put(path, b"")
        raise AlreadyExistsError(path, "put on the timeline", "another action has this time")

    monkeypatch.setattr(planning, "create_requested", taken)
    assert table.resize(**SPLIT_ALL).instants
    assert len(list(read_markers(storage_of(table), drawn[0]))) == 1


def test_a_restore_withdraws_a_resize_that_was_planned_after_the_savepoint(
    table: bl.Table,
) -> None:
    """Its plan names log files that the restore deletes."""
    saved = table.savepoint()
    table.upsert(rows([1], 1))
    resize = planned(table)
    table.upsert(rows([2], 2))
    table.restore(saved)
    assert not is_pending(table, resize)
    assert values(table) == FIRST
    assert table.resize(**SPLIT_ALL).instants
    require_sound(table)


def test_a_resize_that_was_planned_before_the_savepoint_outlives_a_restore(
    table: bl.Table,
) -> None:
    resize = planned(table)
    table.upsert(rows([1], 1))
    saved = table.savepoint()
    table.upsert(rows([2], 2))
    table.restore(saved)
    assert table.resize(**EXECUTE).instants == (resize,)
    assert values(table) == FIRST | keyed([1], 1)
    require_sound(table)


@pytest.fixture
def two_plans(table: bl.Table) -> tuple[InstantTime, InstantTime]:
    """Plans of one bucket by two processes that died before they saw each other."""
    first = planned(table)
    storage, config = storage_of(table), table.config()
    timeline = timeline_of(table)
    content = storage.read(f".hoodie/timeline/{first}.clustering.requested")
    second = table_clock(storage.root, config.timeline_timezone).next_instant(timeline)
    create_requested(opened_table(storage, config), second, Action.CLUSTERING, content)
    return first, second


def test_of_two_plans_for_one_bucket_the_next_write_withdraws_the_later(
    table: bl.Table, two_plans: tuple[InstantTime, InstantTime]
) -> None:
    table.upsert(rows([1], 1))
    assert [is_pending(table, plan) for plan in two_plans] == [True, False]
    assert table.resize(**EXECUTE).instants == two_plans[:1]
    assert values(table) == FIRST | keyed([1], 1)
    require_sound(table)


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_resize_that_died_after_its_decision_is_completed_before_a_write_is_planned(
    new_path: Callable[[], str], table_type: str
) -> None:
    table = filled(new_path(), table_type)
    resize = planned(table)
    decided = f".hoodie/.bucket_index/ext/outcome/{resize}.json"

    class DyingStorage(FaultyStorage):
        def put_if_absent(self, path: str, data: Any) -> None:
            if path == decided:
                self.faults = {self.operations + 1: Fault(self.operations + 1, Moment.AFTER)}
            super().put_if_absent(path, data)

    target = open_target(
        opened_table(DyingStorage(storage_of(table), reads_count=False), table.config()), None
    )
    with pytest.raises(SimulatedCrash):
        service.resize(target.table, None, ResizeLimits(), HERE)
    assert is_pending(table, resize)
    upsert_once(table, rows([1], 1))
    assert not is_pending(table, resize)
    assert values(table) == FIRST | keyed([1], 1)
    require_sound(table)


def test_a_ring_that_is_saved_after_the_rollback_of_its_commit_is_deleted(table: bl.Table) -> None:
    storage = storage_of(table)
    layout = open_target(opened_table(storage, table.config()), None).index.layout()
    assert isinstance(layout, RingLayout)
    clock = table_clock(storage.root, table.config().timeline_timezone)
    with begin_instant(
        OpenTable(storage, table.config(), clock, NO_LOCK),
        timeline_of(table),
        Action.REPLACE_COMMIT,
    ) as (instant, _):
        claim_rollback(storage, instant)
        metadata = replace(layout.state("a").metadata, instant=instant)
        save_rings(storage, instant, {"a": metadata})
    assert [version.instant for version in stored_versions(storage)] == [INITIAL_INSTANT]


class SlowStorage(MemoryStorage):
    """A storage whose reads of a plan wait until they may go on."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.began, self.goes_on = threading.Event(), threading.Event()

    def read(self, path: str) -> bytes:
        if path.endswith(".clustering.requested"):
            self.began.set()
            assert self.goes_on.wait(SECONDS_MAX)
        return super().read(path)


@pytest.fixture
def slow(table: bl.Table) -> Iterator[SlowStorage]:
    planned(table)
    storage = SlowStorage(table.path.removeprefix("memory://"))
    yield storage
    storage.goes_on.set()


def test_a_table_whose_storage_is_slow_does_not_have_another_table_wait(
    slow: SlowStorage, new_path: Callable[[], str]
) -> None:
    """As a cached_property of Python 3.11 does."""
    other = filled(new_path())
    sources = [RingSource(s, timeline_of(other), 4) for s in (slow, storage_of(other))]
    waiting = threading.Thread(
        target=lambda: replace(sources[0], timeline=timeline_of(bl.open_table(slow.root))).resizes
    )
    waiting.start()
    assert slow.began.wait(SECONDS_MAX)
    found = threading.Thread(target=lambda: sources[1].resizes)
    found.start()
    found.join(SECONDS_MAX)
    assert not found.is_alive()
    slow.goes_on.set()
    waiting.join()


def test_a_plan_that_another_process_withdrew_is_made_again(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer may take it for one of two plans of dead processes."""
    withdrawn = []

    def withdraw() -> None:
        [planned] = timeline_of(table).pending()
        withdrawn.append(planned.requested_at)
        assert withdraw_resize(opened(table), planned.requested_at)

    meanwhile(monkeypatch, withdraw, PUTS, COMMIT_ORDER_FOLDER, after=True)
    (completed,) = table.resize(**SPLIT_ALL).instants
    assert completed != withdrawn[0]
    assert values(table) == FIRST
    require_sound(table)


def test_a_withdrawal_that_dies_after_it_deleted_copies_leaves_none_in_the_metadata_table(
    table: bl.Table,
) -> None:
    instant = planned(table)
    table.upsert(rows(range(40), 2))  # Copied for the resize, so the metadata table lists copies.

    with dying(("delete",), f"timeline/{instant}.clustering"):
        table.rollback(instant)
    table.upsert(rows(range(3), 3))  # Ends the withdrawal first.
    assert not is_pending(table, instant)
    assert table.doctor(min_age_seconds=0) == []
    require_true_files(storage_of(table))
