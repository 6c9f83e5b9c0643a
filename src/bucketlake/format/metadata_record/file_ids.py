"""Ids of the metadata table's file groups: ``<partition's prefix>[<data partition>-]<shard>-0``.

A partitioned record-level index has file groups for each data partition, in one folder. The escaped
path of the data partition in their ids has no ``-``, so the number of dashes tells the two kinds
of the index apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from bucketlake.errors import InputError
from bucketlake.model.file_name import FileId
from bucketlake.model.partition_path import decode_segment, encode_segment


class MetadataPartition(StrEnum):
    """The partitions of the metadata table that bucketlake maintains, by their folders."""

    FILES = "files"
    COLUMN_STATS = "column_stats"
    PARTITION_STATS = "partition_stats"
    RECORD_INDEX = "record_index"


_PREFIXES = {
    MetadataPartition.FILES: "files",
    MetadataPartition.COLUMN_STATS: "col-stats",
    MetadataPartition.PARTITION_STATS: "partition-stats",
    MetadataPartition.RECORD_INDEX: "record-index",
}
_ID = re.compile(
    r"(?P<prefix>files|col-stats|partition-stats|record-index)"
    r"(?:-(?P<escaped>[^-]*))?-(?P<shard>[0-9]{4,10})-0"
)
_PARTITIONS = {prefix: partition for partition, prefix in _PREFIXES.items()}


@dataclass(frozen=True, slots=True)
class MetadataFileId:
    """The facts in the id of a file group of the metadata table."""

    partition: MetadataPartition
    shard: int
    data_partition: str | None = None  # Only in a partitioned record-level index; "" is a path.

    @classmethod
    def from_file_id(cls, file_id: str) -> MetadataFileId | None:
        """Parse an id; None if it is none of these partitions."""
        match = _ID.fullmatch(file_id)
        if match is None:
            return None
        partition, escaped = _PARTITIONS[match["prefix"]], match["escaped"]
        if escaped is None:
            return cls(partition, int(match["shard"]))
        if partition is not MetadataPartition.RECORD_INDEX:
            return None
        return cls(partition, int(match["shard"]), decode_segment(escaped))

    def to_file_id(self) -> FileId:
        """Print the id.

        Raises
        ------
        InputError
            If the data partition has a dot in its path. Hudi's escape keeps the dot, and Hudi's own
            writer fails on names of log files with it.

        Examples
        --------
        >>> MetadataFileId(MetadataPartition.RECORD_INDEX, 3, "2024-01-01").to_file_id()
        'record-index-2024%2D01%2D01-0003-0'
        """
        prefix = _PREFIXES[self.partition]
        if self.data_partition is None:
            return FileId(f"{prefix}-{self.shard:04d}-0")
        if "." in self.data_partition:
            problem = (
                f"{self.data_partition!r} has a dot, and a partitioned record-level index cannot "
                "name log files of such a partition"
            )
            advice = (
                "use a global record-level index (RecordIndex(partitioned=False)), or an index of "
                "computed buckets such as SimpleBucket(4)"
            )
            raise InputError("partition path", problem, advice)
        return FileId(f"{self.prefix_of_shards(self.data_partition)}{self.shard:04d}-0")

    @classmethod
    def prefix_of_shards(cls, data_partition: str) -> str:
        """Return what the ids of all shards of a data partition begin with, and no others.

        Examples
        --------
        >>> MetadataFileId.prefix_of_shards("2024-01-01")
        'record-index-2024%2D01%2D01-'
        """
        escaped = encode_segment(data_partition).replace("_", "%5F").replace("-", "%2D")
        return f"{_PREFIXES[MetadataPartition.RECORD_INDEX]}-{escaped}-"
