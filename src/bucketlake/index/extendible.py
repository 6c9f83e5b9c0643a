"""The extendible hashing index: buckets by the last bits of a hash, which split in halves (RFC-29).

A value that users hand in; ``index/ring_kind.py`` has what it shares with consistent hashing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from bucketlake.config.record_options import INDEX_TYPE
from bucketlake.config.resize_options import (
    ENGINE_OPTION,
    EXTENDIBLE_ENGINE,
    EXTENSION_ENGINE,
    MAX_DEPTH,
    MAX_DEPTH_DEFAULT,
)
from bucketlake.errors import ConfigError
from bucketlake.hashing.directory import DEPTH_MAX
from bucketlake.index.hash_fields import (
    COUNT_OPTION,
    checked_fields,
    count_option,
    hash_field_options,
    hash_fields_from_options,
    require_engine,
)
from bucketlake.index.ring_engine import EXTENDIBLE, RingEngine
from bucketlake.index.ring_kind import RingKind
from bucketlake.index.ring_layout import RingLayout


@dataclass(frozen=True)
class ExtendibleBucket(RingKind):
    """Buckets by the last bits of a hash, which split and merge while the table is written.

    Each partition has a directory of its own. A bucket is a suffix of the hash and one file group.
    :meth:`Table.resize` splits large buckets in halves and merges small ones; all others are left
    alone. Hudi has no such index: it reads the table, and must not write it.

    Parameters
    ----------
    initial : int
        Buckets that a partition begins with, rounded up to a power of two.
    max_depth : int
        Most bits of a suffix, up to 30: a partition has at most 2 to the power of so many buckets.
    hash_fields : sequence of str, optional
        Record key fields that choose the bucket; None for all of them.

    Raises
    ------
    ConfigError
        If a number is out of range, or a hash field is empty, repeated, or holds a comma.

    Notes
    -----
    RFC-29, "extendible hash". The hash is that of ``SimpleBucket``.

    Examples
    --------
    >>> ExtendibleBucket(4)
    ExtendibleBucket(initial=4, max_depth=20, hash_fields=None)
    """

    initial: int
    max_depth: int = MAX_DEPTH_DEFAULT
    hash_fields: Sequence[str] | None = None
    # Where the directories are; no part of what a user asks for.
    _layout: RingLayout | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        depth = self.max_depth
        if type(depth) is not int or not 0 <= depth <= DEPTH_MAX:
            raise ConfigError("max_depth", depth, f"give an integer from 0 to {DEPTH_MAX}")
        most = min(1 << depth, _INITIAL_MAX)
        if type(self.initial) is not int or not 1 <= self.initial <= most:
            raise ConfigError(
                "bucket count initial",
                self.initial,
                f"give an integer from 1 to {most}, for a max_depth of {depth}",
            )
        if self.hash_fields is not None:
            object.__setattr__(self, "hash_fields", checked_fields(self.hash_fields))

    @property
    def engine(self) -> RingEngine:
        """How the buckets of a partition are stored, and how keys are hashed."""
        return EXTENDIBLE

    @property
    def count_min(self) -> int:
        """Fewest buckets of a partition."""
        return 1

    @property
    def count_max(self) -> int:
        """Most buckets of a partition."""
        return 1 << self.max_depth

    def facts(self) -> dict[str, object]:
        """Return the settings as plain facts, ready to be shown."""
        return {
            "index": "extendible_bucket",
            "initial_buckets": self.initial,
            "max_depth": self.max_depth,
            "hash_fields": list(self.hash_fields or ()),
        }

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options of this index; Hudi refuses its engine."""
        return {
            INDEX_TYPE: "BUCKET",
            ENGINE_OPTION: EXTENDIBLE_ENGINE,
            COUNT_OPTION: str(self.initial),
            MAX_DEPTH: str(self.max_depth),
            **hash_field_options(self.hash_fields),
        }

    def with_limits_of(self, stored: object, options: Mapping[str, str]) -> Self:
        """Return the index with the limit of the table's own, where a job names none."""
        if not isinstance(stored, ExtendibleBucket) or options.get(MAX_DEPTH):
            return self
        return replace(self, max_depth=stored.max_depth)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the index from the ``hoodie.*`` options of a job of bucketlake.

        Raises
        ------
        ConfigError
            If the options name another index, or no initial number of buckets.
        """
        named = {ENGINE_OPTION: options[EXTENSION_ENGINE]} if options.get(EXTENSION_ENGINE) else {}
        require_engine({**options, **named}, EXTENDIBLE_ENGINE, "extendible hashing bucket")
        initial = count_option(options, COUNT_OPTION)
        depth = count_option(options, MAX_DEPTH, MAX_DEPTH_DEFAULT)
        return cls(initial, depth, hash_fields_from_options(options))


_INITIAL_MAX = 1 << 16
"""Most buckets that a new partition begins with."""
