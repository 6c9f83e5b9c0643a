"""How many changes a second go from a topic of Debezium into a table, beside Hudi's own writer?

Three questions about the same messages (`workloads/filled_topic.py`, `systems/topic_writers.py`):
rows a second and processor time of a whole topic, and the time of a small batch from the topic to
its commit, in a job that is warm.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Option, Settings, count
from benchmarks.common.figures import Result, met
from benchmarks.common.report import Page
from benchmarks.common.tables import listing
from benchmarks.common.turn import plain_work
from benchmarks.systems.topic_writers import (
    MICRO_BATCHES,
    MICRO_ROWS,
    MICRO_WARM_UP,
    BucketlakeTopic,
    HudiTopic,
)
from benchmarks.workloads.filled_topic import FilledTopic

OURS, SIMPLE, HUDI = "bucketlake", "bucketlake-simple", "hudi"
TIMES_AS_FAST, MICRO_SECONDS = 5.0, 1.0
STEPS = ("warm", "ingest", "check", "micro")


def simple(settings: Settings) -> BucketlakeTopic:
    """Return the ingest into a table with simple buckets, as Hudi's table has them."""
    return BucketlakeTopic(settings, bl.SimpleBucket(settings["buckets"]))


def writers(result: Result) -> list[str]:
    """Return the contenders that wrote the whole topic."""
    return [name for name in result.names if result.values(name, "ingest")]


def rates(result: Result) -> str:
    """Tell rows a second and processor seconds a million rows."""
    rows = []
    for name in writers(result):
        seconds, cpu = (result.median(name, "ingest", of) for of in ("seconds", "cpu_seconds"))
        cells = [
            f"{seconds:.1f}",
            f"**{result.row_count / seconds:,.0f}**",
            f"{cpu * 1e6 / result.row_count:,.1f}",
        ]
        micro = result.values(name, "micro", "batch_seconds")
        rows.append([name, *cells, *(f"{value:.2f}" for value in micro)])
    text = (
        f"{result.row_count:,} changes: half of them inserts, then updates of four rows in five "
        "and deletes of the fifth. At the end each table equals the database, row by row. The "
        f"small batch is the median of {MICRO_BATCHES - MICRO_WARM_UP} of {MICRO_ROWS:,} changes "
        f"after {MICRO_WARM_UP} that do not count, from the last message in the topic to the "
        "commit."
    )
    heads = ["<contender", "seconds", "rows a second", "processor seconds a million rows"]
    return listing("", text, [*heads, "small batch, seconds"], rows)


def aims(result: Result) -> str:
    """Judge the rates and the small batch."""
    if not {OURS, HUDI} <= {*writers(result)}:
        return ""
    rows: list[Sequence[str]] = []
    for field, title in (("seconds", "rows a second"), ("cpu_seconds", "rows a processor second")):
        ratio = statistics.median(result.ratios("ingest", HUDI, OURS, field))
        aim = f"{title}: at least {TIMES_AS_FAST:g}x those of Hudi"
        rows.append([aim, f"{ratio:.2f}x", met(ratio >= TIMES_AS_FAST)])
    found = result.median(OURS, "micro", "batch_seconds")
    aim = f"{MICRO_ROWS:,} changes from the topic to the commit: at most {MICRO_SECONDS:g} s"
    rows.append([aim, f"{found:.2f} s", met(found <= MICRO_SECONDS)])
    return listing("Aims", "", ["<aim", "found", "<"], rows)


BENCHMARK = Benchmark(
    name="topic_rate",
    description="A topic of Debezium's messages written into a table, beside Hudi's writer. "
    "The first run fetches Kafka, Debezium and Hudi's bundle.",
    contenders=(
        Contender("topic", FilledTopic, steps=("fill",)),
        Contender(OURS, BucketlakeTopic, steps=STEPS, once=True),
        Contender(SIMPLE, simple, steps=STEPS, once=True),
        Contender(HUDI, HudiTopic, spark35=True, steps=STEPS, once=True),
    ),
    turn=plain_work,
    orders=False,
    options=[Option("--batch-rows", count, 100_000, "messages of a batch, at most")],
    defaults={"rows": 200_000, "rounds": 1, "warmup_rounds": 0, "buckets": 1},
    quick={"rows": 40_000, "warmup_rounds": 0},
    page=Page(
        title="Benchmark of a topic into a table",
        text="`bl.ingest` beside Structured Streaming with `foreachBatch` and Hudi's own writer, "
        "from the same topic of Debezium's messages into merge-on-read tables of eight "
        "partitions, on one broker of Kafka on the same machine. Reading and parsing the messages "
        "is part of it. `bucketlake` has dynamic buckets and a metadata table; "
        "`bucketlake-simple` has simple buckets, as Hudi's table.",
        head="{rows:,} changes",
        busy=([OURS, SIMPLE, HUDI], ["ingest"]),
        blocks=[rates, aims],
    ),
)
