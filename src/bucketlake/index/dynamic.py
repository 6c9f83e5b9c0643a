"""The dynamic bucket index: buckets that grow with the data (Hudi discussion 18514).

A value that users pass. Its layout is that of a partitioned record-level index
(``index/record_layout.py``) whose shards have buckets of their own
(``index/groups_for_new_keys.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from bucketlake.config import record_options as names
from bucketlake.config.hudi_options import SAFE_SQL
from bucketlake.config.table_version import OLDEST_VERSION, PARTITIONED_INDEX_VERSION
from bucketlake.errors import ConfigError
from bucketlake.index.kinds import IndexKind
from bucketlake.metadata.record_index.shards import (
    GLOBAL_LIMITS,
    PARTITIONED_LIMITS,
    ShardLimits,
    ShardsBySize,
)

if TYPE_CHECKING:
    from bucketlake.index.record_layout import RecordLayout

ASSIGNERS_OF_SMALL: Final = 1
ASSIGNERS_OF_LARGE: Final = 4
"""Assigners of a new partition if no number is given; ``ROWS_OF_LARGE`` says what is large."""

ASSIGNERS_MAX: Final = 1_000


@dataclass(frozen=True)
class DynamicBucket(IndexKind):
    """Buckets that grow with the data: a new bucket is opened when all others are full.

    Which bucket has a key stands in the partitioned record-level index of the metadata table, so a
    key never moves. No number of buckets is chosen, and no service splits or merges them. A record
    key is unique in its partition.

    Parameters
    ----------
    max_records : int, optional
        Rows of a full bucket.
    max_file_size : int, optional
        Bytes of a full bucket: of its newest base file and the log files after it. If neither limit
        is given, 120 MiB. If both are, a bucket is full as soon as it reaches one of them.
    assigners : int, optional
        Number of shards of the index in each new partition. Each shard assigns its keys to buckets
        of its own, so a partition begins with as many buckets, and as many tasks write new keys. By
        default 4 if the partition, or another one in the newest commits, got 100,000 rows at once;
        else 1.

    Raises
    ------
    ConfigError
        If a number is out of range.

    Examples
    --------
    >>> DynamicBucket(max_records=2_000_000)
    DynamicBucket(max_records=2000000, max_file_size=None, assigners=None)
    """

    max_records: int | None = None
    max_file_size: int | None = None
    assigners: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_records", "max_file_size"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(name, value, "give a number of at least 1, or None")
        count = self.assigners
        if count is not None and (type(count) is not int or not 1 <= count <= ASSIGNERS_MAX):
            allowed = f"give a number from 1 to {ASSIGNERS_MAX:,}, or None"
            raise ConfigError("assigners", count, allowed)

    @property
    def partitioned(self) -> bool:
        """Each partition has an index of its own."""
        return True

    @property
    def growing(self) -> Self:
        """The index itself: buckets are opened as the data grows."""
        return self

    @property
    def shard_limits(self) -> ShardsBySize:
        """How many shards of the index a partition gets."""
        if self.assigners is None:
            return ShardsBySize(ASSIGNERS_OF_SMALL, ASSIGNERS_OF_LARGE)
        return ShardsBySize(self.assigners, self.assigners)

    def with_max_file_size(self, max_file_size: int | None) -> Self:
        """Return the same index with another size of buckets."""
        return replace(self, max_file_size=max_file_size)

    def with_limits_of(self, asked: Self) -> Self:
        """Return the same index with the limits of buckets that another one has."""
        return replace(self, max_records=asked.max_records, max_file_size=asked.max_file_size)

    def with_assigners_of(self, held: Self) -> Self:
        """Return the same index with the assigners of another one, unless it has a number."""
        return self if self.assigners is not None else replace(self, assigners=held.assigners)

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        return PARTITIONED_INDEX_VERSION

    def layout(self) -> RecordLayout:
        """Return how keys find their file group."""
        from bucketlake.index.groups_for_new_keys import OwnBuckets
        from bucketlake.index.record_layout import RecordLayout

        size = self.max_file_size
        if size is None and self.max_records is None:
            size = MAX_FILE_SIZE_DEFAULT
        return RecordLayout(True, OwnBuckets(self.max_records, size), self.shard_limits)

    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""
        return {
            "index": "dynamic_bucket",
            "max_records": self.max_records,
            "max_file_size": self.max_file_size,
            "assigners": self.assigners,
        }

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options of this index, for a Hudi job.

        A Hudi job takes it for a partitioned record-level index, with as many shards. A partition
        that a Hudi job opens has the smallest number.
        """
        shards = self.shard_limits
        options = {
            names.INDEX_TYPE: names.PARTITIONED_TYPE,
            names.PARTITIONED_ENABLE: "true",
            names.SHARDS_MIN: str(shards.of_small),
            names.SHARDS_MAX: str(shards.of_large),
            names.ASSIGNERS: names.BY_SIZE if self.assigners is None else str(self.assigners),
            **SAFE_SQL,
        }
        if self.max_records is not None:
            options[names.MAX_RECORDS] = str(self.max_records)
        if self.max_file_size is not None:
            options[names.MAX_FILE_SIZE] = str(self.max_file_size)
        return options

    def to_command(self) -> dict[str, object]:
        """Return the options of a command that name this index."""
        return {
            "--index": "dynamic",
            "--max-records": self.max_records,
            "--max-file-size": self.max_file_size,
            "--assigners": self.assigners,
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the index from ``hoodie.*`` options.

        Raises
        ------
        ConfigError
            If the options name another index, disable it, or a number is none.
        """
        names.require_record_index(options, partitioned=True)
        return cls(
            names.number_option(options, names.MAX_RECORDS),
            names.number_option(options, names.MAX_FILE_SIZE),
            _assigners(options),
        )


def _assigners(options: Mapping[str, str]) -> int | None:
    is_number = options.get(names.ASSIGNERS, "").strip().lower() != names.BY_SIZE
    return names.number_option(options, names.ASSIGNERS) if is_number else None


# ---- The record-level index: the metadata table says in which file group each key is -------------
#
# A value that users pass. ``metadata/record_index/pinned_index.py`` opens the index of a table, and
# ``write/record_index/locate.py`` looks keys up in it.

MAX_FILE_SIZE_DEFAULT: Final = 120 << 20  # As Hudi's hoodie.parquet.max.file.size.
SMALL_FILE_DEFAULT: Final = 100 << 20


@dataclass(frozen=True)
class RecordIndex(IndexKind):
    """The file group of each key stands in the metadata table: Hudi's record-level index.

    Existing keys are looked up and stay in their file group; new keys fill small file groups, and
    then new ones. No number of buckets is chosen, and a partition grows without a rescale.

    Parameters
    ----------
    partitioned : bool
        Whether each partition has an index of its own, so that keys are unique within their
        partition. False: keys are unique in the whole table, and a key that is written with another
        partition moves there.
    max_file_size : int
        Bytes to which new keys fill a file group.
    small_file_limit : int
        Bytes below which an existing file group gets new keys; 0 for none.

    Raises
    ------
    ConfigError
        If a size is out of range.

    Examples
    --------
    >>> RecordIndex()
    RecordIndex(partitioned=True, max_file_size=125829120, small_file_limit=104857600)
    """

    partitioned: bool = True
    max_file_size: int = MAX_FILE_SIZE_DEFAULT
    small_file_limit: int = SMALL_FILE_DEFAULT

    def __post_init__(self) -> None:
        if type(self.partitioned) is not bool:
            raise ConfigError("partitioned", self.partitioned, "True or False")
        for name, least in (("max_file_size", 1), ("small_file_limit", 0)):
            size = getattr(self, name)
            if type(size) is not int or size < least:
                raise ConfigError(name, size, f"give a number of bytes of at least {least}")

    @property
    def shard_limits(self) -> ShardLimits:
        """How many shards the index gets: of each partition, or of the table."""
        return PARTITIONED_LIMITS if self.partitioned else GLOBAL_LIMITS

    def with_max_file_size(self, max_file_size: int | None) -> Self:
        """Return the same index with another size of file groups."""
        return replace(self, max_file_size=max_file_size or MAX_FILE_SIZE_DEFAULT)

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        return PARTITIONED_INDEX_VERSION if self.partitioned else OLDEST_VERSION

    def layout(self) -> RecordLayout:
        """Return how keys find their file group."""
        from bucketlake.index.groups_for_new_keys import SmallGroups
        from bucketlake.index.record_layout import RecordLayout

        filling = SmallGroups(self.max_file_size, self.small_file_limit)
        # As Hudi does: a partition that appears later gets the least number.
        least = self.shard_limits.least
        return RecordLayout(self.partitioned, filling, ShardsBySize(least, least))

    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""
        return {
            "index": "record_index" if self.partitioned else "global_record_index",
            "max_file_size": self.max_file_size,
            "small_file_limit": self.small_file_limit,
        }

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options of this index, for a Hudi job."""
        sizes = {
            names.MAX_FILE_SIZE: str(self.max_file_size),
            names.SMALL_FILE_LIMIT: str(self.small_file_limit),
            **SAFE_SQL,
        }
        if self.partitioned:
            kind = {names.INDEX_TYPE: names.PARTITIONED_TYPE, names.PARTITIONED_ENABLE: "true"}
            return kind | sizes
        kind = {names.INDEX_TYPE: names.GLOBAL_TYPES[0], names.GLOBAL_ENABLE[0]: "true"}
        return kind | {names.MOVES: "true"} | sizes

    def to_command(self) -> dict[str, object]:
        """Return the options of a command that name this index."""
        return {"--index": "record" if self.partitioned else "global-record"}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the index from the ``hoodie.*`` options of a Hudi job.

        Raises
        ------
        ConfigError
            If the options name another index, disable it, or say that keys stay in the partition
            where they are.

        Notes
        -----
        Hudi's default for ``hoodie.record.index.update.partition.path`` is false: a record whose
        partition changed is then stored in the old partition, with columns that name the new one.
        bucketlake moves the key in any case, because a read with a condition on the partition
        would not find such a record.
        """
        partitioned = names.require_record_index(options)
        if not partitioned and options.get(names.MOVES, "true").strip().lower() != "true":
            allowed = "'true': a key moves to the partition of its newest record"
            raise ConfigError(names.MOVES, options[names.MOVES], allowed)
        size = names.number_option(options, names.MAX_FILE_SIZE)
        small = names.number_option(options, names.SMALL_FILE_LIMIT)
        return cls(
            partitioned,
            MAX_FILE_SIZE_DEFAULT if size is None else size,
            SMALL_FILE_DEFAULT if small is None else small,
        )
