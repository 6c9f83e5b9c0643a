"""Words of other libraries get a hint that names a call of ours."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark import cloudpickle

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.model.words_of_others import words_of_others
from bucketlake.write.merge_statement import Merge

SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64()})


@pytest.fixture
def table() -> bl.Table:
    path = "memory://words"
    try:
        return bl.open_table(path)
    except bl.TableNotFoundError:
        return bl.create_table(path, schema=SCHEMA, record_key="id")


Call = Callable[[bl.Table], Any]
ROWS = pa.table({"id": ["a"], "n": [1]})


@pytest.mark.parametrize(
    ("call", "error", "hint"),
    [
        (lambda t: t.history(), AttributeError, r"table\.timeline\(\)"),
        (lambda t: t.vacuum(), AttributeError, r"table\.clean\(\)"),
        (lambda t: t.optimize().compact(), AttributeError, r"table\.compact\(\)"),
        (lambda t: t.expire_snapshots(), AttributeError, r"table\.clean\(\)"),
        (lambda t: t.collect(), AttributeError, r"table\.scan\("),
        (lambda t: t.describe(), AttributeError, r"repr\(table\)"),
        (lambda t: t.toPandas(), AttributeError, "it is to_pandas here"),
        (lambda t: t.restoreToVersion(1), AttributeError, r"table\.restore\("),
        (lambda t: t.delete("id = 'a'"), bl.InputError, "where="),
        (lambda t: t.upsert("landing/*.csv"), bl.InputError, r"bl\.files"),
        (lambda t: t.merge("t.id = s.id", on="x"), bl.InputError, "a text is no rows"),
        (lambda t: t.merge(ROWS, condition="t.id = s.id"), TypeError, "give on="),
        (lambda t: t.merge(ROWS, "t.id = s.id").whenMatchedUpdateAll(), AttributeError,
         "it is when_matched_update_all here"),
        (lambda t: t.merge(ROWS, "t.id = s.id").when_matched_delete(predicate="true"), TypeError,
         "give condition="),
        (lambda t: t.read(limit=3), TypeError, r"table\.show\(n=10\)"),
        (lambda t: t.show(limit=3), TypeError, "give n="),
        (lambda t: t.read(version_as_of=3), TypeError, "give as_of="),
        (lambda t: t.read(colums=["n"]), TypeError, "did you mean 'columns'"),
        (lambda t: t.to_arrow(spark=1), TypeError, "its arguments are where, keys, columns"),
        (lambda t: t.buckets(x=1), TypeError, "it has no arguments"),
        (lambda _: bl.create_table("x", schema=SCHEMA, primary_key="id"), TypeError, "record_key="),
        (lambda _: bl.create_table("x", schema=SCHEMA, partition_cols=["id"]), TypeError,
         "partition_by="),
        (lambda _: bl.files("x.csv", na_values="NA"), TypeError, "null_values="),
        (lambda _: bl.read("x"), TypeError, r"bl\.open_table\(path\)"),
        (lambda _: bl.table("x"), TypeError, r"bl\.open_table\(path\)"),
        (lambda _: bl.DeltaTable("x"), AttributeError, r"bl\.open_table\(path\)"),
        (lambda _: bl.openTable("x"), AttributeError, "it is open_table here"),
        (lambda _: bl.read_csv("x"), AttributeError, r"bl\.files"),
    ],
)  # fmt: skip
def test_word_of_another_library_is_answered_with_ours(
    table: bl.Table, call: Call, error: type[Exception], hint: str
) -> None:
    with pytest.raises(error, match=hint):
        call(table)


def test_a_module_that_is_not_imported_yet_is_answered_too() -> None:
    code = "import bucketlake as bl; print(hasattr(bl, 'read')); bl.read('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n"
    assert "bl.open_table(path)" in done.stderr


def test_unknown_names_stay_attribute_errors_without_a_hint(table: bl.Table) -> None:
    for held in (table, bl, table.merge(ROWS, "t.id = s.id")):
        with pytest.raises(AttributeError, match=r"has no attribute 'nothing_of_us'$"):
            _ = held.nothing_of_us
        assert not hasattr(held, "vacuum")
        assert not hasattr(held, "_repr_mimebundle_")
    assert cloudpickle.loads(cloudpickle.dumps([bl, sys.modules["bucketlake.read"]]))[0] is bl
    assert copy.deepcopy(table) == pickle.loads(pickle.dumps(table)) == table


@pytest.mark.parametrize("where", ["table", "module"])
def test_words_are_no_names_of_ours(where: str) -> None:
    ours = {*vars(bl.Table)} if where == "table" else {*bl.__all__}
    assert not ours & words_of_others()[where].keys()


def test_hints_name_calls_that_exist() -> None:
    words = words_of_others()
    hints = {hint for where in ("table", "module") for hint in words[where].values()}
    for holder, name, given in re.findall(r"(table|bl)\.(\w+)(?:\(([^()]*)\))?", " ".join(hints)):
        held = getattr(bl.Table if holder == "table" else bl, name)
        for argument in re.findall(r"(\w+)=", re.sub(r"'[^']*'", "", given)):
            assert argument in inspect.signature(held).parameters, (name, argument)
    functions = [bl.create_table, bl.open_table, bl.files]
    functions += [f for f in vars(bl.Table).values() if inspect.isfunction(f)]
    functions += [f for f in vars(Merge).values() if inspect.isfunction(f)]
    known = {name for function in functions for name in inspect.signature(function).parameters}
    assert {ours for text in words["argument"].values() for ours in text.split()} <= known


def test_hints_name_commands_that_exist_and_the_command_line_gives_them() -> None:
    hints = " ".join(words_of_others()["table"].values())
    assert {*re.findall(r"\(bucketlake (\w+)\)", hints)} <= main.commands.keys()
    said = CliRunner().invoke(main, ["history", "orders"]).stderr
    assert "No such command 'history': bucketlake timeline has the commits" in said
