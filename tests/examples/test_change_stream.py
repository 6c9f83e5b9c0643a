"""The change stream: whole, deterministic, disorderly; and its expected state is the right one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from change_stream import (
    IS_DELETED,
    LATE_DAYS_MAX,
    Events,
    Kind,
    batches,
    count_periods,
    cut,
    expected_state,
    make_events,
)
from flight_data import FLIGHT_KEY


@pytest.fixture(scope="module")
def events(flights: pa.Table) -> Events:
    return make_events(flights)


@pytest.fixture(scope="module")
def real(flights: pa.Table) -> dict[tuple[Any, ...], Any]:
    return by_key(flights)


@pytest.fixture(scope="module")
def final(flights: pa.Table, events: Events) -> dict[tuple[Any, ...], Any]:
    return by_key(expected_state(flights, events))


def replay(flights: pa.Table, events: Events, period_days: int) -> dict[tuple[Any, ...], Any]:
    """Row by row and batch by batch, into a dict: the slow way to the final state."""
    state: dict[tuple[Any, ...], Any] = {}
    for batch in batches(flights, events, period_days):
        for row in sorted(batch.changes.to_pylist(), key=lambda row: row["updated_at"]):
            key = tuple(row[name] for name in FLIGHT_KEY)
            is_deleted = row.pop(IS_DELETED)
            if key not in state or state[key]["updated_at"] <= row["updated_at"]:
                if is_deleted:
                    state.pop(key, None)
                else:
                    state[key] = row
    return state


def by_key(table: pa.Table) -> dict[tuple[Any, ...], Any]:
    return {tuple(row[name] for name in FLIGHT_KEY): row for row in table.to_pylist()}


def test_one_seed_gives_one_stream_and_another_seed_another(
    flights: pa.Table, events: Events
) -> None:
    again, other = make_events(flights), make_events(flights, seed=7)
    for name in ("flight", "kind", "happened_at", "received_at"):
        assert np.array_equal(getattr(again, name), getattr(events, name)), name
    assert len(other) != len(events)


def test_events_come_in_order_of_receipt_and_never_before_they_happen(events: Events) -> None:
    assert (np.diff(events.received_at) >= np.timedelta64(0)).all()
    delay = events.received_at - events.happened_at
    assert delay.min() == np.timedelta64(0)
    assert delay.max() <= 2 * np.timedelta64(LATE_DAYS_MAX, "D")


def test_every_flight_is_scheduled_and_ends_in_a_final_state_or_is_gone(
    flights: pa.Table, events: Events, real: dict[Any, Any], final: dict[Any, Any]
) -> None:
    scheduled = events.flight[events.kind == Kind.SCHEDULED]
    assert np.array_equal(np.unique(scheduled), np.arange(flights.num_rows))
    assert {row["status"] for row in final.values()} == {"arrived", "diverted", "cancelled"}
    gone = real.keys() - final.keys()
    assert gone
    assert gone < {key for key, row in real.items() if row["actual_departure"] is None}


def test_the_final_state_holds_the_real_flights_unchanged(
    real: dict[Any, Any], final: dict[Any, Any]
) -> None:
    arrived = {key: row for key, row in final.items() if row["status"] == "arrived"}
    assert len(arrived) > len(final) * 0.9
    for key, row in arrived.items():
        assert {name: row[name] for name in real[key]} == real[key]


def test_some_events_are_overtaken_by_later_ones(events: Events) -> None:
    newest = np.full(events.flight.max() + 1, np.datetime64(0, "us"))
    overtaken = 0
    for flight, happened_at in zip(events.flight, events.happened_at, strict=True):
        overtaken += newest[flight] > happened_at
        newest[flight] = max(newest[flight], happened_at)
    assert overtaken > len(events) / 100


def test_some_events_are_sent_twice(events: Events) -> None:
    sent = np.stack([events.flight, events.kind, events.happened_at.astype(np.int64)])
    assert len(events) * 0.02 < len(events) - np.unique(sent, axis=1).shape[1] < len(events) * 0.04


def test_some_withdrawn_flights_are_reinstated(events: Events) -> None:
    withdrawn = set(events.flight[events.kind == Kind.WITHDRAWN].tolist())
    reinstated = set(events.flight[events.kind == Kind.REINSTATED].tolist())
    assert reinstated
    assert reinstated < withdrawn


@pytest.mark.parametrize("period_days", [1, 7])
def test_replaying_the_batches_row_by_row_gives_the_expected_state(
    flights: pa.Table, events: Events, period_days: int
) -> None:
    short = cut(events, days=14)
    assert replay(flights, short, period_days) == by_key(expected_state(flights, short))


def test_a_cut_stream_is_the_first_batches_of_the_whole(flights: pa.Table, events: Events) -> None:
    short = list(batches(flights, cut(events, days=14), 7))
    whole = list(batches(flights, events, 7))
    assert (len(short), len(whole)) == (2, count_periods(events, 7))
    assert [batch.changes for batch in short] == [batch.changes for batch in whole[:2]]


def test_every_event_is_a_row_of_one_batch_and_withdrawals_delete(
    flights: pa.Table, events: Events
) -> None:
    rows = pa.concat_tables(batch.changes for batch in batches(flights, events, 7))
    assert rows.num_rows == len(events)
    deleted = rows[IS_DELETED].to_numpy()
    assert np.array_equal(deleted, events.kind == Kind.WITHDRAWN)
    assert deleted.sum() > 50
