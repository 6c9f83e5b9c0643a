"""Upserts into buckets of several file groups, beside as many buckets of one file group each."""

from __future__ import annotations

import statistics
from pathlib import Path

import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Option, Settings, count
from benchmarks.common.figures import Result, met, spread
from benchmarks.common.plot import Chart, step_bars
from benchmarks.common.report import Page
from benchmarks.common.rows import KEY, DataSet
from benchmarks.common.tables import Column, Row, Table, columns, figure, listing, median
from benchmarks.common.turn import Measured, Turn, load_and_change
from benchmarks.systems.bucketlake import BucketLake

TITLES = {"load": "load", "upsert": "upsert", "upsert_again": "second upsert"}
TABLE_TYPES = {"cow": "copy_on_write", "mor": "merge_on_read"}
COST_MAX = 1.2
FILES_TOLERANCE = 0.05

STORED_SHARE = 0.5  # A load guesses that a stored row takes half of its bytes in memory.
SLACK = 1.12  # Buckets differ a little in their rows, and the fullest has to fit too.


def max_file_size(data: DataSet, groups: int) -> int:
    """Return the size at which a first load opens so many file groups in all."""
    rows = pq.read_table(min(data.load.glob("*.parquet")))
    row_bytes = (rows.nbytes + rows[KEY].nbytes) / rows.num_rows
    return int(data.facts["rows"] / groups * row_bytes * STORED_SHARE * SLACK)


def file_group_count(settings: Settings) -> int:
    """Return how many file groups both kinds of table have after the load."""
    partitions: int = settings["partitions"]
    return partitions * int(settings["buckets"]) * int(settings["groups"])


class SeveralGroups(BucketLake):
    """A table whose buckets have several file groups."""

    def __init__(self, settings: Settings, table_type: str) -> None:
        super().__init__(settings, bl.SimpleBucket(settings["buckets"]), table_type)
        self._count, self._groups = settings["buckets"], file_group_count(settings)
        text = f"SimpleBucket({self._count}, max_file_size for {settings['groups']} groups)"
        self.settings["index"] = text

    def load(self, data: DataSet, table: Path) -> None:
        """Fit the size of a file group to the rows of the load."""
        size = max_file_size(data, self._groups)
        self.index = bl.SimpleBucket(self._count, max_file_size=size)
        super().load(data, table)


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Load, and upsert the same changes twice; the tables of a pair have as many files."""
    measured = load_and_change(turn)
    found, wanted = measured["load"]["data_files"], file_group_count(turn.settings)
    if abs(found - wanted) > FILES_TOLERANCE * wanted:
        turn.refuse(f"has {found} files after its load instead of {wanted}")
    return measured


def _pair(short: str, table_type: str) -> tuple[Contender, Contender]:
    def simple(settings: Settings) -> BucketLake:
        index = bl.SimpleBucket(settings["buckets"] * settings["groups"])
        return BucketLake(settings, index, table_type)

    return (
        Contender(f"groups-{short}", lambda s: SeveralGroups(s, table_type), "bucketlake"),
        Contender(f"simple-{short}", simple, "bucketlake"),
    )


def costs(result: Result) -> str:
    """Tell several groups over the simple bucket."""
    rows = []
    for short, table_type in TABLE_TYPES.items():
        for step, title in TITLES.items():
            pair = (f"groups-{short}", f"simple-{short}")
            cpu, wall = (result.ratios(step, *pair, field) for field in ("cpu_seconds", "seconds"))
            if cpu:
                verdict = "" if step == "load" else met(statistics.median(cpu) <= COST_MAX)
                rows.append([table_type, title, spread(cpu), spread(wall), verdict])
    aim = f"<aim: at most {COST_MAX:g}x the processor time"
    heads = ["<table type", "<step", "processor time", "seconds", aim]
    title = "Several groups over the simple bucket, median of the rounds"
    return listing(title, "", heads, rows)


CONTENDERS = [each for kind in TABLE_TYPES.items() for each in _pair(*kind)]
TIMES = Table(
    lambda result: [Row(name) for name in result.names],
    [
        Column("files", figure("load", "data_files", median(0))),
        *columns(TITLES, "*, s"),
        *columns(TITLES, "*, processor s", "cpu_seconds"),
    ],
    text="Median (minimum to maximum). *cow* is a copy-on-write table, *mor* a merge-on-read "
    "table; *files* are those of the load.",
)

BENCHMARK = Benchmark(
    name="groups",
    description="Upserts into buckets of several file groups, beside as many simple buckets.",
    contenders=CONTENDERS,
    steps=(*TITLES, "read"),
    turn=turn_of,
    options=[Option("--groups", count, 4, "file groups of a bucket")],
    quick={"groups": 2},
    page=Page(
        title="Benchmark of file groups",
        text="What upserts cost in buckets of several file groups "
        "(`SimpleBucket(count, max_file_size=...)`), beside a simple bucket index with as many "
        "files. A bucket of several groups looks up in which of them a key is stored; a simple "
        "bucket has one group and looks nothing up. Order-like rows (string key, 9 columns): a "
        "first load, a batch of 20 % updates and 2 % inserts, and the same batch once more, when "
        "all of its keys are stored. Same data, same machine, contenders in turns in one warm "
        "Spark session, fresh tables each round. After every round each table has shown the row "
        "count and the column sums that the generator predicts.",
        image="Median seconds of both upserts",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets x {groups} file groups, "
        "{rounds}",
        blocks=[TIMES, costs],
        chart=Chart(
            "{millions} M rows, {partitions} partitions, {buckets} buckets of {groups} file "
            "groups; {cores} cores, median of {round_count}",
            [
                step_bars(step, TITLES[step], limits={"simple-cow", "simple-mor"})
                for step in ("upsert", "upsert_again")
            ],
        ),
    ),
)
