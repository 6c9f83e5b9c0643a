"""Another bucket count for one partition of many, or for all: bucketlake beside Hudi."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Option, Settings, count
from benchmarks.common.figures import Result, factor
from benchmarks.common.plot import Chart, step_bars
from benchmarks.common.process import ContenderError
from benchmarks.common.report import Page, ratios_table, worker_figure
from benchmarks.common.rows import CHOSEN, CHOSEN_PATTERN, REGIONS
from benchmarks.common.tables import Column, Row, Table, columns, median, ranked
from benchmarks.common.turn import Measured, Turn
from benchmarks.systems.bucketlake import BucketLake
from benchmarks.systems.hudi import HudiPartitionBucket
from bucketlake.errors import BucketLakeError
from bucketlake.index.bucket_hash import assign_buckets
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.buckets import Bucket

ONE, ALL = "rescale_partition", "rescale_table"
TITLES = {ONE: "one partition", ALL: "whole table"}

# Tasks of Hudi 1.2.0 share a plain map of rules without a lock, and now and then one fails on it;
# nothing is committed then, and a user runs the job again.
HUDI_STUMBLED = "java.util.ConcurrentModificationException"


# ---- a turn -------------------------------------------------------------------------------------


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Rescale one partition, and then all, of fresh copies of the contender's table.

    It makes the table once. So all turns do the same work; neither the making nor the copying is
    timed.
    """
    kept = turn.folder.with_name(f"{turn.contender}-{turn.data.facts['rows']}")
    if not kept.exists():
        run_again_if_hudi_stumbled(partial(_make, turn, kept))
    measured = {}
    for step in turn.steps:
        measured[step], reruns = run_again_if_hudi_stumbled(partial(_rescale, turn, step, kept))
        measured[step]["reruns"] = reruns
    return measured


def _make(turn: Turn, kept: Path) -> Measured:
    table = turn.fresh("original")
    turn.step("load", table)
    turn.check(turn.step("read", table), after="load")
    return {"path": table.rename(kept)}


def _rescale(turn: Turn, step: str, kept: Path) -> Measured:
    table = turn.fresh(step, copy_of=kept)
    before = turn.step("prepare", table)
    measured = turn.step(step, table)
    measured["written_bytes"] = measured["data_bytes"] - before["data_bytes"]
    turn.check(turn.step("read", table), after="load")
    try:
        errors = layout_errors(table, counts_after(step, turn.settings))
    except BucketLakeError as error:  # What cannot be read is as wrong as what is misplaced.
        errors = [str(error)]
    if errors:
        turn.refuse(f"has a wrong layout after {step}: {'; '.join(errors)}")
    return measured


def run_again_if_hudi_stumbled(action: Callable[[], Measured]) -> tuple[Measured, int]:
    """Run an action, and once more where Hudi failed on its own map; tell how often that was."""
    try:
        return action(), 0
    except ContenderError as error:
        if HUDI_STUMBLED not in str(error):
            raise
        return action(), 1


# ---- the layout that a rescale must leave -------------------------------------------------------


def counts_after(step: str, settings: Settings) -> dict[str, int]:
    """Return the bucket count of each partition after a step.

    Examples
    --------
    >>> counts_after(ONE, {"partitions": 3, "buckets": 4, "new_buckets": 8})
    {'eu-west': 8, 'eu-north': 4, 'us-east': 4}
    """
    old, new = settings["buckets"], settings["new_buckets"]
    regions = REGIONS[: settings["partitions"]]
    return {region: new if step == ALL or region == CHOSEN else old for region in regions}


def layout_errors(path: Path, counts: Mapping[str, int]) -> list[str]:
    """Say what is wrong with a table's layout, counted in the files, whoever wrote them.

    Each partition must have exactly its buckets, by the rules and in the files, and each row must
    be in its own.
    """
    table = bl.open_table(str(path))
    index: Any = table.index
    held: dict[str, list[Bucket]] = defaultdict(list)
    for bucket in table.buckets():
        held[bucket.partition_path].append(bucket)
    errors = []
    if set(held) != set(counts):
        errors.append(f"partitions {sorted(held)}, expected {sorted(counts)}")
    for partition, wanted in counts.items():
        ruled = index.count_of(partition) if index is not None else None
        if ruled != wanted:
            errors.append(f"the rules give {partition} {ruled} buckets, expected {wanted}")
        found = sorted(str(bucket.bucket_id) for bucket in held[partition])
        if found != sorted(map(str, range(wanted))):
            errors.append(f"{partition} has the buckets {', '.join(found)}, expected {wanted}")
        errors += _strayed(path, held[partition], wanted)
    return errors


