"""Small batches and point reads in a large table: bucketlake beside deltalake, lance and Delta."""

from __future__ import annotations

from benchmarks.common.benchmark import Benchmark, Contender, Settings
from benchmarks.common.figures import Result
from benchmarks.common.report import Page
from benchmarks.common.tables import Column, Row, Table, figure, median
from benchmarks.common.turn import plain_work
from benchmarks.systems.bucketlake import dynamic
from benchmarks.systems.few_rows import (
    REPEATS,
    THOUSAND,
    WARM_UP,
    BucketLakeFew,
    BucketLakeSparkFew,
    DeltaLakeFew,
    DeltaSparkFew,
    LanceFew,
)

MERGE_ON_READ = "merge_on_read"
STEPS = ("load", "one", "thousand", "point")
SPARK_STEPS = (*STEPS, "point_format", "point_filter", "hand")


def _spark(settings: Settings, table_type: str = "copy_on_write") -> BucketLakeSparkFew:
    return BucketLakeSparkFew(settings, dynamic(settings), table_type, metadata_table=True)


def _arrow(settings: Settings, table_type: str = "copy_on_write") -> BucketLakeFew:
    return BucketLakeFew(settings, dynamic(settings), table_type)


def _rows(result: Result) -> list[Row]:
    return [Row(name) for name in result.names if result.values(name, "one")]


def _columns(step: str, title: str) -> list[Column]:
    return [
        Column(f"{title}, s", figure(step, "each_seconds", median(3))),
        Column("processor s", figure(step, "each_cpu_seconds", median(3))),
    ]


CALLS = Table(
    _rows,
    [
        *_columns("one", "1 row"),
        *_columns("thousand", f"{THOUSAND:,} rows"),
        Column("worst of them, s", figure("thousand", "worst_seconds", median(3))),
        *_columns("point", "point read"),
        Column("by format, where, s", figure("point_format", "each_seconds", median(3))),
        Column("by format, filter, s", figure("point_filter", "each_seconds", median(3))),
        Column("rows to the driver, s", figure("hand", "each_seconds", median(3))),
    ],
    text=f"Medians of {REPEATS - WARM_UP} calls after {WARM_UP} that do not count. Each call opens "
    "the table and reads its batch from a Parquet file. *mor* is merge-on-read, *arrow* is without "
    "Spark. A point read names the key and returns the row that was written; by Spark's format the "
    "condition is the option `where`, or a filter of the DataFrame, which prunes no file before a "
    "Spark that keeps the splits of queries apart. *Rows to the driver* is what Spark takes to "
    f"hand {THOUSAND:,} rows over, without a table.",
)

BENCHMARK = Benchmark(
    name="few_rows",
    description="Small batches and point reads in a large table, beside deltalake, lance, Delta.",
    contenders=[
        Contender("bucketlake-arrow", _arrow),
        Contender("bucketlake-arrow-mor", lambda settings: _arrow(settings, MERGE_ON_READ)),
        Contender("deltalake", DeltaLakeFew),
        Contender("lance", LanceFew),
        Contender("bucketlake-spark4", _spark, "bucketlake", steps=SPARK_STEPS),
        Contender(
            "bucketlake-mor-spark4",
            lambda settings: _spark(settings, MERGE_ON_READ),
            "bucketlake",
            steps=SPARK_STEPS,
        ),
        Contender("delta-merge", DeltaSparkFew, spark35=True),
    ],
    steps=STEPS,
    turn=plain_work,
    defaults={"rows": 2_000_000, "rounds": 1, "warmup_rounds": 0},
    quick={"rows": 100_000},
    page=Page(
        title="Benchmark of small batches and point reads",
        text="Single rows and batches of a thousand changes, written into a loaded table of "
        "orders, then rows looked up by their keys. Warm processes, one after the other.",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets, {rounds}",
        busy=(["bucketlake-arrow", "deltalake", "lance"], ["one", "thousand"]),
        blocks=[CALLS],
    ),
)
