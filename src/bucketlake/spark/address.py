"""The path of a table as Spark's own readers and writers take it."""

from __future__ import annotations

import re

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.storage.location import open_storage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def spark_address(path: str) -> str:
    """Return where Spark finds a table.

    A local path names the disk, whatever Spark's default file system, and does not depend on the
    directory in which the JVM was started. Other paths are left as they were given: ``s3a://`` is
    the spelling that plain Spark takes.

    Raises
    ------
    UnsupportedFeatureError
        If the table lives in the memory of this process, where Spark's workers cannot reach it.
    """
    scheme = _SCHEME.match(path)
    if scheme is None or scheme[1].lower() == "file":
        return f"file:{open_storage(path).root}"
    if scheme[1].lower() == "memory":
        raise UnsupportedFeatureError(
            "a table in memory, through Spark",
            path,
            "use Arrow tables and to_arrow(), or make the table on a disk",
        )
    return path
