"""Parquet files as a DataFrame, whatever the session's settings say of reading them."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_OPTIONS = {
    "recursiveFileLookup": "true",  # The folders' names are no columns.
    # Cleaned or damaged meanwhile: an error, not fewer rows.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Files that do not name their writer, as Hudi's own do not, hold days of the one calendar that
    # everybody writes by now.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_NO_GLOB = str.maketrans({c: f"\\{c}" for c in "\\*?[]{}"})


def read_parquet(spark: SparkSession, schema: StructType, paths: Iterable[str]) -> DataFrame:
    """Return all rows of files, or of the files in folders, as they are; its job fails if it can't.

    Parameters
    ----------
    spark : SparkSession
        The session.
    schema : StructType
        Columns to read.
    paths : iterable of str
        Files and folders; no character of theirs stands for others.
    """
    reader = spark.read.schema(schema).options(**_OPTIONS)
    return reader.parquet(*(path.translate(_NO_GLOB) for path in paths))
