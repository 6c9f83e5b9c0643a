"""Load, upsert and read: bucketlake beside Hudi, Delta and a bare merge.

The first row is what a user gets by default: dynamic buckets with a metadata table. There are two
shapes of rows (`common/data.py`), since one shape flatters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.common.benchmark import SHAPE, SHAPES, Benchmark, Contender, Settings
from benchmarks.common.figures import Result, met
from benchmarks.common.names import named
from benchmarks.common.plot import BY_PROCESSOR, Chart, step_bars
from benchmarks.common.report import Aim, Aims, Page, ratios_table, worker_memory
from benchmarks.common.tables import (
    Column,
    Row,
    Table,
    Tell,
    columns,
    figure,
    median,
    ranked,
)
from benchmarks.systems.bucketlake import BucketLakeFiles, contender, dynamic, simple
from benchmarks.systems.bucketlake_arrow import BucketLakeArrow
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.hudi import BLOOM, RECORD_LEVEL, Hudi, HudiRecordIndex, bucket_contender
from benchmarks.systems.iceberg import Iceberg
from benchmarks.systems.native import DeltaLake, Lance
from benchmarks.systems.polars_limit import PolarsLimit
from benchmarks.systems.spark_limit import SparkLimit

TITLES = {step: step for step in ("load", "upsert", "read")}
DEFAULT, FILES, SIMPLE = "bucketlake-spark4", "bucketlake-files-spark4", "bucketlake-simple-spark4"
MERGE_ON_READ = "bucketlake-mor-spark4"
NO_METADATA_TABLE = "bucketlake-simple-nomdt-spark4"
SAME_SPARK = "bucketlake-spark35"  # The peers run there, too.
ARROW, ARROW_SIMPLE = "bucketlake-arrow", "bucketlake-arrow-simple"
DELTA, POLARS, RECORD_INDEX = "delta-merge", "polars-limit", "hudi-rli-cow"
ARROW_MERGE_ON_READ = "bucketlake-arrow-mor"
DELTALAKE, LANCE = "deltalake", "lance"
ICEBERG, ICEBERG_MERGE_ON_READ = "iceberg-merge", "iceberg-merge-mor"
POLARS_HUDI, SPARK, SPARK_HUDI = "polars-hudi-limit", "spark-limit", "spark-hudi-limit"
HUDI = "hudi-bucket-upsert"
ORDERS, LINES = SHAPES

AIMS: Mapping[str, Mapping[str, tuple[Aim, ...]]] = {
    ORDERS: {
        DEFAULT: (
            Aim("load", DELTA, 1),
            Aim("load", SIMPLE, 1 / 1.3),
            Aim("upsert", DELTA, 5),
            Aim("upsert", RECORD_INDEX, 8),
            Aim("upsert", SIMPLE, 1 / 1.3),
            Aim("load", ICEBERG, 1 / 1.35),
            Aim("upsert", ICEBERG_MERGE_ON_READ, 3),
        ),
        FILES: (Aim("load", DELTA, 1 / 0.7),),
        MERGE_ON_READ: (Aim("upsert", ICEBERG_MERGE_ON_READ, 5),),
        SIMPLE: (
            Aim("load", NO_METADATA_TABLE, 1 / 1.1),
            Aim("upsert", NO_METADATA_TABLE, 1 / 1.1),
            Aim("load", DELTA, 1 / 0.75),
            Aim("upsert", DELTA, 7),
            Aim("upsert", HUDI, 8),
            Aim("upsert", POLARS, 1 / 2.2),
            Aim("upsert", POLARS_HUDI, 1 / 2.2),
        ),
        SPARK: (Aim("upsert", DELTA, 7),),
        SPARK_HUDI: (Aim("load", DELTA, 1 / 0.75), Aim("upsert", DELTA, 7)),
        ARROW: (
            Aim("load", ARROW_SIMPLE, 1 / 1.4),
            Aim("upsert", ARROW_SIMPLE, 1 / 1.4),
            Aim("load", POLARS_HUDI, 1 / 1.5),
            Aim("upsert", DELTALAKE, 1),
        ),
        ARROW_SIMPLE: (
            *(
                Aim(step, limit, 1 / times)
                for limit in (POLARS, POLARS_HUDI)
                for step, times in (("load", 1.2), ("upsert", 1.6))
            ),
            Aim("upsert", DELTALAKE, 1 / 0.75),
        ),
        ARROW_MERGE_ON_READ: (Aim("upsert", DELTALAKE, 2), Aim("upsert", LANCE, 1 / 1.5)),
    },
    LINES: {
        DEFAULT: (Aim("load", DELTA, 1 / 1.6), Aim("upsert", DELTA, 4)),
        FILES: (Aim("load", DELTA, 1 / 1.1),),
    },
}
"""What is aimed at, by shape and by contender of ours."""

COMPARED = (DEFAULT, FILES, SIMPLE)
"""Those of ours with which all peers are compared."""

PEERS = named(DELTA, ICEBERG, ICEBERG_MERGE_ON_READ, RECORD_INDEX, HUDI)
SHOWN = named(DEFAULT, FILES, MERGE_ON_READ, SIMPLE, POLARS, SPARK) | PEERS
"""The contenders of the picture, by the names of their bars."""

ROWS_MAX_OVER_MEAN, WORKER_OVER_GROUP = 1.25, 3.0
LIMITS = {POLARS, POLARS_HUDI, SPARK, SPARK_HUDI}


# ---- contenders ---------------------------------------------------------------------------------


def _record_index(settings: Settings) -> HudiRecordIndex:
    return HudiRecordIndex(settings, "copy_on_write", index=RECORD_LEVEL, is_built=True)


CONTENDERS = (
    contender(DEFAULT),
    contender(FILES, system=BucketLakeFiles),
    contender(MERGE_ON_READ, table_type="merge_on_read"),
    contender(SIMPLE, simple),
    contender(NO_METADATA_TABLE, simple, metadata_table=False),
    contender("bucketlake-simple-v8-spark4", simple, version=8),
    contender("bucketlake-simple-v6-spark4", simple, metadata_table=False, version=6),
    contender(SAME_SPARK),
    Contender(ARROW, lambda settings: BucketLakeArrow(settings, dynamic(settings))),
    Contender(ARROW_SIMPLE, lambda settings: BucketLakeArrow(settings, simple(settings))),
    Contender(
        ARROW_MERGE_ON_READ,
        lambda settings: BucketLakeArrow(settings, dynamic(settings), "merge_on_read"),
    ),
    Contender(DELTALAKE, DeltaLake),
    Contender(LANCE, lambda _settings: Lance()),
    Contender(POLARS, PolarsLimit),
    Contender(POLARS_HUDI, partial(PolarsLimit, of_hudi=True)),
    Contender(SPARK, SparkLimit),
    Contender(SPARK_HUDI, partial(SparkLimit, of_hudi=True)),
    Contender(DELTA, DeltaMerge, spark35=True),
    Contender(ICEBERG, partial(Iceberg, mode="copy-on-write"), spark35=True),
    Contender(ICEBERG_MERGE_ON_READ, partial(Iceberg, mode="merge-on-read"), spark35=True),
    Contender(RECORD_INDEX, _record_index, "hudi", spark35=True),
    bucket_contender(HUDI),
    bucket_contender("hudi-bucket-bulk_insert-nomdt", metadata_table=False, load="bulk_insert"),
    Contender("hudi-bloom", lambda settings: Hudi(settings, BLOOM), "hudi", spark35=True),
)


# ---- page ---------------------------------------------------------------------------------------


def _aims(result: Result) -> Mapping[str, tuple[Aim, ...]]:
    return AIMS[result.settings.get("shape", ORDERS)]


def _more_aims(result: Result) -> Iterator[list[str]]:
    """Judge the tasks and the workers of the default."""
    uneven = evenness(result, DEFAULT)
    if uneven is not None:
        title = f"most rows of a task over the mean of all tasks: at most {ROWS_MAX_OVER_MEAN}"
        yield [title, f"{uneven:.3f}", met(uneven <= ROWS_MAX_OVER_MEAN), "–", "–"]
    memory = worker_memory(result, DEFAULT, "upsert")
    if memory is not None:
        title = (
            "memory that a Python worker takes for its work, over its largest file group in "
            f"Arrow: at most {WORKER_OVER_GROUP:g}"
        )
        yield [title, memory.text(), met(memory.ratio <= WORKER_OVER_GROUP), "–", "–"]
        floors = result.values(DEFAULT, "upsert", "rewrite_bytes")
        if floors:
            size = min(floors)
            title = (
                "the same of a process in which Arrow alone, with its usual allocator, reads, "
                "sorts and writes that group"
            )
            text = f"{size / memory.group_bytes:.2f} ({size / 1e6:.0f} MB)"
            yield [title, text, met(size <= WORKER_OVER_GROUP * memory.group_bytes), "–", "–"]


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
    ranked("upsert", DEFAULT),
    [
        *columns(TITLES, "*, s"),
        Column("load, processor s", figure("load", "cpu_seconds", median())),
        Column("upsert, processor s", figure("upsert", "cpu_seconds", median())),
        Column("table, MB", figure("load", "data_bytes", median(0, 1e6))),
    ],
    text="Median (minimum to maximum). *bucketlake* has dynamic buckets, its default, and a "
    "metadata table; *files* reads its input with `bl.files`, *mor* is merge-on-read, *arrow* is "
    "without Spark. *Table* is the size of the data files after the load; *nomdt* is without a "
    "metadata table; *v8* and *v6* are tables of these versions, *v6* without a metadata table; "
    "*rli* is Hudi's partitioned record-level index, loaded by `bulk_insert` and "
    "`CREATE INDEX`; *polars-limit* is the bare merge of the same rows in one process, with no "
    "table format around it, and *spark-limit* the bare merge in tasks to which Spark hands the "
    "rows, with Spark's own settings and shuffle of rows; *polars-hudi-limit* and "
    "*spark-hudi-limit* write also the five meta columns that Hudi's rows have. The limits of "
    "polars are floors: no Python writer of such files does less. *deltalake* and *lance* are the "
    "native libraries, without Spark.",
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
    options=[SHAPE],
    page=Page(
        title="Upsert benchmark",
        text="Order-like rows (string key, 9 columns, zstd Parquet) of two shapes: *orders* come "
        "in any order and vary; *lines* of orders come as they are numbered, with few and short "
        "texts. A first load, then a batch of "
        "20 % updates and 2 % inserts, then a read of everything. Same data, same machine, "
        "contenders interleaved, processes warm, fresh tables each round. After every round each "
        "contender's table has shown the row count and the column sums that the generator "
        "predicts.",
        image="Median seconds of load and upsert",
        head="{rows:,} {shape}, {partitions} partitions x {buckets} buckets, {rounds}",
        blocks=[
            TIMES,
            Aims(_aims, TITLES, _more_aims),
            ratios_table(TITLES, "upsert", COMPARED),
            PLACEMENT,
        ],
        headline=Chart(
            "{millions} M rows, then {updates_k} k updates and {inserts_k} k inserts: PySpark 3.5, "
            "{cores} cores, defaults",
            [
                step_bars(step, step, titles={SAME_SPARK: "bucketlake", **PEERS})
                for step in ("upsert", "load")
            ],
        ),
        chart=Chart(
            "{millions} M rows, then {updates_k} k updates and {inserts_k} k inserts: {cores} "
            "cores, median of {round_count}",
            [
                *(
                    step_bars(step, step, limits=LIMITS, titles=SHOWN)
                    for step in ("upsert", "load")
                ),
                *(
                    step_bars(
                        step,
                        f"{step}, processor time",
                        field="cpu_seconds",
                        unit=BY_PROCESSOR,
                        limits=LIMITS,
                        titles=SHOWN,
                    )
                    for step in ("upsert", "load")
                ),
            ],
        ),
    ),
)
