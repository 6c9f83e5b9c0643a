"""Writes docs/reference.md, the pages in docs/reference/ and docs/hudi-options.md from the code.

The first lists the public names, each with a line; the pages tell all of them, the errors, the
options of save and the commands; the last has all options of Hudi.

usage: uv run python scripts/reference.py [--check]
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import click

import bucketlake
from bucketlake import errors
from bucketlake.catalogs.synchronize import TableSync
from bucketlake.catalogs.table_sync import SyncResult
from bucketlake.cli.main import main as command_line
from bucketlake.cli.shared_options import INDEX_HELP
from bucketlake.config.hudi_options import HudiOption, Rule, hudi_options
from bucketlake.index.hashing_config import HashingConfig
from bucketlake.index.recorded_counts import RecordedCount
from bucketlake.intake.metrics import IngestReport
from bucketlake.metadata.contents import MetadataPartitionFacts, MetadataTableFacts
from bucketlake.model.result import UpkeepStep
from bucketlake.read.buckets import Bucket, Buckets, PartitionSizes, RecordLocation, TableSize
from bucketlake.read.history import TimelineEntry
from bucketlake.read.pruning.prune import PruningReport
from bucketlake.services.advice.advice import Advice, AdviceList
from bucketlake.services.advice.workload import HotValue, PartitionFacts, Workload
from bucketlake.services.archival import ArchiveReport
from bucketlake.services.check.findings import Finding, Findings
from bucketlake.services.check.repair import RepairReport
from bucketlake.services.cleaning import CleanedPartition, CleanReport
from bucketlake.services.compaction import CompactedSlice, CompactionReport
from bucketlake.services.rebucket.kind_conversion import ConversionReport
from bucketlake.services.rebucket.rescale import PartitionChange, RescaleReport
from bucketlake.services.resize.service import ResizedBuckets, ResizeReport
from bucketlake.services.undo.rollback_commits import RollbackReport, UndoneCommit
from bucketlake.services.undo.savepoints import RestoreReport
from bucketlake.services.version_change import VersionReport
from bucketlake.write.merge_statement import Merge

DOCS = Path(__file__).parents[1] / "docs"
INDEX_PAGE = DOCS / "reference.md"
FOLDER = DOCS / "reference"
OPTIONS_PAGE = DOCS / "hudi-options.md"

OPTIONS_HEAD = """\
# All options of Hudi

Written from `src/bucketlake/config/hudi_options.tsv` by `uv run python scripts/reference.py`;
change that file, not this page.

What `bl.save` does with each option that a class of Hudi 1.2.0 declares, and with the options that
only bucketlake has. The [reference](reference/options-of-save.md) has the meaning of each used
option, and the next step for each refused one.

- **used**: `save` follows the option.
- **tuning**: the table has the same rows without the option, so `save` passes over it.
- **refused**: every value but the accepted ones is an error, because it would change rows, or
  because the job would miss something that it asked for.

"""

HEAD = """\
# Reference

Written from the docstrings by `uv run python scripts/reference.py`; change those, not this page.

