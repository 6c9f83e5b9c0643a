"""The page of a report: one file without scripts, and without anything from a network.

Each section has its charts, and beside them the numbers as tables. Tables and charts have the
largest items only, and a row that sums up the others, so the page stays small for a table of many
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from itertools import pairwise
from statistics import median
from typing import TypeVar

from bucketlake.format.commit_metadata import is_service
from bucketlake.hashing.ring import HashRange
from bucketlake.model.text_table import printable
from bucketlake.read.buckets import Bucket
from bucketlake.read.partition_sizes import PartitionSizes
from bucketlake.report.charts import (
    Bar,
    Sector,
    bar_chart,
    commit_chart,
    directory_chart,
    growth_chart,
    ring_chart,
)
from bucketlake.report.facts import TableReport
from bucketlake.report.html import (
    Column,
    Row,
    charts,
    facts_list,
    figure,
    paragraph,
    section,
    table,
    text,
)
from bucketlake.report.units import byte_unit, count_unit, number_text, time_of, time_text
from bucketlake.timeline.instant import State

ROWS_MAX = 50
"""Most rows of a table."""

_SUMMED = (
    *("rows", "size_bytes", "log_bytes", "share", "growth_bytes", "written"),
    *("file_groups", "log_files"),
)
_BARS_MAX = 15
_RINGS_MAX = 4
_GROWTH_POINTS_MAX = 500
_NO_FILES = "The table has no files yet."
_FILES = ("base files", "log files")
_Sized = TypeVar("_Sized", Bucket, PartitionSizes)


def render_page(report: TableReport) -> str:
    """Return the page."""
    sections = [
        ("attention", "What needs attention", _attention),
        ("growth", "Growth", _growth),
        ("partitions", "Partitions", _partitions),
        ("buckets", "Buckets", _buckets),
        ("rings", "Hash values of buckets", _rings),
        ("files", "File sizes", _file_sizes),
        ("logs", "Log files that wait for a compaction", _logs),
        ("timeline", "Timeline", _timeline),
    ]
    parts = [(anchor, title, [*make(report)]) for anchor, title, make in sections]
    shown = [(anchor, title, inner) for anchor, title, inner in parts if inner]
    links = "".join(f'<a href="#{anchor}">{text(title)}</a>' for anchor, title, _ in shown)
    body = "\n".join(section(*each) for each in shown)
    style = files("bucketlake.report").joinpath("page.css").read_text(encoding="utf-8")
    title = text(f"Report of {report.overview.path}")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{title}</h1>\n{_facts(report)}\n<nav>{links}</nav>\n</header>\n"
        f"<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


# ---- the sections -------------------------------------------------------------------------------


def _facts(report: TableReport) -> str:
    seen = report.overview
    last = "none"
    if seen.last_commit is not None:
        last = f"{time_text(seen.last_commit)} ({seen.last_operation})"
    rows = "unknown: table.count() counts them"
    if seen.rows is not None:
        about = "" if seen.rows_exact else ", without what log files change"
        rows = f"{seen.rows:,}{about}"
    return facts_list(
        [
            ("table type", seen.table_type.replace("_", "-")),
            ("index", seen.index or "not known"),
            ("record key", ", ".join(seen.record_key) or "none"),
            ("partitioned by", ", ".join(seen.partition_by) or "nothing"),
            ("ordering", ", ".join(seen.ordering) or "none"),
            ("columns", "none yet" if seen.columns is None else f"{seen.columns:,}"),
            ("rows", rows),
            ("size", number_text("size_bytes", seen.size_bytes)),
            ("file groups", f"{seen.file_groups:,} in {_count(seen.partitions, 'partition')}"),
            ("last commit", last),
            ("report made", f"{report.made_at:%Y-%m-%d %H:%M:%S} UTC"),
        ]
    )


def _attention(report: TableReport) -> Iterator[str]:
    yield paragraph(f"Doctor: {report.findings.summary}.")
    found = [
        {
            "severity": finding.severity.value,
            "kind": finding.kind.value,
            "partition": finding.partition,
            "meaning": finding.meaning,
            "repair": finding.repair,
        }
        for finding in report.findings
    ]
    if found:
        columns = _texts("severity", "kind", "partition", "meaning", "repair")
        yield _table("Findings, worst first", columns, found)
    if report.findings.not_checked:
        yield paragraph(f"Not checked: {', '.join(report.findings.not_checked)}.")
    changes = report.advice.changes
    if changes:
        columns = _texts("subject", "now", "advised", "reason", "call", "command")
        yield _table("Advice", columns, [asdict(advice) for advice in changes])
    else:
        yield paragraph("Advice: change nothing.")
    skewed = [sizes for sizes in report.buckets.partitions if sizes.is_skewed]
    for sizes in skewed[:_BARS_MAX]:
        yield paragraph(f"Skew: {sizes.skew}.")
    if len(skewed) > _BARS_MAX:
        yield paragraph(f"Other skewed partitions: {len(skewed) - _BARS_MAX:,}.")
    waiting = [bucket for bucket in report.buckets if bucket.log_files]
    if waiting:
        yield paragraph(
            f"Log files: {_count(sum(b.log_files for b in waiting), 'log file')} of "
            f"{number_text('size_bytes', sum(b.log_bytes for b in waiting))} in "
            f"{_count(len(waiting), 'file group')}. Each read merges them, until table.compact() "
            "(bucketlake compact --run) does it once."
        )
    for entry in report.timeline:
        if entry.state is not State.COMPLETED:
            yield paragraph(
                f"Pending: {entry.action.value} of {time_text(entry.requested_at)}, "
                f"{entry.state.name.lower()}."
            )


def _growth(report: TableReport) -> Iterator[str]:
    timed = [(time_of(size.completed_at), size) for size in report.buckets.growth]
    points = [(at, size) for at, size in timed if at is not None][-_GROWTH_POINTS_MAX:]
    if not points:
        return
    times, sizes = [at for at, _ in points], [size for _, size in points]
    divisor, unit = byte_unit(max(size.size_bytes for size in sizes))
    base = [(size.size_bytes - size.log_bytes) / divisor for size in sizes]
    log = [size.log_bytes / divisor for size in sizes]
    parts, series = ([base, log], _FILES) if any(log) else ([base], ())
    drawn = [
        figure(
            "Size",
            f"after each commit, in {unit}",
            growth_chart("growth-bytes", times, parts, unit=unit, series=series),
        )
    ]
    rows = [size.rows for size in sizes if size.rows is not None]
    if len(rows) == len(sizes):
        divisor, unit = count_unit(max(rows), "rows")
        counts = [count / divisor for count in rows]
        svg = growth_chart("growth-rows", times, [counts], unit=unit)
        drawn.append(figure("Rows", "after each commit", svg))
    yield charts(drawn)
    if len(rows) < len(sizes):
        yield paragraph(
            "Rows are not known for each commit: the commits of some files are archived, or some "
            "file groups have log files alone."
        )
    elif any(log):
        yield paragraph(
            "Rows are those of base files, and those that log files are known to insert. A log "
            "file of a bucket index counts after its compaction: nobody has looked up its keys."
        )
    yield _table(
        "Size after each commit, newest first",
        [
            Column("completed_at", f"completed ({report.zone})", is_number=False),
            *_numbers(("rows", "rows"), ("size_bytes", "size"), ("log_bytes", "log files")),
            *_numbers(("file_groups", "file groups")),
        ],
        [asdict(size) for size in reversed(sizes)],
    )


def _partitions(report: TableReport) -> Iterator[str]:
    found = sorted(report.buckets.partitions, key=lambda sizes: -sizes.size_bytes)
    if not found:
        yield paragraph(_NO_FILES)
        return
    shown = found[:_BARS_MAX]
    drawn = [_byte_bars("partition-bytes", "Bytes", "and share of the table", shown, _path)]
    counted = [sizes for sizes in found if sizes.rows is not None]
    if counted:
        by_rows = sorted(counted, key=lambda sizes: -(sizes.rows or 0))[:_BARS_MAX]
        divisor, unit = count_unit(by_rows[0].rows or 0, "rows")
        bars = [
            Bar(_path(own), ((own.rows or 0) / divisor,), number_text("rows", own.rows))
            for own in by_rows
        ]
        svg = bar_chart("partition-rows", bars, unit=unit)
        drawn.append(figure("Rows", "partitions with most rows", svg))
    yield charts(drawn)
    yield paragraph(
        "Growth and written records are those of the last ten writes. The last column compares the "
        "largest bucket with the mean of all buckets of the partition: 1 means that all are alike."
    )
    yield _table(
        "Partitions, largest first",
        [
            Column("partition_path", "partition", is_number=False),
            *_numbers(("size_bytes", "size"), ("share", "share"), ("rows", "rows")),
            *_numbers(("growth_bytes", "growth"), ("written", "written")),
            *_numbers(("file_groups", "file groups"), ("max_over_mean", "largest / mean")),
        ],
        [asdict(sizes) for sizes in found],
        rest="partition",
    )


def _buckets(report: TableReport) -> Iterator[str]:
    found = sorted(report.buckets, key=lambda bucket: -bucket.size_bytes)
    if not found:
        return
    by_writes = sorted(found, key=lambda bucket: -bucket.written)
    by_writes = [bucket for bucket in by_writes if bucket.written][:_BARS_MAX]
    drawn = [
        _byte_bars("bucket-bytes", "Bytes", "and share of the partition", found[:_BARS_MAX], _name)
    ]
    if by_writes:
        divisor, unit = count_unit(by_writes[0].written, "records")
        bars = [
            Bar(_name(own), (own.written / divisor,), number_text("rows", own.written))
            for own in by_writes
        ]
        svg = bar_chart("bucket-writes", bars, unit=unit)
        drawn.append(figure("Written records", "by the last ten writes, hottest buckets", svg))
    yield charts(drawn)
    rows = [
        asdict(own) | {"hash_values": _hash_values(own), "share_of_partition": own.share}
        for own in found
    ]
    has_hashes = any(row["hash_values"] for row in rows)
    hashes = [Column("hash_values", "hash values", is_number=False)] if has_hashes else []
    yield _table(
        "Buckets, largest first",
        [
            Column("partition_path", "partition", is_number=False),
            *_numbers(("bucket_id", "bucket")),
            *hashes,
            *_numbers(("size_bytes", "size"), ("share_of_partition", "share of partition")),
            *_numbers(("rows", "rows"), ("growth_bytes", "growth"), ("written", "written")),
            *_numbers(("log_files", "log files")),
        ],
        rows,
        rest="bucket",
    )


def _rings(report: TableReport) -> Iterator[str]:
    drawn, is_ring = [], False
    partitions = [sizes.partition_path for sizes in report.buckets.partitions[:_RINGS_MAX]]
    for number, path in enumerate(partitions):
        own = [bucket for bucket in report.buckets if bucket.partition_path == path]
        sectors = [sector for sector in map(_sector, own) if sector is not None]
        if not sectors:
            continue
        is_ring = own[0].hash_suffix is None
        largest = max(bucket.size_bytes for bucket in own)
        relative = [Sector(s.label, s.start, s.share, s.height / max(largest, 1)) for s in sectors]
        title, note = path or "The table", _count(len(own), "bucket")
        if is_ring:
            svg = ring_chart(f"ring-{number}", relative)
        else:
            divisor, unit = byte_unit(largest)
            svg = directory_chart(f"ring-{number}", relative, unit=unit, scale=largest / divisor)
        drawn.append(figure(title, note, svg))
    if not drawn:
        return
    if is_ring:
        yield paragraph(
            "Each partition has a hash ring. The angle of a bucket is its share of the hash "
            "values, its height is its size compared with the largest bucket, and the number is "
            "the bucket. A resize splits what is high, and merges small neighbours."
        )
    else:
        yield paragraph(
            "Each partition has a directory. The width of a bucket is its share of the hash "
            "values, its height is its size, and the label is the last bits of its hash values."
        )
    yield charts(drawn)
    left = len(report.buckets.partitions) - len(drawn)
    if left > 0:
        yield paragraph(f"Partitions that are not drawn: {left:,}.")


def _file_sizes(report: TableReport) -> Iterator[str]:
    bases = [b.size_bytes - b.log_bytes for b in report.buckets if b.path is not None]
    if not bases:
        return
    edges = [10**power for power in range(3, 11)]
    classes = [0] * (len(edges) + 1)
    for size in bases:
        classes[sum(size >= edge for edge in edges)] += 1
    used = [place for place, count in enumerate(classes) if count]
    sizes = [number_text("size_bytes", edge).replace(".0 ", " ") for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(sizes)]
    names = [f"less than {sizes[0]}", *between, f"{sizes[-1]} or more"]
    bars = [
        Bar(names[place], (classes[place],), number_text("files", classes[place]))
        for place in range(used[0], used[-1] + 1)
    ]
    svg = bar_chart("file-sizes", bars, unit="base files")
    yield charts([figure("Base files", "by size", svg)])
    logs = sum(bucket.log_bytes for bucket in report.buckets)
    rows: list[Row] = [
        {
            "kind": "base files",
            "files": len(bases),
            "smallest_bytes": min(bases),
            "median_bytes": int(median(bases)),
            "largest_bytes": max(bases),
            "total_bytes": sum(bases),
        },
        {
            "kind": "log files",
            "files": sum(bucket.log_files for bucket in report.buckets),
            "total_bytes": logs,
        },
    ]
    yield table(
        "Sizes of the files of the newest slices",
        [
            Column("kind", "files", is_number=False),
            *_numbers(("files", "number"), ("smallest_bytes", "smallest")),
            *_numbers(("median_bytes", "median"), ("largest_bytes", "largest")),
            *_numbers(("total_bytes", "total")),
        ],
        rows,
    )


def _logs(report: TableReport) -> Iterator[str]:
    waiting = [bucket for bucket in report.buckets if bucket.log_files]
    waiting.sort(key=lambda bucket: -bucket.log_bytes)
    if not waiting:
        return
    note = "buckets with most log bytes; share of the partition"
    yield charts([_byte_bars("log-bytes", "Base and log files", note, waiting[:_BARS_MAX], _name)])
    yield _table(
        "Log files, most bytes first",
        [
            Column("partition_path", "partition", is_number=False),
            *_numbers(("bucket_id", "bucket"), ("log_files", "log files")),
            *_numbers(("log_bytes", "log bytes"), ("size_bytes", "size with base file")),
        ],
        [asdict(bucket) for bucket in waiting],
        rest="bucket",
    )


def _timeline(report: TableReport) -> Iterator[str]:
    if not report.timeline:
        yield paragraph("No commit yet.")
        return
    commits = [entry for entry in report.timeline if entry.written_bytes is not None][-ROWS_MAX:]
    drawn = []
    if commits:
        services = [is_service(entry.operation or "") for entry in commits]
        ends = time_text(commits[0].requested_at), time_text(commits[-1].requested_at)
        divisor, unit = byte_unit(max(entry.written_bytes or 0 for entry in commits))
        values = [(entry.written_bytes or 0) / divisor for entry in commits]
        svg = commit_chart("commit-bytes", values, services, unit=unit, ends=ends)
        drawn.append(figure("Written", f"by each commit, in {unit}", svg))
        if any(entry.seconds for entry in commits):
            seconds = [entry.seconds or 0.0 for entry in commits]
            svg = commit_chart("commit-seconds", seconds, services, unit="seconds", ends=ends)
            drawn.append(figure("Duration", "from request to completion, in seconds", svg))
        yield charts(drawn)
    rows = [
        asdict(entry)
        | {
            "instant": entry.requested_at,
            "action": entry.action.value,
            "state": entry.state.name.lower(),
        }
        for entry in reversed(report.timeline)
    ]
    yield _table(
        "Instants of the active timeline, newest first",
        [
            Column("instant", f"requested ({report.zone})", is_number=False),
            *_texts("action", "operation", "state"),
            *_numbers(("written", "written"), ("deleted", "deleted")),
            *_numbers(("partitions", "partitions"), ("files", "files")),
            *_numbers(("written_bytes", "bytes"), ("seconds", "seconds")),
        ],
        rows,
    )


# ---- parts of sections --------------------------------------------------------------------------


def _table(caption: str, columns: Sequence[Column], rows: Sequence[Row], rest: str = "") -> str:
    """Return a table of the first rows; ``rest`` names what the row of the others sums up."""
    if len(rows) <= ROWS_MAX:
        return table(caption, columns, rows)
    caption = f"{caption}: {ROWS_MAX} of {len(rows):,}"
    if not rest:
        return table(caption, columns, rows[:ROWS_MAX])
    others = rows[ROWS_MAX:]
    sums: dict[str, object] = {columns[0].name: f"the other {_count(len(others), rest)}"}
    for name in _SUMMED:
        values = [row.get(name) for row in others]
        numbers = [value for value in values if isinstance(value, int | float)]
        if len(numbers) == len(values):
            sums[name] = sum(numbers)
    return table(caption, columns, rows[:ROWS_MAX], sums)


def _texts(*names: str) -> list[Column]:
    return [Column(name, name, is_number=False) for name in names]


def _numbers(*named: tuple[str, str]) -> list[Column]:
    return [Column(name, title) for name, title in named]


def _byte_bars(
    name: str,
    title: str,
    note: str,
    items: Sequence[_Sized],
    label: Callable[[_Sized], str],
) -> str:
    divisor, unit = byte_unit(max(item.size_bytes for item in items))
    has_logs = any(item.log_bytes for item in items)
    bars = [
        Bar(
            label(item),
            ((item.size_bytes - item.log_bytes) / divisor, item.log_bytes / divisor),
            f"{number_text('size_bytes', item.size_bytes)}, {item.share:.0%}",
        )
        for item in items
    ]
    svg = bar_chart(name, bars, unit=unit, series=_FILES if has_logs else ())
    return figure(title, note, svg)


def _path(sizes: PartitionSizes) -> str:
    return printable(sizes.partition_path) or "(the table)"


def _name(bucket: Bucket) -> str:
    own = (
        f"bucket {bucket.bucket_id}"
        if bucket.bucket_id is not None
        else bucket.file_id.partition("-")[0]
    )
    path = printable(bucket.partition_path)
    return f"{path}, {own}" if path else own


def _sector(bucket: Bucket) -> Sector | None:
    """Return the part of the hash values that a bucket has; its height is its size in bytes."""
    if bucket.hash_suffix is not None:
        bits = bucket.hash_suffix.strip("*")
        start = int(bits[::-1] or "0", 2) / 2 ** len(bits)
        return Sector(bucket.hash_suffix, start, 0.5 ** len(bits), bucket.size_bytes)
    if bucket.hash_range is None:
        return None
    held = HashRange(*bucket.hash_range)
    start = (held.start + 1) / 2**31 % 1
    return Sector(str(bucket.bucket_id), start, held.share, bucket.size_bytes)


def _hash_values(bucket: Bucket) -> str | None:
    if bucket.hash_suffix is not None:
        return f"ending in {bucket.hash_suffix}" if bucket.hash_suffix != "*" else "all"
    if bucket.hash_range is not None:
        return f"{HashRange(*bucket.hash_range).share:.1%} of the ring"
    return None


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
