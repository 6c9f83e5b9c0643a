"""The reference names every public name, parameter, command and option.

``gaps`` looks at the pages and at the code, not at the script that writes them: a name that the
script forgets is a gap too.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import bucketlake as bl
from bucketlake import errors
from bucketlake.cli.main import main as command_line
from bucketlake.config import key_entries, table_keys
from bucketlake.storage import location, store_options

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bucketlake"
PAGE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in [
        ROOT / "docs" / "reference.md",
        *sorted((ROOT / "docs" / "reference").glob("*.md")),
    ]
)

MODULES_WITH_JOB_OPTIONS = [
    *(
        SOURCE / "config" / name
        for name in (
            "write_options.py",
            "key_entries.py",
            "record_options.py",
            "resize_options.py",
        )
    ),
    SOURCE / "timeline" / "locks.py",
    *(SOURCE / "index").rglob("*.py"),
]
"""The modules that read the options of a Hudi job."""


def sections(page: str) -> dict[str, str]:
    """Return the text below each heading, up to the next heading."""
    parts = re.split(r"^#{1,4} (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def gaps(page: str) -> list[str]:
    """Return what the page does not name."""
    return [*public_gaps(page), *command_gaps(page), *option_gaps(page)]


def public_gaps(page: str) -> Iterator[str]:
    below = sections(page)
    for name in bl.__all__:
        if name in vars(errors):
            continue  # Below they are compared with the table of errors.
        if name == "Table":
            continue  # Its methods follow.
        heading = f"bl.{name}"
        if heading not in below:
            yield heading
            continue
        public = getattr(bl, name)
        yield from parameter_gaps(public, heading, below[heading])
        if inspect.isclass(public):
            yield from member_gaps(public, heading, below[heading])
    for name in vars(bl.Table):
        member = inspect.getattr_static(bl.Table, name)
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        heading = f"table.{name}"
        if heading in below:
            yield from parameter_gaps(member, heading, told_with(below[heading], page))
        else:
            yield heading
    ours = [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    ]
    listed = re.findall(r"^\| `bl\.(\w+)` \|", below.get("Errors", ""), re.MULTILINE)
    yield from (f"errors.{name}" for name in ours if name not in listed)


def told_with(text: str, page: str) -> str:
    """Return a section, the methods that it refers to, and what the table tells of all methods."""
    below = sections(page)
    others = [below.get(f"table.{word}", "") for word in re.findall(r"`(\w+)\(\)`", text)]
    shared = re.findall(
        r"^Options that several methods have:.*?\n\n", page, re.DOTALL | re.MULTILINE
    )
    return "\n".join([text, *others, *shared])


def parameter_gaps(function: object, heading: str, text: str) -> Iterator[str]:
    handed_on = [*inspect.signature(bl.Table.scan).parameters] if "options it takes" in text else []
    for name in inspect.signature(function).parameters:  # type: ignore[arg-type]
        if name in handed_on:
            continue  # The page tells them with ``table.scan``.
        told = rf"^- .*\*\*[^*]*\b{name}\b|`{name}\b"
        if name != "self" and not re.search(told, text, re.MULTILINE):
            yield f"{heading}({name})"


def member_gaps(kind: type, heading: str, text: str) -> Iterator[str]:
    """Yield public fields, properties and methods of a value that its section does not name."""
    fields = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for name in (*fields, *vars(kind)):
        if not name.startswith("_") and not re.search(
            rf"^- [*`]+([^*`]*, )?{name}\b", text, re.MULTILINE
        ):
            yield f"{heading}.{name}"


def command_gaps(page: str) -> Iterator[str]:
    below = sections(page)
    for name, command in command_line.commands.items():
        heading = f"bucketlake {name}"
        if heading not in below:
            yield heading
            continue
        text = below[heading]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                words = [*parameter.opts, *parameter.secondary_opts]
                before = r"^  (-\w, |--[\w-]+(?: /|,) )?"
                patterns = {word: rf"{before}{re.escape(word)}(?![\w-])" for word in words}
            else:
                word = parameter.make_metavar(click.Context(command))
                patterns = {word: rf"^Usage: .*{re.escape(word)}"}
            for word, pattern in patterns.items():
                if not re.search(pattern, text, re.MULTILINE):
                    yield f"{heading} {word}"
        if "Example:" not in text:
            yield f"{heading}: example"


def option_gaps(page: str) -> Iterator[str]:
    below = sections(page).get("Options of save", "")
    rows = re.findall(r"^\| `(hoodie\.[\w.]+)` \| (\S.*?) \| (.*) \|$", below, re.MULTILINE)
    listed = {key for key, *_ in rows} | set(re.findall(r"`(hoodie\.[\w.]+)`", below))
    yield from (key for key in sorted(keys_that_save_reads()) if key not in listed)


def keys_that_save_reads() -> set[str]:
    """Return the keys in the modules that read a job's options, however they are spelled there."""
    found = {f"{table_keys.TIMESTAMP_PREFIX}{name}" for name in key_entries._TIMESTAMP_NAMES}
    for path in MODULES_WITH_JOB_OPTIONS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(re.findall(r"^hoodie(?:\.\w+)+$", node.value))
            is_key = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if is_key and node.value.id == "keys":
                found.add(getattr(table_keys, node.attr, ""))
    return found - {table_keys.TIMESTAMP_PREFIX, ""}