```python
import bucketlake as bl
```
"""
SOURCE_LINE = (
    "Written from the code by `uv run python scripts/reference.py`; change that, not this page. "
    "[All pages of the reference](../reference.md)\n"
)

FUNCTIONS = (
    *(
        "create_table",
        "open_table",
        "convert",
        "advise",
        "save",
        "files",
        "history",
        "ingest",
        "debezium",
        "sql",
        "register",
        "sync",
        "blob",
        "blob_reference",
        "read_blob",
        "variant",
        "variant_json",
    ),
)
WRITES = (
    *("upsert", "upsert_batch", "insert", "bulk_insert", "insert_overwrite", "update", "delete"),
    *("merge", "delete_partitions"),
)
READS = (
    *("scan", "read", "to_arrow", "to_pandas", "to_polars", "count", "show", "explain"),
    *("changes", "changes_to_arrow", "locate", "record_locations", "buckets", "timeline", "report"),
    *("position", "unseen", "advise", "rule_versions", "recorded_counts", "schema", "config"),
)
"""Methods of a table that write and that read; all others are services."""
VALUES = (
    *("SimpleBucket", "PartitionBucket", "ConsistentBucket", "ExtendibleBucket"),
    *("DynamicBucket", "RecordIndex"),
    *("TimestampPartition", "Position"),
    *("FileSystemLock", "StorageLock", "InProcessLock"),
)
RETURNED = (
    bucketlake.WriteResult,
    UpkeepStep,
    Merge,
    bucketlake.Scan,
    bucketlake.ChangeHistory,
    *(Bucket, Buckets, PartitionSizes, TableSize, TimelineEntry),
    *(RecordLocation, PruningReport, HashingConfig, RecordedCount),
    *(AdviceList, Advice, Workload, PartitionFacts, HotValue),
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
    *(CleanReport, CleanedPartition, RollbackReport, RestoreReport, UndoneCommit, VersionReport),
    *(IngestReport, SyncResult, TableSync),
    *(Finding, Findings, RepairReport),
    *(MetadataTableFacts, MetadataPartitionFacts),
)
HELP_WIDTH = 100

_SECTION = re.compile(r"^(?P<title>[A-Z]\w+)\n-{3,}\n", re.MULTILINE)
_ROLE = re.compile(r":(?P<role>class|func|meth|attr|mod):`~?(?P<name>[^`]+)`")


@dataclass(frozen=True)
class Page:
    """A page of the reference: its public names, each with what it is, or other parts."""

    name: str
    title: str
    lead: str
    entries: Mapping[str, object] = field(default_factory=dict)
    parts: Sequence[str] = ()

    def text(self) -> str:
        """Return the whole page."""
        told = (
            _class(found, name) if inspect.isclass(found) else _function(found, name)
            for name, found in self.entries.items()
        )
        parts = (f"# {self.title}\n", SOURCE_LINE, self.lead, *told, *self.parts)
        return "\n".join(part.rstrip() + "\n" for part in parts if part)

    def listed(self) -> Iterator[str]:
        """Yield what the first page says of this one."""
        yield f"## [{self.title}](reference/{self.name}.md)\n"
        rows = [
            (f"[`{name}`](reference/{self.name}.md#{_anchor(name)})", _first_sentence(found))
            for name, found in self.entries.items()
        ]
        yield _table_of("name | what it is", rows) if rows else f"{self.lead}\n"


def render() -> dict[Path, str]:
    """Return the text of each page."""
    methods = {
        name: method
        for name, method in vars(bucketlake.Table).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    services = tuple(name for name in methods if name not in (*WRITES, *READS))
    pages = [
        Page("functions", "Functions", "", {f"bl.{n}": getattr(bucketlake, n) for n in FUNCTIONS}),
        Page("table-writes", "Table: writes", "", _of_table(methods, WRITES)),
        Page("table-reads", "Table: reads", "", _of_table(methods, READS)),
        Page("table-services", "Table: services", "", _of_table(methods, services)),
        Page("settings", "Settings", "", {f"bl.{n}": getattr(bucketlake, n) for n in VALUES}),
        Page("results", "Results", "", {_shown(kind): kind for kind in RETURNED}),
        Page("errors", "Errors", "All errors, and the facts that each has.", parts=[*_errors()]),
        Page(
            "options-of-save",
            "Options of save",
            "What `bl.save` does with the options of a Hudi job.",
            parts=[*_options()],
        ),
        Page(
            "commands",
            "Command line",
            "The commands for rows and facts of a table, their options and examples.",
            parts=[*_commands_page(upkeep=False)],
        ),
        Page(
            "commands-upkeep",
            "Command line: upkeep",
            "The commands for the upkeep of a table, from `compact` on.",
            parts=[*_commands_page(upkeep=True)],
        ),
    ]
    table = ["## Table\n", _prose(bucketlake.Table)]
    index = [HEAD, *table, *(part for page in pages for part in page.listed())]
    return {
        INDEX_PAGE: "\n".join(part.rstrip() + "\n" for part in index),
        **{FOLDER / f"{page.name}.md": page.text() for page in pages},
        OPTIONS_PAGE: render_options(),
    }


def _of_table(methods: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    return {f"table.{name}": methods[name] for name in names}


def _shown(kind: type) -> str:
    return f"bl.{kind.__name__}" if hasattr(bucketlake, kind.__name__) else kind.__name__


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")


def _first_sentence(target: object) -> str:
    return _inline((inspect.getdoc(target) or "").partition("\n\n")[0].replace("\n", " "))


# ---- docstrings ---------------------------------------------------------------------------------


def _function(function: object, shown_name: str) -> str:
    code = _code(_signature(function, shown_name))
    return f"## {shown_name}\n\n{code}\n{_prose(function)}"


def _class(kind: type, shown_name: str) -> str:
    title = f"## {shown_name}\n"
    if not shown_name.startswith("bl."):
        return f"{title}\n{_prose(kind)}"
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
        "table, if one is concerned. [What to do about each](../how-to/recover.md).\n"
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
    yield (
        "An option of a Hudi job is used, refused, or without effect on the rows (tuning). "
        "[How to move a job](../how-to/move-a-hudi-job.md). [All options](../hudi-options.md) "
        "lists each option of Hudi with its rule.\n\n"
        "**Used.** Other names mean the same; if an option is given under several names, the first "
        "name counts, then the earlier of the others.\n"
    )
    options = sorted(hudi_options().values(), key=lambda option: option.key)
    yield _table_of(
        "option | meaning | other names",
        [(*_named(option), _other_names(option)) for option in options if option.rule is Rule.USED],
    )
    yield "**Refused.** Every value but the accepted ones is an error with the next step.\n"
    yield _table_of(
        "option | accepted | next step",
        [
            (f"`{option.key}`", _accepted(option), option.text)
            for option in options
            if option.rule is Rule.REFUSED
        ],
    )
    yield (
        "**Tuning.** All other options of Hudi 1.2: they tune Hudi's engine, or belong to readers "
        "or to services that bucketlake does not need. The rows are the same without them.\n\n"
        "**Unknown.** Any other option has no effect; a warning names it, and the option that may "
        "be meant. The warning also names options of a bucket engine that the job does not use.\n"
    )


def render_options() -> str:
    """Return the page of all options."""
    told = {Rule.USED: "used", Rule.TUNING: "tuning"}
    return OPTIONS_HEAD + _table_of(
        "option | rule | other names",
        [
            (
                f"`{option.key}`",
                told.get(option.rule) or f"refused; accepted: {_accepted(option)}",
                _other_names(option),
            )
            for option in sorted(hudi_options().values(), key=lambda option: option.key)
        ],
    )


def _named(option: HudiOption) -> tuple[str, str]:
    return f"`{option.key}`", option.text


def _accepted(option: HudiOption) -> str:
    return " or ".join(f"`{value}`" for value in option.values) or "no value"


def _other_names(option: HudiOption) -> str:
    return ", ".join(f"`{name}`" for name in option.other_names) or "–"


# ---- commands -----------------------------------------------------------------------------------


def _commands_page(*, upkeep: bool) -> Iterator[str]:
    """Yield the half of the commands from ``compact`` on, or the other one and what all share."""
    context = _context(command_line, "bucketlake", None)
    names = [*command_line.commands]
    first = names.index("compact")
    if not upkeep:
        yield _code(command_line.get_help(context), "text")
    for name in names[first:] if upkeep else names[:first]:
        yield f"## bucketlake {name}\n"
        command = command_line.commands[name]
        yield _code(command.get_help(_context(command, name, context)), "text")
    if not upkeep:
        outcome = importlib.import_module("bucketlake.cli.main").__doc__ or ""
        yield _inline(outcome.partition("\n\n")[2])


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {"terminal_width": HELP_WIDTH, "help_option_names": ["-h", "--help"]}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    context.meta[INDEX_HELP] = True  # The page has all options.
    return context


def main() -> int:
    """Write the pages, or say whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if out of date")
    pages = render()
    if parser.parse_args().check:
        same = (p.exists() and p.read_text(encoding="utf-8") == text for p, text in pages.items())
        return int(not all(same))
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
