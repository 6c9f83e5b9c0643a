"""Load, upsert and read rows with embeddings, without Spark: bucketlake, deltalake and lance."""

from __future__ import annotations

from benchmarks.common.benchmark import Benchmark, Contender, Settings, shape_option
from benchmarks.common.plot import BY_PROCESSOR, Chart, step_bars
from benchmarks.common.report import Page
from benchmarks.common.tables import Column, Table, columns, figure, median, ranked
from benchmarks.systems.bucketlake import dynamic, simple
from benchmarks.systems.bucketlake_arrow import BucketLakeArrow
from benchmarks.systems.native import DeltaLake, Lance

TITLES = {step: step for step in ("load", "upsert", "read")}
DEFAULT = "bucketlake-arrow"


def _merge_on_read(settings: Settings) -> BucketLakeArrow:
    return BucketLakeArrow(settings, dynamic(settings), "merge_on_read")


TIMES = Table(
    ranked("upsert", DEFAULT),
    [
        *columns(TITLES, "*, s"),
        Column("load, processor s", figure("load", "cpu_seconds", median())),
        Column("upsert, processor s", figure("upsert", "cpu_seconds", median())),
        Column("table, MB", figure("load", "data_bytes", median(0, 1e6))),
    ],
    text="Median (minimum to maximum). *bucketlake* has dynamic buckets and a metadata table; "
    "*mor* is merge-on-read. Reading the input from Parquet files is a part of a step. *Table* is "
    "the size of the data files after the load.",
)

BENCHMARK = Benchmark(
    name="vectors",
    description="Load, upsert and read rows with embeddings: bucketlake, deltalake, lance.",
    contenders=[
        Contender(DEFAULT, lambda settings: BucketLakeArrow(settings, dynamic(settings))),
        Contender(
            "bucketlake-arrow-simple", lambda settings: BucketLakeArrow(settings, simple(settings))
        ),
        Contender("bucketlake-arrow-mor", _merge_on_read),
        Contender("deltalake", DeltaLake),
        Contender("lance", lambda _settings: Lance()),
    ],
    steps=tuple(TITLES),
    options=[shape_option(("vectors",), "orders with an embedding of 768 floats")],
    defaults={"rows": 200_000, "rounds": 3, "warmup_rounds": 1},
    quick={"rows": 5_000, "rounds": 1},
    page=Page(
        title="Vectors benchmark",
        text="Orders with an embedding of 768 random floats each: a first load, then a batch of "
        "20 % updates and 2 % inserts, then a read of everything, without Spark. Same data, same "
        "machine, contenders interleaved, processes warm, fresh tables each round. After every "
        "round each table has shown the row count and the sums of all columns that the generator "
        "predicts, those of the embeddings too.",
        image="Median seconds of load and upsert",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets, {rounds}",
        blocks=[TIMES],
        chart=Chart(
            "{rows:,} rows with 768 floats, then {updates_k} k updates: {cores} cores, median of "
            "{round_count}",
            [
                *(step_bars(step, step) for step in ("upsert", "load")),
                *(
                    step_bars(
                        step, f"{step}, processor time", field="cpu_seconds", unit=BY_PROCESSOR
                    )
                    for step in ("upsert", "load")
                ),
            ],
        ),
    ),
)
