"""What a new user of the command line sees: help, completion, a terminal of 80 cells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.cli.output import Output

TYPES = "id string, s struct<a:int,b:string,c:array<struct<x:int,y:string>>>, op string"


def said(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments, prog_name="bucketlake")
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without commits, with a delete marker and a nested column."""
    monkeypatch.chdir(tmp_path)
    said("create", "orders", "--schema", TYPES, "--key", "id", "--delete-marker", "op=D")


@pytest.mark.parametrize("command", ["upsert", "update", "delete", "sql", "resize"])
def test_options_of_the_index_are_shown_only_where_they_are_asked_for(command: str) -> None:
    usual, whole = said(command, "--help"), said(command, "--help-index")
    assert "--help-index" in usual
    assert "--min-buckets" not in usual
    assert "Index options, only for a table that stores no index setting:" in whole
    for option in ("--index", "--buckets", "--min-buckets", "--assigners", "--hash-field"):
        assert f"  {option} " in whole
    assert len(usual.splitlines()) < len(whole.splitlines()) - 15


def test_help_of_create_has_the_options_of_the_index_in_a_section_of_their_own() -> None:
    before, _, section = said("create", "--help").partition("\nIndex options:\n")
    for option in ("--index", "--buckets", "--rules", "--max-file-size"):
        assert f"  {option} " in section
        assert f"  {option} " not in before
    assert "--buckets" not in said("--help")


def test_a_delete_marker_is_stored_and_shown(table: None) -> None:
    assert bl.open_table("orders").config().custom_marker == ("op", "D")
    assert "delete_marker  op = 'D'" in said("show", "orders")
    create = ("create", "t", "--schema", TYPES, "--key", "id")
    wrong = said(*create, "--delete-marker", "op", exit_code=2)
    assert "--delete-marker 'op' is not COLUMN=TEXT" in wrong


def test_show_and_timeline_fit_into_80_cells(table: None, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = bl.open_table("orders")
    for name in ("a", "b"):
        handle.upsert([{"id": name, "s": None, "op": "I"}])
    monkeypatch.setattr(Output, "_room", 80)
    for command in ("show", "timeline", "clean", "doctor"):
        lines = said(command, "orders").splitlines()
        assert max(map(len, lines)) <= 80, lines
    cut = "  s     true      struct<a: int32, b: string, c: list<element: struct<x: int32,…"
    assert cut in said("show", "orders").splitlines()
    assert "action  operation  written  deleted  written_bytes" in said("timeline", "orders")


def test_clean_says_why_nothing_goes_as_in_python(table: None) -> None:
    handle = bl.open_table("orders")
    assert "the newest 10 stay: retain_commits=N" in str(handle.clean())
    assert "the newest 10 stay: --retain-commits N keeps fewer" in said("clean", "orders")
    handle.upsert([{"id": "a", "s": None, "op": "I"}])
    assert "more than 1 versions" in str(handle.clean(retain_versions=1))
    assert "before the last 1 hours" in str(handle.clean(retain_hours=1))
    handle.upsert([{"id": "a", "s": None, "op": "U"}])
    report = handle.clean(retain_versions=1, dry_run=True)
    assert (report.held_back, report.partitions[0].files) == (None, 1)


@pytest.mark.parametrize(
    ("words", "word", "answer"),
    [
        ("bucketlake ups", 1, "plain,upsert"),
        ("bucketlake show ord", 2, "dir,ord"),
        ("bucketlake upsert orders mon", 3, "file,mon"),
        ("bucketlake report orders --to rep", 4, "file,rep"),
        ("bucketlake create orders --table-type merge", 4, "plain,merge_on_read"),
    ],
)
def test_a_shell_completes_commands_options_and_paths(words: str, word: int, answer: str) -> None:
    asked = {"_BUCKETLAKE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(word)}
    command = Path(sys.executable).with_name("bucketlake")
    done = subprocess.run(
        [command], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [answer]
