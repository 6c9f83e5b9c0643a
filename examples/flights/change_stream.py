"""The flights of 2013 as the change stream that an airline feed has: vectorised, from one seed.

Each flight is *scheduled* (one to seven days ahead), then *departed*, then *arrived* or *diverted*;
or it is *cancelled*; or it is *withdrawn* from the schedule before departure, and some withdrawn
flights are *reinstated* and fly after all. Plans, times, delays and cancellations are those of the
real data; which flights are withdrawn, and how the feed misbehaves, is drawn from a seed:

- some events come late, up to ten days, and so after events that happened later;
- some events are sent twice;
- the flights that the feed withdraws are spared both: a row that is gone cannot tell that an older
  event came in after it.

A batch holds what came in during one day or one week. `expected_state` says what a table must hold
at the end; it looks at the stream as a whole and knows nothing of batches, tables, or bucketlake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flight_data import FLIGHT_KEY, TIMESTAMP

MICROS_PER_DAY = 24 * 60 * 60 * 1_000_000
LATE_DAYS_MAX = 10
IS_DELETED = "_hoodie_is_deleted"
"""Hudi's column for deletes in a stream of rows."""
SCHEDULED_DAYS_AHEAD_MAX = 7

_HOUR = np.timedelta64(3600 * 1_000_000, "us")
_DAY = 24 * _HOUR


class Kind(IntEnum):
    """What happened to a flight."""

    SCHEDULED = 0
    WITHDRAWN = 1  # A delete: the flight is gone from the schedule.
    REINSTATED = 2  # Back on the schedule, and scheduled again.
    DEPARTED = 3
    ARRIVED = 4
    DIVERTED = 5
    CANCELLED = 6


_STATUS = pa.array(
    ["scheduled", None, "scheduled", "departed", "arrived", "diverted", "cancelled"], pa.string()
)
_HAS_DEPARTED = (Kind.DEPARTED, Kind.ARRIVED, Kind.DIVERTED)


@dataclass(frozen=True, slots=True)
class Rates:
    """How often things go wrong, as shares of one."""

    withdrawn_of_cancelled: float = 0.4  # Real cancellations that the feed reports as a withdrawal.
    reinstated_of_flown: float = 0.005  # Flights withdrawn first, that flew after all.
    late: float = 0.04
    repeated: float = 0.03


@dataclass(frozen=True, slots=True)
class Events:
    """The stream, in the order in which events came in; one array element an event."""

    flight: np.ndarray  # Row of the flight in the table of flights.
    kind: np.ndarray
    happened_at: np.ndarray  # datetime64[us], the ordering value of the event.
    received_at: np.ndarray  # datetime64[us], never before it happened.

    def __len__(self) -> int:
        return len(self.flight)

    def take(self, selection: np.ndarray) -> Events:
        """Return the events that a mask or an array of positions selects."""
        columns = (self.flight, self.kind, self.happened_at, self.received_at)
        return Events(*(column[selection] for column in columns))


@dataclass(frozen=True, slots=True)
class Batch:
    """What came in during one period, ready for a table."""

    start: np.datetime64
    changes: pa.Table  # A row for each event; `IS_DELETED` says which of them are withdrawals.


def make_events(flights: pa.Table, *, seed: int = 2013, rates: Rates = Rates()) -> Events:
    """Draw the change stream of a table of flights.

    Parameters
    ----------
    flights : pyarrow.Table
        As `flight_data.read_flights` gives it, or some of its rows.
    seed : int
        The same seed gives the same stream.
    rates : Rates
        How often events are late, repeated, and so on.

    Returns
    -------
    Events
        Sorted by the time at which the feed sent them.
    """
    random = np.random.default_rng(seed)
    withdrawn, reinstated = _draw_withdrawn(flights, rates, random)
    lead_days = _draw_lead_days(withdrawn, random)
    events = _concat(_lives(flights, withdrawn, reinstated, lead_days))
    return _misbehave(events, withdrawn[events.flight], rates, random)


def cut(events: Events, days: int) -> Events:
    """Return the events that came in during the first days of the stream."""
    return events.take(_period(events, 1) < days)


def count_periods(events: Events, period_days: int) -> int:
    """Return how many batches `batches` gives."""
    return len(np.unique(_period(events, period_days)))


def batches(flights: pa.Table, events: Events, period_days: int) -> Iterator[Batch]:
    """Yield the stream as batches of so many days.

    A batch has a row for each event. Of the rows with one key, the table keeps the one with the
    greatest `updated_at`; if that is a withdrawal, the flight is deleted.
    """
    period = _period(events, period_days)
    bounds = np.flatnonzero(np.diff(period, prepend=-1, append=period[-1] + 1))
    for start, stop in pairwise(bounds):
        part = events.take(np.arange(start, stop))
        rows = render_rows(flights, part)
        withdrawn = pa.array(part.kind == Kind.WITHDRAWN)
        day = events.received_at[0].astype("datetime64[D]") + int(period[start]) * period_days
        yield Batch(day, rows.append_column(IS_DELETED, withdrawn))


