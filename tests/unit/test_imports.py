"""What importing bucketlake loads: every command and every Python worker of Spark waits for it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl

HEAVY = (
    "openlineage",
    "opentelemetry",
    "pandas",
    "sqlglot",
    "pyspark",
    "fastavro",
    "obstore",
    "matplotlib",
)

PUBLIC_NAMES = "import bucketlake\nfor name in bucketlake.__all__: getattr(bucketlake, name)"
MODULES_OF_TASKS = "import bucketlake.spark.frame_source, bucketlake.spark.flow"
COMMAND_LINE_HELP = """
from bucketlake.cli.main import main
main(["--help"], prog_name="bucketlake", standalone_mode=False)
"""
COMMANDS = """
import pyarrow.parquet
import bucketlake.cli.main
def call(*words):
    bucketlake.cli.main.main([*words], prog_name="bucketlake", standalone_mode=False)
schema = pyarrow.schema({"id": pyarrow.string(), "n": pyarrow.int64()})
with open("rows.csv", "w") as file:
    file.write("id,n\\na,1\\n")
call("create", "orders", "--like", "rows.csv", "--key", "id", "--buckets", "2")
call("upsert", "orders", "rows.csv")
call("upsert", "orders", "rows.csv")
call("read", "orders")
"""
OPENED = """
import bucketlake
table = bucketlake.open_table("orders")
"""
SHOWN = """
import bucketlake.cli.main
bucketlake.cli.main.main(["show", "orders"], prog_name="bucketlake", standalone_mode=False)
"""
READ = OPENED + "table.to_arrow()"
WRITERS = ("bucketlake.writing", "bucketlake.write.ingest", "bucketlake.merge.group_merge")
SERVICES = ("bucketlake.services.upkeep", "bucketlake.services.compaction", "bucketlake.report")
READERS = ("bucketlake.scan", "bucketlake.read.read_plan", "bucketlake.metadata.entry_reader")
LAYOUTS = ("bucketlake.index.ring_layout", "bucketlake.index.record_layout")
OF_ARCHIVES = ("bucketlake.timeline.archive_reader", "pyarrow.parquet", "ssl", "statistics")


def modules_after(program: str, folder: Path | None = None) -> set[str]:
    """Run a program in a fresh interpreter, and return the modules that it has then."""
    tail = "\nimport sys; print('modules:', *sys.modules)"
    command = [sys.executable, "-c", program + tail]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("modules:")[2].split())


def test_bucketlake_and_its_command_line_import_without_pyspark() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"  # None makes every import of it fail.
        "import bucketlake, bucketlake.hudi_job, bucketlake.table, bucketlake.cli.main"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", [PUBLIC_NAMES, COMMAND_LINE_HELP])
def test_public_names_and_the_help_text_load_no_library_before_it_is_used(program: str) -> None:
    assert not modules_after(program) & {*HEAVY}


def test_a_task_of_spark_loads_no_library_and_no_service_that_it_does_not_use() -> None:
    found = modules_after(MODULES_OF_TASKS)
    unused = {*HEAVY, "bucketlake.table", "bucketlake.services"} - {"pyspark"}
    assert not found & unused
    assert "bucketlake.write.group_writer" in found


@pytest.mark.parametrize(
    ("program", "unused", "modules_max"),
    [
        (OPENED, (*WRITERS, *SERVICES, *READERS, *LAYOUTS, *OF_ARCHIVES, "fastavro"), 145),
        (SHOWN, (*WRITERS, *SERVICES, *READERS, *LAYOUTS, *OF_ARCHIVES, "zipfile"), 190),
        (READ, (*WRITERS, *SERVICES), 260),
    ],
    ids=["open", "show", "read"],
)
def test_a_call_imports_what_it_uses(
    program: str, unused: tuple[str, ...], modules_max: int, tmp_path: Path
) -> None:
    schema = pa.schema({"id": pa.string(), "n": pa.int64()})
    table = bl.create_table(str(tmp_path / "orders"), schema=schema, record_key="id")
    table.upsert(pa.table({"id": ["a"], "n": [1]}))
    found = modules_after(program, tmp_path)
    assert not found & {*unused}
    assert len([name for name in found if name.startswith("bucketlake")]) <= modules_max


def test_commands_that_write_and_read_a_table_leave_pandas_alone(tmp_path: Path) -> None:
    assert "pandas" not in modules_after(COMMANDS, tmp_path)


def test_a_name_that_bucketlake_does_not_have_is_an_attribute_error() -> None:
    import bucketlake

    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        bucketlake.no_such_name  # noqa: B018
    assert set(bucketlake.__all__) <= set(dir(bucketlake))


def test_a_pickle_of_a_table_names_the_module_that_earlier_ones_name() -> None:
    """Jobs keep tables and the functions of their streams in pickles."""
    table = bl.Table("memory://somewhere")
    for pickled in (pickle.dumps(table, 0), pickle.dumps(table.upsert_batch("orders"), 0)):
        assert b"cbucketlake.table\nTable\n" in pickled


def test_the_version_that_tasks_compare_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert bl.__version__ == project["version"]
