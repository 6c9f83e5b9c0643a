"""Data files as input: types come from the table, and what does not fit is named."""

from __future__ import annotations

import io
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.cli.data_files import read_input_file, write_file
from bucketlake.cli.output import rows_of
from bucketlake.errors import InputError, StorageError
from bucketlake.write.input_files.reading import Reading

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("pieces", pa.int32()),
        ("day", pa.date32()),
        ("placed_at", pa.timestamp("us", tz="UTC")),
        ("paid", pa.bool_()),
    ]
)
ROWS = [
    {
        "id": "007",
        "amount": Decimal("1.50"),
        "pieces": 3,
        "day": date(2013, 1, 31),
        "placed_at": datetime(2013, 1, 31, 10, 30, tzinfo=UTC),
        "paid": True,
    },
    {
        "id": "Łódź, ul. 1",
        "amount": None,
        "pieces": None,
        "day": None,
        "placed_at": None,
        "paid": None,
    },
]
READING = Reading()


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["orders.parquet", "orders.csv", "orders.jsonl"])
def test_rows_that_are_written_are_read_back_with_their_types(tmp_path: Path, name: str) -> None:
    rows = pa.Table.from_pylist(ROWS, SCHEMA)
    write_file(rows, tmp_path / name, None)
    assert read_input_file(tmp_path / name, SCHEMA, READING).equals(rows)


def test_a_csv_text_column_keeps_its_zeros_and_its_quoted_empty_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,pieces\n007,1\n"",2\n,3\n')
    assert read_input_file(path, SCHEMA, READING).to_pylist() == [
        {"id": "007", "pieces": 1},
        {"id": "", "pieces": 2},
        {"id": None, "pieces": 3},
    ]


def test_csv_null_values_are_those_that_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,pieces\nNA,NA\n")
    assert read_input_file(path, SCHEMA, Reading(null_values=("NA",)))["pieces"].to_pylist() == [
        None
    ]
    with pytest.raises(
        InputError,
        match=r"row 1, column pieces: 'NA' is no int; if it means null, .*--null-value NA|'NA'",
    ):
        read_input_file(path, SCHEMA, READING)


def test_columns_the_schema_does_not_know_keep_the_type_the_file_suggests(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,weight\n1,2.5\n")
    assert read_input_file(path, SCHEMA, READING).schema == pa.schema(
        [("id", pa.string()), ("weight", pa.float64())]
    )


def test_json_lines_give_the_columns_they_name_and_no_others(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"id": "1", "pieces": null}\n{"id": "2"}\n')
    assert read_input_file(path, SCHEMA, READING).to_pylist() == [
        {"id": "1", "pieces": None},
        {"id": "2", "pieces": None},
    ]


def test_a_value_that_does_not_fit_is_refused_with_its_file_and_column(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"id": "1", "pieces": 3}\n{"id": "1", "pieces": "x"}\n')
    problem = r'a\.jsonl, row 2, column pieces: "x" is a text, and no int'
    with pytest.raises(InputError, match=problem):
        read_input_file(path, SCHEMA, READING)


def test_a_number_that_does_not_fit_widens_its_column(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"pieces": 3000000000, "amount": 1}\n{"amount": 2.5}\n')
    assert read_input_file(path, SCHEMA, READING)["pieces"].to_pylist() == [3000000000, None]


def test_a_parquet_file_with_times_of_twelve_bytes_holds_any_year(tmp_path: Path) -> None:
    held = pa.table({"placed_at": pa.array([datetime(9999, 12, 31, tzinfo=UTC)])})
    pq.write_table(held, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    read = read_input_file(tmp_path / "a.parquet", SCHEMA, READING)
    assert read["placed_at"].to_pylist() == held["placed_at"].to_pylist()


def test_large_whole_numbers_in_json_lines_are_exact_or_refused(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    path = write(tmp_path, "a.jsonl", '{"n": 9007199254740993}\n{"n": 1e3}\n{"n": 7.0}\n')
    assert read_input_file(path, schema, READING)["n"].to_pylist() == [9007199254740993, 1000, 7]
    with pytest.raises(InputError, match=r"row 1, column n: '9007199254740993' is no double"):
        read_input_file(path, pa.schema([("n", pa.float64())]), READING)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.parquet", "id\n1\n", "cannot be read as parquet"),
        ("a.csv", "", "cannot be read as csv: the file is empty"),
        ("a.csv", "id,pieces\n1\n", "it has 1 values, and the file has 2 columns: 1"),
        ("a.csv", "id,id\n1,2\n", "column 'id' occurs twice"),
        ("a.jsonl", "id,pieces\n", "cannot be read as jsonl"),
        ("a.txt", "id\n1\n", "the ending '.txt' does not name a format"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(InputError, match=problem) as refused:
        read_input_file(path, SCHEMA, READING)
    assert refused.value.where.startswith(str(path))


def test_a_format_that_is_named_overrules_the_ending(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "id\n1\n")
    assert read_input_file(path, SCHEMA, Reading("csv")).to_pylist() == [{"id": "1"}]


def test_an_empty_file_of_json_lines_has_no_rows(tmp_path: Path) -> None:
    assert read_input_file(write(tmp_path, "a.jsonl", ""), SCHEMA, READING).num_rows == 0


def test_a_map_becomes_an_object_in_json_lines(tmp_path: Path) -> None:
    counts = pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int32()))
    write_file(pa.table({"counts": counts}), tmp_path / "a.jsonl", None)
    assert (tmp_path / "a.jsonl").read_text() == '{"counts": {"a": 1, "b": 2}}\n'


def test_a_failed_export_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = write(tmp_path, "a.csv", "old")
    with pytest.raises(Exception, match="list"):
        write_file(pa.table({"a": [[1]]}), target, None)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert target.read_text() == "old"


def test_an_export_into_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        write_file(pa.table({"a": [1]}), tmp_path / "no" / "a.csv", None)


def test_a_damaged_parquet_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [f"k{n}" for n in range(1000)]}), path)
    content = bytearray(path.read_bytes())
    for first in (4, len(content) - 60):  # Rows, and the footer.
        damaged = bytearray(content)
        damaged[first : first + 40] = b"\xff" * 40
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read as parquet"):
            read_input_file(path, SCHEMA, READING)


