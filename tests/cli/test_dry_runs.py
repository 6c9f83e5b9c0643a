"""Commands with ``--run``: what they say without it, and where there is nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.storage.memory import forget

SCHEMA = pa.schema({"id": pa.string(), "v": pa.int64()})
ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]}, schema=SCHEMA)
KINDS = {
    "simple": bl.SimpleBucket(2),
    "version 8": bl.SimpleBucket(2),
    "several": bl.SimpleBucket(2, max_file_size=1000),
    "consistent": bl.ConsistentBucket(2),
    "dynamic": bl.DynamicBucket(),
}


@pytest.fixture(autouse=True)
def forgetting() -> Any:
    yield
    forget("dry")


def made(kind: str, commits: int) -> bl.Table:
    table = bl.create_table(
        "memory://dry", schema=SCHEMA, record_key="id", index=KINDS[kind],
        table_type="merge_on_read", version=8 if kind == "version 8" else 9,
    )  # fmt: skip
    for _ in range(commits):
        table.upsert(ROWS)
    return table


def called(*words: str) -> str:
    done = CliRunner().invoke(main, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def newest(table: bl.Table) -> str:
    return next(i.requested_at for i in table.timeline()[::-1] if i.action.writes_data)


# Kind of index, commits, words; {} is the newest commit.
BUSY: dict[str, tuple[str, int, list[str]]] = {
    "compact": ("simple", 2, []),
    "clean": ("simple", 5, ["--retain-versions", "1"]),
    "archive": ("simple", 5, ["--keep-min", "1", "--keep-max", "2"]),
    "rescale": ("simple", 1, ["--rules", "x,5"]),
    "resize": ("consistent", 1, ["--max-file-size", "1"]),
    "convert": ("simple", 1, ["--max-file-size", "1000"]),
    "convert --dynamic": ("simple", 1, []),
    "rollback": ("simple", 1, ["{}"]),
    "restore": ("simple", 1, ["{}"]),
    "metadata --drop": ("simple", 1, []),
    "metadata --rebuild": ("simple", 1, []),
    "upgrade": ("version 8", 1, []),
    "downgrade": ("simple", 1, ["--to", "8"]),
    "repair": ("simple", 1, []),
}
IDLE: dict[str, tuple[str, int, list[str]]] = {
    "compact": ("simple", 1, []),
    "clean": ("simple", 1, []),
    "archive": ("simple", 1, []),
    "resize": ("consistent", 1, ["--merge-threshold", "0"]),
    "convert": ("several", 1, ["--max-file-size", "1000"]),
    "convert --dynamic": ("dynamic", 1, []),
    "restore": ("simple", 1, ["{}"]),
    "upgrade": ("simple", 1, []),
    "downgrade": ("version 8", 1, ["--to", "8"]),
    "repair": ("simple", 1, []),
}


def prepared(command: str, case: tuple[str, int, list[str]], *, busy: bool) -> list[str]:
    """Make the table of a case; return the words of the command."""
    kind, commits, words = case
    table = made(kind, commits)
    instant = newest(table)
    if command == "restore":
        table.savepoint()
        for _ in range(busy):
            table.upsert(ROWS)
    if command == "clean" and busy:
        table.compact()
        table.upsert(ROWS)
        table.compact()
    if command == "repair" and busy:
        from bucketlake.storage.location import open_storage

        open_storage(table.path).put(".hoodie/.temp/20200101000000000/left.marker.CREATE", b"")
        words = ["--min-age", "0"]
    name, *options = command.split()
    return [name, "memory://dry", *options, *(word.format(instant) for word in words)]


def test_every_command_with_run_has_a_case() -> None:
    with_run = {
        name
        for name, command in main.commands.items()
        if any("--run" in p.opts for p in command.params if isinstance(p, click.Option))
    }
    assert with_run == {command.split()[0] for command in BUSY}


@pytest.mark.parametrize("command", BUSY)
def test_dry_run_with_work_says_add_run(command: str) -> None:
    words = prepared(command, BUSY[command], busy=True)
    before = len(bl.open_table("memory://dry").timeline())
    assert called(*words).splitlines()[-1] == "Nothing was changed; add --run to do it."
    facts = json.loads(called(*words, "--output", "json"))
    assert (facts["dry_run"], facts["nothing_to_do"]) == (True, False)
    assert len(bl.open_table("memory://dry").timeline()) == before
    facts = json.loads(called(*words, "--run", "--output", "json"))
    assert (facts["dry_run"], facts["nothing_to_do"]) == (False, False)


@pytest.mark.parametrize("command", IDLE)
def test_run_without_work_says_nothing_to_do(command: str) -> None:
    words = prepared(command, IDLE[command], busy=False)
    for run in ([], ["--run"]):
        last = called(*words, *run).splitlines()[-1]
        assert last == "Nothing was changed: there is nothing to do."
        facts = json.loads(called(*words, *run, "--output", "json"))
        assert (facts["dry_run"], facts["nothing_to_do"]) == (not run, True)


def test_dry_run_with_a_pending_plan_has_something_to_do() -> None:
    made("simple", 2).compact(schedule_only=True)
    shown = called("compact", "memory://dry")
    assert "pending" in shown
    assert "add --run" in shown


def test_doctor_says_no_findings_and_what_was_not_checked() -> None:
    made("simple", 1)
    shown = called("doctor", "memory://dry")
    assert "no findings" in shown
    assert "keys: --check-keys" in shown
    assert "check_keys=True" not in shown
    facts = json.loads(called("doctor", "memory://dry", "--check-keys", "--output", "json"))
    assert facts["summary"] == "no findings"
    assert facts["findings"] == []
    assert "keys" in facts["checked"]
    assert facts["not_checked"][0].startswith("files:")


def test_misspelled_words_of_a_command_are_answered_with_those_that_are_meant(
    tmp_path: Path,
) -> None:
    (tmp_path / "monday.csv").write_text("id\na\n")
    runner = CliRunner()
    for words, meant in (
        (["upsrt", "t"], "upsert"),
        (["create", "t", "--key", "id", "--like", f"{tmp_path}/mondy.csv"], "monday.csv"),
        (["create", "t", "--key", "id", "--schema", "id:string", "--index", "dynmic"], "dynamic"),
        (["create", "t", "--key", "id", "--schema", "id:sting"], "string"),
        (["create", "t", "--key", "idd", "--schema", "id:string"], "id"),
    ):
        done = runner.invoke(main, words)
        assert done.exit_code != 0
        assert f"did you mean {meant!r}?" in done.output, done.output


def test_error_on_the_command_line_advises_commands_alone() -> None:
    made("simple", 1)
    done = CliRunner().invoke(main, ["rollback", "memory://dry", "20200101000000000"])
    assert "see bucketlake timeline" in done.output
    assert "table.timeline()" not in done.output
    assert "memory://dry" in done.output
