"""New times for instants."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import TimelineError
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import (
    Action,
    Instant,
    InstantClock,
    IssuedTimes,
    State,
    instant_from_ms,
    issued_times,
)

NOW_MS = 1_704_164_645_678  # 2024-01-02 03:04:05.678 UTC


def _timeline(*times: str, completed_at: str | None = None) -> Timeline:
    completed = None if completed_at is None else InstantTime(completed_at)
    instants = tuple(
        Instant(InstantTime(one), Action.COMMIT, State.COMPLETED, completed) for one in times
    )
    return Timeline(instants, ".hoodie/timeline", LAYOUT_2, None, ".hoodie/timeline/history")


def test_new_instant_is_the_time_of_the_clock_in_utc() -> None:
    clock = InstantClock("UTC", lambda: NOW_MS)
    assert clock.next_instant(_timeline()) == "20240102030405678"


def test_clock_that_stands_still_gives_times_a_millisecond_apart() -> None:
    clock = InstantClock("UTC", lambda: NOW_MS)
    times = [clock.next_instant(_timeline()) for _ in range(3)]
    assert times == ["20240102030405678", "20240102030405679", "20240102030405680"]


@pytest.mark.parametrize(
    ("newest", "following"),
    [
        ("20240102030405678", "20240102030405679"),
        ("20240102030405999", "20240102030406000"),
        ("20241231235959999", "20250101000000000"),
        ("20240102030405", "20240102030405678"),
        ("20240102030406", "20240102030407000"),  # Seconds alone mean their last millisecond.
        ("00000000000000010", "20240102030405678"),
    ],
)
def test_new_instant_is_greater_than_every_requested_time(newest: str, following: str) -> None:
    clock = InstantClock("UTC", lambda: NOW_MS)
    assert clock.next_instant(_timeline(newest)) == following


def test_new_instant_is_greater_than_every_completion_time() -> None:
    clock = InstantClock("UTC", lambda: NOW_MS)
    timeline = _timeline("20240102030400000", completed_at="20240102040000000")
    assert clock.next_instant(timeline) == "20240102040000001"


def test_timeline_that_no_time_can_follow_is_refused() -> None:
    with pytest.raises(TimelineError, match="99999999999999999"):
        InstantClock("UTC", lambda: NOW_MS).next_instant(_timeline("99999999999999999"))


def test_repeated_hour_of_a_local_timeline_never_goes_backwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        before_ms = 1_729_990_740_000  # 2024-10-27 02:59 in summer time; then 02:00 comes again.
        seconds = iter(range(0, 7200, 600))
        clock = InstantClock("LOCAL", lambda: before_ms + 1000 * next(seconds))
        times = [clock.next_instant(_timeline()) for _ in range(12)]
        assert instant_from_ms(before_ms + 600_000, "LOCAL") < times[0]  # The clock does go back.
        assert times == sorted(set(times))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("newest", "zone", "following"),
    [
        ("20240102120400000", "UTC", "20240102120400001"),  # Written in Tokyo, ahead of us.
        ("20240102120400000", "Asia/Tokyo", "20240102120405678"),
        ("20240101220400000", "UTC", "20240101220405678"),  # Written in New York, behind us.
        ("20240101220400000", "Asia/Kathmandu", "20240101220405678"),
        ("20240102030400000", "America/New_York", "20240102030400001"),
        ("20240101000000000", "UTC", "20240101000405678"),  # The table was copied since.
    ],
)
def test_local_time_is_never_ahead_of_the_zone_of_other_writers(
    monkeypatch: pytest.MonkeyPatch, newest: str, zone: str, following: str
) -> None:
    """A writer of Hudi's there gives out its next instant without a look at ours."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for lag_ms in (0, 900, -900, 300_000):
            timeline = replace(
                _timeline("20240101000000000", completed_at=newest),
                newest_written_ms=NOW_MS - 5_678 + lag_ms,
            )
            clock = InstantClock("LOCAL", lambda: NOW_MS)
            assert clock.next_instant(timeline) == following
    finally:
        monkeypatch.undo()
        time.tzset()


def test_summer_time_that_began_since_the_newest_instant_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter_ms = 1_711_846_800_000  # 2024-03-31 01:00 UTC, when clocks went forward.
        timeline = replace(
            _timeline("20240331010000000", completed_at="20240331015000000"),
            newest_written_ms=winter_ms - 600_000,
        )
        clock = InstantClock("LOCAL", lambda: winter_ms + 600_000)
        assert clock.next_instant(timeline) == "20240331031000000"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_threads_never_get_the_same_time() -> None:
    issued = IssuedTimes()

    def draw(_: int) -> InstantTime:
        return InstantClock("UTC", lambda: NOW_MS, issued).next_instant(_timeline())

    with ThreadPoolExecutor(8) as pool:
        times = list(pool.map(draw, range(200)))
    assert len(set(times)) == 200


def test_clocks_of_one_table_share_what_was_issued_and_others_do_not() -> None:
    first = InstantClock("UTC", lambda: NOW_MS, issued_times("test://a", "UTC"))
    second = InstantClock("UTC", lambda: NOW_MS, issued_times("test://a", "UTC"))
    other = InstantClock("UTC", lambda: NOW_MS, issued_times("test://b", "UTC"))
    first.next_instant(_timeline("20300101000000000"))
    assert second.next_instant(_timeline()) == "20300101000000002"
    assert other.next_instant(_timeline()) == "20240102030405678"


def test_clocks_of_one_table_share_what_was_issued_however_its_path_is_spelled() -> None:
    first = InstantClock("UTC", lambda: NOW_MS, issued_times("s3://spelled/t", "UTC"))
    second = InstantClock("UTC", lambda: NOW_MS, issued_times("s3a://spelled/t", "UTC"))
    first.next_instant(_timeline("20300101000000000"))
    assert second.next_instant(_timeline()) == "20300101000000002"
