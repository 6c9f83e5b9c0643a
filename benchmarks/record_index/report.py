"""Medians, ratios and aims of record-level index results, as a page with tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from benchmarks.record_index.steps import (
    BUILD,
    ENGINE_FREE,
    GROWTH,
    INSERT_ROW,
    KEY_KINDS,
    KINDS,
    LOAD,
    LOCATE,
    LOCATED,
    LOOKED_UP,
    LOOKUP,
    RECORD,
    SCALE,
    SIMPLE,
    SPREAD,
    STEPS,
    UPSERT,
    UPSERT_ROW,
    WRITES,
    growth_step,
    index_step,
    plan_step,
)

TITLES = {
    LOAD: "load",
    BUILD: "build of the index",
    UPSERT: "upsert",
    UPSERT_ROW: "upsert of one row",
    "read": "read",
}
PEERS = {"bucketlake-spark4": "hudi-cow", "bucketlake-mor-spark4": "hudi-mor"}
"""Whom each of ours is compared with: the tables have the same type."""

FACTORS = {BUILD: 5.0, UPSERT: 8.0}
PLAN_SECONDS_MAX, PLAN_BYTES_MAX = 2.0, 10**9
_KEY_TITLES = {"hex": "20 hexadecimal digits", "uuid": "UUIDs of 36 characters"}
_KIND_TITLES = {SIMPLE: "SimpleBucket", RECORD: "RecordIndex"}


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Record-level index benchmark",
        "Hudi's partitioned record-level index, as bucketlake and Hudi build and use it; the index "
        "as the table grows; and the plan of a write to a very large table. Same data, same "
        "machine, contenders interleaved, processes warm, fresh tables each round. After every "
        "round each table on Spark has shown the row count and the column sums that the generator "
        "predicts.",
        "![Upsert, build, bytes of a key, and growth](record_index.svg)",
        *(_section(result) for result in results),
        settings_text(results[-1], [*on_spark(results[-1]), *_engine_free(results[-1])]),
        origin_text("record_index"),
    ]
    return "\n\n".join(parts) + "\n"


def on_spark(result: Result) -> list[str]:
    """Return the contenders with tables on Spark that have figures."""
    return measured(spark_part(result), UPSERT)


def spark_part(result: Result) -> Result:
    """Return the result without the contenders that answer other questions."""
    return without(result, ENGINE_FREE)


def growth_rows(result: Result) -> list[tuple[int, Mapping[str, Mapping[str, Any]]]]:
    """Return each size of the growing table, with what its steps took."""
    found = rounds_of(result, GROWTH)
    if not found:
        return []
    steps = (LOAD, BUILD, LOOKUP, LOCATE, UPSERT_ROW, INSERT_ROW)
    return [
        (keys, {step: found[0][growth_step(step, keys)] for step in steps})
        for keys in result["settings"]["growth"]
        if growth_step(BUILD, keys) in found[0]
    ]


def bytes_per_key(result: Result, name: str) -> dict[tuple[str, int], float]:
    """Return the size of a contender's index by kind and number of keys."""
    found: dict[tuple[str, int], float] = {}
    for each in rounds_of(result, name)[:1]:
        for kind in KEY_KINDS:
            for keys in result["settings"]["key_counts"]:
                if (step := each.get(index_step(kind, keys))) is not None:
                    found[kind, keys] = step["index_bytes"] / keys
    return found


def _engine_free(result: Result) -> list[str]:
    return [name for name in ENGINE_FREE if rounds_of(result, name)]


