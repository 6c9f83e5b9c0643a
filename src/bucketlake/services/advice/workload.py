"""The facts from which advice follows: of the data, and of the table that has or will have them.

``facts_of_table.py`` and ``facts_of_sample.py`` collect them, ``rules.py`` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bucketlake.config.table_config import OFF
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.model.table_type import TableType
from bucketlake.model.text_table import cell_text

if TYPE_CHECKING:
    from bucketlake.index.setting import TableIndex
    from bucketlake.services.upkeep import Waiting

TARGET_FILE_SIZE_DEFAULT = 100_000_000
"""Bytes of a file: large enough for scans, small enough to be rewritten by an upsert in seconds."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition.

    Attributes
    ----------
    path : str
        Its path; empty in a table without partitions.
    size_bytes : int
        Bytes of a table's partition now; of a sample, bytes of the full partition as expected.
    file_groups : int
        Number of its file groups.
    largest_bytes : int
        Bytes of its largest file group.
    grows : bool
        Whether the last commits kept adding rows.
    """

    path: str
    size_bytes: int
    file_groups: int = 0
    largest_bytes: int = 0
    grows: bool = False


@dataclass(frozen=True, slots=True)
class HotValue:
    """The value that most rows have in the fields that shall choose their bucket.

    Attributes
    ----------
    text : str
        Field and value, such as ``device=d7``.
    share : float
        Share of the rows, from 0 to 1.
    """

    text: str
    share: float


@dataclass(frozen=True)
class Workload:
    """What is known of the data; a number is None if nothing tells it.

    Attributes
    ----------
    partitions : tuple of PartitionFacts
        The partitions, by path.
    is_full : bool
        Whether the sizes are those of full partitions. False for a sample without expected rows:
        then they are the sizes of the sample.
    bytes_per_row : float or None
        Bytes of a stored row in a base file.
    commits : int
        The last commits that changed rows, of which the following numbers are.
    inserts, deletes : float or None
        Share of the changed rows of a commit that were new, and that were deletes, on average; of
        a sample, the share of deletes.
    amplification : float or None
        Rows that the commits wrote, over rows that they changed. None for log files.
    rewritten_bytes : int
        Bytes of stored files that a commit rewrites, on average.
    rewritten_share : float
        Share of the table's file groups that a commit rewrites, on average.
    log_bytes : int
        Bytes of log files that wait for a compaction.
    late_partitions : int
        Partitions of which a commit rewrote files for less than 1 % of their rows.
    repeated : float
        Share of the rows of a sample that have the key of another row.
    hot_value : HotValue or None
        Of a sample with hash fields.
    """

    partitions: tuple[PartitionFacts, ...]
    is_full: bool = True
    bytes_per_row: float | None = None
    commits: int = 0
    inserts: float | None = None
    deletes: float | None = None
    amplification: float | None = None
    rewritten_bytes: int = 0
    rewritten_share: float = 0.0
    log_bytes: int = 0
    late_partitions: int = 0
    repeated: float = 0.0
    hot_value: HotValue | None = None

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all partitions."""
        return sum(own.size_bytes for own in self.partitions)

    @cached_property
    def file_groups(self) -> int:
        """Number of all file groups."""
        return sum(own.file_groups for own in self.partitions)

    @cached_property
    def largest_bytes(self) -> int:
        """Bytes of the largest partition."""
        return max((own.size_bytes for own in self.partitions), default=0)

    @cached_property
    def median_bytes(self) -> int:
        """Bytes of the median partition."""
        from statistics import median

        return int(median(own.size_bytes for own in self.partitions)) if self.partitions else 0

    def facts(self) -> dict[str, object]:
        """Return the facts as a dict of simple values, ready to be shown."""
        shares = {
            "inserts": self.inserts,
            "deletes": self.deletes,
            "amplification": self.amplification,
            "bytes_per_row": self.bytes_per_row,
        }
        return {
            "partitions": len(self.partitions),
            "size_bytes": self.size_bytes,
            "largest_partition_bytes": self.largest_bytes,
            "median_partition_bytes": self.median_bytes,
            "growing_partitions": sum(own.grows for own in self.partitions),
            "sizes_of_full_partitions": self.is_full,
            "file_groups": self.file_groups,
            "commits": self.commits,
            **{name: None if held is None else round(held, 3) for name, held in shares.items()},
            "rewritten_bytes": self.rewritten_bytes,
            "rewritten_share": round(self.rewritten_share, 3),
            "log_bytes": self.log_bytes,
            "late_partitions": self.late_partitions,
            "repeated_keys": round(self.repeated, 3),
            "hot_value": None if self.hot_value is None else self.hot_value.text,
            "hot_share": None if self.hot_value is None else round(self.hot_value.share, 3),
        }

    @property
    def line(self) -> str:
        """The most important facts on one line."""
        parts = [counted(len(self.partitions), "partition"), size_text(self.size_bytes)]
        if self.file_groups:
            parts.append(counted(self.file_groups, "file group"))
        if self.bytes_per_row is not None:
            parts.append(f"{self.bytes_per_row:.1f} bytes a row")
        if self.commits:
            parts.append(f"last {counted(self.commits, 'commit')}")
        if self.inserts is not None:
            parts.append(f"{self.inserts:.0%} inserts")
        if self.deletes is not None:
            parts.append(f"{self.deletes:.0%} deletes")
        if self.amplification is not None:
            parts.append(f"{self.amplification:.1f} rows written for each changed row")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What advice must keep to: the table as it is, or as it is to be.

    Attributes
    ----------
    path : str or None
        Address of the table; None if there is none yet.
    record_key, partition_by, ordering : tuple of str
        Columns of these roles.
    version : int
        Table version.
    hudi_writers : bool
        Whether jobs of Hudi write the table.
    index : TableIndex or None
        Its index now; None if it is not known, or if there is no table yet.
    hash_fields : tuple of str or None
        Record key fields that shall choose the bucket in a new table; None for all.
    table_type : TableType
        Its type.
    hive_style : bool
        Whether folders of partitions are named ``column=value``.
    is_usual : bool
        Whether ``create_table`` makes the same table from the settings above.
    upkeep : {"off", "auto"}
        Whether writes run its services.
    waiting : tuple of Waiting
        How long its services have waited.
    target_bytes : int
        Bytes that a file should have.
    """

    path: str | None
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    version: int = NEWEST_VERSION
    hudi_writers: bool = False
    index: TableIndex | None = None
    hash_fields: tuple[str, ...] | None = None
    table_type: TableType = TableType.COPY_ON_WRITE
    hive_style: bool = False
    is_usual: bool = True
    upkeep: str = OFF
    waiting: tuple[Waiting, ...] = ()
    target_bytes: int = TARGET_FILE_SIZE_DEFAULT

    @property
    def is_new(self) -> bool:
        """Whether there is no table yet."""
        return self.path is None


def size_text(size_bytes: float) -> str:
    """Return a size for people: ``12.5 MB``."""
    return cell_text("size_bytes", int(size_bytes))


def counted(count: int, what: str) -> str:
    """Return a number of things: ``1 file``, ``2 files``.

    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
