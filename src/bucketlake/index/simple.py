"""The simple bucket index: a fixed number of buckets in each partition (RFC-29).

This module holds the value that users pass. ``index/bucket_layout.py`` finds the bucket of a key
and the file groups of a bucket; ``index/setting.py`` finds the index of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from bucketlake.config.hudi_options import SAFE_SQL
from bucketlake.config.record_options import INDEX_TYPE, number_option
from bucketlake.config.resize_options import ENGINE_OPTION
from bucketlake.errors import ConfigError
from bucketlake.index.bucket_hash import BUCKET_COUNT_MAX
from bucketlake.index.key_rule import (
    COUNT_OPTION,
    KeyRule,
    check_split_keys,
    checked_fields,
    count_option,
    hash_field_options,
    hash_fields_from_options,
    require_engine,
)
from bucketlake.index.kinds import IndexKind, hash_field_words

if TYPE_CHECKING:
    from bucketlake.index.bucket_layout import BucketLayout
    from bucketlake.index.partition import PartitionBucket

MAX_FILE_SIZE_OPTION = "hoodie.bucket.index.ext.max.file.size"  # Hudi ignores it.


@dataclass(frozen=True)
class SimpleBucket(IndexKind):
    """A fixed number of buckets in each partition, compatible with Hudi's ``BUCKET`` index.

    Parameters
    ----------
    count : int
        Bucket count of each partition, 1 to 99 999 999. A partition has file groups only for
        buckets with records.
    hash_fields : sequence of str, optional
        Record key fields that choose the bucket; None for all of them.
    max_file_size : int, optional
        Bytes of a file group at which the bucket's next file group is opened, so that a bucket may
        grow (RFC-29, pattern 2). None: a bucket has one file group (pattern 1). Hudi reads tables
        with a maximum file size; its bucket index cannot write to a bucket with several groups.
    split_keys : bool, optional
        For tables of version 6: whether a key with a colon is split before it is hashed, as Hudi
        0.14 and 0.15 do, or hashed whole, as Hudi 1 does. None: as the table's files show; a new
        table of version 6 splits.

    Raises
    ------
    ConfigError
        If a number is out of range, or a hash field is empty, repeated, or contains a comma.

    Examples
    --------
    >>> SimpleBucket(16, ["device"])
    SimpleBucket(count=16, hash_fields=('device',), max_file_size=None)
    """

    count: int
    hash_fields: Sequence[str] | None = None
    max_file_size: int | None = None
    split_keys: bool | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.count) is not int or not 1 <= self.count <= BUCKET_COUNT_MAX:
            raise ConfigError(
                "bucket count", self.count, f"give an integer from 1 to {BUCKET_COUNT_MAX}"
            )
        if self.hash_fields is not None:
            object.__setattr__(self, "hash_fields", checked_fields(self.hash_fields))
        size = self.max_file_size
        if size is not None and (type(size) is not int or size < 1):
            raise ConfigError("max_file_size", size, "give a number of bytes, or None")
        check_split_keys(self.split_keys)

    @property
    def counted(self) -> Self:
        """The index itself: each partition has a number of buckets."""
        return self

    def count_of(self, partition_path: str) -> int:
        """Return the bucket count, which is the same for all partitions."""
        return self.count

    def layout(self) -> BucketLayout:
        """Return the layout, which tells how keys find their bucket."""
        from bucketlake.index.bucket_layout import BucketLayout

        return BucketLayout(self, key_rule=self.key_rule)

    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""
        facts = {"index": "simple_bucket", "buckets": self.count, **group_facts(self)}
        return facts | rule_facts(self.key_rule)

    def with_max_file_size(self, max_file_size: int | None) -> Self:
        """Return the same index with another maximum file size."""
        return replace(self, max_file_size=max_file_size).with_key_rule(self.key_rule)

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options of this index, for a Hudi job."""
        options = {
            INDEX_TYPE: "BUCKET",
            ENGINE_OPTION: "SIMPLE",
            COUNT_OPTION: str(self.count),
            **hash_field_options(self.hash_fields),
            **SAFE_SQL,
        }
        if self.max_file_size is not None:
            options[MAX_FILE_SIZE_OPTION] = str(self.max_file_size)
        return options

    def to_command(self) -> dict[str, object]:
        """Return the options of a command that name this index."""
        own = {"--index": "simple", "--buckets": self.count, "--max-file-size": self.max_file_size}
        return {**own, **hash_field_words(self.hash_fields)}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the index from the ``hoodie.*`` options of a Hudi job.

        Raises
        ------
        ConfigError
            If the options name another index, or no bucket count. There is no default count,
            because Hudi's engines have different defaults.
        """
        require_engine(options, "SIMPLE", "simple bucket")
        count = count_option(options, COUNT_OPTION)
        fields = hash_fields_from_options(options)
        return cls(count, fields, number_option(options, MAX_FILE_SIZE_OPTION))


def group_facts(index: SimpleBucket | PartitionBucket) -> dict[str, object]:
    """Return the settings that all bucket indexes have, ready to be shown."""
    facts: dict[str, object] = {"hash_fields": list(index.hash_fields or ())}
    if index.max_file_size is not None:
        facts["max_file_size"] = index.max_file_size
    return facts


def rule_facts(rule: KeyRule | None) -> dict[str, object]:
    """Return the decided rule of a table, ready to be shown; nothing if there is none."""
    return {} if rule is None or rule.stated is None else {"split_keys": rule.stated}