def test_an_export_replaces_no_pipe_and_no_link(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(StorageError, match="a pipe or a device"):
        write_file(rows, tmp_path / "pipe.csv", None)
    target = write(tmp_path, "real.csv", "old")
    target.chmod(0o600)
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_file(rows, tmp_path / "link.csv", None)
    assert (tmp_path / "link.csv").is_symlink()
    assert target.read_text() == '"a"\n1\n'
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_an_export_to_a_link_that_leads_to_itself_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to("b.csv")
    (tmp_path / "b.csv").symlink_to("a.csv")
    with pytest.raises(StorageError, match="a link to itself"):
        write_file(pa.table({"a": [1]}), tmp_path / "a.csv", None)
    assert (tmp_path / "a.csv").is_symlink()


def test_exports_to_one_file_do_not_mix_and_follow_no_planted_link(tmp_path: Path) -> None:
    victim = write(tmp_path, "victim", "untouched")
    (tmp_path / ".a.csv.unfinished").symlink_to("victim")
    tables = [pa.table({"a": [n] * 50_000}) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rows: write_file(rows, tmp_path / "a.csv", None), tables))
    assert len(set((tmp_path / "a.csv").read_text().splitlines())) == 2
    assert victim.read_text() == "untouched"
    assert len(list(tmp_path.iterdir())) == 3


def test_an_export_to_a_name_that_is_too_long_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="name too long"):
        write_file(pa.table({"a": [1]}), tmp_path / f"{'a' * 252}.csv", None)


ARRAY = b"""[ {"id": "a, ]}", "amount": 12345678.10},
  {"id": "b",
   "amount": null} ]
"""


def test_an_array_of_objects_is_read_like_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(ARRAY)
    expected = [
        {"id": "a, ]}", "amount": Decimal("12345678.10")},
        {"id": "b", "amount": None},
    ]
    assert read_input_file(path, SCHEMA, Reading()).to_pylist() == expected


@pytest.mark.parametrize("text", ["[1]", '[{"id": "a"}', '[{"id": "a"}] x', '[{"id": "a"},]'])
def test_a_broken_array_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(InputError, match="cannot be read as jsonl: no array of JSON objects"):
        read_input_file(path, SCHEMA, Reading())


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Let the standard input have bytes."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("form", ["json array", "json lines", "parquet", "csv"])
def test_the_standard_input_is_read_by_its_content_or_the_named_format(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    parquet = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}), parquet)
    data = {
        "json array": b' [{"id": "a"}]',
        "json lines": b'{"id": "a"}',
        "parquet": parquet.getvalue(),
        "csv": b"id\na\n",
    }[form]
    given(monkeypatch, data)
    reading = Reading("csv" if form == "csv" else None)
    assert read_input_file(Path("-"), SCHEMA, reading).to_pylist() == [{"id": "a"}]


def test_the_standard_input_of_an_unknown_format_needs_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(monkeypatch, b"id\na\n")
    with pytest.raises(InputError, match="name the format with --format: parquet, csv, jsonl"):
        read_input_file(Path("-"), SCHEMA, Reading())


def test_times_of_any_year_are_written_and_shown_right(tmp_path: Path) -> None:
    far = 2146877000000000000
    zoned = pa.array([far, -far, 0, None]).cast(pa.timestamp("us", "UTC"))
    plain, days = zoned.cast(pa.timestamp("us")), pa.array([24800000, None, 0, 1], pa.int32())
    nested = pa.StructArray.from_arrays([plain], ["t"])
    rows = pa.table({"z": zoned, "n": plain, "d": days.cast(pa.date32()), "s": nested})
    write_file(rows.drop_columns("s"), tmp_path / "rows.csv", None)
    first, second, third, last = (tmp_path / "rows.csv").read_text().splitlines()[1:]
    instant = "70001-10-28 10:13:20.000000"
    assert first == f'"{instant}Z","{instant}","69870-02-04"'
    assert second.startswith('"-66062-03-06 13:46:40.000000Z"')
    assert "1970-01-01" in third
    assert last.startswith(",,")
    shown = rows_of(rows)
    assert shown[0] == {"z": f"{instant}Z", "n": instant, "d": "69870-02-04", "s": {"t": instant}}
    assert shown[2]["z"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert shown[3]["s"] == {"t": None}
