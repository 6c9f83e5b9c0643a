"""What a piece of work costs as one dimension grows: n, 4 n, 16 n, beside native peers.

Nothing runs on Spark. The exponent of a row is that of its processor time from n to 16 n: 0 where
the cost is flat, 1 where it follows the size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender
from benchmarks.common.figures import Result
from benchmarks.common.names import NAMES
from benchmarks.common.report import Page
from benchmarks.common.tables import listing
from benchmarks.common.turn import Measured, Turn, plain_work
from benchmarks.workloads.dimensions import (
    DIMENSIONS,
    ArrowByDimension,
    DeltaByDimension,
    OursByDimension,
)

DEFAULT, SIMPLE, DELTA, ARROW = "bucketlake-default", "bucketlake-simple", "deltalake", "pyarrow"
BY_INDEX = ("groups", "small")
"""Dimensions that depend on the kind of the index."""

PEERS = {
    DELTA: DeltaByDimension,
    ARROW: ArrowByDimension,
}


def _steps(
    make: type, names: Iterator[str] | tuple[str, ...] = tuple(DIMENSIONS)
) -> tuple[str, ...]:
    return tuple(
        f"{name}-{size}" for name in names if hasattr(make, name) for size in DIMENSIONS[name][1]
    )


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Run the steps; the warm-up runs each dimension once, and small."""
    if turn.number is not None:
        return plain_work(turn)
    table = turn.fresh("table")
    table.mkdir(parents=True)
    names = dict.fromkeys(step.partition("-")[0] for step in turn.steps)
    return {name: turn.step(f"{name}-{DIMENSIONS[name][1][0] // 16}", table) for name in names}


def _rows(result: Result) -> Iterator[list[str]]:
    for name, (title, sizes) in DIMENSIONS.items():
        for contender in (DEFAULT, SIMPLE, DELTA, ARROW):
            steps = [f"{name}-{size}" for size in sizes]
            if not all(result.values(contender, step, "work_cpu_s") for step in steps):
                continue
            cpu = [result.median(contender, step, "work_cpu_s") for step in steps]
            wall = [result.median(contender, step, "work_s") for step in steps]
            peak = result.median(contender, steps[-1], "work_bytes") / 1e6
            exponent = math.log(max(cpu[-1], 0.01) / max(cpu[0], 0.01)) / math.log(16)
            times = [
                f"{each:.2f} ({by_clock:.2f})" for each, by_clock in zip(cpu, wall, strict=True)
            ]
            heads = f"{title}: {', '.join(f'{size:,}' for size in sizes)}"
            yield [
                heads,
                NAMES.get(contender, contender),
                *times,
                f"{exponent:.2f}",
                f"{peak:,.0f}",
            ]


def _table(result: Result) -> str:
    heads = ["<dimension", "<system", "n", "4 n", "16 n", "exponent", "memory at 16 n, MB"]
    text = (
        "Processor seconds, in brackets seconds; memory is what the process took above what it "
        "had. "
        "Rows of *deltalake* for changes read its change data feed, which its writes recorded; "
        "*pyarrow* writes and reads plain Parquet files, without keys."
    )
    return listing("", text, heads, _rows(result))


def _worst(result: Result) -> str:
    rows = []
    for contender in (DEFAULT, SIMPLE, DELTA):
        steps = [f"small-{size}" for size in DIMENSIONS["small"][1]]
        if all(result.values(contender, step, "over_median") for step in steps):
            ratios = [f"{result.median(contender, step, 'over_median'):.1f}" for step in steps]
            rows.append([NAMES.get(contender, contender), *ratios])
    heads = ["<system", *(f"{size:,} partitions" for size in DIMENSIONS["small"][1])]
    return listing("Worst of 25 small upserts, over their median (processor time)", "", heads, rows)


BENCHMARK = Benchmark(
    name="dimensions",
    description="One dimension at a time, at n, 4 n and 16 n, beside deltalake and PyArrow.",
    contenders=[
        Contender(
            DEFAULT,
            partial(OursByDimension, index=bl.DynamicBucket()),
            steps=_steps(OursByDimension),
        ),
        Contender(
            SIMPLE,
            partial(OursByDimension, index=bl.SimpleBucket(1)),
            steps=_steps(OursByDimension, BY_INDEX),
        ),
        *(Contender(name, make, steps=_steps(make)) for name, make in PEERS.items()),
    ],
    turn=turn_of,
    orders=False,
    defaults={"rows": 100_000, "rounds": 1, "warmup_rounds": 1},
    quick={"rows": 2_000},
    page=Page(
        title="Growth in other dimensions than rows",
        text="What a piece of work costs as one dimension of a table or of a batch grows, without "
        "Spark. [Growth of a table](growth.md) has the rows.",
        head="{rounds}",
        blocks=[_table, _worst],
    ),
)
