"""Which contender does which steps, and the sizes of the tables that grow.

Standard library only, since contenders run on interpreters of their own.
"""

from __future__ import annotations

LOAD, UPSERT, READ = "load", "upsert", "read"
SCHEDULE, COMPLETE = "schedule", "complete"
UPSERT_LINKED, UPSERT_TWICE = "upsert_linked", "upsert_twice"

CONSISTENT, SIMPLE = "bucketlake-consistent", "bucketlake-simple"
HUDI_CONSISTENT, HUDI_SIMPLE, HUDI_BLOOM = "hudi-consistent", "hudi-simple", "hudi-bloom"
KINDS = (CONSISTENT, SIMPLE, HUDI_CONSISTENT, HUDI_SIMPLE, HUDI_BLOOM)
"""Tables on Spark, by their index."""

PENDING = {
    CONSISTENT: (UPSERT_LINKED, UPSERT_TWICE),
    HUDI_CONSISTENT: (UPSERT_TWICE,),
}
"""Upserts while a resize of all buckets is pending."""

RESIZE, RESCALE = "resize", "rescale"
GROWING = (RESIZE, RESCALE)
SIZES = (4, 16, 64)
"""Buckets of the tables that grow; each bucket has as many rows."""

SPLIT_COUNT = 2
"""Buckets that a resize splits, whatever the size of the table."""

LOOKUP = "lookup"
NODE_COUNT = 10_000
HASH, RING_EVEN, RING_RANDOM, SEARCH, MODULO = (
    "hash_keys",
    "ring_even",
    "ring_random",
    "binary_search",
    "modulo",
)
LOOKUPS = (HASH, RING_EVEN, RING_RANDOM, SEARCH, MODULO)


def size_step(bucket_count: int) -> str:
    """Return the name of the step that changes a table of so many buckets."""
    return f"buckets_{bucket_count}"


def steps_of(contender: str) -> tuple[str, ...]:
    """Return what is measured of a contender.

    Examples
    --------
    >>> steps_of("bucketlake-simple")
    ('load', 'upsert', 'read')
    >>> steps_of("resize")
    ('buckets_4', 'buckets_16', 'buckets_64')
    """
    if contender in GROWING:
        return tuple(size_step(count) for count in SIZES)
    if contender == LOOKUP:
        return LOOKUPS
    pending = PENDING.get(contender, ())
    return (LOAD, UPSERT, READ, *pending, *((SCHEDULE, COMPLETE) if pending else ()))
