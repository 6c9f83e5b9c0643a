"""Patterns of times: what is written, what is read, what is refused by name."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError
from bucketlake.model.time_partition import (
    format_times,
    input_unit_ms,
    parse_times,
    says_offset,
)


def _ms(text: str) -> int:
    return round((datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds() * 1000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy/MM/dd", "2024/12/30"),
        ("xxxx-'W'ww-e", "2025-W01-1"),
        ("yy.M.d", "24.12.30"),
        ("yyyyDDD", "2024365"),
        ("HH:mm:ss.SSS", "15:04:05.006"),
        ("h K k H", "3 3 15 15"),
        ("S SS SSSS", "0 00 0060"),
        ("''yyyy''", "'2024'"),
        ("'o''clock' HH", "o'clock 15"),
        ("'hour='HH", "hour=15"),
        ("yyyyyy", "002024"),
    ],
)
def test_a_time_is_written_by_a_pattern(pattern: str, text: str) -> None:
    time_ms = np.array([_ms("2024-12-30T15:04:05.006")])
    assert format_times(pattern, time_ms).to_pylist() == [text]


def test_midnight_and_noon_have_the_hours_of_each_letter() -> None:
    times = np.array([_ms("2024-01-01T00:30:00"), _ms("2024-01-01T12:30:00")])
    assert format_times("H k K h", times).to_pylist() == ["0 24 0 12", "12 12 0 12"]


def test_each_distinct_text_is_made_once() -> None:
    times = np.array([_ms("2024-01-01T00:00:00") + i * 1000 for i in range(7200)])
    encoded = format_times("yyyy/MM/dd/HH", times)
    assert encoded.dictionary.to_pylist() == ["2024/01/01/00", "2024/01/01/01"]


def test_times_before_1970_are_floored_to_the_unit_of_the_pattern() -> None:
    assert format_times("yyyy-MM-dd HH", np.array([-1])).to_pylist() == ["1969-12-31 23"]


@pytest.mark.parametrize("pattern", ["MMM", "EEE", "a", "z", "Z", "G", "C", "Q", "yyyy-MMMM"])
def test_a_letter_that_is_not_served_in_output_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ConfigError, match=f"'{pattern.rpartition('-')[2]}' is not supported"):
        format_times(pattern, np.array([0]))


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(ConfigError, match="a quote is not closed"):
        format_times("yyyy'x", np.array([0]))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd", "2024-02-29", "2024-02-29T00:00:00"),
        ("yyyy-MM-dd", "2024-2-9", "2024-02-09T00:00:00"),
        ("yyyyMMddHHmmss", "20240229235958", "2024-02-29T23:59:58"),
        ("dd.MM.yyyy", "09.02.2024", "2024-02-09T00:00:00"),
        ("yyyy", "2024", "2024-01-01T00:00:00"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-02-29T23:59:58.123", "2024-02-29T23:59:58.123"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSS", "2024-02-29 23:59:58.5", "2024-02-29T23:59:58.500"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSS", "2024-02-29 23:59:58.999999", "2024-02-29T23:59:58.999"),
        ("yyyy-MM-dd'T'HH:mmZ", "2024-02-29T23:59+05:30", "2024-02-29T23:59:00"),
    ],
)
def test_a_time_is_read_by_a_pattern(pattern: str, text: str, expected: str) -> None:
    parsed = parse_times(pattern, pa.array([text]))
    assert parsed.is_valid.tolist() == [True]
    assert parsed.local_ms.tolist() == [_ms(expected)]


@pytest.mark.parametrize(
    ("text", "hours"),
    [("Z", 0), ("+00:00", 0), ("+0530", 5.5), ("-05:00", -5), ("+02", 2), ("-0030", -0.5)],
)
def test_an_offset_is_read_in_all_its_forms(text: str, hours: float) -> None:
    parsed = parse_times("yyyyZ", pa.array([f"2024{text}"]))
    assert (parsed.has_offset.tolist(), parsed.is_valid.tolist()) == ([True], [True])
    assert parsed.offset_ms.tolist() == [hours * 3_600_000]


@pytest.mark.parametrize(
    "text",
    ["", "2024-02-30", "2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "0000-01-01",
     "2024-01-01 ", " 2024-01-01", "2024-01-01T00", "2024/01/01", "20240-01-01", "2024-01-٠١"],
)  # fmt: skip
def test_text_that_is_no_time_of_the_pattern_is_not_valid(text: str) -> None:
    parsed = parse_times("yyyy-MM-dd", pa.array([text, "2024-01-01", None]))
    assert parsed.is_valid.tolist() == [False, True, False]


@pytest.mark.parametrize("text", ["202401", "2024 0101", "202401011"])
def test_digits_that_follow_one_another_are_told_apart_by_their_number(text: str) -> None:
    assert parse_times("yyyyMMdd", pa.array([text])).is_valid.tolist() == [False]


@pytest.mark.parametrize("text", ["24:00:00", "00:60:00", "00:00:60"])
def test_a_time_of_day_that_does_not_exist_is_not_valid(text: str) -> None:
    parsed = parse_times("yyyy HH:mm:ss", pa.array([f"2024 {text}"]))
    assert parsed.is_valid.tolist() == [False]


@pytest.mark.parametrize("pattern", ["yy", "yyyy MMM", "yyyy a", "yyyy hh", "yyyy yyyy", "yyyy e"])
def test_a_letter_that_is_not_served_in_input_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is not supported"):
        parse_times(pattern, pa.array(["2024"]))


def test_an_input_pattern_without_a_year_is_refused() -> None:
    with pytest.raises(ConfigError, match="add the year"):
        parse_times("MM-dd", pa.array(["01-01"]))


def test_an_input_pattern_tells_its_unit_and_whether_it_reads_an_offset() -> None:
    assert input_unit_ms("yyyy-MM-dd") == 86_400_000
    assert input_unit_ms("yyyy-MM-dd HH:mm:ssZ") == 1000
    assert (says_offset("yyyy'Z'"), says_offset("yyyyZ")) == (False, True)
