"""Each call and command that a message names exists, with these parameters and options."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.cli.output import in_command_words

SOURCES = Path(bl.__file__).parent
WITHOUT_COMMANDS = {"hudi_job.py", "resize_options.py"}  # The command line has no ``save``.

COMMAND_OF = {
    **{name: name for name in main.commands if hasattr(bl.Table, name)},
    "rebuild_metadata_table": "metadata",
    "drop_metadata_table": "metadata",
    "delete_savepoint": "savepoint",
    "create_table": "create",
    "set_upkeep": "upkeep",
}

INNER = r"\([^()]*(?:\([^()]*\)[^()]*)*\)"
CALL = re.compile(
    rf"\b(?:(?P<owner>table|Table|bl)\.(?P<method>\w+)|(?P<name>create_table|open_table|convert|save))"
    rf"(?P<given>{INNER})(?P<rest>.?.?)"
)
UNCALLED = re.compile(r"\b(?:Table|bl|bucketlake)\.[a-z_]+\b(?!\(|\.|`)")
COMMAND = re.compile(r"""[("]bucketlake (?P<name>[a-z]+)(?P<words>[^)"]*)[)"]""")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that are no docstrings; a value in a text becomes ``X``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(node.value)
        if isinstance(node, ast.JoinedStr):
            skipped.update(ast.walk(node) if node in skipped else node.values)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "X" for p in node.values)
            yield node.lineno, "".join(map(str, parts))


MESSAGES = [
    (f"{path.relative_to(SOURCES)}:{line}", text)
    for path in sorted(SOURCES.rglob("*.py"))
    for line, text in literals(path)
]


def parameters_of(call: re.Match[str]) -> set[str]:
    owner = bl.Table if call["method"] and call["owner"] != "bl" else bl
    return {*inspect.signature(getattr(owner, call["method"] or call["name"])).parameters}


def options_of(command: click.Command) -> set[str]:
    return {word for p in command.params for word in (*p.opts, *p.secondary_opts)}


def has_options(name: str, keywords: set[str]) -> bool:
    """Return whether the command of a call can say what the parameters say."""
    options = options_of(main.commands[COMMAND_OF[name]])
    return all(f"--{keyword.replace('_', '-')}" in options for keyword in keywords)


CALLS: list[Any] = [
    pytest.param(where, call, id=f"{where}-{call['method'] or call['name']}")
    for where, text in MESSAGES
    for call in CALL.finditer(text)
]
COMMANDS: list[Any] = [
    pytest.param(found, id=f"{where}-{found['name']}")
    for where, text in MESSAGES
    for found in COMMAND.finditer(text)
]


def test_the_messages_name_many_calls_and_commands() -> None:
    assert len(CALLS) > 30
    assert len(COMMANDS) > 30


@pytest.mark.parametrize(("where", "call"), CALLS)
def test_call_in_a_message_exists_with_its_parameters_and_names_its_command(
    where: str, call: re.Match[str]
) -> None:
    keywords = set(re.findall(r"(\w+)=", re.sub(r"\w+" + INNER, "", call["given"][1:-1])))
    assert keywords <= parameters_of(call)
    name = call["method"] or call["name"]
    module = where.rpartition("/")[2].partition(":")[0]
    if name in COMMAND_OF and module not in WITHOUT_COMMANDS and has_options(name, keywords):
        assert call["rest"] == " (", f"{where}: name the command too: {call[0]}"


@pytest.mark.parametrize("found", COMMANDS)
def test_command_in_a_message_exists_with_its_options_and_does_what_is_advised(
    found: re.Match[str],
) -> None:
    command = main.commands[found["name"]]
    given = set(re.findall(r"--[a-z-]+", found["words"]))
    assert given <= options_of(command)
    changes = found["name"] != "metadata" or given & {"--rebuild", "--drop"}
    if found[0].startswith("(") and "--run" in options_of(command) and changes:
        assert "--run" in given, f"without --run it does nothing: {found[0]}"


def test_messages_write_calls_with_brackets() -> None:
    lacking = [
        (where, found[0])
        for where, text in MESSAGES
        if " " in text
        for found in UNCALLED.finditer(text)
    ]
    assert lacking == []


@pytest.mark.parametrize(
    ("both", "command_words"),
    [
        ("use table.clean() (bucketlake clean --run) first", "use bucketlake clean --run first"),
        ("with cascade=True (--cascade)", "with --cascade"),
        ("open_table(path, index=SimpleBucket(count)) (--buckets COUNT)", "--buckets COUNT"),
        ("merge_schema=['a', 'b'] (command line: --a --b), which", "--a --b, which"),
        ("index=RecordIndex(partitioned=True) (--index record)", "--index record"),
        ("a bucket index has one group (4 buckets)", "a bucket index has one group (4 buckets)"),
    ],
)
def test_command_line_says_its_own_words(both: str, command_words: str) -> None:
    assert in_command_words(both) == command_words
