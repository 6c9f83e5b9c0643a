"""Writers in different time zones: one timeline in UTC, one in the local zone of its writers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import bucketlake as bl
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, rows

pytestmark = pytest.mark.interop


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as Japan has it."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def take_turns(table: SharedTable) -> None:
    for n in range(2):
        table.upsert(BUCKETLAKE, rows(range(n, n + 12), 2 * n))
        table.model.commit(table.ours)
        table.assert_read_by_all()
        table.upsert(HUDI, rows(range(2 * n, 2 * n + 8), 2 * n + 1))
        table.model.commit(table.ours)
        table.assert_read_by_all()
    assert_times_follow_one_another(table)
    assert_history_is_read_by_both(table)


def assert_times_follow_one_another(table: SharedTable) -> None:
    """No instant begins before the last one has ended."""
    times = [
        moment
        for instant in table.ours.timeline()
        for moment in (instant.requested_at, instant.completed_at)
    ]
    assert times == sorted(set(times))


def assert_history_is_read_by_both(table: SharedTable) -> None:
    schema, states = table.kind.schema, table.model.states
    for n in (0, len(states) - 2):
        then = in_order(states[n].rows.values(), schema)
        instant = states[n].instant
        assert rows_of(table.ours.to_arrow(as_of=instant), schema) == then
        assert rows_of(table.hudi.time_travel(table.path, instant), schema) == then
        changed = in_order(table.model.changed_rows(n + 1, len(states) - 1), schema)
        assert (
            rows_of(table.hudi.incremental(table.path, states[n].completed_at), schema) == changed
        )


def hours_from_utc(table: SharedTable) -> float:
    newest = table.ours.timeline()[-1].requested_at
    at = datetime.strptime(newest[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return round((at - datetime.now(UTC)) / timedelta(hours=1))


def test_timeline_of_ours_stays_in_utc_when_hudi_runs_elsewhere(
    hudi_in_tokyo: HudiPeer, tmp_path: Path
) -> None:
    table = SharedTable(hudi_in_tokyo, tmp_path / "utc")
    table.begin()
    take_turns(table)
    assert hours_from_utc(table) == 0


def test_local_timeline_of_hudi_is_continued_in_its_zone(
    hudi_in_tokyo: HudiPeer, tmp_path: Path, in_tokyo: None
) -> None:
    table = SharedTable(hudi_in_tokyo, tmp_path / "local")
    table.upsert(HUDI, rows(range(20), 0))
    table.model.commit(table.ours)
    assert table.ours.config().timeline_timezone == "LOCAL"
    take_turns(table)
    assert hours_from_utc(table) == 9


def test_local_timeline_that_runs_ahead_of_us_goes_on(
    hudi_in_tokyo: HudiPeer, tmp_path: Path
) -> None:
    """Our clock is nine hours behind: our times follow the newest one there, and we are told."""
    table = SharedTable(hudi_in_tokyo, tmp_path / "ahead")
    table.upsert(HUDI, rows(range(20), 0))
    table.model.commit(table.ours)
    with pytest.warns(bl.ClockWarning, match="the clock or zone of a writer is or was ahead"):
        take_turns(table)
    assert hours_from_utc(table) == 9


def test_local_timeline_that_is_behind_us_is_not_overtaken(
    hudi: HudiPeer, tmp_path: Path, in_tokyo: None
) -> None:
    """Hudi, nine hours behind, gives out its next time without a look at ours."""
    table = SharedTable(hudi, tmp_path / "behind")
    table.upsert(HUDI, rows(range(20), 0))
    table.model.commit(table.ours)
    take_turns(table)
