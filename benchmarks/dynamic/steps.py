"""The contenders and their steps, in their order, and what they are called.

Standard library only, since contenders run on interpreters of their own.
"""

from __future__ import annotations

LOAD, UPSERT, READ = "load", "upsert", "read"
STEPS = (LOAD, UPSERT, READ)
"""Steps of tables on Spark."""

OURS = {"cow": "bucketlake-spark4", "mor": "bucketlake-mor-spark4"}
SIMPLE = {"cow": "simple-cow", "mor": "simple-mor"}
PARTITIONED = {"cow": "hudi-rli-cow", "mor": "hudi-rli-mor"}
GLOBAL = {"cow": "hudi-global-rli-cow", "mor": "hudi-global-rli-mor"}
DELTA = "delta-merge"
TABLE_TYPES = {"cow": "copy_on_write", "mor": "merge_on_read"}

KINDS = {
    SIMPLE["cow"]: "SimpleBucket",
    "partition-cow": "PartitionBucket",
    "consistent-cow": "ConsistentBucket",
    OURS["cow"]: "DynamicBucket",
    "record-cow": "RecordIndex",
}
"""Copy-on-write tables of bucketlake under each kind of index."""

CACHE, GROWTH = "cache", "growth"
ENGINE_FREE = (CACHE, GROWTH)
"""Contenders without Spark, which answer questions of their own."""

MAKE = "make"
FILLS = 5
"""How often the cache is filled; each fill is a step."""

ROWS, BYTES, COMPACTED = "rows", "bytes", "compacted"
SIZES = (ROWS, BYTES, COMPACTED)
"""What fills a bucket: rows, bytes of copy-on-write files, or of merge-on-read ones."""

GROWN = ("simple", "partition", "consistent", "dynamic", "record")
"""Kinds of index under which a partition grows."""

FIRST_BUCKETS = 4
"""Buckets that such a partition begins with."""

GROWTH_FACTOR = 8
"""How many times the rows that its first buckets were made for a partition gets."""


def fill_step(number: int) -> str:
    """Name a fill of the cache."""
    return f"fill_{number}"


def size_step(kind: str) -> str:
    """Name the growth of a table whose buckets are filled by rows or bytes."""
    return f"fill_by_{kind}"


def grow_step(kind: str) -> str:
    """Name the growth of a partition under a kind of index."""
    return f"grow_{kind}"
