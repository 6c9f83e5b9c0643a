"""What the kinds of bucket index have in common, for writers, readers and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class BucketIndex(Protocol):
    """An index under which a key's bucket is its hash modulo a count; a small picklable value."""

    @property
    def hash_fields(self) -> Sequence[str] | None:
        """Record key fields that choose the bucket; None for all of them."""
        ...

    def count_of(self, partition_path: str) -> int:
        """Return how many buckets a partition has, whether or not it holds records."""
        ...

    def check_hash_fields(self, record_key_fields: Sequence[str]) -> None:
        """Refuse hash fields that are no record key fields, by a ConfigError."""
        ...

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options that tell Hudi of this index."""
        ...
