"""What the index kinds have in common.

A kind is a frozen value that users pass. It reads and prints its ``hoodie.*`` options and its
facts; :meth:`IndexKind.layout` returns the layout for readers and writers (``index/layout.py``).
The rest of bucketlake asks what a kind can do and never which kind it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, ClassVar, Self

from bucketlake.config.table_version import OLDEST_VERSION
from bucketlake.index.key_rule import KeyRule, check_hash_fields
from bucketlake.index.layout import Layout

if TYPE_CHECKING:
    from bucketlake.index.dynamic import DynamicBucket
    from bucketlake.index.partition import PartitionBucket
    from bucketlake.index.ring_kind import RingKind
    from bucketlake.index.simple import SimpleBucket
    from bucketlake.metadata.record_index.shards import ShardRule


class IndexKind(ABC):
    """An index kind with its settings; a small picklable value."""

    hash_fields: Sequence[str] | None = None
    """Record key fields that choose the slot; None for all of them, or if no key is hashed."""

    key_rule: ClassVar[KeyRule | None] = None
    """Which fields of a key are hashed; None before the index is that of a table."""

    def with_key_rule(self, rule: KeyRule | None) -> Self:
        """Return the same index as that of a table with this rule, also in ``split_keys``."""
        index = copy(self)
        object.__setattr__(index, "key_rule", rule)
        if rule is not None and "split_keys" in vars(index):
            object.__setattr__(index, "split_keys", rule.stated)
        return index

    @abstractmethod
    def layout(self) -> Layout:
        """Return the layout of this kind, with its rules and bucket counts."""

    def check_hash_fields(self, record_key_fields: Sequence[str]) -> None:
        """Raise ConfigError if a hash field is not a record key field."""
        check_hash_fields(self.hash_fields, record_key_fields)

    @abstractmethod
    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options of this index, for a Hudi job."""

    @abstractmethod
    def to_command(self) -> dict[str, object]:
        """Return the options of a command that name this index; None for those to leave out."""

    @abstractmethod
    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        return OLDEST_VERSION

    @property
    def partitioned(self) -> bool | None:
        """Whether each partition has a record-level index of its own; None if writes use none."""
        return None

    @property
    def finds_keys(self) -> bool:
        """Whether writes find keys in the record-level index of the metadata table."""
        return self.partitioned is not None

    @property
    def has_global_keys(self) -> bool:
        """Whether a key is unique in the whole table, so that a write may move it."""
        return self.partitioned is False

    @property
    def shard_limits(self) -> ShardRule | None:
        """How many shards the record-level index gets; None if writes use none."""
        return None

    @property
    def counted(self) -> SimpleBucket | PartitionBucket | None:
        """The index itself, if each partition has a number of buckets that a rescale changes."""
        return None

    @property
    def resized(self) -> RingKind | None:
        """The index itself, if its buckets split and merge."""
        return None

    @property
    def growing(self) -> DynamicBucket | None:
        """The index itself, if it opens buckets as the data grows."""
        return None

    @property
    def own_rule(self) -> str | None:
        """Name of the rule that gives partitions their counts, if no command can name it."""
        return None

    def with_stored_limits(self, stored: object, options: Mapping[str, str]) -> Self:
        """Return the index of a job with limits of the table's own, where the job names none."""
        return self


def hash_field_words(hash_fields: Sequence[str] | None) -> dict[str, object]:
    """Return the option of a command that names hash fields."""
    return {"--hash-field": ",".join(hash_fields or ()) or None}
