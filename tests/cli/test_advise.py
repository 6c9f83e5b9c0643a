"""``bucketlake advise``: about a table, and about files before there is a table."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import bucketlake as bl
from bucketlake.cli.main import main

ROWS = pa.table({"id": [f"k{n}" for n in range(400)], "day": ["a", "b"] * 200, "at": [1] * 400})


def run(*words: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, words, prog_name="bucketlake")
    assert result.exit_code == exit_code, result.output
    return result


def answer(*words: str) -> Any:
    return json.loads(run(*words, "--output", "json").stdout)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(ROWS, "rows.parquet")
    return tmp_path


@pytest.fixture
def table() -> bl.Table:
    """A table with more files than it needs, and commits that no clean has followed."""
    made = bl.create_table(
        "orders", schema=ROWS.schema, record_key="id", partition_by="day", index=bl.SimpleBucket(8)
    )
    for _ in range(11):
        made.upsert(ROWS)
    return made


def test_commands_of_the_advice_do_what_is_advised(table: bl.Table, folder: Path) -> None:
    found = {own["subject"]: own for own in answer("advise", "orders")["advice"]}
    words = {name: shlex.split(own["command"] or "") for name, own in found.items()}
    path = str(folder / "orders")
    assert words["index"][1:] == ["rescale", path, "--rules", ".*,1", "--default", "1", "--run"]
    assert words["upkeep"][1:] == ["upkeep", path, "--set", "auto"]
    assert words["clean"][1:] == ["clean", path, "--run"]
    for own in found.values():
        if own["command"] is not None:
            run(*shlex.split(own["command"])[1:])
    assert [own["subject"] for own in answer("advise", "orders")["advice"] if own["changes"]] == []
    assert len(table.buckets()) == 2


def test_text_names_commands_and_no_calls(table: bl.Table) -> None:
    said = run("advise", table.path).stdout
    assert "\n  bucketlake rescale " in said
    assert "table type: keep copy_on_write" in said
    assert "table." not in said
    assert "rows written for each changed row" in said.splitlines()[0]
    unknown = run("advise", "--sample", "rows.parquet", "--key", "id").stdout
    assert "is not known: give --rows" in unknown


def test_command_for_a_sample_makes_the_table() -> None:
    asked = ["advise", "--sample", "rows.parquet", "--key", "id", "--partition-by", "day"]
    found = answer(*asked, "--ordering", "at", "--rows", "900000000", "--partitions", "4")
    assert found["workload"]["partitions"] == 2
    index = found["advice"][0]
    words = [
        {"PATH": "made", "FILE": "rows.parquet"}.get(w, w) for w in shlex.split(index["command"])
    ]
    run(*words[1:])
    made = bl.open_table("made")
    assert repr(made.index) == repr(eval(index["advised"], {"bl": bl}))
    assert made.config().upkeep == "auto"
    old = answer(*asked, "--table-version", "8", "--hudi-writers")["advice"][0]
    assert old["advised"] == "bl.SimpleBucket(4)"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give either PATH, or --sample FILE"),
        (("orders", "--sample", "rows.parquet"), "give either PATH, or --sample FILE"),
        (("--sample", "rows.parquet"), "--sample needs --key"),
        (("orders", "--rows", "5"), "only --target-file-size belongs to it"),
        (("orders", "--hudi-writers"), "only --target-file-size belongs to it"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(words: tuple[str, ...], said: str) -> None:
    assert said in run("advise", *words, exit_code=2).stderr


def test_a_table_or_file_that_is_not_there_is_an_error() -> None:
    assert "nowhere" in run("advise", "nowhere", exit_code=1).stderr
    assert (
        "row.parquet" in run("advise", "--sample", "row.parquet", "--key", "id", exit_code=2).stderr
    )
