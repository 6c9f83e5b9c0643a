"""The dynamic bucket index: buckets that grow with the data (Hudi discussion 18514).

A value that users pass. Its layout is that of a partitioned record-level index
(``index/record_layout.py``) whose shards have buckets of their own
(``index/groups_for_new_keys.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from bucketlake.config import record_options as names
from bucketlake.config.sql_options import SAFE_SQL
from bucketlake.config.table_version import PARTITIONED_INDEX_VERSION
from bucketlake.errors import ConfigError
from bucketlake.index.groups_for_new_keys import OwnBuckets
from bucketlake.index.record import MAX_FILE_SIZE_DEFAULT
from bucketlake.index.record_layout import IndexSource, RecordLayout
from bucketlake.metadata.record_index.shards import ShardsBySize
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline

if TYPE_CHECKING:
    from bucketlake.metadata.location_cache.cache import LocationCache

ASSIGNERS_OF_SMALL: Final = 1
ASSIGNERS_OF_LARGE: Final = 4
"""Assigners of a new partition if no number is given; ``ROWS_OF_LARGE`` says what is large."""

ASSIGNERS_MAX: Final = 1_000


@dataclass(frozen=True)
class DynamicBucket:
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
    # Where the index is; no part of what a user asks for.
    _layout: RecordLayout | None = field(default=None, init=False, repr=False, compare=False)

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
    def hash_fields(self) -> None:
        """No field of the key is hashed."""
        return None

    @property
    def partitioned(self) -> bool:
        """Each partition has an index of its own."""
        return True

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

    def bound(self, storage: Storage, timeline: Timeline) -> Self:
        """Return the index with that of a table at a point of its timeline."""
        index = replace(self)
        size = self.max_file_size
        if size is None and self.max_records is None:
            size = MAX_FILE_SIZE_DEFAULT
        filling = OwnBuckets(self.max_records, size)
        source, cache = IndexSource(storage, timeline), _cache_of(storage)
        layout = RecordLayout(True, filling, self.shard_limits, source, cache=cache)
        object.__setattr__(index, "_layout", layout)
        return index

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        return PARTITIONED_INDEX_VERSION

    def layout(self) -> RecordLayout:
        """Return how keys find their file group."""
        assert self._layout is not None, "the index of a table is bound to its timeline"
        return self._layout

    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""
        return {
            "index": "dynamic_bucket",
            "max_records": self.max_records,
            "max_file_size": self.max_file_size,
            "assigners": self.assigners,
        }

    def check_hash_fields(self, record_key_fields: object) -> None:
        """Do nothing: there are no hash fields."""

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
            names.number(options, names.MAX_RECORDS),
            names.number(options, names.MAX_FILE_SIZE),
            _assigners(options),
        )


def _assigners(options: Mapping[str, str]) -> int | None:
    is_number = options.get(names.ASSIGNERS, "").strip().lower() != names.BY_SIZE
    return names.number(options, names.ASSIGNERS) if is_number else None


def _cache_of(storage: Storage) -> LocationCache | None:
    """Return the cache of hosts as it was chosen; None for a table in the memory of this process.

    Such a table is in memory already, and its path names another table in another process.
    """
    if isinstance(storage, MemoryStorage):
        return None
    # Imported here because each Python worker loads this module, whatever the kind of its table.
    from bucketlake.metadata.location_cache.cache_options import chosen_cache

    return chosen_cache()
