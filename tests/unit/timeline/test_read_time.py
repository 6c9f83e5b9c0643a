"""The times of reads, in all forms in which callers give them."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from bucketlake.errors import ConfigError
from bucketlake.timeline.read_time import read_time

EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("given", "instant"),
    [
        ("20240102030405678", "20240102030405678"),
        ("20240102030405", "20240102030405"),
        ("2024-01-02", "20240102000000000"),
        ("2024-01-02 03:04:05", "20240102030405000"),
        ("2024-01-02 03:04:05.678", "20240102030405678"),
        ("2024-01-02T03:04:05", "20240102030405000"),
        ("2024-01-02T03:04:05.5", "20240102030405500"),
        ("2024-01-02T03:04:05.678999999", "20240102030405678"),
        ("2024-01-02T03:04:05Z", "20240102030405000"),
        ("2024-01-02T01:04:05.678+02:00", "20240101230405678"),
        ("2024-01-02 23:04:05-05:30", "20240103043405000"),
        (datetime(2024, 1, 2, 3, 4, 5, 678_999), "20240102030405678"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "20240102030405000"),
        (datetime(2024, 1, 2, 1, 4, 5, tzinfo=EAST), "20240101230405000"),
        (date(2024, 1, 2), "20240102000000000"),
        (datetime(1, 1, 1), "00010101000000000"),
        ("00000000000000", "00000000000000"),
        ("00000000000000010", "00000000000000010"),
    ],
)
def test_time_of_a_read_becomes_the_digits_of_an_instant(given: Any, instant: str) -> None:
    assert read_time(given) == instant


@pytest.mark.parametrize(
    "given",
    [
        "",
        "yesterday",
        "2024",
        "20240102",
        "2024010203040567",
        "202401020304056789",
        "2024-1-2",
        "2024-13-01",
        "2024-02-30",
        "2024-01-02T",
        "2024-01-02T03:04",
        "2024-01-02Z",
        "2024-01-02T03:04:05+0200",
        "2024-01-02 25:00:00",
        "9999-12-31T23:59:59-12:00",
        "20241302030405",
        " 20240102030405",
        "２０２４０１０２０３０４０５",
        20240102030405,
        1.5,
        b"2024-01-02",
        ["2024-01-02"],
        datetime.min.replace(tzinfo=EAST),
    ],
)
def test_what_names_no_time_is_refused_with_the_forms_that_do(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"since = .*yyyy-MM-dd HH:mm:ss"):
        read_time(given, "since")


def test_zone_counts_from_the_zone_of_a_local_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read_time("2024-01-02T03:04:05Z", timezone="LOCAL") == "20240102120405000"
        assert read_time("2024-01-02T03:04:05", timezone="LOCAL") == "20240102030405000"
    finally:
        monkeypatch.undo()
        time.tzset()
