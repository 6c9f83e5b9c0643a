"""What the kinds of index have in common, and the list of them.

A kind is a frozen value that users hand in. It knows its options in both directions and what is
said of it; :meth:`IndexKind.layout` gives what readers and writers ask (``index/layout.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bucketlake.index.layout import Layout


class IndexKind(Protocol):
    """A kind of index with its settings; a small picklable value."""

    @property
    def hash_fields(self) -> Sequence[str] | None:
        """Record key fields that choose the slot; None for all of them."""
        ...

    def layout(self) -> Layout:
        """Return what this kind answers, with the rules and counts that it holds."""
        ...

    def check_hash_fields(self, record_key_fields: Sequence[str]) -> None:
        """Refuse hash fields that are no record key fields, by a ConfigError."""
        ...

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options that tell Hudi of this index."""
        ...

    def facts(self) -> dict[str, object]:
        """Return the settings as plain facts, ready to be shown."""
        ...
