"""The pages of the reference say what the code says; the docstrings behind them are whole."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bucketlake as bl
from bucketlake.timeline import locks

SCRIPT = Path(__file__).parents[2] / "scripts" / "reference.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look there.
    spec.loader.exec_module(module)
    return module


METHODS = {
    name: method
    for name, method in vars(bl.Table).items()
    if inspect.isfunction(method) and not name.startswith("_")
}
PUBLIC_FUNCTIONS = {
    **{
        name: getattr(bl, name)
        for name in ("create_table", "open_table", "convert", "save", "files")
    },
    **{f"Table.{name}": method for name, method in METHODS.items()},
}


def whole_reference() -> str:
    return "\n".join(load_script().render().values())


def test_committed_reference_is_that_of_the_code() -> None:
    script = load_script()
    changed = [
        path.name
        for path, text in script.render().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert changed == [], "out of date: uv run python scripts/reference.py"
    assert {*script.FOLDER.glob("*.md")} <= script.render().keys()


def test_pages_of_the_reference_are_short_enough_to_read() -> None:
    lengths = {path.name: text.count("\n") for path, text in load_script().render().items()}
    del lengths["hudi-options.md"]  # A table.
    assert {name: length for name, length in lengths.items() if length > 1_000} == {}


def test_reference_names_everything_public() -> None:
    page = whole_reference()
    headed = re.findall(r"^## (?:bl\.)?(\w+)$", page, re.MULTILINE)
    listed = re.findall(r"^\| `bl\.(\w+)` \|", page, re.MULTILINE)
    assert [name for name in bl.__all__ if name not in {*headed, *listed, "Table"}] == []
    methods = re.findall(r"^## table\.(\w+)$", page, re.MULTILINE)
    assert [name for name in vars(bl.Table) if name in METHODS and name not in methods] == []


def test_reference_tells_each_class_that_a_method_returns() -> None:
    page = whole_reference()
    headed = {
        "Table",
        "DataFrame",
        "Schema",
        *re.findall(r"^## (?:bl\.)?(\w+)$", page, re.MULTILINE),
    }
    returned = {
        name
        for method in METHODS.values()
        for name in re.findall(r"\b[A-Z]\w+", inspect.signature(method).return_annotation)
    }
    assert sorted(returned - headed - {"None", "BatchUpsert", "TableConfig", "InstantTime"}) == []


def test_options_of_locks_are_told_as_used_or_checked() -> None:
    script = load_script()
    told = script.render()[script.FOLDER / "options-of-save.md"]
    keys = [key for key in vars(locks).values() if str(key).startswith("hoodie.write.lock.")]
    assert len(keys) == 6
    assert [key for key in keys if f"`{key}`" not in told] == []


@pytest.mark.parametrize("name", PUBLIC_FUNCTIONS)
def test_docstring_of_a_public_function_tells_each_parameter_and_the_result(name: str) -> None:
    function = PUBLIC_FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    parameters = [p for p in inspect.signature(function).parameters if p != "self"]
    if "options it takes" in text:  # ``Table.scan`` tells them.
        parameters = [p for p in parameters if p not in inspect.signature(bl.Table.scan).parameters]
    told = r"^(\w+, )*{0}(, \w+)*( : |\n    )|``{0}\b"
    # A method may refer to another one, and the class tells what many methods have.
    others = [getattr(bl.Table, word) for word in re.findall(r":meth:`(\w+)`", text)]
    shared = [*others, bl.Table] if name.startswith("Table.") else []
    texts = "\n".join([text, *(inspect.getdoc(other) or "" for other in shared)])
    lacking = [p for p in parameters if not re.search(told.format(p), texts, re.MULTILINE)]
    assert lacking == []
    result = inspect.signature(function).return_annotation
    says_it_all = re.search(r"\b[Rr]eturn ", text.partition("\n")[0]) or re.fullmatch(
        r"[A-Z]\w+", result
    )  # A page has it.
    assert result == "None" or says_it_all or "Returns\n-----" in text
