"""Medians, ratios and aims of results about dynamic buckets, as a page with tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.common.report import (
    Aim,
    Result,
    factor,
    factors,
    failures_text,
    machine_line,
    measured,
    met,
    origin_text,
    ratios,
    rounds_of,
    rounds_text,
    seconds,
    settings_text,
    spread,
    values,
    without,
)
from benchmarks.dynamic.steps import (
    CACHE,
    DELTA,
    ENGINE_FREE,
    FILLS,
    FIRST_BUCKETS,
    GLOBAL,
    GROWN,
    GROWTH,
    GROWTH_FACTOR,
    KINDS,
    LOAD,
    MAKE,
    OURS,
    PARTITIONED,
    SIMPLE,
    SIZES,
    STEPS,
    UPSERT,
    fill_step,
    grow_step,
    size_step,
)

FASTER_THAN_HUDI, TIMES_SIMPLE = 8.0, 1.5
FILL_RATE, MEMORY_BYTES, OVER_LIMIT = 2.0, 8.0, 1.2
"""Aims: million keys a second, bytes a key, and the largest bucket over its limit."""

_SIZE_TITLES = {
    "rows": "rows, copy-on-write",
    "bytes": "bytes, copy-on-write",
    "compacted": "bytes, merge-on-read, after compactions",
}
_GROWN_TITLES = {
    "simple": "SimpleBucket",
    "partition": "PartitionBucket",
    "consistent": "ConsistentBucket",
    "dynamic": "DynamicBucket",
    "record": "RecordIndex",
}
_REPAIRS = {
    "simple": "one rescale at the end",
    "partition": "one rescale at the end",
    "consistent": "a resize after each batch",
}


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Benchmark of dynamic buckets",
        "Tables with dynamic buckets beside simple ones, Hudi's record-level indexes and Delta's "
        "`MERGE`: a load, a batch of 20 % updates and 2 % inserts, and a read. Same data, same "
        "machine, contenders interleaved, processes warm, fresh tables each round. After every "
        "round each table has shown the row count and the column sums that the generator predicts. "
        "Then the cache and the index, and the sizes of buckets, without Spark.",
        "![Processor time of load and upsert](dynamic.svg)",
        *(_section(result) for result in results),
        settings_text(results[-1], [*on_spark(results[-1]), *_engine_free(results[-1])]),
        origin_text("dynamic"),
    ]
    return "\n\n".join(parts) + "\n"


def on_spark(result: Result) -> list[str]:
    """Return the contenders with tables on Spark that have figures."""
    return measured(spark_part(result), UPSERT)


def spark_part(result: Result) -> Result:
    """Return the result without the contenders that answer other questions."""
    return without(result, ENGINE_FREE)


def _engine_free(result: Result) -> list[str]:
    return [name for name in ENGINE_FREE if rounds_of(result, name)]


def _section(result: Result) -> str:
    data, settings = result["data"], result["settings"]
    head = (
        f"## {data['rows']:,} rows, {data['partitions']} partitions, {settings['buckets']} buckets "
        f"in each, {rounds_text(result)}"
    )
    parts = [
        head,
        machine_line(spark_part(result), STEPS),
        _times_table(result),
        _aims_table(result),
        _kinds_table(result),
        _cache_table(result),
        _sizes_table(result),
        _growth_table(result),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _times_table(result: Result) -> str:
    others = set(KINDS) - {OURS["cow"], SIMPLE["cow"]}
    names = [name for name in on_spark(result) if name not in others]
    if not names:
        return ""
    rows = [
        "| contender | rounds | load, s | upsert, s | read, s | load, processor s "
        "| upsert, processor s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        cells = [str(len(rounds_of(result, name)))]
        cells += [spread(seconds(result, name, step)) for step in STEPS]
        cells += [f"{_cpu(result, name, step):.1f}" for step in (LOAD, UPSERT)]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    text = (
        "Median (minimum to maximum). *bucketlake* has dynamic buckets, *simple* is its simple "
        "bucket index; *mor* and *cow* are the table types, and without them it is copy-on-write. "
        "All their tables have a metadata table and are loaded by `upsert`. *rli* is Hudi's "
        "partitioned record-level index, *global-rli* its global one; their load is `bulk_insert` "
        "without the index, followed by `CREATE INDEX`. Delta's load appends."
    )
    return "\n".join([text, "", *rows])


def _cpu(result: Result, name: str, step: str) -> float:
    return statistics.median(values(result, name, step, "cpu_seconds"))


def aims() -> list[tuple[str, Aim]]:
    """Return each aim of an upsert, with the contender that it is about."""
    found = []
    for short, ours in OURS.items():
        found.append((ours, Aim(UPSERT, SIMPLE[short], 1 / TIMES_SIMPLE)))
        found += [
            (ours, Aim(UPSERT, peers[short], FASTER_THAN_HUDI)) for peers in (PARTITIONED, GLOBAL)
        ]
    return found


def _aims_table(result: Result) -> str:
    rows = []
    for ours, aim in aims():
        found = ratios(result, UPSERT, aim.peer, ours, "seconds")
        if not found:
            continue
        cpu = ratios(result, UPSERT, aim.peer, ours, "cpu_seconds")
        shown, shown_cpu = ([1 / r for r in f] if aim.factor < 1 else f for f in (found, cpu))
        verdict = " | ".join(met(aim.holds(each)) for each in (found, cpu))
        rows.append(
            f"| {ours}: {aim.text()} | {factors(shown)} | {factor(shown_cpu)} | {verdict} |"
        )
    if found := ratios(result, UPSERT, DELTA, OURS["cow"], "seconds"):
        cpu = ratios(result, UPSERT, DELTA, OURS["cow"], "cpu_seconds")
        rows.append(
            f"| {OURS['cow']}: beside {DELTA}, no aim | {factor(found)} | {factor(cpu)} | – | – |"
        )
    if not rows:
        return ""
    head = "| upsert | by seconds, median (min to max) | by processor time | | |"
    text = "The verdicts are those by seconds and by processor time."
    return "\n".join(["### Aims", "", text, "", head, "|---|---:|---:|---|---|", *rows])


def _kinds_table(result: Result) -> str:
    names = [name for name in KINDS if rounds_of(result, name)]
    if len(names) < 2:
        return ""
    rows = []
    for name in names:
        last = rounds_of(result, name)[-1]
        cells = [f"{_cpu(result, name, step):.1f}" for step in STEPS]
        cells += [
            f"{last[UPSERT]['data_files']:,}",
            f"{last[UPSERT]['largest_file_rows']:,}",
        ]
        rows.append(f"| {KINDS[name]} | {' | '.join(cells)} |")
    text = (
        "Copy-on-write tables of bucketlake on the same data, from the same run. *Files* counts "
        "those after the upsert, which keeps the versions before it. A record-level index fills "
        "one file after another up to its file size, so here it has one file in each partition."
    )
    head = (
        "| index | load, processor s | upsert, processor s | read, processor s | files "
        "| rows of the largest |"
    )
    title = "### All kinds of index"
    return "\n".join([title, "", text, "", head, "|---|---:|---:|---:|---:|---:|", *rows])


def _cache_table(result: Result) -> str:
    found = rounds_of(result, CACHE)
    if not found:
        return ""
    fills = [found[0][fill_step(number)] for number in range(FILLS)]
    keys = fills[0]["keys"]
    rates = [keys / fill["fill_cpu_seconds"] / 1e6 for fill in fills]
    rate = statistics.median(rates)
    memory, disk = (fills[-1][name] / keys for name in ("memory_bytes", "disk_bytes"))
    index = found[0][MAKE]["index_bytes"] / keys
    rows = [
        f"| fill of the cache, million keys a second of one core: at least {FILL_RATE:g} "
        f"| **{rate:.2f}** ({min(rates):.2f} to {max(rates):.2f}) | {met(rate >= FILL_RATE)} |",
        f"| memory of the cache, bytes a key: at most {MEMORY_BYTES:g} | {memory:.2f} "
        f"| {met(memory <= MEMORY_BYTES)} |",
        f"| local disk of the cache, bytes a key, with the keys | {disk:.1f} | |",
        f"| base files of the index, bytes a key | {index:.1f} | |",
    ]
    text = (
        f"{keys:,} random keys of 20 digits in one partition. A fill reads each shard of the index "
        "from the table and writes it to local disk; it happens when a host first writes many keys "
        f"to the partition. {FILLS} fills, by processor time. "
        "[More about the cache](location_cache.md)."
    )
    title = "### Cache and index"
    return "\n".join([title, "", text, "", "| | found | |", "|---|---:|---|", *rows])


def _sizes_table(result: Result) -> str:
    found = rounds_of(result, GROWTH)
    if not found:
        return ""
    rows = []
    for kind in SIZES:
        seen = found[0][size_step(kind)]
        rows.append(
            f"| {_SIZE_TITLES[kind]} | {seen['limit']:,} | {seen['buckets']} "
            f"| {seen['median']:.2f} | {seen['fullest']:.2f} "
            f"| {met(seen['fullest'] <= OVER_LIMIT)} |"
        )
    text = (
        f"One partition with {FIRST_BUCKETS} assigners gets {GROWTH_FACTOR} batches of new keys, "
        "without Spark. *Largest* is the largest bucket after any of the batches."
    )
    head = (
        f"| limit | | buckets | median bucket over the limit | largest over it "
        f"| at most {OVER_LIMIT:g} |"
    )
    title = "### Sizes of buckets"
    return "\n".join([title, "", text, "", head, "|---|---:|---:|---:|---:|---|", *rows])


def _growth_table(result: Result) -> str:
    found = rounds_of(result, GROWTH)
    if not found:
        return ""
    rows = []
    for kind in GROWN:
        seen = found[0][grow_step(kind)]
        repair = "–"
        if kind in _REPAIRS:
            repair = f"{_REPAIRS[kind]}: {seen['repair_cpu_seconds']:.2f}"
        rows.append(
            f"| {_GROWN_TITLES[kind]} | {seen['before_repair']:.2f} "
            f"| {seen['first_upsert_cpu_seconds']:.2f} | {seen['last_upsert_cpu_seconds']:.2f} "
            f"| {repair} | {seen['files']} | {seen['fullest']:.2f} |"
        )
    capacity = result["contenders"][GROWTH]["settings"]["rows of a bucket"]
    text = (
        f"What becomes of a copy-on-write partition that gets {GROWTH_FACTOR} times the rows that "
        f"its {FIRST_BUCKETS} first buckets were made for ({int(capacity):,} each), in as many "
        "batches of new keys, without Spark. *Largest file* is over the rows that a bucket should "
        "have. Simple and partition-level buckets grow until a rescale, which rewrites the whole "
        "partition; a hash ring needs a resize from time to time; dynamic buckets and a "
        "record-level index need nothing. "
        "[Which kind](../how-to/choose-a-bucket-count.md#which-kind) tells when to take which."
    )
    head = (
        "| index | largest file, after the batches | first upsert, processor s "
        "| last upsert, processor s | rescale or resize, processor s | files at the end "
        "| largest file at the end |"
    )
    title = "### A partition grows"
    return "\n".join([title, "", text, "", head, "|---|---:|---:|---:|---|---:|---:|", *rows])