def _strayed(path: Path, buckets: list[Bucket], wanted: int) -> Iterator[str]:
    """Find the files with rows of other buckets."""
    for bucket in buckets:
        assert bucket.path is not None
        keys = pq.ParquetFile(path / bucket.path).read([RECORD_KEY])[RECORD_KEY]
        strayed = sum(
            pc.sum(pc.not_equal(assign_buckets(chunk, wanted), bucket.bucket_id)).as_py() or 0
            for chunk in keys.chunks
        )
        if strayed:
            yield f"{bucket.path} holds {strayed} rows of other buckets"


# ---- contenders and page ------------------------------------------------------------------------


def _ours(name: str, *, spark35: bool) -> Contender:
    def make(settings: Settings) -> BucketLake:
        old, new = settings["buckets"], settings["new_buckets"]
        told = {
            "one partition": f"rescale(add={{{CHOSEN_PATTERN!r}: {new}}})",
            "whole table": f"rescale({{'.*': {new}}}, default={new})",
        }
        return BucketLake(settings, bl.PartitionBucket({CHOSEN_PATTERN: old}, old), told=told)

    return Contender(name, make, spark35=spark35)


def _hudi(name: str, *, metadata_table: bool) -> Contender:
    def make(settings: Settings) -> HudiPartitionBucket:
        return HudiPartitionBucket(settings, metadata_table=metadata_table)

    return Contender(name, make, "hudi", spark35=True)


def all_over_one(result: Result, row: Row) -> str:
    """Tell the time for all partitions over that for one."""
    pairs = zip(*(result.values(row.contender, step) for step in (ALL, ONE)), strict=True)
    return factor([every / one for every, one in pairs])


def reruns(result: Result, row: Row) -> str:
    """Tell how often a rescale was run again."""
    return str(sum(sum(result.values(row.contender, step, "reruns")) for step in TITLES))


TIMES = Table(
    ranked(ONE),
    [
        *columns(TITLES, "*, s"),
        Column(f"{TITLES[ALL]} over {TITLES[ONE]}", all_over_one),
    ],
    text=f"Median (minimum to maximum); the one partition is `{CHOSEN}`, and *nomdt* is without "
    "Hudi's metadata table.",
)
COSTS = Table(
    ranked(ONE),
    [
        *columns(TITLES, "processor s, *", "cpu_seconds", median()),
        *columns(TITLES, "written, MB, *", "written_bytes", median(1, 1e6)),
        *(Column(f"Python worker, MB, {title}", worker_figure(s)) for s, title in TITLES.items()),
        Column("run again", reruns),
    ],
    "What it took, median of the rounds",
    "*Written* is the size of the new data files; Hudi's procedure puts a Bloom filter of about "
    "0.4 MB into each, also where its options say not to. *Python worker* is the highest memory of "
    "a worker in any round, in brackets what of it an idle one does not hold; Hudi has none. *Run "
    "again* counts what a `ConcurrentModificationException` in Hudi's own tasks broke off; the "
    "second run is the one that counts.",
)

BENCHMARK = Benchmark(
    name="rescale",
    description="Another bucket count for one partition, and for all: bucketlake beside Hudi.",
    contenders=(
        _ours("bucketlake-spark4", spark35=False),
        _ours("bucketlake-spark35", spark35=True),
        _hudi("hudi-procedure", metadata_table=True),
        _hudi("hudi-procedure-nomdt", metadata_table=False),
    ),
    steps=tuple(TITLES),
    turn=turn_of,
    options=[Option("--new-buckets", count, 8, "buckets after a rescale")],
    page=Page(
        title="Rescale benchmark",
        text="What it costs to give one partition of many another bucket count, and what to give "
        "it to all of them, as is necessary where an index has one count for the whole table. "
        "Order-like rows (string key, 9 columns, zstd Parquet) in a table with the partition-level "
        "index, copy-on-write. Hudi rescales by its own procedure, "
        "`partition_bucket_index_manager`. Same data, same machine, contenders interleaved, "
        "processes warm, a fresh copy of the contender's table for each figure. After each rescale "
        "every contender's table has shown the row count and the column sums that the generator "
        "predicts, and its files the new counts with every row in its bucket.",
        image="Median seconds for one partition and for the whole table",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets to {new_buckets}, "
        "{rounds}",
        blocks=[TIMES, ratios_table(TITLES, ONE), COSTS],
        chart=Chart(
            "{millions} M rows in {partitions} partitions, {buckets} buckets to {new_buckets}: "
            "{cores} cores, median of {round_count}",
            [step_bars(step, title) for step, title in TITLES.items()],
        ),
    ),
)
