"""The record-level index: its build, its size and writes through it, beside Hudi; its growth.

Four questions:

- Tables on Spark under the partitioned index, ours and Hudi's, of both types: a load, the build of
  the index from the loaded table, an upsert of many rows and one of a single row through it. Our
  load by `bulk_insert` makes the index along with the files; the build then makes it again.
- Bytes of the index for equal random keys.
- The index as its table grows, without Spark.
- The plan of a write to a table of a million file groups, without data files.

The last three are asked in the first round only.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import bucketlake as bl
from benchmarks.common import plot
from benchmarks.common.benchmark import Benchmark, Contender, Option, Settings, count, counts
from benchmarks.common.figures import Result, met
from benchmarks.common.report import Aim, Aims, Page
from benchmarks.common.tables import Column, Row, Table, Tell, columns, figure, listing, median
from benchmarks.common.turn import Measured, Turn, load_and_change, plain_work
from benchmarks.systems.bucketlake import BucketLake
from benchmarks.systems.hudi import HudiRecordIndex
from benchmarks.workloads.index_growth import LOCATED, LOOKED_UP, IndexGrowth
from benchmarks.workloads.keys import HEX, UUID, prepare_keys
from benchmarks.workloads.large_plans import LargePlans

TITLES = {
    "load": "load",
    "build": "build of the index",
    "upsert": "upsert",
    "upsert_row": "upsert of one row",
    "read": "read",
}
TABLE_TYPES = {"cow": "copy_on_write", "mor": "merge_on_read"}
PEERS = {"bucketlake-spark4": "hudi-cow", "bucketlake-mor-spark4": "hudi-mor"}
"""Whom each of ours is compared with: the tables have the same type."""

ON_SPARK = (*PEERS, *PEERS.values())
NAMES = {name: name for name in ON_SPARK}
FACTORS = {"build": 5.0, "upsert": 8.0}
PLAN_SECONDS_MAX, PLAN_BYTES_MAX = 2.0, 10**9
KEY_KINDS = {HEX: "20 hexadecimal digits", UUID: "UUIDs of 36 characters"}
INDEX_KINDS = {"simple": "SimpleBucket", "record": "RecordIndex"}
GROWTH_STEPS = ("load", "build", "lookup", "locate", "upsert_row", "insert_row")
PLANS = tuple(f"plan-{kind}-{where}" for kind in INDEX_KINDS for where in ("spread", "dense"))


# ---- turns and contenders -----------------------------------------------------------------------


def load_and_tell_sizes(turn: Turn) -> dict[str, Measured]:
    """Run the steps, and in the first round also builds of the index for random keys."""
    measured = load_and_change(turn)
    # The type of the table makes no difference to the size of its index.
    if turn.number == 0 and turn.contender in ("bucketlake-spark4", "hudi-cow"):
        measured |= dict(_sizes(turn))
    return measured


def _sizes(turn: Turn) -> Iterator[tuple[str, Measured]]:
    settings = turn.settings
    root, partitions = Path(settings["work"]) / "data", settings["partitions"]
    for kind in KEY_KINDS:
        for keys in settings["key_counts"]:
            rows = prepare_keys(root, kind, keys, partitions, settings["seed"])
            table = turn.fresh("keys")
            turn.step("load", table, rows)
            yield f"{kind}-{keys}", turn.step("build", table, rows)


def grow(turn: Turn) -> dict[str, Measured]:
    """Run the steps with a table of each size."""
    measured = {}
    for keys in turn.settings["growth"]:
        table = turn.fresh("growing")
        measured[f"load-{keys}"] = turn.step(f"load-{keys}", table)
        measured |= {f"{step}-{keys}": turn.step(step, table) for step in GROWTH_STEPS[1:]}
    return measured


def plan(turn: Turn) -> dict[str, Measured]:
    """Make the tables, and plan writes to them."""
    measured = plain_work(turn)
    del measured["make"]
    return measured


def _ours(name: str, table_type: str) -> Contender:
    def make(settings: Settings) -> BucketLake:
        return BucketLake(settings, bl.RecordIndex(), table_type, load="bulk_insert")

    return Contender(name, make, "bucketlake")


def _hudi(name: str, table_type: str) -> Contender:
    def make(settings: Settings) -> HudiRecordIndex:
        return HudiRecordIndex(settings, table_type)

    return Contender(name, make, "hudi", spark35=True)


CONTENDERS = (
    *(_ours(*pair) for pair in zip(PEERS, TABLE_TYPES.values(), strict=True)),
    *(_hudi(f"hudi-{short}", table_type) for short, table_type in TABLE_TYPES.items()),
    Contender("growth", lambda _: IndexGrowth(), turn=grow, once=True),
    Contender("scale", LargePlans, steps=("make", *PLANS), turn=plan, once=True),
)


# ---- page ---------------------------------------------------------------------------------------


AIMS = {
    ours: [Aim(step, peer, wanted) for step, wanted in FACTORS.items()]
    for ours, peer in PEERS.items()
}


def bytes_per_key(result: Result) -> Iterator[tuple[str, int, float, float]]:
    """Yield kind and number of keys, and the bytes of our index and of Hudi's for each."""
    for kind in KEY_KINDS:
        for keys in result.settings["key_counts"]:
            names = ("bucketlake-spark4", "hudi-cow")
            seen = [result.values(name, f"{kind}-{keys}", "index_bytes") for name in names]
            if all(seen):
                yield kind, keys, seen[0][0] / keys, seen[1][0] / keys


