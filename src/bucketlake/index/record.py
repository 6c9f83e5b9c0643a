"""The record-level index: the metadata table says in which file group each key is.

A value that users pass. ``index/record_layout.py`` opens the index of a table, and
``write/record_index/locate.py`` looks keys up in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from bucketlake.config import record_options as names
from bucketlake.config.sql_options import SAFE_SQL
from bucketlake.config.table_version import OLDEST_VERSION, PARTITIONED_INDEX_VERSION
from bucketlake.errors import ConfigError
from bucketlake.index.groups_for_new_keys import SmallGroups
from bucketlake.index.record_layout import IndexSource, RecordLayout
from bucketlake.metadata.record_index.shards import (
    GLOBAL_LIMITS,
    PARTITIONED_LIMITS,
    ShardLimits,
    ShardsBySize,
)
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

MAX_FILE_SIZE_DEFAULT: Final = 120 << 20
SMALL_FILE_DEFAULT: Final = 100 << 20


@dataclass(frozen=True)
class RecordIndex:
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
    # Where the index is; no part of what a user asks for.
    _layout: RecordLayout | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.partitioned) is not bool:
            raise ConfigError("partitioned", self.partitioned, "True or False")
        for name, least in (("max_file_size", 1), ("small_file_limit", 0)):
            size = getattr(self, name)
            if type(size) is not int or size < least:
                raise ConfigError(name, size, f"give a number of bytes of at least {least}")

    @property
    def hash_fields(self) -> None:
        """No field of the key is hashed."""
        return None

    @property
    def shard_limits(self) -> ShardLimits:
        """How many shards the index gets: of each partition, or of the table."""
        return PARTITIONED_LIMITS if self.partitioned else GLOBAL_LIMITS

    def with_max_file_size(self, max_file_size: int | None) -> Self:
        """Return the same index with another size of file groups."""
        return replace(self, max_file_size=max_file_size or MAX_FILE_SIZE_DEFAULT)

    def bound(self, storage: Storage, timeline: Timeline) -> Self:
        """Return the index with that of a table at a point of its timeline."""
        index = replace(self)
        filling = SmallGroups(self.max_file_size, self.small_file_limit)
        # As Hudi does: a partition that appears later gets the least number.
        least = self.shard_limits.least
        source, new = IndexSource(storage, timeline), ShardsBySize(least, least)
        layout = RecordLayout(self.partitioned, filling, new, source)
        object.__setattr__(index, "_layout", layout)
        return index

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        return PARTITIONED_INDEX_VERSION if self.partitioned else OLDEST_VERSION

    def layout(self) -> RecordLayout:
        """Return how keys find their file group."""
        assert self._layout is not None, "the index of a table is bound to its timeline"
        return self._layout

    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""
        return {
            "index": "record_index" if self.partitioned else "global_record_index",
            "max_file_size": self.max_file_size,
            "small_file_limit": self.small_file_limit,
        }

    def check_hash_fields(self, record_key_fields: Sequence[str]) -> None:
        """Do nothing: there are no hash fields."""

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
        size = names.number(options, names.MAX_FILE_SIZE)
        small = names.number(options, names.SMALL_FILE_LIMIT)
        return cls(
            partitioned,
            MAX_FILE_SIZE_DEFAULT if size is None else size,
            SMALL_FILE_DEFAULT if small is None else small,
        )
