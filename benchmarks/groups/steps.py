"""The contenders and the steps of a turn.

Standard library only, since contenders run in processes of their own.
"""

from __future__ import annotations

LOAD, UPSERT, UPSERT_AGAIN = "load", "upsert", "upsert_again"
STEPS = (LOAD, UPSERT, UPSERT_AGAIN)

TABLE_TYPES = {"cow": "copy_on_write", "mor": "merge_on_read"}
GROUPS, SIMPLE = "groups", "simple"
"""Several file groups in a bucket; as many buckets, of one file group each."""

CONTENDERS = tuple(f"{kind}-{short}" for short in TABLE_TYPES for kind in (GROUPS, SIMPLE))


def file_group_count(partitions: int, buckets: int, groups: int) -> int:
    """Return how many file groups both kinds of table have after the load."""
    return partitions * buckets * groups
