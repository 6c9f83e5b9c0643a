"""A job in a fresh process: a first load, a first upsert; beside plain Parquet, Delta and Hudi."""

from __future__ import annotations

from benchmarks.common.benchmark import Benchmark, Contender
from benchmarks.common.figures import Result
from benchmarks.common.plot import Chart, step_bars
from benchmarks.common.report import Aim, Aims, Page, ratios_table
from benchmarks.common.tables import Table, columns, median, ranked
from benchmarks.systems.bucketlake import BucketLakeFiles, contender, simple
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.hudi import bucket_contender
from benchmarks.systems.parquet import PlainParquet

TITLES = {"load": "first load", "upsert": "first upsert"}
DEFAULT = "bucketlake-spark35"
AIMS = {DEFAULT: [Aim("load", "delta-merge", 1), Aim("upsert", "delta-merge", 1 / 0.4)]}


def checked(result: Result) -> str:
    """Tell of the check in the warm-up."""
    warmup = result.settings["warmup"]
    if not warmup["rounds"]:
        return ""
    return (
        f"In a warm-up with {warmup['rows']:,} rows each contender's table has shown the row count "
        "and the column sums that the generator predicts."
    )


TIMES = Table(
    ranked("load", DEFAULT),
    [
        *columns(TITLES, "*, s"),
        *columns(TITLES, "*, processor s", "cpu_seconds", median()),
        *columns(TITLES, "*, session, s", "session_seconds", median()),
    ],
    text="Median (minimum to maximum). *bucketlake* has dynamic buckets, its default, and a "
    "metadata table; *files* reads its input with `bl.files`. *Session* is the part of "
    "the seconds until Spark's session is there, before any contender has done anything. "
    "*plain-parquet* has no table format around it, and its upsert rewrites the whole table.",
)

BENCHMARK = Benchmark(
    name="startup",
    description="A first load and a first upsert, each a whole process: bucketlake beside plain "
    "Parquet, Delta and Hudi.",
    contenders=(
        contender(DEFAULT),
        contender("bucketlake-spark4"),
        contender("bucketlake-files-spark35", system=BucketLakeFiles),
        contender("bucketlake-simple-spark35", simple),
        Contender("plain-parquet", PlainParquet, spark35=True),
        Contender("delta-merge", DeltaMerge, spark35=True),
        bucket_contender("hudi-bucket-upsert"),
    ),
    steps=tuple(TITLES),
    alone=True,
    defaults={"rows": 1_000_000, "warmup_rounds": 1},
    page=Page(
        title="Start-up benchmark",
        text="What a job costs that starts, writes once and ends. Each figure is a whole process, "
        "from its start to its end: an interpreter, a JVM, Spark's session, and for bucketlake "
        "Python workers. One process loads order-like rows (string key, 9 columns, zstd Parquet) "
        "into a new table; the next one upserts a batch of 20 % updates and 2 % inserts. Same "
        "data, same machine, contenders in turns.",
        image="Median seconds of the first load and the first upsert",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets, {rounds}",
        blocks=[checked, TIMES, Aims(lambda _result: AIMS, TITLES), ratios_table(TITLES, "load")],
        chart=Chart(
            "a whole process each: {millions} M rows, then {changes_k} k changes; {cores} cores, "
            "median of {round_count}",
            [step_bars(step, title, limits={"plain-parquet"}) for step, title in TITLES.items()],
        ),
    ),
)
