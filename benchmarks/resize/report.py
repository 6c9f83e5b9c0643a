"""Tables of resize results, as a page with a plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.common.report import (
    Result,
    factor,
    failures_text,
    machine_line,
    met,
    origin_text,
    rounds_of,
    rounds_text,
    seconds,
    settings_text,
    spread,
    values,
)
from benchmarks.resize.steps import (
    COMPLETE,
    CONSISTENT,
    GROWING,
    HASH,
    HUDI_CONSISTENT,
    KINDS,
    LOAD,
    LOOKUP,
    LOOKUPS,
    MODULO,
    NODE_COUNT,
    READ,
    RESCALE,
    RESIZE,
    RING_EVEN,
    RING_RANDOM,
    SCHEDULE,
    SEARCH,
    SIZES,
    SPLIT_COUNT,
    UPSERT,
    UPSERT_LINKED,
    UPSERT_TWICE,
    size_step,
    steps_of,
)

UPSERTS = {
    (CONSISTENT, UPSERT): "bucketlake, no resize",
    (CONSISTENT, UPSERT_LINKED): "bucketlake, virtual logs",
    (CONSISTENT, UPSERT_TWICE): "bucketlake, dual write",
    (HUDI_CONSISTENT, UPSERT): "Hudi, no resize",
    (HUDI_CONSISTENT, UPSERT_TWICE): "Hudi, dual write",
}
LOOKUP_TITLES = {
    HASH: "hash of a key for the ring (XXH32)",
    RING_EVEN: "node of a hash, even ring",
    RING_RANDOM: "node of a hash, uneven ring",
    SEARCH: "the same by binary search",
    MODULO: "modulo, as the simple bucket index",
}
LINKED_BYTES_MAX = 1.15
LOOKUPS_MIN = 20_000_000


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Resize benchmark",
        "What it costs to split buckets of a consistent hashing index (RFC-42), and what writes "
        "cost meanwhile. Order-like rows (string key, 9 columns), the same data and machine for "
        "all contenders, contenders interleaved. Every contender's table has shown the row count "
        "and the column sums that the generator predicts after each upsert and after each resize.",
        "![Processor seconds of a resize as the table grows, bytes while a resize is pending, load "
        "and upsert by kind of index](resize.svg)",
        *(_section(result) for result in results),
        settings_text(results[-1], _names(results[-1])),
        origin_text("resize"),
    ]
    return "\n\n".join(parts) + "\n"


def _names(result: Result) -> list[str]:
    return [name for name in result["contenders"] if rounds_of(result, name)]


def _section(result: Result) -> str:
    data, settings = result["data"], result["settings"]
    measured = sorted({step for name in _names(result) for step in steps_of(name)})
    parts = [
        f"## {data['rows']:,} rows, {rounds_text(result)}",
        machine_line(result, measured),
        "Times are medians (minimum to maximum). Processor seconds are those of all processes of "
        "the contender.",
        _growth_text(result),
        _pending_text(result),
        _kinds_text(result, settings["buckets"]),
        _lookup_text(result),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _growth_text(result: Result) -> str:
    names = [name for name in GROWING if rounds_of(result, name)]
    if not names:
        return ""
    rows = [
        "| table | change | seconds | processor s | rows of files, MB | written, MB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for count in SIZES:
        step = size_step(count)
        for name in names:
            what = {
                RESIZE: f"resize: {SPLIT_COUNT} buckets split",
                RESCALE: f"rescale to {2 * count} buckets",
            }[name]
            cpu, moved, added = (
                statistics.median(values(result, name, step, field))
                for field in ("cpu_seconds", "moved_bytes", "added_bytes")
            )
            rows.append(
                f"| {count} buckets | {what} | {spread(seconds(result, name, step))} | "
                f"{cpu:.2f} | {moved / 1e6:.2f} | {added / 1e6:.2f} |"
            )
    held = result["data"]["rows"] // max(SIZES)
    return "\n\n".join(
        [
            "### A resize against a rescale, as the table grows",
            f"A table of consistent hashing and a table of the simple bucket index, both "
            f"copy-on-write, with about {held:,} rows in each bucket, without Spark. *Resize* "
            f"splits the {SPLIT_COUNT} largest buckets. *Rescale* doubles the number of buckets, "
            "the way to get smaller buckets in a simple bucket index. *Rows of files* is the size "
            "of the files whose rows are moved, as the report of the call says; all of these files "
            "are read. *Written* is what the table's folder grew by, with the timeline.",
            "\n".join(rows),
        ]
    )


def _pending_text(result: Result) -> str:
    known = {key: title for key, title in UPSERTS.items() if rounds_of(result, key[0])}
    if not known:
        return ""
    data = result["data"]
    changed = data["updates"] + data["inserts"]
    rows = [
        "| upsert | bytes a record | over no resize | in blocks | seconds | processor s "
        "| records/s | names of files |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (name, step), title in known.items():
        found = {
            field: statistics.median(values(result, name, step, field))
            for field in ("added_bytes", "added_block_bytes", "added_names", "cpu_seconds")
        }
        rates = [changed / each for each in seconds(result, name, step)]
        rows.append(
            f"| {title} | {found['added_bytes'] / changed:.1f} | {bytes_factor(result, name, step)}"
            f" | {found['added_block_bytes'] / changed:.1f} | "
            f"{spread(seconds(result, name, step))} | {found['cpu_seconds']:.1f} | "
            f"{statistics.median(rates):,.0f} | {found['added_names']:.0f} |"
        )
    return "\n\n".join(
        [
            "### Upserts while a resize is pending",
            f"One upsert of {data['updates']:,} updates and {data['inserts']:,} inserts into a "
            "merge-on-read table, while a pending resize splits every bucket, so that each record "
            "belongs to a bucket that is being resized. *Virtual logs*: the log file gets a second "
            "name in the new bucket, a hard link. *Dual write*: the bytes are written twice; "
            "bucketlake does so only where the storage cannot duplicate files, and here the disk "
            "was made to refuse links. *Bytes* is what the table's folder grew by, with the "
            "timeline; each file counts once, however many names it has. *Names of files* counts "
            "the names. All tables are without a metadata table.",
            "\n".join(rows),
            _linked_aim(result),
            _resize_all_table(result),
        ]
    )


def bytes_factor(result: Result, name: str, step: str) -> str:
    """Return the bytes of an upsert over those of the same upsert without a resize."""
    return factor(_bytes_factors(result, name, step))


def _bytes_factors(result: Result, name: str, step: str) -> list[float]:
    found, base = (values(result, name, each, "added_bytes") for each in (step, UPSERT))
    return [during / before for during, before in zip(found, base, strict=True)]


def _linked_aim(result: Result) -> str:
    if not rounds_of(result, CONSISTENT):
        return ""
    found = statistics.median(_bytes_factors(result, CONSISTENT, UPSERT_LINKED))
    return (
        f"Aim: at most {LINKED_BYTES_MAX}x the bytes with virtual logs; found {found:.2f}x: "
        f"{met(found <= LINKED_BYTES_MAX)}. What is left comes from more and smaller log files: "
        "one for each new bucket instead of one for each old bucket."
    )


def _resize_all_table(result: Result) -> str:
    rows = [
        "| resize of all buckets | plan, s | execution, s | processor s |",
        "|---|---:|---:|---:|",
    ]
    for name in (CONSISTENT, HUDI_CONSISTENT):
        if rounds_of(result, name):
            cpu = statistics.median(values(result, name, COMPLETE, "cpu_seconds"))
            plan, run = (spread(seconds(result, name, step)) for step in (SCHEDULE, COMPLETE))
            rows.append(f"| {name} | {plan} | {run} | {cpu:.1f} |")
    return "\n".join(rows)


def _kinds_text(result: Result, buckets: int) -> str:
    names = [name for name in KINDS if rounds_of(result, name)]
    if not names:
        return ""
    heads = (f"{title}, s | {title}, processor s" for title in (LOAD, UPSERT, "merged read"))
    rows = [f"| contender | {' | '.join(heads)} |", "|---|" + "---:|" * 6]
    for name in names:
        cells = [
            f"{spread(seconds(result, name, step))} | "
            f"{statistics.median(values(result, name, step, 'cpu_seconds')):.1f}"
            for step in (LOAD, UPSERT, READ)
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n\n".join(
        [
            "### Kinds of index side by side",
            f"Merge-on-read tables of {result['data']['partitions']} partitions with {buckets} "
            "buckets each, on PySpark 3.5. A consistent hashing index begins a bucket with a log "
            "file, here and in Hudi, so its load writes no base file and its merged read has more "
            "log records to merge. bucketlake has no Bloom index.",
            "\n".join(rows),
        ]
    )


def _lookup_text(result: Result) -> str:
    if not rounds_of(result, LOOKUP):
        return ""
    rows = ["| operation | million keys a second |", "|---|---:|"]
    rates = {step: values(result, LOOKUP, step, "keys_per_second") for step in LOOKUPS}
    for step, found in rates.items():
        rows.append(f"| {LOOKUP_TITLES[step]} | {spread([rate / 1e6 for rate in found])} |")
    slowest = min(statistics.median(rates[step]) for step in (RING_EVEN, RING_RANDOM))
    both = 1 / (1 / slowest + 1 / statistics.median(rates[HASH]))
    return "\n\n".join(
        [
            f"### Lookups on a ring of {NODE_COUNT:,} nodes, on one core",
            "Rates by the processor time of the thread. The nodes of the even ring are as in a new "
            "table, those of the uneven ring lie at random.",
            "\n".join(rows),
            f"Aim: at least {LOOKUPS_MIN / 1e6:.0f} million lookups a second; found "
            f"{slowest / 1e6:.0f} million: {met(slowest >= LOOKUPS_MIN)}. Hash and lookup "
            f"together: {both / 1e6:.0f} million keys a second.",
        ]
    )
