"""What remembered deletes cost: upserts beside 0, 10,000 and a million of them, their size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender
from benchmarks.common.figures import Result
from benchmarks.common.names import NAMES
from benchmarks.common.report import Page
from benchmarks.common.tables import listing
from benchmarks.common.turn import Measured, Turn, plain_work
from benchmarks.workloads.tombstones import (
    BATCH_ROWS,
    COMMITS_A_DAY,
    DAYS,
    DELETES_A_COMMIT,
    REMEMBERED,
    STORED_ROWS,
    Tombstones,
)

DEFAULT, SIMPLE = "bucketlake-default", "bucketlake-simple"
UPSERTS = tuple(f"upsert-{count}" for count in REMEMBERED)
GROWTH = tuple(f"growth-{days}" for days in DAYS)


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Run the steps; the warm-up runs the first of each kind."""
    if turn.number is not None:
        return plain_work(turn)
    table = turn.fresh("table")
    table.mkdir(parents=True)
    return {step: turn.step(step, table) for step in turn.steps if step in (UPSERTS[1], GROWTH[0])}


def _sized(result: Result, count: int) -> str:
    """Return a size of the full run as one of this run."""
    return f"{count * result.row_count // STORED_ROWS:,}"


def _upserts(result: Result) -> str:
    rows = []
    for contender in (DEFAULT, SIMPLE):
        cpu = [result.median(contender, step, "work_cpu_s") for step in UPSERTS]
        ratios = [f"{each:.2f} ({max(each, 0.001) / max(cpu[0], 0.001):.2f} ×)" for each in cpu]
        each = result.median(contender, UPSERTS[-1], "bytes_each")
        rows.append([NAMES.get(contender, contender), *ratios, f"{each:.1f}"])
    heads = ["<system", *(f"{_sized(result, n)} deletes" for n in REMEMBERED), "bytes each"]
    text = (
        f"{_sized(result, BATCH_ROWS)} rows, half of them new, into 8 partitions of a table of "
        f"{result.row_count:,} rows: processor seconds, and how many times as many as without "
        "deletes. The keys of the deletes are spread over all partitions, and not in the batch."
    )
    return listing("Upserts beside remembered deletes", text, heads, rows)


def _growth(result: Result) -> str:
    heads = ["<after", "deletes", "files", "bytes", "processor seconds of the last commit"]
    text = (
        f"{COMMITS_A_DAY} commits a day of {_sized(result, DELETES_A_COMMIT)} deletes of new keys."
    )
    return listing("A week of deletes", text, heads, _days(result))


def _days(result: Result) -> Iterator[list[str]]:
    for days, step in zip(DAYS, GROWTH, strict=True):
        files, held, cpu = (
            result.median(SIMPLE, step, field) for field in ("files", "kept_bytes", "work_cpu_s")
        )
        deletes = days * COMMITS_A_DAY * DELETES_A_COMMIT
        yield [
            f"{days} days",
            _sized(result, deletes),
            f"{files:.0f}",
            f"{held:,.0f}",
            f"{cpu:.2f}",
        ]


BENCHMARK = Benchmark(
    name="tombstones",
    description="Upserts beside remembered deletes, and how these grow, without Spark.",
    contenders=[
        Contender(DEFAULT, partial(Tombstones, index=bl.DynamicBucket()), steps=UPSERTS),
        Contender(SIMPLE, partial(Tombstones, index=bl.SimpleBucket(1)), steps=UPSERTS + GROWTH),
    ],
    turn=turn_of,
    orders=False,
    defaults={"rows": STORED_ROWS, "rounds": 3, "warmup_rounds": 1},
    quick={"rows": 20_000, "rounds": 1},
    page=Page(
        title="Remembered deletes",
        text="What it costs that a table remembers its deletes "
        "([decision 37](../decisions/0037-deletes-are-remembered.md)), without Spark.",
        head="{rounds}",
        blocks=[_upserts, _growth],
    ),
)