def expected_state(flights: pa.Table, events: Events) -> pa.Table:
    """Say what a table must hold after the stream: one row for each flight not withdrawn.

    Of a flight's events since its last withdrawal the one that happened last wins.
    """
    position = np.arange(len(events))
    last_withdrawal = np.full(flights.num_rows, -1)
    withdrawal = events.kind == Kind.WITHDRAWN
    np.maximum.at(last_withdrawal, events.flight[withdrawal], position[withdrawal])
    alive = events.take(position > last_withdrawal[events.flight])
    alive = alive.take(np.lexsort((alive.happened_at, alive.flight)))
    is_last = np.append(alive.flight[1:] != alive.flight[:-1], True)
    return render_rows(flights, alive.take(is_last))


def render_rows(flights: pa.Table, events: Events) -> pa.Table:
    """Turn events into full rows: what was known of the flight just after each event."""
    rows = flights.take(pa.array(events.flight))
    departed = pa.array(np.isin(events.kind, _HAS_DEPARTED))
    arrived = pa.array(events.kind == Kind.ARRIVED)
    known_when = {
        "tail_number": departed,
        "actual_departure": departed,
        "departure_delay_minutes": departed,
        "actual_arrival": arrived,
        "arrival_delay_minutes": arrived,
        "air_time_minutes": arrived,
    }
    for name, known in known_when.items():
        column = pc.if_else(known, rows[name], pa.scalar(None, rows[name].type))
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    rows = rows.append_column("status", _STATUS.take(pa.array(events.kind)))
    return rows.append_column("updated_at", pa.array(events.happened_at, TIMESTAMP))


def render_keys(flights: pa.Table, events: Events) -> pa.Table:
    """Return the keys of the flights that events speak of, each once."""
    return flights.select(FLIGHT_KEY).take(pa.array(np.unique(events.flight)))


def _draw_withdrawn(
    flights: pa.Table, rates: Rates, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the flights that are withdrawn, and those of them that come back."""
    chance = random.random(flights.num_rows)
    flown = flights["actual_departure"].is_valid().to_numpy()
    reinstated = flown & (chance < rates.reinstated_of_flown)
    return reinstated | (~flown & (chance < rates.withdrawn_of_cancelled)), reinstated


def _draw_lead_days(withdrawn: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Choose how long ahead a flight is scheduled: mostly a day; if it is withdrawn, longer."""
    planned_early = withdrawn | (random.random(len(withdrawn)) < 0.25)
    days = random.integers(2, SCHEDULED_DAYS_AHEAD_MAX, len(withdrawn), endpoint=True)
    return np.where(planned_early, days, 1)


def _lives(
    flights: pa.Table, withdrawn: np.ndarray, reinstated: np.ndarray, lead_days: np.ndarray
) -> Iterator[Events]:
    """Yield the events of all flights, one kind at a time, as a well-behaved feed sends them."""
    planned = flights["planned_departure"].to_numpy()
    departure = flights["actual_departure"]
    arrival = flights["actual_arrival"]
    flown, landed = departure.is_valid().to_numpy(), arrival.is_valid().to_numpy()
    diverted = flown & ~landed
    lead = lead_days * _DAY
    yield _of(Kind.SCHEDULED, np.ones_like(flown), planned - lead)
    yield _of(Kind.WITHDRAWN, withdrawn, planned - lead // 2)
    yield _of(Kind.REINSTATED, reinstated, planned - lead // 4)
    yield _of(Kind.DEPARTED, flown, departure.to_numpy())
    yield _of(Kind.ARRIVED, landed, arrival.to_numpy())
    yield _of(Kind.DIVERTED, diverted, departure.to_numpy() + 8 * _HOUR)
    yield _of(Kind.CANCELLED, ~flown & ~withdrawn, planned - 2 * _HOUR)


def _of(kind: Kind, concerned: np.ndarray, happened_at: np.ndarray) -> Events:
    flight = np.flatnonzero(concerned)
    happened_at = happened_at[flight].astype("datetime64[us]")
    return Events(flight, np.full(len(flight), int(kind), np.int8), happened_at, happened_at)


def _misbehave(
    events: Events, spared: np.ndarray, rates: Rates, random: np.random.Generator
) -> Events:
    """Delay some events, repeat some, and sort all by the time at which they came in."""
    received_at = events.received_at + np.where(
        ~spared & (random.random(len(events)) < rates.late), _draw_delay(len(events), random), 0
    )
    events = Events(events.flight, events.kind, events.happened_at, received_at)
    again = events.take(~spared & (random.random(len(events)) < rates.repeated))
    received_again = again.received_at + _draw_delay(len(again), random)
    events = _concat([events, Events(again.flight, again.kind, again.happened_at, received_again)])
    return events.take(np.lexsort((events.flight, events.happened_at, events.received_at)))


def _draw_delay(count: int, random: np.random.Generator) -> np.ndarray:
    """Draw times up to ten days, most of them short."""
    share = random.random(count) ** 2
    return (share * (LATE_DAYS_MAX * MICROS_PER_DAY - 1)).astype("timedelta64[us]") + 1


def _concat(parts: Iterator[Events] | list[Events]) -> Events:
    rows = [(part.flight, part.kind, part.happened_at, part.received_at) for part in parts]
    return Events(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def _period(events: Events, period_days: int) -> np.ndarray:
    """Return the day, week, ... of the stream in which each event came in, counted from 0."""
    day = events.received_at.astype("datetime64[D]")
    return (day - day[0]).astype(np.int64) // period_days