def setting_gaps(page: str) -> list[str]:
    """Return the storage options that the page of object stores does not name."""
    hadoop = (
        f"fs.s3a.{name}" for name in (*store_options._HADOOP_NAMES, *store_options._HADOOP_RULES)
    )
    named = re.findall(r"`([^`\n]+)`", page)
    return [
        name for name in (*hadoop, *store_options._RETRY_KEYS, location._FSYNC) if name not in named
    ]


def test_guide_of_object_stores_names_each_setting_of_our_own() -> None:
    page = (ROOT / "docs" / "how-to" / "object-stores.md").read_text(encoding="utf-8")
    assert setting_gaps(page) == []
    assert setting_gaps(page.replace("`fsync`", "")) == ["fsync"]
    assert setting_gaps(page.replace("fs.s3a.region", "")) == ["fs.s3a.region"]


def test_reference_names_all_that_is_public() -> None:
    assert gaps(PAGE) == []


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        (r"^## bl\.StorageLock$", "bl.StorageLock"),
        (r"^## table\.compact$", "table.compact"),
        (r"^- \*\*max_bytes\*\*.*$", "table.compact(max_bytes)"),
        (r"^- \*\*hash_fields\*\*.*$", "bl.SimpleBucket(hash_fields)"),
        (r"^- \*\*file_groups\*\*.*$", "bl.WriteResult(file_groups)"),
        (r"^- `count_of.*$", "bl.PartitionBucket.count_of"),
        (r"^\| `bl\.LockError` \|.*$", "errors.LockError"),
        (r"^## bucketlake rescale$", "bucketlake rescale"),
        (r"^  --keep-min .*$", "bucketlake archive --keep-min"),
        (r"^Usage: bucketlake locate.*$", "bucketlake locate [KEY]"),
        (r"^\| `hoodie\.keep\.min\.commits` .*$", "hoodie.keep.min.commits"),
        (r"^\| `hoodie\.index\.type` .*$", "hoodie.index.type"),
        (r"^.*`hoodie\.keygen\.timebased\.timezone`.*$", "hoodie.keygen.timebased.timezone"),
        (r"^.*write\.lock\.filesystem\.path.*$", "hoodie.write.lock.filesystem.path"),
    ],
)
def test_a_page_that_lacks_a_name_has_a_gap(line: str, gap: str) -> None:
    shortened, count = re.subn(line, "", PAGE, flags=re.MULTILINE)
    assert count > 0
    assert gap in gaps(shortened)


def test_keys_that_save_reads_are_found_in_the_code() -> None:
    found = keys_that_save_reads()
    assert {"hoodie.bucket.index.num.buckets", "hoodie.write.lock.provider"} <= found
    assert {"hoodie.table.recordkey.fields", "hoodie.keep.max.commits"} <= found
