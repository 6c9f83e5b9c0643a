"""What a resize of a hash ring costs, and what writes cost meanwhile.

Four questions, each with contenders of its own:

- Tables on Spark with the consistent, the simple bucket and the Bloom index, ours and Hudi's: load
  and upsert.
- The same upsert while a resize of all buckets is pending: seconds, and bytes on disk.
- A resize of two buckets against a rescale of the whole table, as the table grows.
- Lookups on a ring of 10,000 nodes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Settings
from benchmarks.common.figures import Result, factor, met, spread
from benchmarks.common.plot import BY_PROCESSOR, OURS, PEER, Bar, Bars, Chart, step_bars
from benchmarks.common.report import Page
from benchmarks.common.tables import Column, Row, Table, figure, median
from benchmarks.systems.bucketlake import SPLIT_ALL, BucketLake
from benchmarks.systems.hudi import BLOOM, RESIZE, Hudi, consistent_bucket, simple_bucket
from benchmarks.systems.spark import MERGE_ON_READ
from benchmarks.workloads import ring_lookups
from benchmarks.workloads.growing_table import BUCKET_COUNTS, SIDES, SPLIT_COUNT, grow
from benchmarks.workloads.pending_resize import HUDI_CONSISTENT, OURS_CONSISTENT, WRITES, write
from benchmarks.workloads.ring_lookups import RingLookups

LINKED_BYTES_MAX = 1.15
LOOKUPS_MIN = 20_000_000


# ---- contenders ---------------------------------------------------------------------------------


def _ours(name: str, index: Callable[[int], Any]) -> Contender:
    def make(settings: Settings) -> BucketLake:
        told = {"resize": f"resize(**{SPLIT_ALL})"} if name == OURS_CONSISTENT else {}
        return BucketLake(settings, index(settings["buckets"]), MERGE_ON_READ, told=told)

    return Contender(name, make, "bucketlake", spark35=True)


def _hudi(name: str, index: Callable[[int], dict[str, str]], **procedure: str) -> Contender:
    # No metadata table: it would have to be kept by every write and no bucket index reads it. The
    # Bloom index reads the filters in the files then, which is its default, too.
    def make(settings: Settings) -> Hudi:
        own = index(settings["buckets"])
        called = {**own, **procedure} if procedure else None
        return Hudi(settings, own, MERGE_ON_READ, metadata_table=False, procedure=called)

    return Contender(name, make, "hudi", spark35=True)


KINDS = (
    _ours(OURS_CONSISTENT, bl.ConsistentBucket),
    _ours("bucketlake-simple", bl.SimpleBucket),
    _hudi(HUDI_CONSISTENT, consistent_bucket, **RESIZE),
    _hudi("hudi-simple", simple_bucket),
    _hudi("hudi-bloom", lambda _: BLOOM),
)
OTHERS = (
    *(Contender(name, side, "engine-free", turn=grow) for name, side in SIDES.items()),
    Contender(
        "lookup",
        lambda _: RingLookups(),
        "engine-free",
        steps=ring_lookups.STEPS,
        turn=lambda turn: {step: turn.step(step, turn.folder) for step in turn.steps},
    ),
)


# ---- page ---------------------------------------------------------------------------------------

UPSERTS = [
    Row(OURS_CONSISTENT, "upsert", "bucketlake, no resize"),
    Row(OURS_CONSISTENT, "upsert_linked", "bucketlake, virtual logs"),
    Row(OURS_CONSISTENT, "upsert_twice", "bucketlake, dual write"),
    Row(HUDI_CONSISTENT, "upsert", "Hudi, no resize"),
    Row(HUDI_CONSISTENT, "upsert_twice", "Hudi, dual write"),
]
CHANGES = [
    Row(name, f"change-{count}", f"{count} buckets") for count in BUCKET_COUNTS for name in SIDES
]
LOOKUPS = {
    "hash_keys": "hash of a key for the ring (XXH32)",
    "ring_even": "node of a hash, even ring",
    "ring_random": "node of a hash, uneven ring",
    "binary_search": "the same by binary search",
    "modulo": "modulo, as the simple bucket index",
}


def what_changed(_result: Result, row: Row) -> str:
    """Tell what was done to a table that grows."""
    if row.contender == "resize":
        return f"resize: {SPLIT_COUNT} buckets split"
    return f"rescale to {2 * int(row.step.partition('-')[2])} buckets"


def a_record(field: str) -> Column:
    """Return the column of bytes for each changed record."""
    title = {"added_bytes": "bytes a record", "added_block_bytes": "in blocks"}[field]

    def tell(result: Result, row: Row) -> str:
        return f"{result.median(*row[:2], field) / result.words['changes']:.1f}"

    return Column(title, tell)


def bytes_over(result: Result, row: Row) -> list[float]:
    """Return the bytes of an upsert over those of the same upsert without a resize."""
    values = (result.values(row.contender, step, "added_bytes") for step in (row.step, "upsert"))
    return [during / without for during, without in zip(*values, strict=True)]


def records_a_second(result: Result, row: Row) -> str:
    """Tell the rate of an upsert."""
    changes = result.words["changes"]
    return f"{statistics.median(changes / each for each in result.values(*row[:2])):,.0f}"


def linked_aim(result: Result) -> str:
    """Judge the bytes of virtual logs."""
    if not result.rounds(OURS_CONSISTENT):
        return ""
    found = statistics.median(bytes_over(result, UPSERTS[1]))
    return (
        f"Aim: at most {LINKED_BYTES_MAX}x the bytes with virtual logs; found {found:.2f}x: "
        f"{met(found <= LINKED_BYTES_MAX)}. What is left comes from more and smaller log files: "
        "one for each new bucket instead of one for each old bucket."
    )


def lookup_aim(result: Result) -> str:
    """Judge the rate of lookups."""
    if not result.rounds("lookup"):
        return ""
    rates = {step: result.median("lookup", step, "rate") for step in LOOKUPS}
    slowest = min(rates["ring_even"], rates["ring_random"])
    both = 1 / (1 / slowest + 1 / rates["hash_keys"])
    return (
        f"Aim: at least {LOOKUPS_MIN / 1e6:.0f} million lookups a second; found "
        f"{slowest / 1e6:.0f} million: {met(slowest >= LOOKUPS_MIN)}. Hash and lookup together: "
        f"{both / 1e6:.0f} million keys a second."
    )


def growth_table(result: Result) -> str:
    """Tell both changes, and how many rows a bucket has."""
    return GROWTH(result).replace("HELD", f"{result.row_count // max(BUCKET_COUNTS):,}")


GROWTH = Table(
    lambda _: CHANGES,
    [
        Column("<change", what_changed),
        Column("seconds", figure()),
        Column("processor s", figure(field="cpu_seconds", form=median(2))),
        Column("rows of files, MB", figure(field="moved_bytes", form=median(2, 1e6))),
        Column("written, MB", figure(field="added_bytes", form=median(2, 1e6))),
    ],
    "A resize against a rescale, as the table grows",
    "A table of consistent hashing and a table of the simple bucket index, both copy-on-write, "
    "with about HELD rows in each bucket, without Spark. *Resize* splits the "
    f"{SPLIT_COUNT} largest buckets. *Rescale* doubles the number of buckets, the way to get "
    "smaller buckets in a simple bucket index. *Rows of files* is the size of the files whose rows "
    "are moved, as the report of the call says; all of these files are read. *Written* is what the "
    "table's folder grew by, with the timeline.",
    head="table",
)
DURING = Table(
    lambda _: UPSERTS,
    [
        a_record("added_bytes"),
        Column("over no resize", lambda result, row: factor(bytes_over(result, row))),
        a_record("added_block_bytes"),
        Column("seconds", figure()),
        Column("processor s", figure(field="cpu_seconds", form=median())),
        Column("records/s", records_a_second),
        Column("names of files", figure(field="added_names", form=median(0))),
    ],
    "Upserts while a resize is pending",
    "One upsert of {updates:,} updates and {inserts:,} inserts into a merge-on-read table, while a "
    "pending resize splits every bucket, so that each record belongs to a bucket that is being "
    "resized. *Virtual logs*: the log file gets a second name in the new bucket, a hard link. "
    "*Dual write*: the bytes are written twice; bucketlake does so only where the storage cannot "
    "duplicate files, and here the disk was made to refuse links. *Bytes* is what the table's "
    "folder grew by, with the timeline; each file counts once, however many names it has. *Names "
    "of files* counts the names. All tables are without a metadata table.",
    head="upsert",
)
RESIZE_ALL = Table(
    lambda _: [Row(OURS_CONSISTENT), Row(HUDI_CONSISTENT)],
    [
        Column("plan, s", figure("schedule")),
        Column("execution, s", figure("complete")),
        Column("processor s", figure("complete", "cpu_seconds", median())),
    ],
    head="resize of all buckets",
)
SIDE_BY_SIDE = Table(
    lambda _: [Row(kind.name) for kind in KINDS],
    [
        column
        for step, title in zip(WRITES, ("load", "upsert", "merged read"), strict=True)
        for column in (
            Column(f"{title}, s", figure(step)),
            Column(f"{title}, processor s", figure(step, "cpu_seconds", median())),
        )
    ],
    "Kinds of index side by side",
    "Merge-on-read tables of {partitions} partitions with {buckets} buckets each, on PySpark 3.5. "
    "A consistent hashing index begins a bucket with a log file, here and in Hudi, so its load "
    "writes no base file and its merged read has more log records to merge. bucketlake has no "
    "Bloom index.",
)
LOOKUP_RATES = Table(
    lambda _: [Row("lookup", step, title) for step, title in LOOKUPS.items()],
    [
        Column(
            "million keys a second",
            figure(field="rate", form=lambda found: spread([rate / 1e6 for rate in found])),
        )
    ],
    f"Lookups on a ring of {ring_lookups.NODE_COUNT:,} nodes, on one core",
    "Rates by the processor time of the thread. The nodes of the even ring are as in a new table, "
    "those of the uneven ring lie at random.",
    head="operation",
)


# ---- plot ---------------------------------------------------------------------------------------


def growth_bars(result: Result) -> list[Bar]:
    """Return the processor time of both changes, by the size of the table."""
    return [
        Bar(
            f"{row.contender}, {row.title}",
            result.values(*row[:2], "cpu_seconds"),
            OURS if row.contender == "resize" else PEER,
        )
        for row in CHANGES
        if result.rounds(row.contender)
    ]


def byte_bars(result: Result) -> list[Bar]:
    """Return the bytes of upserts over those without a resize."""
    return [
        Bar(
            row.title,
            bytes_over(result, row),
            OURS if row.contender == OURS_CONSISTENT else PEER,
            LINKED_BYTES_MAX if row.step == "upsert_linked" else None,
        )
        for row in UPSERTS
        if result.rounds(row.contender)
    ]


NAMES = {kind.name: kind.name for kind in KINDS}
BYTES_UNIT = f"times the bytes without a resize; red: aim of virtual logs, {LINKED_BYTES_MAX}x"

BENCHMARK = Benchmark(
    name="resize",
    description="A resize of a hash ring, and writes meanwhile: bucketlake beside Hudi.",
    contenders=(*KINDS, *OTHERS),
    steps=WRITES,
    turn=write,
    page=Page(
        title="Resize benchmark",
        text="What it costs to split buckets of a consistent hashing index (RFC-42), and what "
        "writes cost meanwhile. Order-like rows (string key, 9 columns), the same data and machine "
        "for all contenders, contenders interleaved. Every contender's table has shown the row "
        "count and the column sums that the generator predicts after each upsert and after each "
        "resize.",
        image="Processor seconds of a resize as the table grows, bytes while a resize is pending, "
        "load and upsert by kind of index",
        head="{rows:,} rows, {rounds}",
        blocks=[
            lambda _: (
                "Times are medians (minimum to maximum). Processor seconds are those of all "
                "processes of the contender."
            ),
            growth_table,
            DURING,
            linked_aim,
            RESIZE_ALL,
            SIDE_BY_SIDE,
            LOOKUP_RATES,
            lookup_aim,
        ],
        chart=Chart(
            "Resizes of hash rings, {millions} M rows: {cores} cores, median of {round_count}",
            [
                Bars("two buckets split, or all rescaled", growth_bars, BY_PROCESSOR),
                Bars(
                    "bytes written, all buckets being resized",
                    byte_bars,
                    BYTES_UNIT,
                    "{:.2f}x".format,
                ),
                *(
                    step_bars(step, step, field="cpu_seconds", unit=BY_PROCESSOR, titles=NAMES)
                    for step in ("load", "upsert")
                ),
            ],
        ),
    ),
)
