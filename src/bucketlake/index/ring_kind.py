"""What the kinds have in common whose buckets split and merge while the table is written.

They are consistent hashing (``index/consistent.py``) and extendible hashing
(``index/extendible.py``). ``index/ring_layout.py`` finds the bucket of a key, ``index/rings.py``
stores the rings, and ``services/resize/`` splits and merges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

from bucketlake.config.table_version import OLDEST_VERSION
from bucketlake.errors import ConfigError
from bucketlake.index.hash_fields import check_hash_fields
from bucketlake.index.ring_engine import RingEngine
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import RingSource
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline


class RingKind(ABC):
    """An index kind with a ring in each partition; a value that is bound to a table's rings."""

    initial: int
    hash_fields: Sequence[str] | None
    _layout: RingLayout | None

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

    @abstractmethod
    def with_limits_of(self, stored: object, options: Mapping[str, str]) -> Self:
        """Return the index with the limits of the table's own, where a job names none."""

    @property
    def max_file_size(self) -> None:
        """A bucket has one file group."""
        return None

    def with_max_file_size(self, max_file_size: int | None) -> Self:
        """Return the same index; a bucket of a ring has one file group."""
        if max_file_size is not None:
            name = type(self).__name__
            raise ConfigError("max_file_size", max_file_size, f"a {name} has none")
        return self

    def bound(self, storage: Storage, timeline: Timeline) -> Self:
        """Return the index with the rings of a table at a point of its timeline."""
        source = RingSource(storage, timeline, self.engine)
        layout = RingLayout(source, self.initial, tuple(self.hash_fields or ()))
        index = copy(self)
        object.__setattr__(index, "_layout", layout)
        return index

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        return OLDEST_VERSION

    def layout(self) -> RingLayout:
        """Return how keys find their bucket."""
        assert self._layout is not None, "the index of a table is bound to its rings"
        return self._layout

    def check_hash_fields(self, record_key_fields: Sequence[str]) -> None:
        """Raise ConfigError for a hash field that is not a record key field."""
        check_hash_fields(self.hash_fields, record_key_fields)
