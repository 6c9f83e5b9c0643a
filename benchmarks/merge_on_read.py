"""Merge-on-read tables: changes go into log files, reads merge them, a compaction ends them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender
from benchmarks.common.plot import Chart, step_bars
from benchmarks.common.report import Aim, Aims, Block, Page, ratios_table, worker_figure
from benchmarks.common.tables import Column, Table, columns, figure, median, ranked
from benchmarks.common.turn import Measured, Turn, load_and_change
from benchmarks.systems.bucketlake import contender, simple
from benchmarks.systems.hudi import COMPACTION, bucket_contender
from benchmarks.systems.spark import MERGE_ON_READ
from benchmarks.systems.spark_limit import SparkLimit
from bucketlake.errors import BucketLakeError

TITLES = {
    "load": "load",
    "upsert": "upsert",
    "read_all": "merged read, all columns",
    "read_few": "merged read, few columns",
    "compact": "compaction",
    "read_after": "read after it",
}
FACTORS = {"upsert": 7, "read_all": 2, "read_few": 4, "compact": 5}
DEFAULT = "bucketlake-mor-spark4"
SIMPLE, SIMPLE_SPARK35 = "bucketlake-simple-nomdt-spark4", "bucketlake-simple-nomdt-spark35"
HUDI, HUDI_NO_METADATA_TABLE, LIMIT = "hudi-mor", "hudi-mor-nomdt", "spark-hudi-log-limit"
_LIKE_FOR_LIKE = [Aim(step, HUDI_NO_METADATA_TABLE, factor) for step, factor in FACTORS.items()]
AIMS = {
    DEFAULT: [Aim(step, HUDI, factor) for step, factor in FACTORS.items()],
    SIMPLE: _LIKE_FOR_LIKE,
    SIMPLE_SPARK35: _LIKE_FOR_LIKE,
    LIMIT: [Aim("upsert", HUDI_NO_METADATA_TABLE, FACTORS["upsert"])],
}
"""Each is compared with Hudi's tables that have a metadata table, or none, as it has."""


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Run the steps; there must be log files after the upsert, and none after the compaction."""
    table = turn.fresh("orders")
    measured = {}
    for step in turn.steps:
        measured[step] = turn.check(turn.step(step, table))
        if step in ("upsert", "compact"):
            check_log_files(turn, step, table)
    return measured


def check_log_files(turn: Turn, step: str, table: Path) -> None:
    """Refuse a table without live log files after its upsert, or with some after a compaction."""
    try:
        live = sum(bucket.log_files for bucket in bl.open_table(str(table)).buckets())
    except BucketLakeError as error:  # What cannot be read is as wrong as what is left over.
        turn.refuse(f"has an unreadable table after {step}: {error}")
    if (live > 0) != (step == "upsert"):
        turn.refuse(f"has {live} live log files after {step}")


FILES = [
    Column(f"{kind} files, {what}", figure(step, field, median(1, 1e6)))
    for step, what in (("load", "load"), ("upsert", "upsert"), ("compact", "compaction"))
    for kind, field in (("base", "data_bytes"), ("log", "log_bytes"))
]
BLOCKS: list[Block] = [
    Table(
        ranked("upsert", DEFAULT),
        columns(TITLES, "*, s"),
        text="Median (minimum to maximum). *bucketlake* has dynamic buckets, its default, and a "
        "metadata table; *nomdt* is without one. *spark-hudi-log-limit* has no table format: "
        "tasks write the rows that Spark hands them, with Hudi's meta columns, as one more file "
        "of each bucket.",
    ),
    Aims(lambda _result: AIMS, TITLES),
    ratios_table(TITLES, "upsert"),
    Table(
        ranked("upsert", DEFAULT),
        columns(TITLES, "*", "cpu_seconds", median()),
        "Processor seconds, median of the rounds",
    ),
    Table(
        ranked("upsert", DEFAULT),
        [Column(title, worker_figure(step)) for step, title in TITLES.items()],
        "Highest memory of a Python worker, in brackets what an idle one does not hold, MB",
    ),
    Table(
        ranked("upsert", DEFAULT),
        FILES,
        "Files on disk after each step, MB",
        "Files of older slices count, too: no step removes them.",
    ),
]

BENCHMARK = Benchmark(
    name="merge_on_read",
    description="Upserts into log files, merged reads, compaction: bucketlake beside Hudi.",
    contenders=(
        contender(DEFAULT, table_type=MERGE_ON_READ),
        contender(SIMPLE, simple, MERGE_ON_READ, metadata_table=False),
        contender(SIMPLE_SPARK35, simple, MERGE_ON_READ, metadata_table=False),
        Contender(
            LIMIT,
            partial(SparkLimit, of_hudi=True, logs=True),
            steps=("load", "upsert"),
            turn=load_and_change,
        ),
        *(
            bucket_contender(name, MERGE_ON_READ, metadata_table=name == HUDI, procedure=COMPACTION)
            for name in (HUDI, HUDI_NO_METADATA_TABLE)
        ),
    ),
    steps=tuple(TITLES),
    turn=turn_of,
    page=Page(
        title="Merge-on-read benchmark",
        text="Order-like rows (string key, 9 columns, zstd Parquet) in merge-on-read tables with "
        "dynamic or simple buckets: a first load, then a batch of 20 % updates and 2 % inserts "
        "that goes into log files, a merged read of all columns and one of a few (count and sum of "
        "`quantity`), a compaction, and a read of all columns after it. Both sides load by upsert, "
        "and compact by a call of their own. Same data, same machine, contenders interleaved, "
        "processes warm, fresh tables each round. Each read has shown the row count and the column "
        "sums that the generator predicts, and after the compaction no log file was live.",
        image="Median seconds of upsert, merged reads and compaction",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets, {rounds}",
        blocks=BLOCKS,
        chart=Chart(
            "Merge-on-read, {millions} M rows, then {updates_k} k updates and {inserts_k} k "
            "inserts: {cores} cores, median of {round_count}",
            [step_bars(step, TITLES[step], limits={LIMIT}) for step in FACTORS],
        ),
    ),
)
