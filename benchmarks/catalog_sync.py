"""How many calls and seconds does a sync with a catalog take, at many partitions?"""

from __future__ import annotations

from benchmarks.common.benchmark import Benchmark, Contender, Option
from benchmarks.common.figures import Result
from benchmarks.common.report import Page
from benchmarks.common.tables import listing
from benchmarks.common.turn import plain_work
from benchmarks.workloads.catalog_sync import BATCH, DROPPED, PARTITIONS, TOUCHED, CatalogSync

NAME = "bucketlake"
TITLES = {
    "first": "first sync",
    "nothing": "again, no new commit",
    "commit": f"after a commit to {TOUCHED} partitions, half of them new",
    "whole": "after a restore: all names compared",
    "drop": f"after a commit that dropped {DROPPED:,}, or half",
}


def _syncs(result: Result) -> str:
    rows = []
    for step, title in TITLES.items():
        if not result.values(NAME, f"{step}-{PARTITIONS[0]}"):
            continue
        cells = [title]
        for count in PARTITIONS:
            calls = result.median(NAME, f"{step}-{count}", "calls")
            seconds = result.median(NAME, f"{step}-{count}", "seconds")
            cells += [f"{calls:,.0f}", f"{seconds:.4f}" if seconds < 1 else f"{seconds:,.1f}"]
        rows.append(cells)
    sizes = [f"{count * result.row_count // PARTITIONS[-1]:,}" for count in PARTITIONS]
    heads = [head for size in sizes for head in (f"{size}: calls", "seconds")]
    return listing("", "", ["<sync", *heads], rows)


def _catalog(result: Result) -> str:
    if not result.settings.get("metastore"):
        return "**A catalog in memory**, which answers at once: what a sync works itself."
    return (
        "**A Hive Metastore** 3.1.3, in a process of its own on the same machine: its embedded "
        "database (Derby), a heap of 1 GiB, compilation by C1 alone. It makes the folder of each "
        "partition. Its processor time is among that of other processes. Each sync sends one call "
        "more, which finds out whether a server answers; it is not among these calls."
    )


def _hudi(result: Result) -> str:
    """Tell what the same takes Hudi, beside a metastore."""
    if not result.settings.get("metastore"):
        return ""
    return (
        "**Beside it**, the sync of Hudi 1.2.0 with a metastore 3.1.3, two busy cores: 11 calls "
        "and 15 to 26 s for a first sync of 1,000 partitions, in which the metastore looks at the "
        "files of each; 3 calls without a new commit; 15 calls after a commit with one new "
        "partition, one of which loads all partitions."
    )


BENCHMARK = Benchmark(
    name="catalog_sync",
    description="Calls and seconds of a sync with a catalog, by the number of partitions.",
    contenders=[
        Contender(
            NAME, CatalogSync, steps=tuple(f"{step}-{n}" for n in PARTITIONS for step in TITLES)
        )
    ],
    turn=plain_work,
    options=[Option("--metastore", str, "", "a real one in place of the catalog in memory")],
    orders=False,
    defaults={"rows": PARTITIONS[-1], "rounds": 3, "warmup_rounds": 1},
    quick={"rows": PARTITIONS[-1] // 10, "rounds": 1},
    page=Page(
        title="Benchmark of syncs with a catalog",
        text="How many calls a [sync](../how-to/catalogs.md) sends, and how long it works itself: "
        f"one entry, {BATCH:,} partitions a call. The partitions are names, so the listing of a "
        "table is not in these figures.",
        head="{rounds}",
        blocks=[
            _catalog,
            _syncs,
            _hudi,
        ],
    ),
)
