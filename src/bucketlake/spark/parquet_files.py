"""Reading Parquet files as a DataFrame, independent of the session's settings."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_OPTIONS = {
    "recursiveFileLookup": "true",  # Folder names do not become columns.
    # Files that were deleted or damaged meanwhile raise an error instead of losing rows.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",  # Spark does not check pages by default.
    # Files that do not name their writer, such as Hudi's, have dates in the proleptic Gregorian
    # calendar.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_NO_GLOB = str.maketrans({c: f"\\{c}" for c in "\\*?[]{}"})


def read_parquet(spark: SparkSession, schema: StructType, paths: Iterable[str]) -> DataFrame:
    """Return all rows of files, or of the files in folders; the job fails if a file is unreadable.

    Parameters
    ----------
    spark : SparkSession
        The session.
    schema : StructType
        Columns to read.
    paths : iterable of str
        Files and folders; special characters in them are not patterns.
    """
    reader = spark.read.schema(schema).options(**_OPTIONS)
    return reader.parquet(*(path.translate(_NO_GLOB) for path in paths))
