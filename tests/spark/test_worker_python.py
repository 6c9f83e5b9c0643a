"""Workers whose Python is another one: it just works, or one sentence says what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

import bucketlake as bl
from bucketlake.errors import BucketLakeError, ConfigError, UnsupportedFeatureError
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.reports import Batches
from tests.spark.frames import frame_of

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": ["a", "b"], "ts": [1, 1]})
NAMES = pa.schema([("python", pa.string())])


@pytest.fixture
def context(spark: SparkSession) -> Iterator[SparkContext]:
    """The session's context, as it was afterwards."""
    context = spark.sparkContext
    before = (context.pythonExec, context.pythonVer)
    yield context
    context.pythonExec, context.pythonVer = before


@pytest.fixture
def table(table_path: Path) -> bl.Table:
    return bl.create_table(
        str(table_path), schema=ROWS.schema, record_key=["id"], ordering="ts",
        index=bl.SimpleBucket(2),
    )  # fmt: skip


@pytest.fixture
def frame(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return frame_of(spark, ROWS, tmp_path / "rows")


def python_with(folder: Path, module: str) -> str:
    """Make a Python whose ``bucketlake`` is this text."""
    (folder / "bucketlake").mkdir(parents=True)
    (folder / "bucketlake" / "__init__.py").write_text(module)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def refused(table: bl.Table, frame: DataFrame) -> str:
    """Return the sentence with which a write is refused; Spark's own words are its cause."""
    with pytest.raises(ConfigError) as raised:
        table.upsert(frame)
    assert raised.value.__cause__ is not None
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"table {table.path}: PYSPARK_PYTHON = ")
    assert "docs/how-to/run-on-a-cluster.md" in sentence
    assert table.timeline() == []
    return sentence


def pythons_of(frame: DataFrame) -> set[str]:
    """Return the Pythons in which the library's tasks run."""

    def name(batches: Batches) -> Batches:
        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"python": sys.executable}], NAMES)

    return {row.python for row in map_in_arrow(frame, name, NAMES).collect()}


def test_a_local_job_without_an_activated_environment_runs_in_the_driver_s_python(
    context: SparkContext, frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    context.pythonExec = "python3"  # Spark's default: whatever comes first in the PATH.
    assert pythons_of(frame) == {sys.executable}
    assert context.pythonExec == "python3"  # The user's own functions run where they did.


def test_a_python_that_the_user_chose_is_kept(
    context: SparkContext, frame: DataFrame, tmp_path: Path
) -> None:
    text = f"__path__ = [{str(Path(bl.__file__).parent)!r}]\n" + Path(bl.__file__).read_text()
    context.pythonExec = python_with(tmp_path / "chosen", text + "import sys\nsys.executable = 'x'")
    assert os.environ["PYSPARK_PYTHON"] != context.pythonExec
    assert pythons_of(frame) == {"x"}


def test_workers_without_bucketlake_are_told_apart_from_other_failures(
    context: SparkContext, table: bl.Table, frame: DataFrame, tmp_path: Path
) -> None:
    missing = 'raise ModuleNotFoundError("No module named \'bucketlake\'", name="bucketlake")'
    context.pythonExec = python_with(tmp_path / "other", missing)
    sentence = refused(table, frame)
    assert f"cannot import bucketlake {bl.__version__} (No module named 'bucketlake')" in sentence


def test_workers_with_another_bucketlake_write_nothing(
    context: SparkContext, table: bl.Table, frame: DataFrame, tmp_path: Path
) -> None:
    context.pythonExec = python_with(tmp_path / "other", '__version__ = "0.0.7"')
    sentence = refused(table, frame)
    assert f"has bucketlake 0.0.7, and the driver has bucketlake {bl.__version__}" in sentence


def test_workers_with_another_python_are_named_with_both_versions(
    context: SparkContext, table: bl.Table, frame: DataFrame
) -> None:
    ours, context.pythonVer = context.pythonVer, "3.99"
    sentence = refused(table, frame)
    assert f"the workers run Python {ours}, and the driver runs Python 3.99" in sentence
    assert sys.executable in sentence


def test_a_python_that_does_not_start_is_named(
    context: SparkContext, table: bl.Table, frame: DataFrame, tmp_path: Path
) -> None:
    context.pythonExec = str(tmp_path / "absent" / "python")
    assert f"a worker cannot start it ({context.pythonExec})" in refused(table, frame)


def test_workers_without_a_package_of_pyspark_are_named(
    context: SparkContext, table: bl.Table, frame: DataFrame, tmp_path: Path
) -> None:
    context.pythonExec = python_with(tmp_path / "other", "")
    broken = 'raise ModuleNotFoundError("No module named \'pyarrow\'", name="pyarrow")'
    (tmp_path / "other" / "pyarrow.py").write_text(broken)
    assert "lacks a package (No module named 'pyarrow')" in refused(table, frame)


@pytest.mark.skipif(version("pyspark").startswith("4."), reason="PySpark 4 needs no pandas here")
def test_pyspark_35_without_pandas_is_refused_with_what_to_install(
    table: bl.Table, frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # None makes every import of it fail.
    with pytest.raises(UnsupportedFeatureError, match=r"Pandas >= .* pip install") as raised:
        table.upsert(frame)
    assert isinstance(raised.value.__cause__, ImportError)
    assert isinstance(raised.value, BucketLakeError)
    assert table.timeline() == []
