"""Registering the data source, and tables by their names, in a session.

PySpark 3.5 has no data sources in Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pyspark
from pyspark.sql import SparkSession

from bucketlake.catalogs.catalog import TableEntry
from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.model.names import quoted
from bucketlake.spark.worker_python import explained, own_python

_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
_PUSHES = "spark.sql.python.filterPushdown.enabled"


def register_source(spark: SparkSession) -> None:
    """Register the data source.

    Raises
    ------
    UnsupportedFeatureError
        If PySpark is older than 4.
    ConfigError
        If the Python of Spark's workers cannot import bucketlake.
    """
    if pyspark.__version__.startswith("3."):
        raise UnsupportedFeatureError(
            "a data source in Python",
            f"PySpark {pyspark.__version__}",
            "read tables with bl.open_table(path).read(spark), or install PySpark 4",
        )
    from bucketlake.spark.data_source import KEEPS_SCANS_APART, BucketLakeSource

    if not _is_found(spark):  # Spark warns of a second registration.
        with own_python(spark):
            spark.dataSource.register(BucketLakeSource)
        _is_found(spark)
    if KEEPS_SCANS_APART:
        spark.conf.set(_PUSHES, "true")


def register_tables(spark: SparkSession, entries: Sequence[TableEntry]) -> None:
    """Make tables of Spark's catalog for entries of another one.

    Raises
    ------
    InputError
        If Spark's catalog has another table of such a name; it may own its files.
    """
    names = {quoted((entry.database, entry.name)): entry for entry in entries}
    known = {name: is_ours for name in names if (is_ours := _is_ours(spark, name)) is not None}
    for name, is_ours in known.items():
        if not is_ours:
            raise InputError(
                f"table {names[name].title} of Spark's catalog",
                "it is no table of the format bucketlake",
                "rename one of both, or read ours with bl.open_table(name, catalog=…).read(spark)",
            )
    for database in {entry.database for entry in entries}:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted([database])}")
    for name, entry in names.items():
        if name in known:
            spark.sql(f"DROP TABLE {name}")  # It has no files of its own.
        options = {"read_optimized": "true"} if entry.is_read_optimized else {}
        try:
            spark.catalog.createTable(name, entry.path, "bucketlake", None, None, **options)
        except Exception as error:  # Of Spark, with that of the data source in its text.
            lines = str(error).strip().splitlines()
            said = next((line for line in lines if "bucketlake.errors." in line), lines[0])
            warnings.warn(f"{entry.title} is not registered: {said}", stacklevel=3)


def _is_ours(spark: SparkSession, name: str) -> bool | None:
    """Return whether a table of Spark's catalog has our format; None if there is no such table."""
    from bucketlake.spark.stream_source import stored_options

    try:
        exists = spark.catalog.tableExists(name)
        return bool(stored_options(spark.table(name).schema)) if exists else None
    except Exception:  # Spark lacks its format, such as ``hudi``.
        return False


def _is_found(spark: SparkSession) -> bool:
    """Return whether Spark finds the format; raise ConfigError if its Python cannot import it.

    Spark looks for it when a table is loaded, and then the source misses the path of the table.
    """
    try:
        spark.read.format("bucketlake").load()
    except Exception as error:  # Of Spark, or of the JVM.
        problem = explained(error, spark)
        if problem is not None:
            raise problem from error
        return _NOT_FOUND not in str(error)
    return True
