"""Facts, dimensions and events: every kind of index beside Hudi and Delta, on LakeLoader's shapes.

LakeLoader (github.com/onehouseinc/lake-loader) tests incremental loads with three kinds of tables;
`common/data.py` makes rows of these shapes at a size for one machine. Two of the contenders are the
patterns of RFC-29: one file group in each bucket, or several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Settings, shape_option
from benchmarks.common.figures import Result
from benchmarks.common.names import NAMES
from benchmarks.common.plot import BY_PROCESSOR, Chart, step_bars
from benchmarks.common.report import Page, ratios_table
from benchmarks.common.rows import REGIONS
from benchmarks.common.tables import Column, Table, columns, figure, median, ranked
from benchmarks.common.turn import Measured, Turn
from benchmarks.systems.bucketlake import contender, dynamic, simple
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.hudi import RECORD_LEVEL, HudiRecordIndex, bucket_contender

DEFAULT = "bucketlake-spark4"
FACTS, DIMENSIONS, EVENTS = "facts", "dimensions", "events"
SHAPE = shape_option(
    (FACTS, DIMENSIONS, EVENTS),
    "facts (updates in the newest partitions), dimensions (updates of any row) or events (none)",
)
TITLES = {"load": "load", "change": "change", "read": "read"}
GROUP_BYTES = 2 << 20  # Of a bucket of several groups, so that it has some at this size of table.


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Load, change and read; events are appended."""
    table = turn.fresh("orders")
    change = "append" if turn.settings["shape"] == EVENTS else "upsert"
    measured = {}
    for title, step in zip(TITLES, ("load", change, "read"), strict=True):
        measured[title] = turn.check(turn.step(step, table))
        if turn.number is None and step == "load":
            turn.check(turn.step("read", table), after="load")
    return measured


def _kind(kind: Callable[[int], Any]) -> Callable[[Settings], Any]:
    return lambda settings: kind(settings["buckets"])


def _rules(count: int) -> bl.PartitionBucket:
    return bl.PartitionBucket({REGIONS[0]: count}, default=count)


def _several_groups(count: int) -> bl.SimpleBucket:
    return bl.SimpleBucket(max(1, count // 2), max_file_size=GROUP_BYTES)


def _hudi_record_index(settings: Settings) -> HudiRecordIndex:
    return HudiRecordIndex(settings, "copy_on_write", index=RECORD_LEVEL, is_built=True)


CONTENDERS = (
    contender(DEFAULT, dynamic),
    contender("bucketlake-mor-spark4", dynamic, "merge_on_read"),
    contender("bucketlake-simple-spark4", simple),
    contender("bucketlake-simple-groups-spark4", _kind(_several_groups)),
    contender("bucketlake-partition-spark4", _kind(_rules)),
    contender("bucketlake-consistent-spark4", _kind(bl.ConsistentBucket)),
    contender("bucketlake-extendible-spark4", _kind(bl.ExtendibleBucket)),
    contender("bucketlake-record-spark4", lambda _settings: bl.RecordIndex()),
    Contender("delta-merge", DeltaMerge, spark35=True),
    bucket_contender("hudi-bucket-upsert"),
    Contender("hudi-rli-cow", _hudi_record_index, "hudi", spark35=True),
)


def _files(result: Result, name: str) -> str:
    found = result.values(name, "change", "data_files")
    return f"{found[-1]:,}" if found else "–"


TIMES = Table(
    ranked("change", DEFAULT),
    [
        *columns(TITLES, "*, s"),
        *(
            Column(f"{title}, processor s", figure(step, "cpu_seconds", median()))
            for step, title in TITLES.items()
            if step != "read"
        ),
        Column("files", lambda result, row: _files(result, row.contender)),
    ],
    text="Median (minimum to maximum). *bucketlake* has dynamic buckets, its default; the others "
    "of ours are named by their index, and all have a metadata table. *simple* is pattern 1 of "
    "RFC-29, one file group in each bucket; *simple-groups* is pattern 2, half as many buckets of "
    "several file groups. *Files* counts those after the change, with the versions before it.",
)

BENCHMARK = Benchmark(
    name="lakeloader",
    description="Facts, dimensions and events: every kind of index beside Hudi and Delta.",
    contenders=CONTENDERS,
    steps=tuple(TITLES),
    turn=turn_of,
    options=[SHAPE],
    defaults={"rounds": 3, "warmup_rounds": 1},
    page=Page(
        title="LakeLoader's tables",
        text="The three kinds of tables of "
        "[LakeLoader](https://github.com/onehouseinc/lake-loader), scaled to one machine. *Facts* "
        "are partitioned by time: 20 % of the rows are updated, most of them in the newest "
        "partitions by Zipf's law, and 2 % are new. *Dimensions* have one partition: 20 % of the "
        "rows are updated, any of them, and 2 % are new. *Events* are partitioned by time: 22 % "
        "new rows go to the newest partition. Same data, same machine, contenders interleaved, "
        "processes warm, fresh tables each round. After every round each contender's table has "
        "shown the row count and the column sums that the generator predicts.",
        image="Median seconds of the change",
        head="{rows:,} rows of {shape}, {partitions} partitions x {buckets} buckets, {rounds}",
        blocks=[TIMES, ratios_table(TITLES, "change", (DEFAULT,))],
        chart=Chart(
            "{millions} M rows of {shape}: {cores} cores, median of {round_count}",
            [
                step_bars("change", "change", titles=NAMES),
                step_bars(
                    "change",
                    "change, processor time",
                    field="cpu_seconds",
                    unit=BY_PROCESSOR,
                    titles=NAMES,
                ),
            ],
        ),
    ),
)
