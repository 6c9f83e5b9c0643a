"""Reading Parquet files of a table as a DataFrame, independent of the session's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.storage.location import open_storage

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
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def spark_address(path: str) -> str:
    """Return the path with which Spark finds a table.

    A local path becomes an absolute ``file:`` path, so that it does not depend on Spark's default
    file system or on the directory in which the JVM was started. Other paths are not changed:
    ``s3a://`` is the scheme that Spark supports.

    Raises
    ------
    UnsupportedFeatureError
        If the table is in the memory of this process, which Spark's workers cannot access.
    """
    scheme = _SCHEME.match(path)
    if scheme is None or scheme[1].lower() == "file":
        return f"file:{open_storage(path).root}"
    if scheme[1].lower() == "memory":
        raise UnsupportedFeatureError(
            "a table in memory, through Spark",
            path,
            "use Arrow tables and to_arrow(), or create the table on a disk",
        )
    return path


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