def sizes(result: Result) -> str:
    """Compare the bytes of the index."""
    rows = [
        [KEY_KINDS[kind], f"{keys:,}", f"{own:.1f}", f"{theirs:.1f}", met(own <= theirs)]
        for kind, keys, own, theirs in bytes_per_key(result)
    ]
    text = (
        "Base files of the index right after its build, for equal random keys in both systems. "
        "Hudi's files have a Bloom filter, which is a part of their bytes."
    )
    heads = ["<keys", "number", "bucketlake, bytes", "Hudi, bytes", "<no more than Hudi"]
    return listing("Bytes of the index for each key", text, heads, rows)


def growth_of(result: Result) -> list[tuple[int, dict[str, Mapping[str, Any]]]]:
    """Return each size of the growing table, with what its steps took."""
    sizes_measured = [
        keys for keys in result.settings["growth"] if result.first("growth", f"build-{keys}")
    ]
    return [
        (keys, {step: result.first("growth", f"{step}-{keys}") for step in GROWTH_STEPS})
        for keys in sizes_measured
    ]


def grown(step: str, field: str = "seconds", *, digits: int = 2, times: float = 1) -> Tell:
    """Return what tells a value of a step at one size of the growing table."""

    def tell(result: Result, row: Row) -> str:
        return f"{result.first('growth', f'{step}-{row.step}')[field] * times:.{digits}f}"

    return tell


def bytes_a_key(result: Result, row: Row) -> str:
    """Tell the size of the index over the number of keys."""
    return f"{result.first('growth', f'build-{row.step}')['index_bytes'] / int(row.step):.1f}"


def plans(result: Result) -> str:
    """Judge the plans of writes to a very large table."""
    rows = [_plan_row(result, step) for step in PLANS if result.first("scale", step)]
    groups, folders = (f"{result.settings[name]:,}" for name in ("groups", "folders"))
    text = (
        f"What an upsert of bucketlake does before tasks write files, in a table of {groups} file "
        f"groups in {folders} partitions with a metadata table. The table has no data files, since "
        "the plan reads none. Median of the plans, each of which opens the table anew. *Memory* is "
        "what the plan adds to its process; in brackets the peak of the whole process. The aim is "
        "judged by processor time, since other processes may use the machine."
    )
    aim = f"<at most {PLAN_SECONDS_MAX:g} s and {PLAN_BYTES_MAX / 1e9:g} GB"
    heads = ["<index", "<changed file groups", "plan, s", "processor s", "memory, MB", aim]
    return listing("Plan of a write to a very large table", text, heads, rows)


def _plan_row(result: Result, step: str) -> list[str]:
    _, kind, where = step.split("-")
    found = result.first("scale", step)["plans"]
    wall, cpu = (
        statistics.median(each[field] for each in found)
        for field in ("plan_seconds", "plan_cpu_seconds")
    )
    taken, peak = (max(each[field] for each in found) for field in ("taken_bytes", "peak_bytes"))
    groups = found[0]["plan_groups"]
    place = f"in {groups} partitions" if where == "spread" else "in one partition"
    holds = cpu <= PLAN_SECONDS_MAX and peak <= PLAN_BYTES_MAX
    memory = f"{taken / 1e6:.0f} ({peak / 1e6:.0f})"
    title = INDEX_KINDS[kind]
    return [title, f"{groups} {place}", f"{wall:.2f}", f"{cpu:.2f}", memory, met(holds)]


