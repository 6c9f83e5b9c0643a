"""Load, upsert and read: bucketlake beside Hudi, Delta and a bare merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Settings
from benchmarks.common.figures import Result, met
from benchmarks.common.plot import Chart, step_bars
from benchmarks.common.report import Aim, Aims, Page, ratios_table, worker_memory
from benchmarks.common.tables import Column, Row, Table, Tell, columns, figure, median, ranked
from benchmarks.systems.bucketlake import BucketLake
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.hudi import BLOOM, Hudi, simple_bucket
from benchmarks.systems.polars_limit import PolarsLimit

TITLES = {step: step for step in ("load", "upsert", "read")}
AIMS = (
    Aim("upsert", "hudi-bucket-upsert", 8),
    Aim("upsert", "delta-merge", 6),
    Aim("upsert", "polars-limit", 1 / 2),
    Aim("load", "hudi-bucket-upsert", 9),
    Aim("load", "hudi-bucket-bulk_insert-nomdt", 2.5),
)
METADATA_AIM = Aim("upsert", "polars-limit", 1 / 2.5)
"""What an upsert with a metadata table may take."""

ROWS_MAX_OVER_MEAN, WORKER_OVER_GROUP = 1.25, 3.0
LIMITS = {"polars-limit"}


# ---- contenders ---------------------------------------------------------------------------------


def _ours(name: str, *, spark35: bool = False, metadata_table: bool = False) -> Contender:
    def make(settings: Settings) -> BucketLake:
        index = bl.SimpleBucket(settings["buckets"])
        return BucketLake(settings, index, metadata_table=metadata_table)

    return Contender(name, make, "bucketlake", spark35)


def _hudi(load: str, *, metadata_table: bool) -> Contender:
    def make(settings: Settings) -> Hudi:
        index = simple_bucket(settings["buckets"])
        return Hudi(settings, index, metadata_table=metadata_table, load=load)

    name = f"hudi-bucket-{load}{'' if metadata_table else '-nomdt'}"
    return Contender(name, make, "hudi", spark35=True)


CONTENDERS = (
    _ours("bucketlake-spark4"),
    _ours("bucketlake-mdt-spark4", metadata_table=True),
    _ours("bucketlake-spark35", spark35=True),
    _ours("bucketlake-mdt-spark35", spark35=True, metadata_table=True),
    Contender("polars-limit", PolarsLimit),
    Contender("delta-merge", DeltaMerge, spark35=True),
    _hudi("upsert", metadata_table=True),
    _hudi("upsert", metadata_table=False),
    _hudi("bulk_insert", metadata_table=True),
    _hudi("bulk_insert", metadata_table=False),
    Contender("hudi-bloom", lambda settings: Hudi(settings, BLOOM), "hudi", spark35=True),
)


# ---- page ---------------------------------------------------------------------------------------


def further_aims(result: Result, ours: str) -> Iterator[list[str]]:
    """Tell what is aimed at besides: a cheap metadata table, even tasks, lean workers."""
    if "-mdt-" in ours:
        yield METADATA_AIM.row(result, ours, "upsert")
    uneven = evenness(result, ours)
    if uneven is not None:
        aim = f"most rows of a task, over the mean of all tasks: at most {ROWS_MAX_OVER_MEAN}"
        yield [aim, f"{uneven:.3f}", met(uneven <= ROWS_MAX_OVER_MEAN)]
    memory = worker_memory(result, ours, "upsert")
    if memory is not None:
        aim = (
            "memory that a Python worker takes for its work, over its largest file group in "
            f"Arrow: at most {WORKER_OVER_GROUP:g}"
        )
        yield [aim, memory.text(), met(memory.ratio <= WORKER_OVER_GROUP)]


def evenness(result: Result, name: str) -> float | None:
    """Return the largest task over the mean of the stage that writes, worst of the rounds."""
    found = [
        stage["rows_max_over_mean"]
        for step in ("load", "upsert")
        for stages in result.values(name, step, "stages")
        if (stage := write_stage(result, stages, step))
    ]
    return max(found, default=None)


def write_stage(result: Result, stages: list[Mapping[str, Any]], step: str) -> Mapping[str, Any]:
    """Return the last stage that was handed about as many rows as the batch has: it writes."""
    batch = result.row_count if step == "load" else result.words["changes"]
    fitting = [stage for stage in stages if stage["rows"] >= 0.9 * batch]
    return max(fitting, key=lambda stage: int(stage["stage"]), default={})


def _last_upsert(result: Result, name: str) -> Mapping[str, Any]:
    stages = result.values(name, "upsert", "stages")
    return write_stage(result, stages[-1], "upsert") if stages else {}


def _placed(result: Result) -> list[Row]:
    return [Row(name) for name in result.ranked("upsert") if _last_upsert(result, name)]


def _placement(field: str) -> Tell:
    return lambda result, row: str(_last_upsert(result, row.contender)[field])


TIMES = Table(
    ranked("upsert"),
    [
        *columns(TITLES, "*, s"),
        Column("upsert, processor s", figure("upsert", "cpu_seconds", median())),
        Column("table, MB", figure("load", "data_bytes", median(0, 1e6))),
    ],
    text="Median (minimum to maximum). *Table* is the size of the data files after the load; "
    "*nomdt* is Hudi without its metadata table, *mdt* is bucketlake with one; *polars-limit* is "
    "the bare merge of the same rows in one process, with no table format around it.",
)
PLACEMENT = Table(
    _placed,
    [
        Column("tasks", _placement("tasks")),
        Column("without rows", _placement("tasks_without_rows")),
        Column("most rows over the mean", _placement("rows_max_over_mean")),
    ],
    title="Rows by task in the upsert's last shuffle of the batch",
)

BENCHMARK = Benchmark(
    name="upsert",
    description="Load, upsert and read order-like rows: bucketlake beside Hudi, Delta, polars.",
    contenders=CONTENDERS,
    steps=tuple(TITLES),
    page=Page(
        title="Upsert benchmark",
        text="Order-like rows (string key, 9 columns, zstd Parquet): a first load, then a batch of "
        "20 % updates and 2 % inserts, then a read of everything. Same data, same machine, "
        "contenders interleaved, processes warm, fresh tables each round. After every round each "
        "contender's table has shown the row count and the column sums that the generator "
        "predicts.",
        image="Median seconds of load and upsert",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets, {rounds}",
        blocks=[TIMES, Aims(AIMS, TITLES, further_aims), ratios_table(TITLES, "upsert"), PLACEMENT],
        chart=Chart(
            "{millions} M rows, then {updates_k} k updates and {inserts_k} k inserts: {cores} "
            "cores, median of {round_count}",
            [step_bars(step, step, aims=AIMS, limits=LIMITS) for step in ("upsert", "load")],
        ),
    ),
)
