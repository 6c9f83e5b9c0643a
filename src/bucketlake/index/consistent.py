"""The consistent hashing index: buckets that split and merge while the table is written (RFC-42).

A value that users hand in; ``index/ring_kind.py`` has what it shares with extendible hashing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from bucketlake.config.record_options import INDEX_TYPE
from bucketlake.config.resize_options import ENGINE, ENGINE_OPTION, MAX_COUNT, MIN_COUNT
from bucketlake.config.sql_options import SAFE_SQL
from bucketlake.errors import ConfigError
from bucketlake.hashing.ring import initial_ring
from bucketlake.index.hash_fields import (
    COUNT_OPTION,
    checked_fields,
    count_option,
    hash_field_options,
    hash_fields_from_options,
    require_engine,
)
from bucketlake.index.ring_engine import CONSISTENT, RingEngine
from bucketlake.index.ring_kind import RingKind
from bucketlake.index.ring_layout import RingLayout

_MAX_DEFAULT = 10_000


@dataclass(frozen=True)
class ConsistentBucket(RingKind):
    """Buckets that are split and merged while the table is written: Hudi's consistent hashing.

    Each partition has a hash ring of its own. A bucket is a range of the ring and one file group.
    :meth:`Table.resize` splits large buckets and merges small ones; all others are left alone.

    Parameters
    ----------
    initial : int
        Buckets that a partition begins with.
    min, max : int
        Limits to the number of buckets of a partition. A resize keeps to them. Hudi's own default
        for both is ``initial``, so that Hudi never resizes unless they are set.
    hash_fields : sequence of str, optional
        Record key fields that choose the bucket; None for all of them.

    Raises
    ------
    ConfigError
        If a number is out of range, ``min <= initial <= max`` does not hold, or a hash field is
        empty, repeated, or holds a comma.

    Notes
    -----
    RFC-42.

    Examples
    --------
    >>> ConsistentBucket(4, max=64)
    ConsistentBucket(initial=4, min=1, max=64, hash_fields=None)
    """

    initial: int
    min: int = 1
    max: int = _MAX_DEFAULT
    hash_fields: Sequence[str] | None = None
    # Where the rings are; no part of what a user asks for.
    _layout: RingLayout | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("initial", "min", "max"):
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                raise ConfigError(f"bucket count {name}", count, "give an integer of at least 1")
        if not self.min <= self.initial <= self.max:
            raise ConfigError(
                "bucket count initial",
                self.initial,
                f"give an integer from min ({self.min}) to max ({self.max})",
            )
        initial_ring("", self.initial)  # Raises ConfigError if there are too many.
        if self.hash_fields is not None:
            object.__setattr__(self, "hash_fields", checked_fields(self.hash_fields))

    @property
    def engine(self) -> RingEngine:
        """How the buckets of a partition are stored, and how keys are hashed."""
        return CONSISTENT

    @property
    def count_min(self) -> int:
        """Fewest buckets of a partition."""
        return self.min

    @property
    def count_max(self) -> int:
        """Most buckets of a partition."""
        return self.max

    def facts(self) -> dict[str, object]:
        """Return the settings as plain facts, ready to be shown."""
        return {
            "index": "consistent_bucket",
            "initial_buckets": self.initial,
            "min_buckets": self.min,
            "max_buckets": self.max,
            "hash_fields": list(self.hash_fields or ()),
        }

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options that tell Hudi of this index."""
        return {
            INDEX_TYPE: "BUCKET",
            ENGINE_OPTION: ENGINE,
            COUNT_OPTION: str(self.initial),
            MIN_COUNT: str(self.min),
            MAX_COUNT: str(self.max),
            **hash_field_options(self.hash_fields),
            **SAFE_SQL,
        }

    def with_limits_of(self, stored: object, options: Mapping[str, str]) -> Self:
        """Return the index with the limits of the table's own, where a job names none."""
        if not isinstance(stored, ConsistentBucket):
            return self
        least = self.min if options.get(MIN_COUNT) else stored.min
        most = self.max if options.get(MAX_COUNT) else stored.max
        return replace(self, min=min(least, self.initial), max=max(most, self.initial))

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the index from the ``hoodie.*`` options of a Hudi job.

        Raises
        ------
        ConfigError
            If the options name another index, or no initial number of buckets.

        Notes
        -----
        Hudi raises a maximum that is less than the initial number to that number, and lowers a
        minimum that is greater. Where a limit is missing, Hudi takes the initial number; here the
        limit is that of ``ConsistentBucket``, since otherwise nothing would ever be resized.
        """
        require_engine(options, ENGINE, "consistent hashing bucket")
        initial = count_option(options, COUNT_OPTION)
        least, most = (
            count_option(options, MIN_COUNT, 1),
            count_option(options, MAX_COUNT, _MAX_DEFAULT),
        )
        fields = hash_fields_from_options(options)
        return cls(initial, min(least, initial), max(most, initial), fields)
