"""Every command on a real table in a folder: what it does, says, and returns to the shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.index.stored_setting import SETTING_FILE
from bucketlake.model.text_table import render_table
from bucketlake.storage.location import open_storage
from tests.spies import breaks

FLIGHTS_CSV = """\
day,carrier,flight,origin,delay,status,updated_at
2013-01-01,UA,1545,EWR,2,arrived,2013-01-01T14:30:00Z
2013-01-01,AA,1141,JFK,,cancelled,2013-01-01T08:00:00Z
2013-01-02,B6,725,JFK,-1,arrived,2013-01-02T15:00:00Z
"""
SCHEMA = (
    "day:date,carrier:string,flight:int,origin:string,delay:int,status:string,updated_at:timestamp"
)
CREATE = [
    "--schema", SCHEMA, "--key", "carrier,flight", "--partition-by", "day",
    "--ordering", "updated_at", "--buckets", "2", "--hive-style",
]  # fmt: skip
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder of its own; it must return the expected exit code."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments, prog_name="bucketlake")
        assert result.exit_code == exit_code, result.output
        return result

    return invoke


@pytest.fixture
def flights(run: Run) -> Run:
    """A table with three flights, and the command line beside it."""
    Path("flights.csv").write_text(FLIGHTS_CSV)
    run("create", "flights", *CREATE)
    run("upsert", "flights", "flights.csv")
    return run


def answer(result: Result) -> Any:
    return json.loads(result.stdout)


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(run("read", "flights", *arguments, "--output", "json"))[
        "rows"
    ]
    return found


def test_files_of_an_address_are_read_by_the_write(flights: Run) -> None:
    landing = open_storage("memory://landing")
    landing.put("new.csv", FLIGHTS_CSV.replace(",AA,1141,", ",AA,7,").encode())
    landing.put("_SUCCESS", b"")
    counts = answer(flights("upsert", "flights", "memory://landing/*.csv", "--output", "json"))
    assert (counts["inserted"], counts["updated"]) == (1, 2)
    counts = answer(flights("delete", "flights", "memory://landing/new.csv", "--output", "json"))
    assert counts["deleted"] == 3
    assert [row["flight"] for row in rows(flights)] == [1141]
    said = flights("upsert", "flights", "memory://landing/*.parquet", exit_code=1).stderr
    assert "memory://landing/*.parquet: there is no such file" in said


def test_csv_of_another_form_needs_its_options(run: Run) -> None:
    run("create", "t", "--schema", "id:string,n:double", "--key", "id")
    Path("a.csv").write_text("a;1,5\nb;-\n")
    said = run("upsert", "t", "a.csv", exit_code=1).stderr
    assert "name the separator: --separator ';'" in said
    said = run("upsert", "t", "a.csv", "--separator", ";", exit_code=1).stderr
    assert "if the file has no header, name its columns: --no-header --columns id,n" in said
    form = ["--separator", ";", "--no-header", "--columns", "id,n", "--decimal", ","]
    said = run("upsert", "t", "a.csv", *form, exit_code=1).stderr
    assert "row 2, column n: '-' is no double" in said
    run("upsert", "t", "a.csv", *form, "--null-value", "-")
    assert bl.open_table("t").to_arrow()["n"].to_pylist() == [1.5, None]
    Path("b.csv").write_text("key,m\nb,2\n")
    run("upsert", "t", "b.csv", "--rename", "key=id", "--rename", "m=n")
    assert bl.open_table("t").to_arrow()["n"].to_pylist() == [1.5, 2.0]
    run("upsert", "t", "b.csv", "--rename", "m=n", "--columns", "id,n", exit_code=2)


def test_files_with_a_late_column_are_their_union(run: Run) -> None:
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    Path("1.csv").write_text("id,n\na,1\n")
    Path("2.csv").write_text("id,n,channel\nb,2,web\n")
    run("upsert", "t", "1.csv", "2.csv", "--add-columns")
    assert bl.open_table("t").to_arrow()["channel"].to_pylist() == [None, "web"]


def test_a_pattern_of_local_files_is_taken_in_quotes(flights: Run) -> None:
    first, *lines = FLIGHTS_CSV.splitlines()
    for name in ("d1.csv", "d2.csv", "d[1].csv"):
        Path(name).write_text(f"{first}\n{lines.pop()}\n")
    for pattern, deleted in (("d[1].csv", 1), ("d?.csv", 2)):
        counts = answer(flights("upsert", "flights", pattern, "--output", "json"))
        assert counts["written"] == deleted
        counts = answer(flights("delete", "flights", pattern, "--output", "json"))
        assert counts["deleted"] == deleted
    said = flights("upsert", "flights", "e*.csv", exit_code=1).stderr
    assert "no file matches it as a pattern" in said


@pytest.mark.parametrize("command", ["create", "upsert"])
def test_an_option_without_a_named_index_says_which_index_it_needs(run: Run, command: str) -> None:
    Path("a.csv").write_text("id\na\n")
    given = {"create": ("--schema", "id:string", "--key", "id"), "upsert": ("a.csv",)}[command]
    refused = run(command, "t", *given, "--min-buckets", "5", exit_code=2).stderr
    assert "--min-buckets needs --index consistent" in refused
    assert "simple" not in refused


def test_a_table_is_created_as_its_options_say(run: Run) -> None:
    facts = answer(run("create", "flights", *CREATE, "--output", "json"))
    assert facts["name"] == "flights"
    assert facts["record_key"] == ["carrier", "flight"]
    assert facts["partition_by"] == ["day"]
    assert facts["ordering"] == ["updated_at"]
    assert (facts["index"], facts["buckets"]) == ("simple_bucket", 2)
    assert facts["last_commit"] is None
    assert {column["name"]: column["type"] for column in facts["columns"]}["flight"] == "int32"
    assert bl.open_table("flights").index == bl.SimpleBucket(2)


@pytest.mark.parametrize(
    ("options", "index"),
    [
        ("", bl.DynamicBucket()),
        ("--assigners 2", bl.DynamicBucket(assigners=2)),
        ("--buckets 3", bl.SimpleBucket(3)),
        ("--index simple", bl.SimpleBucket(4)),
        ("--hash-field id", bl.SimpleBucket(4, ["id"])),
        ("--rules x,2", bl.PartitionBucket({"x": 2}, default=4)),
        ("--index consistent", bl.ConsistentBucket(4)),
    ],
)
def test_a_new_table_has_dynamic_buckets_unless_options_ask_for_others(
    run: Run, options: str, index: object
) -> None:
    run("create", "t", "--schema", "id:string,n:int", "--key", "id", *options.split())
    assert bl.open_table("t").index == index


def test_a_table_takes_its_columns_from_a_data_file(run: Run) -> None:
    Path("flights.csv").write_text(FLIGHTS_CSV)
    like = "create flights --like flights.csv --key carrier --key flight --buckets 2"
    run(*like.split())
    assert bl.open_table("flights").schema().names == FLIGHTS_CSV.splitlines()[0].split(",")
    assert bl.open_table("flights").to_arrow().num_rows == 0


def test_upsert_inserts_new_keys_and_updates_known_ones(flights: Run) -> None:
    lines = FLIGHTS_CSV.splitlines()
    Path("b.csv").write_text(
        f"{lines[0]}\n"
        "2013-01-02,B6,725,JFK,-1,late event,2013-01-02T11:00:00Z\n"
        "2013-01-01,AA,1141,JFK,33,arrived,2013-01-01T18:00:00Z\n"
        "2013-01-03,DL,461,LGA,0,scheduled,2013-01-02T10:00:00Z\n"
    )
    result = answer(flights("upsert", "flights", "b.csv", "--output", "json"))
    assert (result["inserted"], result["updated"], result["deleted"]) == (1, 1, 0)
    status = {row["flight"]: row["status"] for row in rows(flights)}
    assert status == {1545: "arrived", 1141: "arrived", 725: "arrived", 461: "scheduled"}


def test_upsert_shows_how_many_keys_the_location_cache_answered(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETLAKE_CACHE_FOLDER", str(Path("cache").resolve()))
    Path("a.csv").write_text("id,n\n1,1\n2,2\n")
    run("create", "t", "--schema", "id:string,n:int", "--key", "id", "--index", "dynamic")
    run("upsert", "t", "a.csv")
    shutil.rmtree("cache")
    cold = answer(run("upsert", "t", "a.csv", "--output", "json"))
    assert [cold[name] for name in ("looked_up", "from_cache", "from_table")] == [2, 0, 2]
    shown = dict(line.split() for line in run("upsert", "t", "a.csv").stdout.splitlines())
    assert [shown[name] for name in ("looked_up", "from_cache", "from_table")] == ["2", "2", "0"]
    run("create", "plain", "--schema", "id:string,n:int", "--key", "id", "--buckets", "2")
    plain = answer(run("upsert", "plain", "a.csv", "--output", "json"))
    assert "looked_up" not in plain, "nothing is looked up in a table with computed buckets"


def test_several_files_of_several_formats_are_one_commit(run: Run) -> None:
    Path("a.csv").write_text("id,n\n1,1\n")
    Path("b.jsonl").write_text('{"id": "2", "n": 2}\n')
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    assert answer(run("upsert", "t", "a.csv", "b.jsonl", "--output", "json"))["inserted"] == 2
    assert len(bl.open_table("t").timeline()) == 1


def test_files_of_one_upsert_have_the_same_columns(run: Run) -> None:
    """The nulls of one that lacks a column would replace what is stored."""
    Path("a.csv").write_text("id,n\n1,1\n2,2\n")
    Path("b.csv").write_text("id\n1\n")
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    run("upsert", "t", "a.csv")
    refused = run("upsert", "t", "a.csv", "b.csv", exit_code=1).stderr
    assert "b.csv: it does not have column 'n', which another file has" in refused
    run("delete", "t", "a.csv", "b.csv")
    assert bl.open_table("t").to_arrow().num_rows == 0


def test_upsert_adds_columns_to_the_table_only_when_asked_to(run: Run) -> None:
    Path("a.csv").write_text("id,n,note\n1,1,new\n")
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    refused = run("upsert", "t", "a.csv", exit_code=1).stderr
    assert "column note: the table has no such column, the batch has it as string" in refused
    assert "allow the change with --add-columns" in refused
    run("upsert", "t", "a.csv", "--add-columns")
    assert bl.open_table("t").schema().names == ["id", "n", "note"]


def test_upsert_takes_the_flag_of_deletes_from_a_file_and_adds_no_column(run: Run) -> None:
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    Path("a.csv").write_text("id,n\n1,1\n2,2\n")
    run("upsert", "t", "a.csv")
    Path("b.csv").write_text("id,n,_hoodie_is_deleted\n1,1,true\n")
    run("upsert", "t", "b.csv")
    assert bl.open_table("t").to_arrow().to_pylist() == [{"id": "2", "n": 2}]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_upsert_widens_types_only_when_asked_to_and_only_where_a_value_needs_it(
    run: Run, ending: str
) -> None:
    name = f"a.{ending}"
    rows = pa.table({"id": ["1"], "n": [1], "m": [2**40]})
    match ending:
        case "csv":
            Path(name).write_text(f"id,n,m\n1,1,{2**40}\n")
        case "jsonl":
            Path(name).write_text(f'{{"id": "1", "n": 1, "m": {2**40}}}\n')
        case _:
            pq.write_table(rows, name)
    run("create", "t", "--schema", "id:string,n:int,m:int", "--key", "id")
    run("upsert", "t", name, exit_code=1)
    run("upsert", "t", name, "--widen-types")
    assert bl.open_table("t").schema().types == [pa.string(), pa.int32(), pa.int64()]
    assert bl.open_table("t").to_arrow().to_pylist() == rows.to_pylist()


def test_upsert_writes_nulls_to_missing_columns_only_when_asked_to(run: Run) -> None:
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    Path("a.csv").write_text("id\n1\n")
    refused = run("upsert", "t", "a.csv", exit_code=1).stderr
    assert "allow the change with --fill-missing" in refused
    run("upsert", "t", "a.csv", "--fill-missing")
    assert bl.open_table("t").to_arrow().to_pylist() == [{"id": "1", "n": None}]


def test_delete_removes_the_keys_of_a_file_and_passes_over_others(flights: Run) -> None:
    Path("gone.csv").write_text("day,carrier,flight\n2013-01-01,UA,1545\n2013-01-01,XX,1\n")
    assert answer(flights("delete", "flights", "gone.csv", "--output", "json"))["deleted"] == 1
    assert {row["flight"] for row in rows(flights)} == {1141, 725}


def test_read_filters_chooses_columns_and_limits(flights: Run) -> None:
    found = rows(flights, "--where", "day = '2013-01-01' AND flight = 1141")
    assert [row["status"] for row in found] == ["cancelled"]
    assert [list(row) for row in rows(flights, "--columns", "flight,delay", "--limit", "1")] == [
        ["flight", "delay"]
    ]


def test_read_goes_back_to_an_earlier_instant(flights: Run) -> None:
    Path("gone.csv").write_text("day,carrier,flight\n2013-01-01,UA,1545\n")
    flights("delete", "flights", "gone.csv")
    first = bl.open_table("flights").timeline()[0].requested_at
    assert len(rows(flights)) == 2
    assert len(rows(flights, "--as-of", first)) == 3


def test_changes_shows_each_change_with_its_images(flights: Run) -> None:
    first = bl.open_table("flights").timeline()[-1].completed_at or ""
    Path("gone.csv").write_text("day,carrier,flight\n2013-01-01,UA,1545\n")
    flights("delete", "flights", "gone.csv")
    arguments = ["changes", "flights", "--columns", "flight"]
    found = answer(flights(*arguments, "--since", first, "--output", "json"))["rows"]
    assert [(row["op"], row["before"], row["after"]) for row in found] == [
        ("d", {"flight": 1545}, None)
    ]
    assert "{'flight': 725}" in flights(*arguments).stdout.replace('"', "'")
    told = answer(flights(*arguments, "--until", first, "--to", "all.jsonl", "--output", "json"))
    assert told["rows"] == len(Path("all.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.jsonl"])
def test_what_read_writes_to_a_file_can_be_upserted_again(flights: Run, name: str) -> None:
    answered = answer(flights("read", "flights", "--to", name, "--output", "json"))
    assert answered["rows"] == 3
    again = answer(flights("upsert", "flights", name, "--output", "json"))
    assert (again["inserted"], again["updated"]) == (0, 3)


def test_text_shows_twenty_rows_unless_told_otherwise(run: Run) -> None:
    Path("a.csv").write_text("id\n" + "".join(f"{n:03}\n" for n in range(30)))
    run("create", "t", "--schema", "id:string", "--key", "id")
    run("upsert", "t", "a.csv")
    short = run("read", "t")
    assert len(short.stdout.splitlines()) == 2 + 20
    assert "20 of 30 rows" in short.stderr
    assert len(run("read", "t", "--limit", "0").stdout.splitlines()) == 2 + 30
    assert len(answer(run("read", "t", "--output", "json"))["rows"]) == 30


def test_show_tells_the_newest_commit(flights: Run) -> None:
    text = flights("show", "flights").stdout
    instant = bl.open_table("flights").timeline()[-1].requested_at
    assert f"last_commit    {instant}" in text
    assert "record_key     carrier, flight" in text


def test_timeline_lists_instants_with_their_state(flights: Run) -> None:
    instants = answer(flights("timeline", "flights", "--output", "json"))["rows"]
    assert [(instant["action"], instant["state"]) for instant in instants] == [
        ("commit", "completed")
    ]
    assert " completed " in flights("timeline", "flights").stdout


def test_buckets_lists_file_groups_that_hold_all_bytes_of_the_table(flights: Run) -> None:
    found = answer(flights("buckets", "flights", "--output", "json"))["rows"]
    assert {bucket["partition_path"] for bucket in found} == {"day=2013-01-01", "day=2013-01-02"}
    for bucket in found:
        assert Path("flights", bucket["path"]).stat().st_size == bucket["size_bytes"]


def test_buckets_by_partition_have_the_sums_of_their_buckets(flights: Run) -> None:
    buckets = answer(flights("buckets", "flights", "--output", "json"))["rows"]
    partitions = answer(flights("buckets", "flights", "--by-partition", "--output", "json"))["rows"]
    assert [sizes["rows"] for sizes in partitions] == [2, 1]
    for sizes in partitions:
        own = [b for b in buckets if b["partition_path"] == sizes["partition_path"]]
        assert sizes["size_bytes"] == sum(bucket["size_bytes"] for bucket in own)
        assert sum(bucket["share"] for bucket in own) == pytest.approx(1, abs=0.001)
        assert (sizes["buckets"], sizes["hot_value"], sizes["skew"]) == (2, None, None)
    assert "max_over_mean" in flights("buckets", "flights", "--by-partition").stdout


def test_report_writes_a_page(flights: Run) -> None:
    found = answer(flights("report", "flights", "--to", "flights.html", "--output", "json"))
    assert found == {"file": "flights.html"}
    page = Path("flights.html").read_text(encoding="utf-8")
    assert "day=2013-01-02" in page
    assert page.endswith("</html>\n")
    refused = flights("report", "flights", "--to", "nowhere/flights.html", exit_code=1)
    assert "nowhere/flights.html" in refused.stderr
    assert "--to" in flights("report", "flights", exit_code=2).stderr


def test_position_tells_how_far_a_source_is_written(flights: Run) -> None:
    nothing = answer(flights("position", "flights", "topic", "--output", "json"))
    assert nothing == {"source": "topic", "last": None}
    table = bl.open_table("flights")
    table.upsert(table.to_arrow().slice(0, 0), position=bl.Position("topic", {"0": 17}))
    told = answer(flights("position", "flights", "topic", "--output", "json"))
    assert told == {"source": "topic", "last": {"0": 17}}
    assert "17" in flights("position", "flights", "topic").stdout


def test_upkeep_tells_and_sets_how_long_deletes_are_kept(flights: Run) -> None:
    told = answer(flights("upkeep", "flights", "--keep-deletes", "2 days", "--output", "json"))
    assert told["keep_deletes"] == "2 days"
    assert answer(flights("upkeep", "flights", "--output", "json")) == told
    assert "'7 days'" in flights("upkeep", "flights", "--keep-deletes", "x", exit_code=1).stderr


def test_locate_finds_the_file_that_holds_a_record(flights: Run) -> None:
    key = ["--key", "carrier=B6", "--key", "flight=725"]
    by_fields = answer(flights("locate", "flights", *key, "--output", "json"))["rows"]
    by_text = answer(flights("locate", "flights", "carrier:B6,flight:725", "--output", "json"))
    assert by_fields == by_text["rows"]
    assert [place["partition_path"] for place in by_fields] == ["day=2013-01-02"]
    stored = pq.read_table(Path("flights", by_fields[0]["path"]), partitioning=None)
    assert 725 in stored["flight"].to_pylist()
    elsewhere = flights("locate", "flights", *key, "--partition", "day=2013-01-01")
    assert len(elsewhere.stdout.splitlines()) == 2  # A head, and no row.


def test_keys_inside_a_struct_are_named_by_their_path(run: Run) -> None:
    header = pa.struct([("eid", pa.string()), ("day", pa.string())])
    headers = pa.array([{"eid": "007", "day": "a"}, {"eid": "008", "day": "a"}], header)
    pq.write_table(pa.table({"header": headers, "v": [1, 2]}), "events.parquet")
    keys = ["--key", "header.eid", "--partition-by", "header.day", "--buckets", "2"]
    run("create", "events", "--like", "events.parquet", *keys)
    run("upsert", "events", "events.parquet")
    found = answer(run("locate", "events", "--key", "header.eid=007", "--output", "json"))
    assert [place["record_key"] for place in found["rows"]] == ["007"]
    Path("gone.csv").write_text("header.eid,header.day\n007,a\n")
    run("delete", "events", "gone.csv")
    read = run("read", "events", "--where", "header.day = 'a'", "--columns", "header.eid")
    assert "008" in read.stdout
    assert "007" not in read.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "nothing"], "is not a Hudi table"),
        (["create", "flights", *CREATE], "a Hudi table is there already"),
        (["read", "flights", "--where", "delay >"], "where"),
        (["read", "flights", "--columns", "nope"], "nope"),
        (["read", "flights", "--to", "out.txt"], "the ending '.txt' does not name a format"),
        (
            ["locate", "flights", "--key", "carrier=UA", "--key", "flight=x"],
            "the value does not have type int32",
        ),
        (["locate", "flights", "--key", "nope=1"], "the table has no such column"),
        (["upsert", "flights", "bad.csv"], "bad.csv, row 1, column flight: 'many' is no int"),
        (["upsert", "flights", "few.csv"], "'carrier' is missing"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_exits_with_one(
    flights: Run, arguments: list[str], reason: str
) -> None:
    Path("bad.csv").write_text("carrier,flight\nUA,many\n")
    Path("few.csv").write_text("flight\n1\n")
    before = bl.open_table("flights").timeline()
    text = flights(*arguments, exit_code=1)
    assert text.stdout == ""
    assert text.stderr.startswith("Error: ")
    assert text.stderr.count("\n") == 1
    assert reason in text.stderr
    error = json.loads(flights(*arguments, "--output", "json", exit_code=1).stderr)["error"]
    assert reason in error["message"]
    assert error["type"].endswith("Error")
    assert bl.open_table("flights").timeline() == before


@pytest.mark.parametrize("file_format", ["csv", "jsonl", "parquet"])
def test_rows_in_a_pipe_are_refused_and_not_taken_for_none(flights: Run, file_format: str) -> None:
    os.mkfifo("pipe")
    before = bl.open_table("flights").timeline()
    said = flights("upsert", "flights", "pipe", "--format", file_format, exit_code=1).stderr
    assert said.endswith(
        "flights: pipe: it is not a regular file; write the rows to a regular file, or pipe them "
        "into the command with -\n"
    )
    assert bl.open_table("flights").timeline() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["upsert", "flights"],
        ["upsert", "flights", "nowhere.csv"],
        ["create", "new", "--key", "id"],
        ["create", "new", "--schema", "id:int"],
        ["create", "new", "--schema", "id:int", "--key", "id", "--buckets", "0"],
        ["show", "flights", "-o", "novalue"],
        ["locate", "flights"],
        ["locate", "flights", "a", "--key", "carrier=UA"],
        ["read", "flights", "--limit", "-1"],
    ],
)
def test_wrong_usage_exits_with_two(flights: Run, arguments: list[str]) -> None:
    assert "Usage:" in flights(*arguments, exit_code=2).stderr
    in_json = flights(*arguments, "--output", "json", exit_code=2)
    assert json.loads(in_json.stderr)["error"]["message"]


@pytest.mark.parametrize("command", list(main.commands))
def test_the_help_of_every_command_ends_in_an_example_that_names_it(run: Run, command: str) -> None:
    text = run(command, "--help").stdout
    assert f"bucketlake {command} " in text.partition("\nExample:\n")[2]


def test_a_table_of_hudi_without_bucket_setting_is_written_once_the_count_is_named(
    flights: Run,
) -> None:
    Path("flights", SETTING_FILE).unlink()
    assert "with --buckets COUNT" in flights("upsert", "flights", "flights.csv", exit_code=1).stderr
    flights("upsert", "flights", "flights.csv", "--buckets", "2")
    assert len(rows(flights)) == 3


def test_stopping_by_hand_says_what_became_of_the_work(
    flights: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, bl.Table, "upsert", KeyboardInterrupt())
    assert "not visible" in flights("upsert", "flights", "flights.csv", exit_code=130).stderr


def test_the_module_runs_as_a_process_of_its_own(run: Run) -> None:
    def process(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "bucketlake", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    Path("a.jsonl").write_text('{"id": "ключ", "n": 1}\n')
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    written = process("upsert", "t", "a.jsonl", "--output", "json")
    assert written.returncode == 0
    told = [line for line in written.stderr.splitlines() if not line.startswith('{"progress": ')]
    assert told == []  # Progress is told on a slow machine alone.
    assert json.loads(written.stdout)["inserted"] == 1
    missing = process("show", "elsewhere")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "elsewhere is not a Hudi table" in missing.stderr
    assert "ключ  1" in run("read", "t").stdout


def test_metadata_table_of_hudi_is_taken_off_where_asked_for(
    run: Run, golden_table: Callable[[str], Path]
) -> None:
    path = golden_table("cow_metadata_table")
    rows = bl.open_table(str(path)).to_arrow()
    pq.write_table(rows, "rows.parquet")
    upsert = ("upsert", str(path), "rows.parquet", "--buckets", "2")
    said = run(*upsert, "--without-metadata-table", "--output", "json")
    assert answer(said)["updated"] == rows.num_rows
    assert bl.open_table(str(path)).config().metadata_partitions == ()


def test_metadata_table_is_shown_with_its_files_and_the_commits_since_its_compaction(
    run: Run,
) -> None:
    Path("flights.csv").write_text(FLIGHTS_CSV)
    run("create", "flights", *CREATE, "--metadata-table")
    run("upsert", "flights", "flights.csv")
    facts = answer(run("metadata", "flights", "--output", "json"))
    found = {partition["name"]: partition for partition in facts["partitions"]}
    assert sorted(found) == ["column_stats", "files", "partition_stats"]
    assert {partition["state"] for partition in found.values()} == {"valid"}
    assert (found["files"]["base_files"], found["files"]["log_files"]) == (1, 1)
    assert all(p["file_groups"] >= p["base_files"] and p["size_bytes"] for p in found.values())
    assert (facts["commits_since_compaction"], facts["last_compaction"]) == (1, None)
    assert "partition_stats" in run("metadata", "flights").stdout


def test_metadata_table_is_built_and_turned_off_once_it_is_asked_for(run: Run) -> None:
    Path("flights.csv").write_text(FLIGHTS_CSV)
    run("create", "flights", *CREATE, "--no-metadata-table")
    run("upsert", "flights", "flights.csv")

    def partitions() -> tuple[str, ...]:
        return bl.open_table("flights").config().metadata_partitions

    planned = answer(run("metadata", "flights", "--rebuild", "--output", "json"))
    assert planned["would_build"] == ["files", "column_stats", "partition_stats"]
    assert partitions() == ()
    built = answer(run("metadata", "flights", "--rebuild", "--run", "--output", "json"))
    assert {p["name"] for p in built["partitions"]} == {*partitions()} == {*planned["would_build"]}
    again = ("metadata", "flights", "--rebuild", "--partition", "column_stats")
    assert answer(run(*again, "--output", "json"))["would_build"] == ["column_stats"]
    run(*again, "--run")
    planned = answer(run("metadata", "flights", "--drop", "--output", "json"))
    assert {*planned["would_drop"]} == {*partitions()} != set()
    run("metadata", "flights", "--drop", "--run")
    assert partitions() == ()
    assert not Path("flights/.hoodie/metadata").exists()
    assert answer(run("metadata", "flights", "--output", "json"))["partitions"] == []


@pytest.mark.parametrize(
    "arguments",
    [("--rebuild", "--drop"), ("--partition", "files"), ("--run",)],
)
def test_metadata_that_is_not_clear_is_wrong_usage(
    flights: Run, arguments: tuple[str, ...]
) -> None:
    flights("metadata", "flights", *arguments, exit_code=2)


def test_metadata_rejects_a_partition_that_bucketlake_does_not_maintain(flights: Run) -> None:
    said = flights("metadata", "flights", "--rebuild", "--partition", "bloom_filters", exit_code=1)
    assert "bloom_filters" in said.stderr


def test_partitions_are_rescaled_once_it_is_asked_for(run: Run) -> None:
    Path("flights.csv").write_text(FLIGHTS_CSV)
    run("create", "flights", *CREATE, "--rules", "01-02,4")
    run("upsert", "flights", "flights.csv")
    rescale = ("rescale", "flights", "--add", "01-01,8", "--output", "json")
    planned = answer(run(*rescale))
    assert planned["instant"] is None
    [change] = planned["partitions"]
    assert (change["partition_path"], change["old_count"], change["new_count"]) == (
        "day=2013-01-01", 2, 8
    )  # fmt: skip
    assert answer(run("show", "flights", "--output", "json"))["rules"] == "01-02,4"
    done = answer(run(*rescale, "--run"))
    assert done["partitions"] == planned["partitions"]
    shown = answer(run("show", "flights", "--output", "json"))
    assert (shown["rules"], shown["last_commit"]) == ("01-01,8;01-02,4", done["instant"])
    assert [version["expressions"] for version in shown["rule_versions"]] == [
        "01-02,4",
        "01-01,8;01-02,4",
    ]
    assert len(answer(run("read", "flights", "--output", "json"))["rows"]) == 3


def test_buckets_get_several_file_groups_and_one_again(run: Run) -> None:
    Path("rows.csv").write_text("id\n" + "".join(f"k{n:05d}\n" for n in range(4000)))
    run("create", "t", "--like", "rows.csv", "--key", "id", "--buckets", "1")
    run("upsert", "t", "rows.csv")
    convert = ("convert", "t", "--max-file-size", "10000", "--output", "json")
    assert answer(run(*convert))["instant"] is None
    done = answer(run(*convert, "--run"))
    assert (done["max_file_size"], done["partitions"]) == (10000, [])
    assert answer(run("show", "t", "--output", "json"))["max_file_size"] == 10000
    Path("rows.csv").write_text("id\n" + "".join(f"m{n:05d}\n" for n in range(9000)))
    run("upsert", "t", "rows.csv")
    assert len(answer(run("buckets", "t", "--output", "json"))["rows"]) > 1
    done = answer(run("convert", "t", "--one-group", "--run", "--output", "json"))
    assert (done["max_file_size"], done["partitions"]) == (None, [""])
    assert len(answer(run("buckets", "t", "--output", "json"))["rows"]) == 1
    assert "max_file_size" not in answer(run("show", "t", "--output", "json"))
    run(
        "create", "u", "--like", "rows.csv", "--key", "id", "--buckets", "2", "--max-file-size", "9"
    )
    assert answer(run("show", "u", "--output", "json"))["max_file_size"] == 9


@pytest.mark.parametrize("arguments", [(), ("--one-group", "--max-file-size", "5")])
def test_convert_that_is_not_clear_is_wrong_usage(flights: Run, arguments: tuple[str, ...]) -> None:
    flights("convert", "flights", *arguments, exit_code=2)


@pytest.mark.parametrize(
    "arguments", [(), ("--rules", "a,1", "--add", "b,1"), ("--rules", "a,1", "--default", "0")]
)
def test_rescale_that_is_not_clear_is_wrong_usage(flights: Run, arguments: tuple[str, ...]) -> None:
    flights("rescale", "flights", *arguments, exit_code=2)


def test_rules_that_cannot_be_read_are_refused(flights: Run) -> None:
    result = flights("rescale", "flights", "--rules", "a", "--run", exit_code=1)
    assert "pattern,count" in result.stderr


def test_the_first_of_two_rules_with_one_pattern_counts(flights: Run) -> None:
    result = flights("rescale", "flights", "--rules", "01-01,8;01-01,5", "--output", "json")
    [change] = answer(result)["partitions"]
    assert change["new_count"] == 8


def test_rescale_says_what_its_rules_do_not_match(flights: Run) -> None:
    arguments = ("rescale", "flights", "--rules", "none,8", "--default", "1")
    planned = answer(flights(*arguments, "--output", "json"))
    assert planned["unused_rules"] == ["none"]
    assert planned["shrunk_by_default"]
    done = flights(*arguments, "--run")
    assert "no partition matches 'none'" in done.stderr
    assert "get fewer buckets" in done.stderr


def test_rescale_by_a_pattern_that_python_would_search_for_years_ends(flights: Run) -> None:
    planned = flights("rescale", "flights", "--rules", "([0-9-]+)+z,8", "--output", "json")
    assert answer(planned)["unused_rules"] == ["([0-9-]+)+z"]


def test_a_commit_is_rolled_back_once_it_is_asked_for(flights: Run) -> None:
    Path("more.csv").write_text(FLIGHTS_CSV.replace("UA,1545", "UA,9999"))
    flights("upsert", "flights", "more.csv")
    [first, second] = answer(flights("timeline", "flights", "--output", "json"))["rows"]
    rollback = ("rollback", "flights", second["instant"], "--output", "json")
    planned = answer(flights(*rollback))
    assert [commit["instant"] for commit in planned["commits"]] == [second["instant"]]
    assert planned["rollbacks"] == []
    assert len(answer(flights("read", "flights", "--output", "json"))["rows"]) == 4
    assert len(answer(flights(*rollback, "--run"))["rollbacks"]) == 1
    assert len(answer(flights("read", "flights", "--output", "json"))["rows"]) == 3
    refused = flights(*rollback, exit_code=1)
    assert second["instant"] in refused.stderr
    flights("upsert", "flights", "more.csv")
    flights("rollback", "flights", first["instant"], "--run", exit_code=1)
    flights("rollback", "flights", first["instant"], "--cascade", "--run")
    assert answer(flights("read", "flights", "--output", "json"))["rows"] == []


def test_old_versions_are_cleaned_once_it_is_asked_for(flights: Run) -> None:
    for _ in range(3):
        flights("upsert", "flights", "flights.csv")
    stored = len([*Path("flights").glob("*/*.parquet")])
    clean = ("clean", "flights", "--retain-commits", "1", "--output", "json")
    planned = answer(flights(*clean))
    files = sum(one["files"] for one in planned["partitions"])
    assert (files > 0, planned["completed"]) == (True, [])
    assert len([*Path("flights").glob("*/*.parquet")]) == stored
    done = answer(flights(*clean, "--run"))
    assert done["partitions"] == planned["partitions"]
    assert len(done["completed"]) == 1
    assert len([*Path("flights").glob("*/*.parquet")]) == stored - files
    assert len(rows(flights)) == 3
    first = bl.open_table("flights").timeline()[0].requested_at
    assert (
        "ask for a later time" in flights("read", "flights", "--as-of", first, exit_code=1).stderr
    )
    assert "give only one of" in flights(*clean, "--retain-versions", "1", exit_code=1).stderr


def test_a_table_is_restored_to_a_savepoint_once_it_is_asked_for(flights: Run) -> None:
    before = rows(flights)
    made = answer(flights("savepoint", "flights", "--comment", "good", "--output", "json"))
    then = made["savepoint"]
    Path("gone.csv").write_text("day,carrier,flight\n2013-01-01,UA,1545\n")
    flights("delete", "flights", "gone.csv")
    restore = ("restore", "flights", then, "--output", "json")
    planned = answer(flights(*restore))
    assert [one["operation"] for one in planned["commits"]] == ["DELETE"]
    assert (planned["restore"], len(rows(flights))) == (None, 2)
    assert answer(flights(*restore, "--run"))["commits"] == planned["commits"]
    assert rows(flights) == before
    deleted = answer(flights("savepoint", "flights", then, "--delete", "--output", "json"))
    assert deleted == {"deleted": then}
    assert "is not a savepoint" in flights(*restore, "--run", exit_code=1).stderr
    flights("savepoint", "flights", "--delete", exit_code=2)


def test_log_files_are_compacted_once_it_is_asked_for(run: Run) -> None:
    Path("flights.csv").write_text(FLIGHTS_CSV)
    run("create", "flights", *CREATE, "--table-type", "merge_on_read")
    run("upsert", "flights", "flights.csv")
    run("upsert", "flights", "flights.csv")
    planned = answer(run("compact", "flights", "--output", "json"))
    assert (planned["scheduled"], planned["completed"]) == (None, [])
    assert {one["log_files"] for one in planned["slices"]} == {1}
    fewer = run("compact", "flights", "--min-log-files", "2", "--output", "json")
    assert answer(fewer)["slices"] == []
    done = answer(run("compact", "flights", "--run", "--output", "json"))
    assert done["completed"] == [done["scheduled"]]
    assert len(answer(run("read", "flights", "--output", "json"))["rows"]) == 3
    assert answer(run("compact", "flights", "--output", "json"))["slices"] == []


def test_old_instants_are_archived_once_it_is_asked_for(flights: Run) -> None:
    for _ in range(3):
        flights("upsert", "flights", "flights.csv")
    instants = answer(flights("timeline", "flights", "--output", "json"))["rows"]
    limits = ("--keep-min", "1", "--keep-max", "2", "--output", "json")
    planned = answer(flights("archive", "flights", *limits))
    facts = planned["instants"][0].keys()
    assert planned["instants"] == [{name: row[name] for name in facts} for row in instants[:-1]]
    assert planned["held_back"] is None
    assert answer(flights("timeline", "flights", "--output", "json"))["rows"] == instants
    assert answer(flights("archive", "flights", *limits, "--run")) == {**planned, "dry_run": False}
    assert answer(flights("timeline", "flights", "--output", "json"))["rows"] == instants[-1:]
    assert len(answer(flights("read", "flights", "--output", "json"))["rows"]) == 3
    flights("rollback", "flights", instants[0]["instant"], exit_code=1)
    flights("archive", "flights", "--keep-min", "30", exit_code=1)


def test_what_changed_since_a_time_is_read(flights: Run) -> None:
    Path("more.csv").write_text(FLIGHTS_CSV.replace("UA,1545", "UA,9999"))
    [first] = answer(flights("timeline", "flights", "--output", "json"))["rows"]
    flights("upsert", "flights", "more.csv")
    since = ("read", "flights", "--since", first["completed_at"], "--output", "json")
    assert len(answer(flights(*since))["rows"]) == 3
    until = ("read", "flights", "--until", first["completed_at"], "--output", "json")
    assert {row["flight"] for row in answer(flights(*until))["rows"]} == {1545, 1141, 725}
    flights("read", "flights", "--since", "never", exit_code=1)


def test_the_doctor_says_what_is_wrong(flights: Run) -> None:
    look = ("doctor", "flights", "--check-keys", "--check-files", "--output", "json")
    assert answer(flights(*look))["findings"] == []
    marker = next(Path("flights").glob("[!.]*/**/.hoodie_partition_metadata"))
    marker.unlink()
    [found] = answer(flights(*look))["findings"]
    assert (found["severity"], found["kind"]) == ("error", "partition_not_marked")
    assert found["partition"] == marker.parent.relative_to("flights").as_posix()
    assert "partition_not_marked" in flights("doctor", "flights").stdout


def test_a_table_is_repaired_once_it_is_asked_for(flights: Run) -> None:
    marker = next(Path("flights").glob("[!.]*/**/.hoodie_partition_metadata"))
    marker.unlink()
    repair = ("repair", "flights", "--output", "json")
    planned = answer(flights(*repair))
    assert [one["kind"] for one in planned["repaired"]] == ["partition_not_marked"]
    assert not marker.exists()
    assert answer(flights(*repair, "--run"))["left"] == []
    assert marker.exists()
    assert answer(flights(*repair, "--run"))["repaired"] == []


@pytest.mark.parametrize("output", ["text", "json"])
def test_nothing_that_a_terminal_obeys_comes_out_of_names_and_properties(
    run: Run, output: str
) -> None:
    """A title, a cleared screen, a control character of eight bits."""
    run("create", "t", "--schema", "id:string,n:int", "--key", "id")
    properties = Path("t/.hoodie/hoodie.properties")
    odd = "\\u001b]0;owned\\u0007\\u009b2J"
    properties.write_text(properties.read_text() + f"hoodie.bootstrap.base.path={odd}\n")
    said = run("show", "t", "--output", output, exit_code=1)
    Path("\x1b[2J.csv").write_text("id,\x1b[2Jn\n1,2\n")
    more = run("upsert", "t", "\x1b[2J.csv", "--output", output, exit_code=1)
    for text in (said.stdout, said.stderr, more.stdout, more.stderr):
        assert all(letter.isprintable() or letter == "\n" for letter in text), text
    lines, _ = render_table([{"\x1b[2Jx": 1}], ["\x1b[2Jx"])
    assert lines[0] == "\\x1b[2Jx"


@pytest.mark.parametrize("output", ["text", "json"])
def test_times_that_python_has_no_value_for_are_shown_as_text(run: Run, output: str) -> None:
    run("create", "t", "--schema", "id:string,at:timestamp", "--key", "id")
    late = pa.array([300_000_000_000_000_000], pa.timestamp("us", "UTC"))  # The year 11476.
    bl.open_table("t").upsert(pa.table({"id": ["a"], "at": late}))
    assert "11476-" in run("read", "t", "--output", output).stdout
    run("read", "t", "--to", "t.jsonl")
    assert "11476-" in Path("t.jsonl").read_text()


# ---- hash rings ----------------------------------------------------------------------------------

RING = [
    "--schema", "id:string,city:string,at:long", "--key", "id", "--partition-by", "city",
    "--ordering", "at", "--index", "consistent", "--buckets", "2", "--max-buckets", "8",
    "--table-type", "merge_on_read",
]  # fmt: skip
SMALL = ("--max-file-size", "1000")


@pytest.fixture
def ring(run: Run) -> Run:
    """A table with hash rings of two buckets in each of two partitions, and the command line."""
    cities = ["Bonn" if number % 10 else "Kyiv" for number in range(300)]
    lines = [f"id-{number},{city},{number}\n" for number, city in enumerate(cities)]
    Path("ring.csv").write_text("id,city,at\n" + "".join(lines))
    run("create", "ring", *RING)
    run("upsert", "ring", "ring.csv")
    return run


def keys_of(run: Run) -> list[str]:
    return sorted(row["id"] for row in answer(run("read", "ring", "--output", "json"))["rows"])


def test_a_table_with_hash_rings_is_created_and_shown(ring: Run) -> None:
    facts = answer(ring("show", "ring", "--output", "json"))
    assert (facts["index"], facts["initial_buckets"]) == ("consistent_bucket", 2)
    assert (facts["min_buckets"], facts["max_buckets"], facts["pending_resizes"]) == (1, 8, [])


def test_buckets_are_resized_once_it_is_asked_for(ring: Run) -> None:
    resize = ("resize", "ring", *SMALL, "--partition", "Bonn")
    planned = answer(ring(*resize, "--output", "json"))
    assert (planned["scheduled"], planned["completed"]) == (None, [])
    assert {(found["partition_path"], found["action"]) for found in planned["buckets"]} == {
        ("Bonn", "split")
    }
    assert len(answer(ring("buckets", "ring", "--output", "json"))["rows"]) == 4
    done = answer(ring(*resize, "--run", "--output", "json"))
    assert done["buckets"] == planned["buckets"]
    assert done["completed"] == [done["scheduled"]]
    found = answer(ring("buckets", "ring", "--output", "json"))["rows"]
    ranges = [bucket["hash_range"] for bucket in found if bucket["partition_path"] == "Bonn"]
    expected = [new for split in planned["buckets"] for new in split["new_ranges"]]
    assert sorted(ranges) == sorted(expected)
    assert len(keys_of(ring)) == 300


def test_a_resize_is_shown_as_a_table_of_ranges(ring: Run) -> None:
    text = ring("resize", "ring", *SMALL, "--partition", "Bonn").stdout
    assert "old_ranges" in text
    assert "(2147483647..536870911] (536870911..1073741824]" in text
    whole = ring("resize", "ring", "--partition", "Kyiv").stdout  # Small buckets are merged.
    assert "merge" in whole
    assert "all" in whole


def test_a_directory_is_created_shown_and_resized(ring: Run) -> None:
    kind = ("--index", "extendible", "--buckets", "2", "--max-depth", "4")
    ring("create", "directory", *RING[:8], *kind, "--table-type", "merge_on_read")
    ring("upsert", "directory", "ring.csv")
    facts = answer(ring("show", "directory", "--output", "json"))
    assert (facts["index"], facts["initial_buckets"]) == ("extendible_bucket", 2)
    assert (facts["max_depth"], facts["pending_resizes"]) == (4, [])
    done = answer(ring("resize", "directory", *SMALL, "--run", "--output", "json"))
    assert done["completed"] == [done["scheduled"]]
    found = answer(ring("buckets", "directory", "--output", "json"))["rows"]
    suffixes = [bucket["hash_suffix"] for bucket in found if bucket["partition_path"] == "Bonn"]
    splits = [split for split in done["buckets"] if split["partition_path"] == "Bonn"]
    assert suffixes == sorted(suffixes, key=lambda bits: bits[::-1])
    assert sorted(suffixes) == sorted(new for split in splits for new in split["new_suffixes"])
    assert "hash_suffix" in ring("buckets", "directory").stdout


OPTIONS_OF_INDEX = {
    "--buckets": "8", "--hash-field": "id", "--min-buckets": "1", "--max-buckets": "9",
    "--max-depth": "5", "--max-records": "10", "--assigners": "2", "--rules": "x,2",
    "--max-file-size": "1000",
}  # fmt: skip
TAKEN = {
    "simple": ("--buckets", "--hash-field", "--rules", "--max-file-size"),
    "consistent": ("--buckets", "--hash-field", "--min-buckets", "--max-buckets"),
    "extendible": ("--buckets", "--hash-field", "--max-depth"),
    "dynamic": ("--max-records", "--assigners", "--max-file-size"),
    "record": ("--max-file-size",),
    "global-record": ("--max-file-size",),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_an_option_of_another_index_is_wrong_usage_that_names_both(run: Run, kind: str) -> None:
    Path("a.csv").write_text("id\na\n")
    run("create", "held", "--schema", "id:string", "--key", "id", "--buckets", "2")
    for option, value in OPTIONS_OF_INDEX.items():
        new = ("create", "t", "--schema", "id:string", "--key", "id", "--partition-by", "id")
        commands = [new]
        if option not in ("--rules", "--max-file-size"):
            commands += [("upsert", "held", "a.csv"), ("delete", "held", "a.csv")]
            commands += [("resize", "held")]
        if option in TAKEN[kind]:
            run(*new, "--index", kind, option, value, exit_code=0)
            shutil.rmtree("t")
            continue
        for command in commands:
            refused = run(*command, "--index", kind, option, value, exit_code=2).stderr
            assert f"{option} does not belong to --index {kind}" in " ".join(refused.split())
            assert not Path("t").exists()


def test_a_bucket_count_is_needed_to_write_under_a_named_index(run: Run) -> None:
    Path("a.csv").write_text("id\na\n")
    run("create", "held", "--schema", "id:string", "--key", "id", "--buckets", "2")
    for kind in ("simple", "consistent", "extendible"):
        refused = run("upsert", "held", "a.csv", "--index", kind, exit_code=2).stderr
        assert f"--index {kind} needs --buckets" in refused
    refused = run("upsert", "held", "a.csv", "--assigners", "2", exit_code=2).stderr
    assert "--assigners needs --index dynamic" in " ".join(refused.split())


def test_a_resize_that_is_only_planned_is_executed_by_the_next(ring: Run) -> None:
    resize = ("resize", "ring", *SMALL, "--output", "json")
    planned = answer(ring(*resize, "--plan-only", "--run"))
    assert planned["completed"] == []
    shown = answer(ring("show", "ring", "--output", "json"))
    assert shown["pending_resizes"] == [planned["scheduled"]]
    ring("upsert", "ring", "ring.csv")
    done = answer(ring(*resize, "--run"))
    assert planned["scheduled"] in done["completed"]
    assert len(keys_of(ring)) == 300


def test_limits_of_a_resize_leave_the_rest_to_the_next(ring: Run) -> None:
    limited = answer(ring("resize", "ring", *SMALL, "--max-groups", "1", "--output", "json"))
    free = answer(
        ring("resize", "ring", *SMALL, "--max-groups", "0", "--max-bytes", "0", "--output", "json")
    )
    assert (len(limited["buckets"]), free["left"]) == (1, 0)
    assert limited["left"] == len(free["buckets"]) - 1 > 0


def test_buckets_of_a_ring_are_drawn_in_the_order_of_the_ring(ring: Run) -> None:
    text = ring("buckets", "ring").stdout.splitlines()
    names = text[0].split()
    assert names[:6] == [
        "partition_path", "bucket_id", "hash_range", "of_ring", "size_bytes", "picture"
    ]  # fmt: skip
    bars = [line.count("█") for line in text[2:]]
    assert max(bars) == 24
    assert all("50.0%" in line for line in text[2:])
    assert min(bars[:2]) > max(bars[2:])  # Bonn has nine times the rows of Kyiv.


def test_a_ring_of_hudi_without_bucket_setting_is_written_once_the_kind_is_named(
    ring: Run,
) -> None:
    Path("ring", SETTING_FILE).unlink()
    named = ("--index", "consistent", "--buckets", "2", "--max-buckets", "8")
    for command in (("upsert", "ring", "ring.csv"), ("resize", "ring", *SMALL)):
        refused = ring(*command, exit_code=1).stderr
        assert "--index consistent --buckets" in refused
        ring(*command, *named)
        Path("ring", SETTING_FILE).unlink(missing_ok=True)
    assert len(keys_of(ring)) == 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "new", *RING, "--rules", "city=,2"),
        ("create", "new", *RING, "--max-file-size", "100"),
        ("create", "new", *CREATE, "--max-buckets", "8"),
        ("upsert", "ring", "ring.csv", "--index", "consistent"),
        ("upsert", "ring", "ring.csv", "--min-buckets", "2"),
        ("resize", "ring", "--split-at", "keys"),
    ],
)
def test_options_of_hash_rings_that_are_not_clear_are_wrong_usage(
    ring: Run, arguments: tuple[str, ...]
) -> None:
    ring(*arguments, exit_code=2)


def test_a_resize_needs_hash_rings_and_limits_that_fit(flights: Run, ring: Run) -> None:
    assert "bucketlake rescale" in flights("resize", "flights", exit_code=1).stderr
    refused = ring("resize", "ring", "--merge-threshold", "1.5", exit_code=1)
    assert "at most half of split_threshold" in refused.stderr


def test_some_columns_and_sums_are_upserted(flights: Run) -> None:
    before = next(row for row in rows(flights) if row["delay"] is not None)
    key = f"{before['day']},{before['carrier']},{before['flight']}"
    Path("few.csv").write_text(
        f"day,carrier,flight,delay,status,updated_at\n{key},30,,2013-01-09T00:00:00Z\n"
    )
    said = flights("upsert", "flights", "few.csv", exit_code=1).stderr
    assert "an upsert with --missing keep keeps stored values" in said
    keeping = ("--missing", "keep", "--nulls", "keep", "--merge", "delay=sum")
    counts = answer(flights("upsert", "flights", "few.csv", *keeping, "--output", "json"))
    assert (counts["inserted"], counts["updated"]) == (0, 1)
    row = {row["flight"]: row for row in rows(flights)}[before["flight"]]
    assert row["updated_at"] > before["updated_at"]
    assert row == before | {"delay": before["delay"] + 30, "updated_at": row["updated_at"]}
    for given, problem in [
        (("--merge", "delay"), "COLUMN=RULE"),
        (("--missing", "null"), "keep"),
    ]:
        assert problem in flights("upsert", "flights", "few.csv", *given, exit_code=2).output
    said = flights("upsert", "flights", "few.csv", "--merge", "delay=add", exit_code=1).output
    assert "give one of the rules" in said
    day, carrier, flight = key.split(",")
    named = {"day": day, "carrier": carrier, "flight": int(flight)}
    at = {"updated_at": "2013-01-10T00:00:00Z"}
    lines = [json.dumps(named | at | more) for more in ({}, {"delay": 1})]
    Path("few.jsonl").write_text("\n".join(lines))
    said = flights("upsert", "flights", "few.jsonl", "--missing", "keep", exit_code=1).stderr
    assert "an object lacks 'delay'" in said


def test_statements_change_the_rows_of_the_table_that_is_named(flights: Run) -> None:
    Path("news.csv").write_text(
        "day,carrier,flight,origin,delay,status,updated_at\n"
        "2013-01-01,UA,1545,EWR,60,late,2013-01-03T00:00:00Z\n"
        "2013-01-01,AA,1141,JFK,,gone,2013-01-03T00:00:00Z\n"
        "2013-01-03,B6,1,JFK,3,arrived,2013-01-03T00:00:00Z\n"
    )
    on = "t.day = s.day AND t.carrier = s.carrier AND t.flight = s.flight"
    statement = (
        f"MERGE INTO flights t USING news s ON {on} WHEN MATCHED AND s.status = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET delay = coalesce(t.delay, 0) + s.delay "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    told = answer(
        flights("sql", "flights", statement, "--source", "news=news.csv", "--output", "json")
    )
    assert (told["inserted"], told["updated"], told["deleted"]) == (1, 1, 1)
    assert sorted(row["delay"] for row in rows(flights)) == [-1, 3, 62]
    flights("sql", "flights", "DELETE FROM flights WHERE delay < 3")
    assert sorted(row["delay"] for row in rows(flights)) == [3, 62]
    said = flights("sql", "flights", "SELECT 1", exit_code=1).stderr
    assert "for a query, call bucketlake read" in said
    said = flights("sql", "flights", statement, "--source", "news", exit_code=2).stderr
    assert "NAME=FILE" in said


def test_rows_are_updated_and_deleted_by_condition(flights: Run) -> None:
    flights("update", "flights", "--set", "delay = delay + 10", "--where", "status = 'arrived'")
    found = bl.open_table("flights").to_arrow(where="delay > 0")
    assert sorted(found["delay"].to_pylist()) == [9, 12]
    told = flights("--output", "json", "delete", "flights", "--where", "delay = 9", exit_code=2)
    assert "--output" in told.output
    told = flights("delete", "flights", "--where", "delay = 9", "--output", "json")
    assert json.loads(told.output)["deleted"] == 1
    assert (
        "did you mean 'delay'"
        in flights("update", "flights", "--set", "dela=1", exit_code=1).output
    )
    usage = flights("update", "flights", "--set", "delay", exit_code=2).output
    assert "COLUMN=EXPRESSION" in usage
    twice = ["--set", "delay=1", "--set", "delay = 2"]
    assert "names 'delay' twice" in flights("update", "flights", *twice, exit_code=2).output
    both = flights("delete", "flights", "flights.csv", "--where", "delay = 9", exit_code=2)
    assert "either files with keys, or --where" in both.output
