"""Batches of equal size into tables of more and more rows: what a batch costs as the table grows.

The rows of a batch are spread over the whole table: each file group has some of them. A
copy-on-write table rewrites the files that it touches, so a batch costs what these files weigh. A
merge-on-read table appends to them. The batch is written twice: the first time after a load, when
dynamic buckets cache their index, the second time without that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common.benchmark import Benchmark, Contender, Option, count, counts
from benchmarks.common.data import Recipe, prepare
from benchmarks.common.figures import Result
from benchmarks.common.names import NAMES
from benchmarks.common.plot import BLUE, INK, ORANGE, OURS, Chart, Line, Lines
from benchmarks.common.report import Page
from benchmarks.common.tables import Column, Row, Table, Tell
from benchmarks.common.turn import Measured, Turn
from benchmarks.systems.bucketlake import contender, dynamic, simple
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.hudi import bucket_contender

MERGE_ON_READ, DEFAULT, SIMPLE = "bucketlake-mor-spark4", "bucketlake-spark4", "bucketlake-simple"
DELTA, HUDI = "delta-merge", "hudi-bucket-upsert"
COLOURS = {MERGE_ON_READ: OURS, DEFAULT: BLUE, SIMPLE: ORANGE, DELTA: INK, HUDI: "#8c959f"}
SECOND_COLOUR = "#5eead4"
HUDI_ROWS_MAX = 10_000_000
"""The largest table of Hudi: a load of ten million rows takes it minutes."""

LOAD, FIRST, SECOND = "load", "first", "second"
STEPS = {LOAD: "load", FIRST: "upsert", SECOND: "upsert"}
"""What is measured, and the step of a contender that does it."""


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Load a table of each size, and write a batch to it twice; its rows must be right."""
    measured: dict[str, Measured] = {}
    for rows in sizes_of(turn):
        recipe = Recipe(rows, turn.settings["partitions"], batch=turn.settings["batch"])
        data = prepare(Path(turn.settings["work"]) / "data", recipe)
        table = turn.fresh("orders")
        for name, step in STEPS.items():
            measured[f"{name}-{rows}"] = turn.step(step, table, data)
        read = turn.step("read", table, data)
        if read["checksum"] != data.facts["checksum_after_upsert"]:
            turn.refuse(f"has a wrong table of {rows:,} rows")
    return measured


def sizes_of(turn: Turn) -> Sequence[int]:
    """Return the sizes of the tables of a contender; the warm-up has a small one."""
    if turn.number is None:
        return [turn.data.facts["rows"]]
    sizes: Sequence[int] = turn.settings["sizes"]
    return [rows for rows in sizes if turn.contender != HUDI or rows <= HUDI_ROWS_MAX]


def _rows(result: Result) -> list[Row]:
    return [
        Row(name, str(rows), f"{name}, {rows / 1e6:g} M rows")
        for name in result.names
        for rows in result.settings["sizes"]
        if result.values(name, f"{SECOND}-{rows}")
    ]


def _lines(field: str) -> Lines:
    def line(result: Result, name: str, batch: str, title: str, colour: str) -> Line:
        points = [
            (rows / 1e6, result.median(name, step, field))
            for rows in result.settings["sizes"]
            if result.values(name, step := f"{batch}-{rows}", field)
        ]
        return Line(title, points, colour)

    def lines(result: Result) -> list[Line]:
        found = [line(result, name, FIRST, NAMES[name], COLOURS[name]) for name in result.names]
        if MERGE_ON_READ in result.names:
            title = f"{NAMES[MERGE_ON_READ]}, second batch"
            found.append(line(result, MERGE_ON_READ, SECOND, title, SECOND_COLOUR))
        return found

    word = {"seconds": "seconds", "cpu_seconds": "processor seconds"}[field]
    title = f"{word} of the first batch after the load"
    return Lines(title, lines, ("million rows in the table", "seconds"), is_logarithmic=True)


def _columns() -> Iterator[Column]:
    titles = {LOAD: LOAD, FIRST: "first batch", SECOND: "second batch"}
    for name, title in titles.items():
        for field, unit in (("seconds", "s"), ("cpu_seconds", "processor s")):
            yield Column(f"{title}, {unit}", _figure(name, field))


def _figure(name: str, field: str) -> Tell:
    def tell(result: Result, row: Row) -> str:
        found = result.median(row.contender, f"{name}-{row.step}", field)
        return f"{found:.0f}" if name == LOAD else f"{found:.2f}"

    return tell


TIMES = Table(
    _rows,
    [*_columns()],
    text="The batch has rows for each file group. So a copy-on-write table is rewritten whole, and "
    "the time follows the table; log files get the rows of the batch alone. "
    "In the first batch after a load, dynamic buckets also cache the index that the load wrote. "
    "The second batch has the same rows; Delta finds them in the few files of the first one, so "
    "its figure is not that of a batch with other rows. "
    "*bucketlake-spark4* and *bucketlake-mor* have dynamic buckets, copy-on-write and "
    "merge-on-read; *simple* has simple buckets, copy-on-write. All of ours have a metadata table.",
    head="table",
)

BENCHMARK = Benchmark(
    name="growth",
    description="Batches of equal size into tables of 1, 10 and 50 million rows.",
    contenders=(
        contender(DEFAULT, dynamic),
        contender(MERGE_ON_READ, dynamic, "merge_on_read"),
        contender(SIMPLE, simple),
        Contender(DELTA, DeltaMerge, spark35=True),
        bucket_contender(HUDI),
    ),
    turn=turn_of,
    options=[
        Option("--sizes", counts, [1_000_000, 10_000_000, 50_000_000], "rows of the tables"),
        Option("--batch", count, 100_000, "rows of a batch"),
    ],
    defaults={"rows": 200_000, "rounds": 1, "warmup_rounds": 1},
    quick={"sizes": [100_000, 400_000], "batch": 10_000},
    page=Page(
        title="Growth of a table",
        text="A batch of updates and some inserts, spread over the whole table, written twice into "
        "tables of more and more order-like rows. Then the table has shown the row count and the "
        "column sums that the generator predicts. [Other dimensions](dimensions.md) have a page of "
        "their own.",
        image="Time of a batch by the rows of the table",
        head="Batches of {batch:,} rows, {partitions} partitions, {rounds}",
        blocks=[TIMES],
        chart=Chart(
            "Batches of {batch:,} rows: {cores} cores",
            [_lines("seconds"), _lines("cpu_seconds")],
            bars=9,
        ),
    ),
)
