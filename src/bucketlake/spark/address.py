"""The path of a table in the form that Spark's own readers and writers need."""

from __future__ import annotations

import re

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.storage.location import open_storage

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
