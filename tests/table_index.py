"""An index as that of a table: with the rule that finds the hash fields in its keys."""

from __future__ import annotations

from typing import TypeVar

from bucketlake.index.key_rule import KeyRule
from bucketlake.index.kinds import IndexKind

Kind = TypeVar("Kind", bound=IndexKind)


def of_table(index: Kind, *key_fields: str) -> Kind:
    """Return the index of a table with these key fields, by default ``id``."""
    return index.with_key_rule(KeyRule(tuple(index.hash_fields or key_fields or ("id",))))
