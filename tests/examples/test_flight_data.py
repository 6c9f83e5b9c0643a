"""The flights of 2013: is the key a key, and do the times fit together?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flight_data import FLIGHT_KEY


def test_the_key_names_every_flight_of_the_year_once(year_of_flights: pa.Table) -> None:
    distinct = year_of_flights.group_by(list(FLIGHT_KEY)).aggregate([])
    assert (year_of_flights.num_rows, distinct.num_rows) == (336_776, 336_776)


def test_the_key_needs_its_airport(year_of_flights: pa.Table) -> None:
    shorter = [name for name in FLIGHT_KEY if name != "origin"]
    assert year_of_flights.group_by(shorter).aggregate([]).num_rows == 336_776 - 24


def test_what_never_happened_is_null(year_of_flights: pa.Table) -> None:
    nulls = {name: year_of_flights[name].null_count for name in year_of_flights.column_names}
    assert {name: count for name, count in nulls.items() if count} == {
        "tail_number": 2_512,
        "actual_departure": 8_255,
        "departure_delay_minutes": 8_255,
        "actual_arrival": 9_430,
        "arrival_delay_minutes": 9_430,
        "air_time_minutes": 9_430,
    }


def test_planned_flights_last_between_fifty_minutes_and_twelve_hours(
    year_of_flights: pa.Table,
) -> None:
    planned = pc.subtract(year_of_flights["planned_arrival"], year_of_flights["planned_departure"])
    minutes = planned.to_numpy() / np.timedelta64(1, "m")
    assert (minutes.min(), minutes.max()) == (50, 700)


def test_a_landed_flight_took_its_air_time_and_some_taxiing(year_of_flights: pa.Table) -> None:
    landed = year_of_flights.filter(year_of_flights["air_time_minutes"].is_valid())
    took = pc.subtract(landed["actual_arrival"], landed["actual_departure"]).to_numpy()
    taxiing = took / np.timedelta64(1, "m") - landed["air_time_minutes"].to_numpy()
    assert taxiing.min() >= 5
    assert taxiing.max() < 4 * 60
