"""What the index kinds have in common.

A kind is a frozen value that users pass. It reads and prints its ``hoodie.*`` options and its
facts; :meth:`IndexKind.layout` returns the layout for readers and writers (``index/layout.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bucketlake.index.layout import Layout


class IndexKind(Protocol):
    """An index kind with its settings; a small picklable value."""

    @property
    def hash_fields(self) -> Sequence[str] | None:
        """Record key fields that choose the slot; None for all of them."""
        ...

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        ...

    def layout(self) -> Layout:
        """Return the layout of this kind, with its rules and bucket counts."""
        ...

    def check_hash_fields(self, record_key_fields: Sequence[str]) -> None:
        """Raise ConfigError if a hash field is not a record key field."""
        ...

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options of this index, for a Hudi job."""
        ...

    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""
        ...
