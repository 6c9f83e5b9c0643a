"""The Python of Spark's workers: which one it is, and why bucketlake cannot run there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bucketlake.errors import ConfigError, UnsupportedFeatureError

PYTHON_SETTING = "PYSPARK_PYTHON"
"""The environment variable that tells Spark which Python its workers run."""

SHIP_IT = "docs/how-to/run-on-a-cluster.md says how to bring it to the workers"

_DEFAULT = "python3"  # Spark's default: the first in the PATH of the worker.
_OF_SERVER = "as set on the Spark Connect server"
_VERSIONS = re.compile(r"different version:? (.+?) than that in driver:? (.+?), PySpark cannot run")
_PROBLEMS = (
    (re.compile(r'Cannot run program "([^"]+)"'), "a worker cannot start it"),
    (
        re.compile(
            r"ModuleNotFoundError: (No module named '(?:bucketlake|pandas|pyarrow|numpy)\b\S*)"
            r"|((?:Pandas|pandas|PyArrow|pyarrow) >= \S+ must be installed.*)"
        ),
        "on a worker it lacks a package",
    ),
)

_PYSPARK_MIN = (3, 5)

_lock = Lock()


def explained(error: Exception, spark: SparkSession) -> ConfigError | None:
    """Return what an error of Spark says about the workers' Python; None if it says nothing."""
    problem = _problem(str(error))
    if problem is None:
        return None
    context = context_of(spark)
    python = _OF_SERVER if context is None else context.pythonExec
    example = f"for example to {sys.executable}, which runs the driver"
    next_step = f"set {PYTHON_SETTING} before Spark starts, {example}; {SHIP_IT}"
    return ConfigError(PYTHON_SETTING, python, f"{problem}; {next_step}")


def _problem(text: str) -> str | None:
    """Find the reason in Spark's text of a failed job."""
    versions = _VERSIONS.search(text)
    if versions is not None:
        worker = ".".join(re.findall(r"\d+", versions[1]))  # PySpark 3.5 writes (3, 10).
        return f"the workers run Python {worker}, and the driver runs Python {versions[2]}"
    for pattern, problem in _PROBLEMS:
        found = pattern.search(text)
        if found is not None:
            reason = next(group for group in found.groups() if group)
            return f"{problem} ({reason.rstrip('.')})"
    return None


def require_pyspark() -> None:
    """Raise UnsupportedFeatureError for a PySpark that lacks what bucketlake calls."""
    held = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if held < _PYSPARK_MIN:
        raise UnsupportedFeatureError(
            "a session of Spark",
            f"PySpark {pyspark.__version__}",
            "install PySpark 3.5 or newer, or pass rows of Arrow, pandas or polars, which need no "
            "Spark",
        )


@contextmanager
def own_python(spark: SparkSession) -> Iterator[None]:
    """Let a local session run functions that are defined in the body in the Python of the driver.

    Without a choice of the user, Spark takes the first ``python3`` of the PATH, which is another
    Python if the driver runs in an environment that is not activated. The function changes nothing
    if the user chose a Python, or if workers run on other machines.
    """
    with _lock:  # Else another thread would see the change, and restore an earlier value.
        context = context_of(spark)
        if context is None or not sys.executable or not _takes_default(context, spark):
            yield
            return
        context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = _DEFAULT


def _takes_default(context: Any, spark: SparkSession) -> bool:
    return (
        context.pythonExec == _DEFAULT
        and PYTHON_SETTING not in os.environ
        and str(context.master).startswith("local")
        and spark.conf.get("spark.pyspark.python", None) is None
    )


def context_of(spark: SparkSession) -> Any | None:
    """Return the session's SparkContext; None through Spark Connect."""
    try:
        return spark.sparkContext
    except (AttributeError, PySparkException):
        return None
