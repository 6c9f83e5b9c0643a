"""The partition marker ``.hoodie_partition_metadata``, which makes a folder a partition.

Readers without a metadata table find partitions by the name of this file. Without it Spark returns
no rows and no error. The content is two Java properties; some writers leave it empty.
"""

from __future__ import annotations

from functools import lru_cache

from bucketlake.format.properties import render_properties
from bucketlake.model.file_name import InstantTime, file_path

PARTITION_METADATA_FILE = ".hoodie_partition_metadata"
PARTITION_METADATA_PREFIX = PARTITION_METADATA_FILE  # Hudi also has a form that ends in .parquet.

_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"


def partition_marker_path(partition_path: str) -> str:
    """Return the path of the marker of a partition, relative to the table."""
    return file_path(partition_path, PARTITION_METADATA_FILE)


def render_partition_metadata(commit_time: InstantTime, partition_path: str) -> bytes:
    r"""Encode a partition marker. It has no date, so equal arguments give equal bytes.

    The marker tells the instant that first wrote into the partition, and the number of segments of
    the partition path; that is 0 for a table without partitions.

    Examples
    --------
    >>> render_partition_metadata(InstantTime("20240102030405678"), "2024/01")
    b'#partition metadata\ncommitTime=20240102030405678\npartitionDepth=2\n'
    """
    return _rendered(commit_time, len(partition_path.split("/")) if partition_path else 0)


@lru_cache(maxsize=1)  # A commit may open many partitions.
def _rendered(commit_time: InstantTime, depth: int) -> bytes:
    entries = {_COMMIT_TIME: commit_time, _DEPTH: str(depth)}
    return render_properties(entries, "partition metadata")
