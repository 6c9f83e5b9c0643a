"""Writes docs/reference.md from the code: public names, errors, options of save, commands.

usage: uv run python scripts/reference.py [--check]
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import click

import bucketlake
from bucketlake import errors
from bucketlake.cli.main import main as command_line
from bucketlake.config import key_entries, record_options, resize_options, write_options
from bucketlake.index.hashing_config import HashingConfig
from bucketlake.index.recorded_counts import RecordedCount
from bucketlake.metadata.overview import MetadataPartitionFacts, MetadataTableFacts
from bucketlake.read.buckets import Bucket, RecordLocation
from bucketlake.read.history import TimelineEntry
from bucketlake.read.pruning.prune import PruningReport
from bucketlake.services.archival import ArchiveReport
from bucketlake.services.cleaning import CleanedPartition, CleanReport
from bucketlake.services.compaction import CompactedSlice, CompactionReport
from bucketlake.services.conversion import ConversionReport
from bucketlake.services.findings import Finding, Findings
from bucketlake.services.repair import RepairReport
from bucketlake.services.rescale import PartitionChange, RescaleReport
from bucketlake.services.resize.report import ResizedBuckets, ResizeReport
from bucketlake.services.restore_service import RestoreReport
from bucketlake.services.rollback_service import RollbackReport, UndoneCommit
from bucketlake.timeline import lock_options

TARGET = Path(__file__).parents[1] / "docs" / "reference.md"

HEAD = """\
# Reference

Written from the docstrings by `uv run python scripts/reference.py`; change those, not this page.

