"""Names and times of instants."""

from __future__ import annotations

import time

import pytest

from bucketlake.config.table_version import LAYOUT_1, LAYOUT_2
from bucketlake.errors import TimelineError
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.instant import (
    Action,
    Instant,
    State,
    instant_from_ms,
    instant_to_ms,
)

REQUESTED_AT, COMPLETED_AT = InstantTime("20240102030405678"), InstantTime("20240102030406789")


def _requested(action: Action) -> Instant:
    return Instant(REQUESTED_AT, action, State.REQUESTED)


def _inflight(action: Action) -> Instant:
    return Instant(REQUESTED_AT, action, State.INFLIGHT)


def _completed(action: Action) -> Instant:
    return Instant(REQUESTED_AT, action, State.COMPLETED, COMPLETED_AT)


@pytest.mark.parametrize(
    ("instant", "name"),
    [
        (_requested(Action.COMMIT), "20240102030405678.commit.requested"),
        (_inflight(Action.COMMIT), "20240102030405678.inflight"),
        (_completed(Action.COMMIT), "20240102030405678_20240102030406789.commit"),
        (_requested(Action.DELTA_COMMIT), "20240102030405678.deltacommit.requested"),
        (_inflight(Action.DELTA_COMMIT), "20240102030405678.deltacommit.inflight"),
        (_completed(Action.REPLACE_COMMIT), "20240102030405678_20240102030406789.replacecommit"),
        (_requested(Action.CLUSTERING), "20240102030405678.clustering.requested"),
        (_inflight(Action.COMPACTION), "20240102030405678.compaction.inflight"),
        (_inflight(Action.LOG_COMPACTION), "20240102030405678.logcompaction.inflight"),
        (_inflight(Action.SAVEPOINT), "20240102030405678.savepoint.inflight"),
        (_completed(Action.CLEAN), "20240102030405678_20240102030406789.clean"),
        (_completed(Action.ROLLBACK), "20240102030405678_20240102030406789.rollback"),
        (_requested(Action.RESTORE), "20240102030405678.restore.requested"),
        (_requested(Action.INDEXING), "20240102030405678.indexing.requested"),
    ],
)
def test_name_of_layout_2_parses_and_prints(instant: Instant, name: str) -> None:
    assert Instant.from_file_name(name) == instant
    assert instant.to_file_name(LAYOUT_2) == name


@pytest.mark.parametrize(
    ("action", "completes_as"),
    [
        (Action.COMPACTION, "commit"),
        (Action.LOG_COMPACTION, "deltacommit"),
        (Action.CLUSTERING, "replacecommit"),
        (Action.CLEAN, "clean"),
    ],
)
def test_completed_service_bears_the_name_of_a_commit(action: Action, completes_as: str) -> None:
    assert (
        _completed(action).to_file_name(LAYOUT_2) == f"{REQUESTED_AT}_{COMPLETED_AT}.{completes_as}"
    )


def test_completed_name_of_layout_1_has_no_completion_time() -> None:
    instant = Instant(REQUESTED_AT, Action.COMMIT, State.COMPLETED)
    assert Instant.from_file_name("20240102030405678.commit") == instant
    assert instant.to_file_name(LAYOUT_1) == "20240102030405678.commit"
    assert (
        instant.to_file_name(LAYOUT_2) == "20240102030405678.commit"
    )  # Left over from an upgrade.


def test_pending_clustering_of_layout_1_bears_the_name_of_a_replace_commit() -> None:
    assert _requested(Action.CLUSTERING).to_file_name(LAYOUT_1).endswith(".replacecommit.requested")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "hoodie.properties",
        "hoodie.properties.backup",
        "20240102030405678",
        "20240102030405678.parquet",
        "20240102030405678.commit.done",
        "20240102030405678.commit.requested.tmp",
        "20240102030405678.compaction",
        "20240102030405678.clustering",
        "20240102030405678_20240102030406789.compaction",
        "20240102030405678_20240102030406789.commit.requested",
        "20240102030405678_20240102030406789.inflight",
        "20240102030405678_.commit",
        "x20240102030405678.commit",
        ".20240102030405678.commit.crc",
        "20240102030405678_20240102030406789.commit.0a1b2c3d-0000-0000-0000-000000000000",
        "٢٠٢٤.commit",
    ],
)
def test_name_that_is_no_instant_is_none(name: str) -> None:
    assert Instant.from_file_name(name) is None


def test_instants_order_by_time_then_action_then_state() -> None:
    later = InstantTime("20240102030405679")
    ordered = [
        _requested(Action.COMMIT),
        _inflight(Action.COMPACTION),  # Compares as a commit.
        _completed(Action.COMMIT),
        _requested(Action.DELTA_COMMIT),
        _requested(Action.CLUSTERING),  # Compares as a replace commit.
        Instant(later, Action.CLEAN, State.REQUESTED),
    ]
    mixed = [ordered[place] for place in (4, 2, 0, 5, 3, 1)]
    assert sorted(mixed, key=lambda instant: instant.order) == ordered


def test_time_in_milliseconds_comes_back_in_utc() -> None:
    assert instant_from_ms(1_704_164_645_678, "UTC") == "20240102030405678"
    assert instant_to_ms("20240102030405678", "UTC") == 1_704_164_645_678


def test_time_in_the_local_zone_follows_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert instant_from_ms(1_704_164_645_678, "LOCAL") == "20240102120405678"
        assert instant_to_ms("20240102120405678", "LOCAL") == 1_704_164_645_678
    finally:
        monkeypatch.undo()
        time.tzset()


def test_time_in_seconds_means_their_last_millisecond() -> None:
    assert instant_to_ms("20240102030405", "UTC") == 1_704_164_645_999


def test_bootstrap_instant_is_no_time() -> None:
    with pytest.raises(TimelineError, match="00000000000001"):
        instant_to_ms("00000000000001", "UTC")
