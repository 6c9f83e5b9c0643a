"""What a command says, as text for people and as JSON for programs."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from bucketlake.cli import output
from bucketlake.cli.output import JsonOutput, Output, rows_of
from bucketlake.errors import BucketOutOfRangeError
from bucketlake.model.text_table import plain_value, render_table
from tests.bounds import set_bounds
from tests.waiting import wait_until


def test_a_table_aligns_names_to_the_left_and_numbers_to_the_right() -> None:
    rows = [{"city": "Łódź", "count": 7, "size_bytes": 1_234_567}, {"city": "東京", "count": 1200}]
    lines, hidden = render_table(rows, ["city", "count", "size_bytes"])
    assert lines == [
        "city  count  size_bytes",
        "----  -----  ----------",
        "Łódź      7      1.2 MB",
        "東京   1200        null",
    ]
    assert hidden == []


def test_a_table_without_rows_shows_its_columns() -> None:
    assert render_table([], ["a", "bc"])[0] == ["a  bc", "-  --"]


def test_columns_without_room_are_left_out_and_named() -> None:
    lines, hidden = render_table([{"a": 1, "b": "x" * 30, "c": 2}], ["a", "b", "c"], width_max=33)
    assert max(map(len, lines)) <= 33
    assert hidden == ["c"]


def test_data_cannot_break_the_line_or_speak_to_the_terminal() -> None:
    lines, _ = render_table([{"a": "one\ntwo\x1b[31m"}], ["a"])
    assert lines[2] == r"one\ntwo\x1b[31m"


def test_a_long_value_is_cut_with_a_mark() -> None:
    lines, _ = render_table([{"a": "x" * 200}], ["a"])
    assert lines[2] == "x" * 119 + "…"


def test_a_row_too_wide_for_the_terminal_is_shown_a_fact_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    Output().rows([{"key": "k" * 15, "path": "p" * 15}], ["key", "path"], row_count=1)
    assert capsys.readouterr().out.splitlines() == ["key   " + "k" * 15, "path  " + "p" * 15]


def test_facts_are_aligned_and_lists_of_facts_become_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output().facts(
        {"name": "orders", "key": ("a", "b"), "size_bytes": 10, "columns": [{"name": "a"}]}
    )
    assert capsys.readouterr().out.splitlines() == [
        "name        orders",
        "key         a, b",
        "size_bytes  10 B",
        "columns",
        "  name",
        "  ----",
        "  a",
    ]


def test_rows_that_are_left_out_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows([{"a": 1}], ["a"], row_count=2000)
    assert "1 of 2,000 rows" in capsys.readouterr().err


def test_json_rows_are_one_document_with_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().rows([{"a": float("nan"), "b": b"\x00"}], ["a", "b"], row_count=1)
    assert json.loads(capsys.readouterr().out) == {
        "row_count": 1,
        "columns": ["a", "b"],
        "rows": [{"a": "nan", "b": "AA=="}],
    }


def test_a_json_error_holds_its_kind_its_sentence_and_its_facts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    JsonOutput().error(BucketOutOfRangeError("00000007-0", 7, 4))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["error"] == {
        "type": "BucketOutOfRangeError",
        "message": "file group 00000007-0 names bucket 7 of 4; was the bucket count changed "
        "without a rescale? bucketlake doctor finds all such file groups",
        "file_id": "00000007-0",
        "bucket_id": 7,
        "bucket_count": 4,
        "believed": "the partition has 4 buckets",
        "held": "file group 00000007-0 names bucket 7",
        "next_step": "was the bucket count changed without a rescale? bucketlake doctor finds all "
        "such file groups",
    }


def test_an_error_of_several_lines_is_said_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    Output().error(ValueError("one\n  two"))
    assert capsys.readouterr().err == "Error: one two\n"


@pytest.mark.parametrize("make", ["plain", "list", "struct", "map"])
def test_times_after_the_last_of_python_are_text_wherever_they_are_nested(make: str) -> None:
    late = pa.array([300_000_000_000_000_000], pa.timestamp("us"))  # The year 11476.
    column = {
        "plain": late,
        "list": pa.ListArray.from_arrays([0, 1], late),
        "struct": pa.StructArray.from_arrays([late], ["at"]),
        "map": pa.MapArray.from_arrays([0, 1], pa.array(["at"]), late),
    }[make]
    [row] = rows_of(pa.table({"x": column, "n": [1]}))
    text = "11476-08-15 05:20:00.000000"
    assert row["x"] == {"plain": text, "list": [text]}.get(make, {"at": text})
    assert row["n"] == 1


def test_values_become_what_json_can_hold() -> None:
    value = {"at": datetime(2013, 1, 1, tzinfo=UTC), "day": date(2013, 1, 1), "x": Decimal("1.50")}
    assert plain_value(value) == {
        "at": "2013-01-01T00:00:00+00:00",
        "day": "2013-01-01",
        "x": "1.50",
    }


@pytest.mark.parametrize("face", [Output(), JsonOutput()])
def test_long_work_says_so_and_short_work_is_silent(
    face: output.Output, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with face.progress("upserting"):
        pass
    assert capsys.readouterr().err == ""
    set_bounds(monkeypatch, output, _PROGRESS_AFTER_SECONDS=0.01)
    said: list[str] = []

    def has_said() -> bool:
        said.append(capsys.readouterr().err)
        return any(said)

    with face.progress("upserting"):
        wait_until(has_said)
    lines = "".join([*said, capsys.readouterr().err]).splitlines()
    assert len(lines) == 2  # That it goes on, and that it is done.
    assert all("upserting" in line for line in lines)
    if isinstance(face, JsonOutput):
        assert [json.loads(line)["done"] for line in lines] == [False, True]