def size_bars(result: Result) -> list[plot.Bar]:
    """Return the bytes for each key, ours and Hudi's."""
    return [
        plot.Bar(f"{kind}, {keys / 1e6:g} M, {who}", [size], colour)
        for kind, keys, own, theirs in bytes_per_key(result)
        for who, size, colour in (("bucketlake", own, plot.OURS), ("Hudi", theirs, plot.PEER))
    ]


LINES = {
    "build": ("build", plot.OURS, 1),
    "lookup": ("lookup of 10,000 keys", plot.ORANGE, 1),
    "insert_row": ("insert of one row", plot.BLUE, 1),
    "locate": ("locate one key", plot.FAINT, LOCATED),
}


def growth_lines(result: Result) -> list[plot.Line]:
    """Return the processor time of some steps by the number of keys."""
    found = growth_of(result)
    return [
        plot.Line(
            title,
            [(keys / 1e6, steps[step]["cpu_seconds"] / times) for keys, steps in found],
            colour,
        )
        for step, (title, colour, times) in LINES.items()
        if found
    ]


TIMES = Table(
    lambda result: [Row(name) for name in result.ranked("upsert") if name in ON_SPARK],
    [
        *columns(TITLES, "*, s"),
        Column("build, processor s", figure("build", "cpu_seconds", median())),
        Column("upsert, processor s", figure("upsert", "cpu_seconds", median())),
    ],
    text="Median (minimum to maximum). An upsert has {updates:,} updates and {inserts:,} inserts; "
    "the one row has a stored key. The load is by bulk insert: Hudi's without the index, "
    "bucketlake's with it, and the build makes it again from the whole table.",
)
GROWTH = Table(
    lambda result: [Row("growth", str(keys), f"{keys:,}") for keys, _ in growth_of(result)],
    [
        Column("build, s", grown("build", digits=1)),
        Column("build, processor s", grown("build", "cpu_seconds", digits=1)),
        Column("bytes a key", bytes_a_key),
        Column("lookup, s", grown("lookup")),
        Column("`locate`, ms", grown("locate", digits=0, times=1000 / LOCATED)),
        Column(
            "`locate`, processor ms",
            grown("locate", "cpu_seconds", digits=0, times=1000 / LOCATED),
        ),
        Column("update of one row, s", grown("upsert_row")),
        Column("insert of one row, s", grown("insert_row")),
    ],
    "Growth",
    "bucketlake in one process without Spark, a merge-on-read table with 8 partitions, keys: "
    f"random, 20 hexadecimal digits. *Lookup* finds {LOOKED_UP:,} keys of all partitions in the "
    "index, which is opened anew. `locate` opens the table, asks the index, and looks into the "
    "file of the key.",
    head="keys",
)
KEYS_AXIS = ("million keys", "processor seconds")

BENCHMARK = Benchmark(
    name="record_index",
    description="The record-level index beside Hudi's, as it grows, and in a very large table.",
    contenders=CONTENDERS,
    steps=tuple(TITLES),
    turn=load_and_tell_sizes,
    options=[
        Option("--key-counts", counts, [200_000, 2_000_000], "random keys of an index"),
        Option(
            "--growth",
            counts,
            [1_000_000, 5_000_000, 20_000_000, 50_000_000],
            "keys of the growing table",
        ),
        Option("--folders", count, 10_000, "partitions of the large table"),
        Option("--groups", count, 1_000_000, "its file groups"),
    ],
    quick={"key_counts": [20_000], "growth": [100_000], "groups": 10_000, "folders": 100},
    page=Page(
        title="Record-level index benchmark",
        text="Hudi's partitioned record-level index, as bucketlake and Hudi build and use it; the "
        "index as the table grows; and the plan of a write to a very large table. Same data, same "
        "machine, contenders interleaved, processes warm, fresh tables each round. After every "
        "round each table on Spark has shown the row count and the column sums that the generator "
        "predicts.",
        image="Upsert, build, bytes of a key, and growth",
        head="{rows:,} rows, {partitions} partitions, {rounds}",
        busy=(ON_SPARK, tuple(TITLES)),
        blocks=[TIMES, Aims(lambda _result: AIMS, TITLES), sizes, GROWTH, plans],
        chart=plot.Chart(
            "{millions} M rows in {partitions} partitions",
            [
                plot.step_bars("upsert", TITLES["upsert"], titles=NAMES),
                plot.step_bars("build", TITLES["build"], titles=NAMES),
                plot.Bars("index", size_bars, "bytes for each key", "{:.1f}".format),
                plot.Lines("growth of the table", growth_lines, KEYS_AXIS, is_logarithmic=True),
            ],
        ),
    ),
)
