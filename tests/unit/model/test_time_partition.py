"""Times as partition values: zones, units, and the settings and values that are refused.

What real Hudi makes of a hundred settings is in ``tests/golden/test_keys.py``.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.keys import TimestampPartition
from bucketlake.model.time_partition import check_timestamp_partition, time_texts

WHERE = "partition column 'ts'"
SECONDS = TimestampPartition("UNIX_TIMESTAMP", "yyyy-MM-dd HH:mm")
TEXT = TimestampPartition(
    "DATE_STRING", "yyyy-MM-dd HH:mm", input_formats=("yyyy-MM-dd HH:mm:ss", "yyyy-MM-ddZ")
)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC"]
)
def test_every_hour_of_two_years_is_shown_on_the_clock_of_the_zone(zone: str) -> None:
    start = datetime(2023, 12, 31, 0, 15, tzinfo=UTC)
    times = [start + timedelta(hours=i) for i in range(2 * 366 * 24)]
    seconds = pa.array([int(time.timestamp()) for time in times])
    expected = [time.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M") for time in times]
    found = time_texts(seconds, replace(SECONDS, output_timezone=zone), WHERE)
    assert found.to_pylist() == expected


def test_local_mean_time_that_changes_off_the_quarter_hour_is_exact() -> None:
    # New York went from -4:56:02 to -5:00 at 12:03:58 local time on 1883-11-18.
    change = int(datetime(1883, 11, 18, 17, tzinfo=UTC).timestamp())
    setting = replace(SECONDS, output_format="HH:mm:ss", output_timezone="America/New_York")
    found = time_texts(pa.array([change - 1, change, change + 1]), setting, WHERE)
    assert found.to_pylist() == ["12:03:57", "12:00:00", "12:00:01"]


def test_a_column_of_timestamps_is_taken_in_microseconds_whatever_its_unit() -> None:
    setting = TimestampPartition("EPOCHMICROSECONDS", "yyyy/MM/dd/HH")
    time = datetime(2024, 5, 6, 7, 8, 9)
    for data_type in (pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ns")):
        column = pa.array([time, None], data_type)
        assert time_texts(column, setting, WHERE).to_pylist() == ["2024/05/06/07", "1970/01/01/00"]


def test_a_column_of_dates_is_taken_in_days() -> None:
    setting = TimestampPartition("SCALAR", "yyyy/MM", scalar_unit="days")
    for data_type in (pa.date32(), pa.date64()):
        column = pa.chunked_array([pa.array([date(2024, 5, 6)], data_type)])
        assert time_texts(column, setting, WHERE).to_pylist() == ["2024/05"]


def test_text_is_read_by_the_first_pattern_that_fits() -> None:
    column = pa.array(["2024-01-02 03:04:05", "2024-01-02+01:00", None]).dictionary_encode()
    assert time_texts(column, TEXT, WHERE).to_pylist() == [
        "2024-01-02 03:04",
        "2024-01-02 00:00",
        "1970-01-01 00:00",
    ]
    in_tokyo = replace(TEXT, output_timezone="Asia/Tokyo")
    assert time_texts(column, in_tokyo, WHERE).to_pylist()[:2] == [
        "2024-01-02 12:04",
        "2024-01-02 08:00",
    ]


def test_of_two_equal_local_times_the_first_counts() -> None:
    setting = replace(TEXT, input_timezone="Europe/Berlin", output_timezone="UTC")
    column = pa.array(["2024-10-27 02:30:00"])
    assert time_texts(column, setting, WHERE).to_pylist() == ["2024-10-27 00:30"]


def test_a_local_time_that_clocks_skipped_is_refused() -> None:
    setting = replace(TEXT, input_timezone="Europe/Berlin")
    column = pa.array(["2024-03-31 01:59:59", "2024-03-31 02:30:00"])
    with pytest.raises(InputError, match=r"2024-03-31 02:30:00 does not exist in Europe/Berlin"):
        time_texts(column, setting, WHERE)


@pytest.mark.parametrize("zone", ["GMT+8:00", "GMT+8", "GMT+0800", "GMT+08:00"])
def test_offsets_are_zones_as_java_writes_them(zone: str) -> None:
    found = time_texts(pa.array([0]), replace(SECONDS, output_timezone=zone), WHERE)
    assert found.to_pylist() == ["1970-01-01 08:00"]


@pytest.mark.parametrize("zone", ["Nowhere/Land", "UTC+8", "+08:00", "../etc", "GMT+99", "Europe"])
def test_a_zone_that_is_not_known_is_refused_and_not_taken_for_utc(zone: str) -> None:
    with pytest.raises(ConfigError, match="use a name of the tz database"):
        time_texts(pa.array([0]), replace(SECONDS, output_timezone=zone), WHERE)


@pytest.mark.parametrize("seconds", [2**40, -(2**40), 2**63 - 1, -(2**63)])
def test_a_number_beyond_the_year_9999_is_refused_with_the_number(seconds: int) -> None:
    with pytest.raises(InputError, match=f"{seconds} is no time of the years 1 to 9999"):
        time_texts(pa.array([0, seconds]), SECONDS, WHERE)


def test_the_first_and_last_second_of_the_known_years_are_written() -> None:
    column = pa.array([-62_135_596_800, 253_402_300_799])
    assert time_texts(column, SECONDS, WHERE).to_pylist() == [
        "0001-01-01 00:00",
        "9999-12-31 23:59",
    ]
    for zone in ("America/New_York", "Asia/Tokyo"):
        with pytest.raises(InputError, match="years 1 to 9999"):
            time_texts(column, replace(SECONDS, output_timezone=zone), WHERE)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_no_count_is_refused(number: float) -> None:
    with pytest.raises(InputError, match="a value is not a time"):
        time_texts(pa.array([number]), SECONDS, WHERE)


@pytest.mark.parametrize(
    ("column", "setting", "allowed"),
    [
        (pa.array([0], pa.timestamp("us")), SECONDS, "use EPOCHMICROSECONDS"),
        (pa.array([0], pa.date32()), SECONDS, "use SCALAR with unit DAYS"),
        (pa.array([True]), SECONDS, "does not fit"),
        (pa.array([0]), TEXT, "does not fit"),
        (pa.array(["2024"]), SECONDS, "give the pattern"),
    ],
)
def test_a_column_of_a_type_that_does_not_fit_the_setting_is_refused(
    column: pa.Array, setting: TimestampPartition, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=allowed):
        time_texts(column, setting, WHERE)


@pytest.mark.parametrize(
    "setting",
    [
        replace(SECONDS, timestamp_type="EPOCH"),
        replace(SECONDS, scalar_unit="WEEKS"),
        replace(SECONDS, output_format="EEE"),
        replace(SECONDS, output_timezone="Mars"),
        replace(TEXT, input_timezone="Mars"),
        replace(TEXT, input_formats=("yy",)),
    ],
)
def test_a_setting_that_cannot_be_written_by_is_refused_before_any_data(
    setting: TimestampPartition,
) -> None:
    with pytest.raises(ConfigError):
        check_timestamp_partition(setting)


def test_a_setting_that_can_be_written_by_passes() -> None:
    check_timestamp_partition(SECONDS)
    check_timestamp_partition(TEXT)
