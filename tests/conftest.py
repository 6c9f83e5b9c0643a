"""What all rooms of tests share: where tables lie, the golden tables, a Spark session.

The Spark session belongs to whichever PySpark is installed in the environment that runs pytest: 4
in ``.venv``, 3.5 in ``.venv-spark35``. Real Hudi is the interop room's own, see its conftest.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from bucketlake.flow import threads
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.instant import system_now_ms
from tests.choices import DEEP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()

GOLDEN_TABLES = Path(__file__).parent / "golden" / "tables"

# Quick by day, deep by night (BUCKETLAKE_DEEP=1). The machine may be busy, so time is no failure.
settings.register_profile("quick", max_examples=30, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("deep" if DEEP else "quick")


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    """A path for a table, where nothing is yet."""
    return tmp_path / "table"


@pytest.fixture
def new_path() -> Iterator[Callable[[], str]]:
    """Give a path where nothing is, another one each time, in the memory of this process.

    In ``tests/object_store`` the paths are in a bucket, and the same tests run there.
    """
    names: list[str] = []

    def make() -> str:
        names.append(f"tests-{next(_numbers)}")
        MemoryStorage(names[-1], system_now_ms)  # Objects bear the time of day, as elsewhere.
        return f"memory://{names[-1]}"

    yield make
    for name in names:
        forget(name)


@pytest.fixture
def storage(new_path: Callable[[], str]) -> Storage:
    """Storage in which nothing is, where ``new_path`` is."""
    return open_storage(new_path())


@pytest.fixture
def golden_table(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a table that real Hudi wrote, by name: a copy, which the test may write to."""

    def unpack(name: str) -> Path:
        archive = next(GOLDEN_TABLES.rglob(f"{name}.tar.gz"), None)
        assert archive is not None, f"there is no golden table {name} in {GOLDEN_TABLES}"
        target = tmp_path / "golden"
        with tarfile.open(archive) as packed:
            # Python before 3.11.4 has no filters; from 3.12 on it warns where none is named.
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall(target)
        return target / name

    return unpack


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small Spark session of the installed PySpark, one for the whole run."""
    sql = pytest.importorskip("pyspark.sql", reason="there is no PySpark in this environment")
    _prepare_environment_for_spark()
    builder = sql.SparkSession.builder.master("local[2]").appName("bucketlake-tests")
    for key, value in _SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    # Frames of tests are small; all but the tests of few rows are about the tasks of Spark.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "HERE_BYTES_MAX", -1)
        yield session
    session.stop()


_SPARK_SETTINGS = {
    "spark.driver.memory": "1g",
    # Tests are short: the optimising compiler and a parallel collector cost more than they give.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _prepare_environment_for_spark() -> None:
    """Name this Python to Spark's workers; free Java of the host's name and locale."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "UTF-8" not in os.environ.get("LC_ALL", os.environ.get("LANG", "")):
        os.environ["LC_ALL"] = "C.UTF-8"  # Else Java cannot name files beyond ASCII.


def pytest_configure() -> None:
    """Collect garbage rarely: it walked through all modules and tests for a quarter of the time."""
    gc.set_threshold(50_000)


def pytest_collection_finish() -> None:
    """Leave out of these walks what is there before the first test."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the conformance suite and of the simulation."""
    parser.addoption("--kind", help="one index kind of tests/conformance/kinds.py, not all")
    parser.addoption("--seed", type=int, help="replay one seed of the simulation")
    parser.addoption(
        "--seeds",
        type=int,
        default=600 if DEEP else 20,
        help="how many seeds the simulation runs",
    )
    parser.addoption(
        "--crowds",
        type=int,
        default=5000 if DEEP else 100,
        help="how many runs of several writers",
    )
    parser.addoption("--first", type=int, default=0, help="the first seed of --crowds")
    parser.addoption("--runs", type=Path, help="a file to which --crowds adds what it ran")