def _section(result: Result) -> str:
    data = result["data"]
    head = f"## {data['rows']:,} rows, {data['partitions']} partitions, {rounds_text(result)}"
    parts = [
        head,
        machine_line(spark_part(result), STEPS),
        _times_table(result),
        _aims_table(result),
        _sizes_table(result),
        _growth_table(result),
        _scale_table(result),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _times_table(result: Result) -> str:
    names = on_spark(result)
    if not names:
        return ""
    rows = [
        f"| contender | {', s | '.join(TITLES.values())}, s | build, processor s "
        "| upsert, processor s |",
        f"|---|{'---:|' * (len(TITLES) + 2)}",
    ]
    for name in names:
        cells = [spread(seconds(result, name, step)) for step in TITLES]
        cells += [
            f"{statistics.median(values(result, name, step, 'cpu_seconds')):.1f}"
            for step in (BUILD, UPSERT)
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    data = result["data"]
    text = (
        f"Median (minimum to maximum). An upsert has {data['updates']:,} updates and "
        f"{data['inserts']:,} inserts; the one row has a stored key. The load is by bulk insert: "
        "Hudi's without the index, bucketlake's with it, and the build makes it again from the "
        "whole table."
    )
    return "\n".join([text, "", *rows])


def _aims_table(result: Result) -> str:
    rows = []
    for ours, peer in PEERS.items():
        for step, wanted in FACTORS.items():
            found = ratios(result, step, peer, ours) if rounds_of(result, ours) else []
            if found:
                aim = Aim(step, peer, wanted)
                cpu = ratios(result, step, peer, ours, "cpu_seconds")
                rows.append(
                    f"| {ours}, {TITLES[step]}: {aim.text()} | {factors(found)} | {factor(cpu)} "
                    f"| {met(aim.holds(found))} |"
                )
    if not rows:
        return ""
    head = "| aim | found, median (min to max) of the rounds | by processor time | |"
    return "\n".join(["### Aims", "", head, "|---|---:|---:|---|", *rows])


def _sizes_table(result: Result) -> str:
    ours, theirs = (bytes_per_key(result, name) for name in ("bucketlake-spark4", "hudi-cow"))
    if not ours or not theirs:
        return ""
    rows = [
        f"| {_KEY_TITLES[kind]} | {keys:,} | {own:.1f} | {theirs[kind, keys]:.1f} "
        f"| {met(own <= theirs[kind, keys])} |"
        for (kind, keys), own in ours.items()
        if (kind, keys) in theirs
    ]
    text = (
        "Base files of the index right after its build, for equal random keys in both systems. "
        "Hudi's files have a Bloom filter, which is a part of their bytes."
    )
    head = "| keys | number | bucketlake, bytes | Hudi, bytes | no more than Hudi |"
    title = "### Bytes of the index for each key"
    return "\n".join([title, "", text, "", head, "|---|---:|---:|---:|---|", *rows])


def _growth_table(result: Result) -> str:
    found = growth_rows(result)
    if not found:
        return ""
    rows = []
    for keys, steps in found:
        build = steps[BUILD]
        cells = [
            f"{build['seconds']:.1f}",
            f"{build['cpu_seconds']:.1f}",
            f"{build['index_bytes'] / keys:.1f}",
            f"{steps[LOOKUP]['seconds']:.2f}",
            f"{steps[LOCATE]['seconds'] / LOCATED * 1000:.0f}",
            f"{steps[LOCATE]['cpu_seconds'] / LOCATED * 1000:.0f}",
            f"{steps[UPSERT_ROW]['seconds']:.2f}",
            f"{steps[INSERT_ROW]['seconds']:.2f}",
        ]
        rows.append(f"| {keys:,} | {' | '.join(cells)} |")
    settings = result["contenders"][GROWTH]["settings"]
    text = (
        f"bucketlake in one process without Spark, a {settings['table_type'].replace('_', '-')} "
        f"table with {settings['partitions']} partitions, keys: {settings['keys']}. *Lookup* finds "
        f"{LOOKED_UP:,} keys of all partitions in the index, which is opened anew. `locate` opens "
        "the table, asks the index, and looks into the file of the key."
    )
    head = (
        "| keys | build, s | build, processor s | bytes a key | lookup, s | `locate`, ms "
        "| `locate`, processor ms | update of one row, s | insert of one row, s |"
    )
    return "\n".join(["### Growth", "", text, "", head, f"|---:|{'---:|' * 8}", *rows])


def _scale_table(result: Result) -> str:
    found = rounds_of(result, SCALE)
    if not found:
        return ""
    settings = result["contenders"][SCALE]["settings"]
    rows = [_plan_row(result, kind, write) for kind in KINDS for write in WRITES]
    text = (
        f"What an upsert of bucketlake does before tasks write files, in a table of "
        f"{int(settings['file groups']):,} file groups in {int(settings['partitions']):,} "
        "partitions with a metadata table. The table has no data files, since the plan reads none. "
        "Median of the plans, each of which opens the table anew. *Memory* is what the plan adds "
        "to its process; in brackets the peak of the whole process. The aim is judged by processor "
        "time, since other processes may use the machine."
    )
    head = (
        "| index | changed file groups | plan, s | processor s | memory, MB "
        f"| at most {PLAN_SECONDS_MAX:g} s and {PLAN_BYTES_MAX / 1e9:g} GB |"
    )
    title = "### Plan of a write to a very large table"
    return "\n".join([title, "", text, "", head, "|---|---|---:|---:|---:|---|", *rows])


def _plan_row(result: Result, kind: str, write: str) -> str:
    (round_,) = rounds_of(result, SCALE)
    plans = round_[plan_step(kind, write)]["plans"]
    wall, cpu = (
        statistics.median(plan[field] for plan in plans)
        for field in ("plan_seconds", "plan_cpu_seconds")
    )
    taken, peak = (max(plan[field] for plan in plans) for field in ("taken_bytes", "peak_bytes"))
    groups = plans[0]["plan_groups"]
    where = f"in {groups} partitions" if write == SPREAD else "in one partition"
    holds = cpu <= PLAN_SECONDS_MAX and peak <= PLAN_BYTES_MAX
    return (
        f"| {_KIND_TITLES[kind]} | {groups} {where} | {wall:.2f} | {cpu:.2f} "
        f"| {taken / 1e6:.0f} ({peak / 1e6:.0f}) | {met(holds)} |"
    )


def size_titles(result: Result) -> Iterator[tuple[str, float, float]]:
    """Yield a short title, our bytes and Hudi's bytes for each kind and number of keys."""
    ours, theirs = (bytes_per_key(result, name) for name in ("bucketlake-spark4", "hudi-cow"))
    for (kind, keys), own in ours.items():
        if (kind, keys) in theirs:
            yield f"{kind}, {keys / 1e6:g} M", own, theirs[kind, keys]