[Functions](#functions) · [Table](#table) · [Settings and results](#settings-and-results) ·
[Errors](#errors) · [Options of save](#options-of-save) · [Command line](#command-line)

```python
import bucketlake as bl
```
"""

FUNCTIONS = ("create_table", "open_table", "convert", "save")
VALUES = (
    *("SimpleBucket", "PartitionBucket", "ConsistentBucket", "ExtendibleBucket"),
    *("DynamicBucket", "RecordIndex"),
    *("TimestampPartition", "WriteResult"),
    *("FileSystemLock", "StorageLock", "InProcessLock"),
)
RETURNED = (
    *(Bucket, RecordLocation, PruningReport, TimelineEntry, HashingConfig, RecordedCount),
    *(
        RescaleReport,
        PartitionChange,
        ConversionReport,
        CompactionReport,
        CompactedSlice,
        ResizeReport,
        ResizedBuckets,
        ArchiveReport,
    ),
    *(CleanReport, CleanedPartition, RollbackReport, RestoreReport, UndoneCommit),
    *(Finding, Findings, RepairReport),
    *(MetadataTableFacts, MetadataPartitionFacts),
)
HELP_WIDTH = 100

_SECTION = re.compile(r"^(?P<title>[A-Z]\w+)\n-{3,}\n", re.MULTILINE)
_ROLE = re.compile(r":(?P<role>class|func|meth|attr|mod):`~?(?P<name>[^`]+)`")


def render() -> str:
    """Return the whole page."""
    parts = [
        HEAD,
        "## Functions\n",
        *(_function(getattr(bucketlake, name), f"bl.{name}") for name in FUNCTIONS),
        "## Table\n",
        *_table(),
        "## Settings and results\n",
        *(_class(getattr(bucketlake, name), f"bl.{name}") for name in VALUES),
        *(_class(kind, kind.__name__) for kind in RETURNED),
        "## Errors\n",
        *_errors(),
        "## Options of save\n",
        *_options(),
        "## Command line\n",
        *_commands(),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


# ---- docstrings ---------------------------------------------------------------------------------


def _function(function: object, shown_name: str, level: int = 3) -> str:
    title = f"{'#' * level} {shown_name}\n"
    return f"{title}\n{_code(_signature(function, shown_name))}\n{_prose(function)}"


def _class(kind: type, shown_name: str, level: int = 3) -> str:
    title = f"{'#' * level} {shown_name}\n"
    if not shown_name.startswith("bl."):
        return f"{title}\n\n{_prose(kind)}"
    members = [f"- {_member(name, found)}" for name, found in _members(kind)]
    listed = "\n".join(["\n**Members**\n", *members]) + "\n" if members else ""
    return f"{title}\n{_code(_signature(kind, shown_name))}\n{_prose(kind)}{listed}"


def _members(kind: type) -> Iterator[tuple[str, object]]:
    """Yield public methods and properties."""
    for name, found in vars(kind).items():
        found = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, property)):
            yield name, found


def _member(name: str, found: object) -> str:
    first_line = (inspect.getdoc(found) or "").partition("\n")[0]
    if isinstance(found, property):
        return _inline(f"`{name}`: {first_line}")
    parameters = [p for p in inspect.signature(found).parameters if p not in ("self", "cls")]  # type: ignore[arg-type]
    return _inline(f"`{name}({', '.join(parameters)})`: {first_line}")


def _table() -> Iterator[str]:
    yield _prose(bucketlake.Table)
    for name, method in vars(bucketlake.Table).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            yield _function(method, f"table.{name}")


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```\n"


def _signature(target: object, shown_name: str) -> str:
    """Print a signature with its annotations as they are written, over lines where it is long."""
    signature = inspect.signature(target)  # type: ignore[arg-type]
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        annotation = f": {parameter.annotation}" if parameter.annotation != parameter.empty else ""
        default = f" = {parameter.default!r}" if parameter.default is not parameter.empty else ""
        parts.append(f"{parameter.name}{annotation}{default}")
    returned = signature.return_annotation
    arrow = f" -> {returned}" if isinstance(returned, str) and returned != "None" else ""
    one_line = f"{shown_name}({', '.join(parts)}){arrow}"
    if len(one_line) <= HELP_WIDTH:
        return one_line
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{shown_name}(\n{lines}){arrow}"


def _prose(target: object) -> str:
    """Render a numpydoc docstring as Markdown."""
    text = inspect.getdoc(target) or ""
    pieces = _SECTION.split(f"{text}\n")
    lead = _inline(pieces[0]).strip() + "\n"
    sections = zip(pieces[1::2], pieces[2::2], strict=True)
    return "\n".join([lead, *(_section(title, body) for title, body in sections)])


def _section(title: str, body: str) -> str:
    if title == "Examples":
        return f"**{title}**\n\n{_code(body.strip())}"
    if title == "Notes":
        return f"{_inline(body).strip()}\n"
    entries = "\n".join(f"- {_entry(title, *entry)}" for entry in _entries(body))
    return f"**{title}**\n\n{entries}\n"


def _entries(body: str) -> Iterator[tuple[str, str]]:
    """Yield (head, text) of each entry of a section."""
    for block in re.split(r"\n(?=\S)", body.strip()):
        head, _, text = block.partition("\n")
        yield head, " ".join(line.strip() for line in text.splitlines() if line.strip())


def _entry(title: str, head: str, text: str) -> str:
    name, colon, kind = head.partition(" : ")
    shown = f"**{name}** (`{kind.replace('`', '')}`)" if colon else f"`{name}`"
    if title in ("Parameters", "Attributes") and not colon:
        shown = f"**{name}**"
    return _inline(f"{shown}: {text}" if text else shown)


def _inline(text: str) -> str:
    """Turn roles and double backticks into Markdown's backticks."""

    def spelled(match: re.Match[str]) -> str:
        name = match["name"].rpartition(".")[2] if match["role"] != "mod" else match["name"]
        return f"`{name}()`" if match["role"] in ("func", "meth") else f"`{name}`"

    return _ROLE.sub(spelled, text).replace("``", "`")


# ---- errors -------------------------------------------------------------------------------------


def _errors() -> Iterator[str]:
    tree = (errors.__doc__ or "").partition("::\n\n")[2].partition("\n\nThere is a class")[0]
    yield (
        "`except bl.BucketLakeError` catches all errors. `error.table` is the address of the "
        "table, if one is concerned. [What to do about each](how-to/recover.md).\n"
    )
    yield _code(inspect.cleandoc(tree), "text")
    yield _table_of(
        "error | when | facts", [_error_cells(kind) for kind in _public_classes(errors)]
    )


def _error_cells(kind: type) -> tuple[str, ...]:
    facts = ", ".join(f"`{name}`" for name in _facts_of(kind)) or "–"
    return f"`bl.{kind.__name__}`", _inline((inspect.getdoc(kind) or "").partition("\n")[0]), facts


def _table_of(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    rule = "|".join("---" for _ in head.split("|"))
    lines = [f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _public_classes(module: ModuleType) -> Iterable[type]:
    return (
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
    )


def _facts_of(kind: type) -> list[str]:
    """Return what an error was made of: the parameters of the nearest constructor of ours."""
    for base in kind.__mro__:
        if base.__module__ == errors.__name__ and "__init__" in vars(base):
            return [name for name in inspect.signature(base.__init__).parameters if name != "self"]
    return []


# ---- options of save ----------------------------------------------------------------------------


def _options() -> Iterator[str]:
    aliases: dict[str, list[str]] = {}
    for alias, key in write_options._ALIASES.items():
        aliases.setdefault(key, []).append(alias)
    yield (
        "An option of a Hudi job is used, checked, ignored, or unknown. "
        "[How to move a job](how-to/move-a-hudi-job.md).\n\n"
        "**Used.** Other spellings mean the same.\n"
    )
    prefix = write_options.keys.TIMESTAMP_PREFIX
    timestamps = {f"{prefix}{name}": text for name, text in key_entries._TIMESTAMP_NAMES.items()}
    used = write_options._USED | resize_options.USED | record_options.USED
    used = used | lock_options.USED | timestamps
    yield _table_of(
        "option | meaning | other spellings",
        [
            (f"`{key}`", used[key], ", ".join(f"`{a}`" for a in aliases.get(key, [])) or "–")
            for key in sorted(used)
        ],
    )
    yield "**Checked.** Every other value is rejected, because it would change the result.\n"
    checked = {key: f"`{value}`" for key, value in write_options._ONLY_VALUE.items()}
    checked["hoodie.storage.layout.type"] = "`BUCKET`; with a record-level index `DEFAULT`"
    checked |= {lock_options.LOCK_FOLDER: "not set", resize_options.SERVICE: "`false`"}
    for key, classes in resize_options.CHECKED.items():
        names = " or ".join(f"`…{name}`" for name in classes)
        checked[key] = f"with engine `{resize_options.ENGINE}`: {names}; else it is unknown"
    yield _table_of("option | allowed value", [(f"`{k}`", checked[k]) for k in sorted(checked)])
    yield (
        "**Ignored.** All other options that match one of these patterns: they tune Hudi's engine "
        "and change no result.\n\n"
        + "\n".join(f"- {pattern}" for pattern in sorted([*_tuning_patterns(), f"`{prefix}*`"]))
        + "\n\n**Unknown.** Any other option has no effect; a warning names it.\n"
    )


def _tuning_patterns() -> Iterator[str]:
    """Yield the alternatives of the pattern, as a person writes them."""
    inner = write_options._TUNING.pattern.removeprefix(r"hoodie\.(").removesuffix(")")
    for alternative in _split_alternatives(inner):
        refused = re.search(r"\(\?!([^)]*)\)", alternative)
        shown = re.sub(r"\(\?![^)]*\)", "", alternative).replace(r"\.", ".").replace(".*", "*")
        but = ""
        if refused is not None:
            names = refused[1].split("|")
            whole = [f"`{name[:-1]}` itself" for name in names if name.endswith("$")]
            begun = ", ".join(f"`{name}`" for name in names if not name.endswith("$"))
            spared = [*whole, *([f"names that begin with {begun}"] if begun else [])]
            but = f", except {' and '.join(spared)}"
        yield f"`hoodie.{shown}`{but}"


def _split_alternatives(pattern: str) -> Iterator[str]:
    depth, taken = 0, ""
    for letter in pattern:
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and depth == 0:
            yield taken
            taken = ""
        else:
            taken += letter
    yield taken


# ---- commands -----------------------------------------------------------------------------------


def _commands() -> Iterator[str]:
    context = _context(command_line, "bucketlake", None)
    yield _code(command_line.get_help(context), "text")
    for name, command in command_line.commands.items():
        yield f"### bucketlake {name}\n"
        yield _code(command.get_help(_context(command, name, context)), "text")
    outcome = importlib.import_module("bucketlake.cli.main").__doc__ or ""
    yield _inline(outcome.partition("\n\n")[2])


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {"terminal_width": HELP_WIDTH, "help_option_names": ["-h", "--help"]}
    return click.Context(command, info_name=name, parent=parent, **settings)


def main() -> int:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if out of date")
    page = render()
    if parser.parse_args().check:
        return int(not TARGET.exists() or TARGET.read_text(encoding="utf-8") != page)
    TARGET.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
