"""Dynamic buckets without Spark: the cache of their index, and the sizes of their buckets.

- The cache and the index: how fast the cache is filled, and bytes for each key.
- Sizes of buckets as a partition grows, under each kind of index.

`upsert` and `lakeloader` have writes on Spark, beside the other kinds, Hudi and Delta.
"""

from __future__ import annotations

import statistics

from benchmarks.common.benchmark import Benchmark, Contender, Option, count
from benchmarks.common.figures import Result, met
from benchmarks.common.report import Page
from benchmarks.common.tables import Column, Row, Table, Tell, figure, listing, median
from benchmarks.common.turn import plain_work
from benchmarks.workloads.bucket_sizes import FIRST_BUCKETS, GROWTH_FACTOR, BucketSizes
from benchmarks.workloads.cache_fills import CacheFills

FILLS = tuple(f"fill-{number}" for number in range(5))
SIZES = {
    "fill-rows": "rows, copy-on-write",
    "fill-bytes": "bytes, copy-on-write",
    "fill-compacted": "bytes, merge-on-read, after compactions",
}
GROWN = {
    "grow-simple": "SimpleBucket",
    "grow-partition": "PartitionBucket",
    "grow-consistent": "ConsistentBucket",
    "grow-dynamic": "DynamicBucket",
    "grow-record": "RecordIndex",
}
REPAIRS = {
    "grow-simple": "one rescale at the end",
    "grow-partition": "one rescale at the end",
    "grow-consistent": "a resize after each batch",
}
FILL_RATE, MEMORY_BYTES, OVER_LIMIT = 2.0, 8.0, 1.2
"""Aims: million keys a second, bytes a key, and the largest bucket over its limit."""


CONTENDERS = (
    Contender("cache", CacheFills, steps=("make", *FILLS), once=True),
    Contender("growth", BucketSizes, steps=("make", *SIZES, *GROWN), once=True),
)


def cache(result: Result) -> str:
    """Judge the fill of the cache and its bytes."""
    fills = [result.first("cache", step) for step in FILLS]
    if not fills[0]:
        return ""
    keys = fills[0]["keys"]
    rates = [keys / fill["fill_cpu_seconds"] / 1e6 for fill in fills]
    rate = statistics.median(rates)
    memory, disk = (fills[-1][name] / keys for name in ("memory_bytes", "disk_bytes"))
    index = result.first("cache", "make")["index_bytes"] / keys
    rows = [
        [
            f"fill of the cache, million keys a second of one core: at least {FILL_RATE:g}",
            f"**{rate:.2f}** ({min(rates):.2f} to {max(rates):.2f})",
            met(rate >= FILL_RATE),
        ],
        [
            f"memory of the cache, bytes a key: at most {MEMORY_BYTES:g}",
            f"{memory:.2f}",
            met(memory <= MEMORY_BYTES),
        ],
        ["local disk of the cache, bytes a key, with the keys", f"{disk:.1f}", ""],
        ["base files of the index, bytes a key", f"{index:.1f}", ""],
    ]
    text = (
        f"{keys:,} random keys of 20 digits in one partition. A fill reads each shard of the index "
        "from the table and writes it to local disk; it happens when a host first writes many keys "
        f"to the partition. {len(FILLS)} fills, by processor time. "
        "[More about the cache](location_cache.md)."
    )
    return listing("Cache and index", text, ["<", "found", "<"], rows)


def repair(result: Result, row: Row) -> str:
    """Tell what made the sizes of buckets good, and its time."""
    seconds = result.median(*row[:2], "repair_cpu_seconds")
    return f"{REPAIRS[row.step]}: {seconds:.2f}" if row.step in REPAIRS else "–"


def grown(field: str) -> Tell:
    """Return what tells a value of a partition that grows."""
    return figure(field=field, form=median(2))


def fullest_verdict(result: Result, row: Row) -> str:
    """Judge the largest bucket."""
    return met(result.first(*row[:2])["fullest"] <= OVER_LIMIT)


BUCKET_SIZES = Table(
    lambda _: [Row("growth", step, title) for step, title in SIZES.items()],
    [
        Column("", figure(field="limit", form=median(0))),
        Column("buckets", figure(field="buckets", form=median(0))),
        Column("median bucket over the limit", figure(field="median", form=median(2))),
        Column("largest over it", figure(field="fullest", form=median(2))),
        Column(f"<at most {OVER_LIMIT:g}", fullest_verdict),
    ],
    "Sizes of buckets",
    f"One partition with {FIRST_BUCKETS} assigners gets {GROWTH_FACTOR} batches of new keys, "
    "without Spark. *Largest* is the largest bucket after any of the batches.",
    head="limit",
)
GROWTH = Table(
    lambda _: [Row("growth", step, title) for step, title in GROWN.items()],
    [
        Column("largest file, after the batches", grown("before_repair")),
        Column("first upsert, processor s", grown("first_upsert_cpu_seconds")),
        Column("last upsert, processor s", grown("last_upsert_cpu_seconds")),
        Column("<rescale or resize, processor s", repair),
        Column("files at the end", figure(field="files", form=median(0))),
        Column("largest file at the end", grown("fullest")),
    ],
    "A partition grows",
    f"What becomes of a copy-on-write partition that gets {GROWTH_FACTOR} times the rows that its "
    f"{FIRST_BUCKETS} first buckets were made for ({{bucket_rows:,}} each), in as many batches of "
    "new keys, without Spark. *Largest file* is over the rows that a bucket should have. Simple "
    "and partition-level buckets grow until a rescale, which rewrites the whole partition; a hash "
    "ring needs a resize from time to time; dynamic buckets and a record-level index need nothing. "
    "[Which index?](../which-index.md) tells when to take which.",
    head="index",
)

BENCHMARK = Benchmark(
    name="dynamic",
    description="Dynamic buckets without Spark: the cache of their index, and bucket sizes.",
    contenders=CONTENDERS,
    turn=plain_work,
    options=[
        Option("--cache-keys", count, 4_000_000, "keys in the cache"),
        Option("--bucket-rows", count, 50_000, "rows of a bucket in the partition that grows"),
    ],
    defaults={"rounds": 1, "warmup_rounds": 0},
    quick={"cache_keys": 100_000, "bucket_rows": 2_000},
    orders=False,
    page=Page(
        title="Benchmark of dynamic buckets",
        text="The cache of the index of dynamic buckets, and the sizes of buckets as a partition "
        "grows, without Spark. [Upserts](upsert.md) are measured beside Hudi and Delta.",
        head="{cache_keys:,} keys in the cache, {bucket_rows:,} rows in a bucket",
        blocks=[cache, BUCKET_SIZES, GROWTH],
    ),
)
