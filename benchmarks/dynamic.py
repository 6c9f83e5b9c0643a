"""Dynamic buckets: writes beside the other kinds, Hudi and Delta; their cache, index and sizes.

Three questions:

- Tables on Spark under dynamic buckets of both types, beside every other kind of index of
  bucketlake, Hudi's record-level index (partitioned and global), and Delta's MERGE. Ours share one
  session and have a metadata table. Each partition begins with as many dynamic buckets as it has
  simple ones, so that as many tasks write. Hudi's load is the fastest that it has: `bulk_insert`
  without the index, and then `CREATE INDEX`.
- The cache and the index, without Spark: how fast the cache is filled, and bytes for each key.
- Sizes of buckets as a partition grows, without Spark, under each kind of index.

The last two are asked in the first round only.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Option, Settings, count
from benchmarks.common.figures import Result, factor, factors, met
from benchmarks.common.plot import BY_PROCESSOR, Chart, step_bars
from benchmarks.common.report import Aim, Page
from benchmarks.common.rows import REGIONS
from benchmarks.common.tables import Column, Row, Table, Tell, columns, figure, listing, median
from benchmarks.common.turn import plain_work
from benchmarks.systems.bucketlake import BucketLake
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.hudi import GLOBAL_RECORD_LEVEL, RECORD_LEVEL, HudiRecordIndex
from benchmarks.workloads.bucket_sizes import FIRST_BUCKETS, GROWTH_FACTOR, BucketSizes
from benchmarks.workloads.cache_fills import CacheFills

TITLES = {step: step for step in ("load", "upsert", "read")}
TABLE_TYPES = {"cow": "copy_on_write", "mor": "merge_on_read"}
OURS = {"cow": "bucketlake-spark4", "mor": "bucketlake-mor-spark4"}
DELTA = "delta-merge"
KINDS = {
    "simple-cow": "SimpleBucket",
    "partition-cow": "PartitionBucket",
    "consistent-cow": "ConsistentBucket",
    "bucketlake-spark4": "DynamicBucket",
    "record-cow": "RecordIndex",
}
"""Copy-on-write tables of bucketlake under each kind of index."""

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
FASTER_THAN_HUDI, TIMES_SIMPLE = 8.0, 1.5
FILL_RATE, MEMORY_BYTES, OVER_LIMIT = 2.0, 8.0, 1.2
"""Aims: million keys a second, bytes a key, and the largest bucket over its limit."""


# ---- contenders ---------------------------------------------------------------------------------


def _ours(name: str, index: Callable[[int], Any], short: str = "cow") -> Contender:
    def make(settings: Settings) -> BucketLake:
        kind = index(settings["buckets"])
        return BucketLake(settings, kind, TABLE_TYPES[short], metadata_table=True)

    return Contender(name, make, "bucketlake")


def _hudi(name: str, short: str, index: Mapping[str, str]) -> Contender:
    def make(settings: Settings) -> HudiRecordIndex:
        return HudiRecordIndex(settings, TABLE_TYPES[short], index=index, is_built=True)

    return Contender(f"{name}-{short}", make, "hudi", spark35=True)


def _dynamic(buckets: int) -> bl.DynamicBucket:
    return bl.DynamicBucket(assigners=buckets)


def _partition(buckets: int) -> bl.PartitionBucket:
    return bl.PartitionBucket({REGIONS[0]: buckets}, default=buckets)


CONTENDERS = (
    *(_ours(name, _dynamic, short) for short, name in OURS.items()),
    *(_ours(f"simple-{short}", bl.SimpleBucket, short) for short in TABLE_TYPES),
    _ours("partition-cow", _partition),
    _ours("consistent-cow", bl.ConsistentBucket),
    _ours("record-cow", lambda _: bl.RecordIndex()),
    *(_hudi("hudi-rli", short, RECORD_LEVEL) for short in TABLE_TYPES),
    *(_hudi("hudi-global-rli", short, GLOBAL_RECORD_LEVEL) for short in TABLE_TYPES),
    Contender(DELTA, DeltaMerge, spark35=True),
    Contender("cache", CacheFills, steps=("make", *FILLS), turn=plain_work, once=True),
    Contender("growth", BucketSizes, steps=("make", *SIZES, *GROWN), turn=plain_work, once=True),
)
ON_SPARK = tuple(each.name for each in CONTENDERS if not each.once)


# ---- page ---------------------------------------------------------------------------------------


def compared(result: Result) -> list[Row]:
    """Return the rows of those that are compared, without the other kinds of ours."""
    others = set(KINDS) - {OURS["cow"], "simple-cow"}
    names = [name for name in result.ranked("upsert") if name in ON_SPARK]
    return [Row(name) for name in names if name not in others]


def aims(result: Result) -> str:
    """Judge the upserts of ours, by seconds and by processor time."""
    rows = []
    for short, ours in OURS.items():
        for aim in (
            Aim("upsert", f"simple-{short}", 1 / TIMES_SIMPLE),
            Aim("upsert", f"hudi-rli-{short}", FASTER_THAN_HUDI),
            Aim("upsert", f"hudi-global-rli-{short}", FASTER_THAN_HUDI),
        ):
            wall, cpu = (aim.found(result, ours, field) for field in ("seconds", "cpu_seconds"))
            if wall:
                verdicts = [aim.verdict(found) for found in (wall, cpu)]
                rows.append([f"{ours}: {aim.text()}", factors(wall), factor(cpu), *verdicts])
    ours = OURS["cow"]
    if wall := result.ratios("upsert", DELTA, ours):
        cpu = result.ratios("upsert", DELTA, ours, "cpu_seconds")
        rows.append([f"{ours}: beside {DELTA}, no aim", factor(wall), factor(cpu), "–", "–"])
    heads = ["<upsert", "by seconds, median (min to max)", "by processor time", "<", "<"]
    return listing("Aims", "The verdicts are those by seconds and by processor time.", heads, rows)


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


def last(step: str, field: str) -> Column:
    """Return the column of a value of the last round."""
    titles = {"data_files": "files", "largest_file_rows": "rows of the largest"}
    return Column(titles[field], figure(step, field, lambda found: f"{found[-1]:,}"))


def fullest_verdict(result: Result, row: Row) -> str:
    """Judge the largest bucket."""
    return met(result.first(*row[:2])["fullest"] <= OVER_LIMIT)


TIMES = Table(
    compared,
    [
        Column("rounds", lambda result, row: str(len(result.rounds(row.contender)))),
        *columns(TITLES, "*, s"),
        Column("load, processor s", figure("load", "cpu_seconds", median())),
        Column("upsert, processor s", figure("upsert", "cpu_seconds", median())),
    ],
    text="Median (minimum to maximum). *bucketlake* has dynamic buckets, *simple* is its simple "
    "bucket index; *mor* and *cow* are the table types, and without them it is copy-on-write. All "
    "their tables have a metadata table and are loaded by `upsert`. *rli* is Hudi's partitioned "
    "record-level index, *global-rli* its global one; their load is `bulk_insert` without the "
    "index, followed by `CREATE INDEX`. Delta's load appends.",
)
ALL_KINDS = Table(
    lambda _: [Row(name, title=title) for name, title in KINDS.items()],
    [
        *columns(TITLES, "*, processor s", "cpu_seconds", median()),
        last("upsert", "data_files"),
        last("upsert", "largest_file_rows"),
    ],
    "All kinds of index",
    "Copy-on-write tables of bucketlake on the same data, from the same run. *Files* counts those "
    "after the upsert, which keeps the versions before it. A record-level index fills one file "
    "after another up to its file size, so here it has one file in each partition.",
    head="index",
)
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
    "[Which kind](../how-to/choose-a-bucket-count.md#which-kind) tells when to take which.",
    head="index",
)

BENCHMARK = Benchmark(
    name="dynamic",
    description="Dynamic buckets beside the other kinds of index, Hudi and Delta.",
    contenders=CONTENDERS,
    steps=tuple(TITLES),
    options=[
        Option("--cache-keys", count, 4_000_000, "keys in the cache"),
        Option("--bucket-rows", count, 50_000, "rows of a bucket in the partition that grows"),
    ],
    quick={"cache_keys": 100_000, "bucket_rows": 2_000},
    page=Page(
        title="Benchmark of dynamic buckets",
        text="Tables with dynamic buckets beside simple ones, Hudi's record-level indexes and "
        "Delta's `MERGE`: a load, a batch of 20 % updates and 2 % inserts, and a read. Same data, "
        "same machine, contenders interleaved, processes warm, fresh tables each round. After "
        "every round each table has shown the row count and the column sums that the generator "
        "predicts. Then the cache and the index, and the sizes of buckets, without Spark.",
        image="Processor time of load and upsert",
        head="{rows:,} rows, {partitions} partitions, {buckets} buckets in each, {rounds}",
        busy=(ON_SPARK, tuple(TITLES)),
        blocks=[TIMES, aims, ALL_KINDS, cache, BUCKET_SIZES, GROWTH],
        chart=Chart(
            "{millions} M rows, then {updates_k} k updates and {inserts_k} k inserts",
            [
                step_bars(
                    step,
                    f"{step}, processor time",
                    field="cpu_seconds",
                    unit=BY_PROCESSOR,
                    limits={"simple-cow", "simple-mor"},
                    names=ON_SPARK,
                )
                for step in ("upsert", "load")
            ],
        ),
    ),
)
