"""The kinds whose buckets split and merge while the table is written, as users pass them.

They are consistent hashing (RFC-42) and extendible hashing, by the last bits of a hash (RFC-29).
``index/ring_layout.py`` finds the bucket of a key, ``index/rings.py`` stores the rings, and
``services/resize/`` splits and merges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from bucketlake.config.hudi_options import SAFE_SQL
from bucketlake.config.record_options import INDEX_TYPE
from bucketlake.config.resize_options import (
    ENGINE,
    ENGINE_OPTION,
    EXTENDIBLE_ENGINE,
    EXTENSION_ENGINE,
    MAX_COUNT,
    MAX_DEPTH,
    MAX_DEPTH_DEFAULT,
    MIN_COUNT,
)
from bucketlake.errors import ConfigError
from bucketlake.hashing.directory import DEPTH_MAX
from bucketlake.hashing.ring import initial_ring
from bucketlake.index.key_rule import (
    COUNT_OPTION,
    check_split_keys,
    checked_fields,
    count_option,
    hash_field_options,
    hash_fields_from_options,
    require_engine,
)
from bucketlake.index.kinds import IndexKind, hash_field_words
from bucketlake.index.ring_engine import CONSISTENT, EXTENDIBLE, RingEngine
from bucketlake.index.ring_state import RingSource
from bucketlake.index.simple import rule_facts
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

if TYPE_CHECKING:
    from bucketlake.index.ring_layout import RingLayout

_MAX_DEFAULT = 10_000
_INITIAL_MAX = 1 << 16  # Most buckets that a new partition of an extendible index begins with.


@dataclass(frozen=True)
class RingKind(IndexKind):
    """An index kind with a ring in each partition; a value that is bound to a table's rings."""

    max_file_size = None  # A bucket has one file group.

    initial: int
    # Where the rings are; no part of what a user asks for.
    _layout: RingLayout | None = field(default=None, init=False, repr=False, compare=False)

    @property
    @abstractmethod
    def engine(self) -> RingEngine:
        """How the buckets of a partition are stored, and how keys are hashed."""

    @property
    @abstractmethod
    def count_min(self) -> int:
        """Fewest buckets of a partition."""

    @property
    @abstractmethod
    def count_max(self) -> int:
        """Most buckets of a partition."""

    @property
    def resized(self) -> Self:
        """The index itself: its buckets split and merge."""
        return self

    def with_max_file_size(self, max_file_size: int | None) -> Self:
        """Return the same index; a bucket of a ring has one file group."""
        if max_file_size is not None:
            name = type(self).__name__
            raise ConfigError("max_file_size", max_file_size, f"a {name} has none")
        return self

    def bound(self, storage: Storage, timeline: Timeline) -> Self:
        """Return the index with the rings of a table at a point of its timeline."""
        from bucketlake.index.ring_layout import RingLayout

        layout = RingLayout(RingSource(storage, timeline, self.initial, self.engine))
        index = copy(self)
        object.__setattr__(index, "_layout", layout)
        return index

    def layout(self) -> RingLayout:
        """Return how keys find their bucket."""
        assert self._layout is not None, "the index of a table is bound to its rings"
        return replace(self._layout, key_rule=self.key_rule)

    def to_command(self) -> dict[str, object]:
        """Return the options of a command that name this index."""
        own = {"--index": self.engine.command_word, "--buckets": self.initial}
        return {**own, **hash_field_words(self.hash_fields)}


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
    split_keys : bool, optional
        For tables of version 6: whether a key with a colon is split before it is hashed, as Hudi
        0.14 and 0.15 do, or hashed whole, as Hudi 1 does. None: as the table's files show; a new
        table of version 6 splits.

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

    min: int = 1
    max: int = _MAX_DEFAULT
    hash_fields: Sequence[str] | None = None
    split_keys: bool | None = field(default=None, repr=False, compare=False)

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
        check_split_keys(self.split_keys)

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
            **rule_facts(self.key_rule),
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

    def with_stored_limits(self, stored: object, options: Mapping[str, str]) -> Self:
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
        least = count_option(options, MIN_COUNT, 1)
        most = count_option(options, MAX_COUNT, _MAX_DEFAULT)
        fields = hash_fields_from_options(options)
        return cls(initial, min(least, initial), max(most, initial), fields)


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

    max_depth: int = MAX_DEPTH_DEFAULT
    hash_fields: Sequence[str] | None = None

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

    def with_stored_limits(self, stored: object, options: Mapping[str, str]) -> Self:
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
