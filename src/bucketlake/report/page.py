"""The page of a report: one file without scripts, and without anything from a network.

Each section has its charts, and beside them the numbers as tables. Tables and charts have the
largest items only, and a row that sums up the others, so the page stays small for a table of many
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from itertools import pairwise
from statistics import median
from typing import TypeVar

from bucketlake.errors import TimelineError
from bucketlake.format.commit_metadata import is_service
from bucketlake.hashing.ring import HashRange
from bucketlake.model.text_table import cell_text, printable
from bucketlake.read.buckets import Bucket, Buckets, PartitionSizes, list_buckets
from bucketlake.read.handle import Handle
from bucketlake.read.history import TimelineEntry, list_history
from bucketlake.read.overview import TableOverview, table_overview
from bucketlake.report.charts import (
    Bar,
    Sector,
    bar_chart,
    commit_chart,
    directory_chart,
    growth_chart,
    ring_chart,
)
from bucketlake.services.advice.advice import AdviceList
from bucketlake.services.advice.rules import advise_table
from bucketlake.services.advice.workload import TARGET_FILE_SIZE_DEFAULT, counted
from bucketlake.services.check.doctor import diagnose
from bucketlake.services.check.findings import Findings
from bucketlake.timeline.instant import State, instant_to_datetime

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
            ("file groups", f"{seen.file_groups:,} in {counted(seen.partitions, 'partition')}"),
            ("last commit", last),
            ("report made", f"{report.made_at:%Y-%m-%d %H:%M:%S} UTC"),
        ]
    )


def _attention(report: TableReport) -> Iterator[str]:
    yield paragraph(f"Doctor: {report.findings.summary}.")
    if report.findings:
        names = ("severity", "kind", "partition", "meaning", "repair")
        found = [{name: getattr(finding, name) for name in names} for finding in report.findings]
        yield _table("Findings, worst first", _columns(" ".join(names)), found)
    if report.findings.not_checked:
        yield paragraph(f"Not checked: {', '.join(report.findings.not_checked)}.")
    changes = report.advice.changes
    if changes:
        columns = _columns("subject now advised reason call command")
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
            f"Log files: {counted(sum(b.log_files for b in waiting), 'log file')} of "
            f"{number_text('size_bytes', sum(b.log_bytes for b in waiting))} in "
            f"{counted(len(waiting), 'file group')}. Each read merges them, until table.compact() "
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
        _columns(
            "completed_at rows size_bytes log_bytes file_groups",
            completed_at=f"completed ({report.zone})",
            log_bytes="log files",
        ),
        [asdict(size) for size in reversed(sizes)],
    )


def _partitions(report: TableReport) -> Iterator[str]:
    found = sorted(report.buckets.partitions, key=lambda sizes: -sizes.size_bytes)
    if not found:
        yield paragraph(_NO_FILES)
        return
    drawn = [_byte_bars("partition-bytes", "Bytes", "and share of the table", found, _path)]
    known = [(_path(sizes), sizes.rows) for sizes in found if sizes.rows is not None]
    drawn += _count_bars("partition-rows", "Rows", "partitions with most rows", known, "rows")
    yield charts(drawn)
    yield paragraph(
        "Growth and written records are those of the last ten writes. The last column compares the "
        "largest bucket with the mean of all buckets of the partition: 1 means that all are alike."
    )
    yield _table(
        "Partitions, largest first",
        _columns(
            "partition_path size_bytes share rows growth_bytes written file_groups max_over_mean"
        ),
        [asdict(sizes) for sizes in found],
        rest="partition",
    )


def _buckets(report: TableReport) -> Iterator[str]:
    found = sorted(report.buckets, key=lambda bucket: -bucket.size_bytes)
    if not found:
        return
    written = [(_name(bucket), bucket.written) for bucket in found if bucket.written]
    note = "by the last ten writes, hottest buckets"
    yield charts(
        [
            _byte_bars("bucket-bytes", "Bytes", "and share of the partition", found, _name),
            *_count_bars("bucket-writes", "Written records", note, written, "records"),
        ]
    )
    rows = [
        asdict(own) | {"hash_values": _hash_values(own), "share_of_partition": own.share}
        for own in found
    ]
    hashes = "hash_values " if any(row["hash_values"] for row in rows) else ""
    yield _table(
        "Buckets, largest first",
        _columns(
            f"partition_path bucket_id {hashes}size_bytes share_of_partition rows growth_bytes "
            "written log_files"
        ),
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
        title, note = path or "The table", counted(len(own), "bucket")
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
        _columns(
            "kind files smallest_bytes median_bytes largest_bytes total_bytes",
            kind="files",
            files="number",
        ),
        rows,
    )


def _logs(report: TableReport) -> Iterator[str]:
    waiting = [bucket for bucket in report.buckets if bucket.log_files]
    waiting.sort(key=lambda bucket: -bucket.log_bytes)
    if not waiting:
        return
    note = "buckets with most log bytes; share of the partition"
    yield charts([_byte_bars("log-bytes", "Base and log files", note, waiting, _name)])
    yield _table(
        "Log files, most bytes first",
        _columns(
            "partition_path bucket_id log_files log_bytes size_bytes",
            log_bytes="log bytes",
            size_bytes="size with base file",
        ),
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
    rows = [asdict(entry) | entry.facts() for entry in reversed(report.timeline)]
    yield _table(
        "Instants of the active timeline, newest first",
        _columns(
            "instant action operation state written deleted partitions files written_bytes seconds",
            instant=f"requested ({report.zone})",
            written_bytes="bytes",
        ),
        rows,
    )


# ---- parts of sections --------------------------------------------------------------------------


def _table(caption: str, columns: Titles, rows: Sequence[Row], rest: str = "") -> str:
    """Return a table of the first rows; ``rest`` names what the row of the others sums up."""
    if len(rows) <= ROWS_MAX:
        return table(caption, columns, rows)
    caption = f"{caption}: {ROWS_MAX} of {len(rows):,}"
    if not rest:
        return table(caption, columns, rows[:ROWS_MAX])
    others = rows[ROWS_MAX:]
    sums: dict[str, object] = {next(iter(columns)): f"the other {counted(len(others), rest)}"}
    for name in _SUMMED:
        values = [row.get(name) for row in others]
        numbers = [value for value in values if isinstance(value, int | float)]
        if len(numbers) == len(values):
            sums[name] = sum(numbers)
    return table(caption, columns, rows[:ROWS_MAX], sums)


def _columns(names: str, **titles: str) -> Titles:
    """Return the titles of columns; one that is not given is the name, in words."""
    shown = {**_TITLES, **titles}
    words = {name: name.removesuffix("_bytes").replace("_", " ") for name in names.split()}
    return {name: shown.get(name, own) for name, own in words.items()}


def _byte_bars(
    name: str, title: str, note: str, items: Sequence[_Sized], label: Callable[[_Sized], str]
) -> str:
    items = items[:_BARS_MAX]
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


def _count_bars(
    name: str, title: str, note: str, counts: Sequence[tuple[str, int]], what: str
) -> list[str]:
    """Return the chart of the greatest counts; none without counts."""
    if not counts:
        return []
    most = sorted(counts, key=lambda each: -each[1])[:_BARS_MAX]
    divisor, unit = count_unit(most[0][1], what)
    bars = [Bar(label, (count / divisor,), number_text("rows", count)) for label, count in most]
    return [figure(title, note, bar_chart(name, bars, unit=unit))]


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


# ---- The parts of a page as HTML that is also well-formed XML, and numbers as people read them ---
#
# All text is escaped here.

Row = Mapping[str, object]

Titles = Mapping[str, str]
"""Titles of the columns of a table, by the name of their values in a row."""

_TITLES = {"partition_path": "partition", "bucket_id": "bucket", "max_over_mean": "largest / mean"}
_SENTENCES = ("meaning", "reason", "repair", "call", "command")
_TEXTS = (
    "partition_path partition hash_values kind severity subject now advised instant completed_at "
    "action operation state"
).split()


def text(value: object) -> str:
    """Return a value as the text of an element."""
    return escape(printable(str(value)))


def paragraph(words: object) -> str:
    """Return a paragraph."""
    return f"<p>{text(words)}</p>"


def facts_list(facts: Iterable[tuple[str, object]]) -> str:
    """Return names with values."""
    lines = (f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in facts)
    return f"<dl>{''.join(lines)}</dl>"


def table(caption: str, columns: Titles, rows: Sequence[Row], rest: Row | None = None) -> str:
    """Return a table; ``rest`` is a last row that sums up what is not shown."""
    head = "".join(f'<th scope="col"{_class(n)}>{text(t)}</th>' for n, t in columns.items())
    lines = [f"<tr>{_cells(columns, row)}</tr>" for row in rows]
    if rest is not None:
        lines.append(f'<tr class="rest">{_cells(columns, rest)}</tr>')
    return (
        f'<div class="scroll"><table><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def figure(title: str, note: str, svg: str) -> str:
    """Return a chart with its title and what it shows."""
    label = text(f"{title}: {note}")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    caption = f"<b>{text(title)}</b> {text(note)}"
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"


def charts(figures: Iterable[str]) -> str:
    """Return charts beside each other, as far as the page is wide."""
    return f'<div class="charts">{"".join(figures)}</div>'


def section(anchor: str, title: str, parts: Iterable[str]) -> str:
    """Return a section with a title."""
    inner = "\n".join(parts)
    return f'<section id="{anchor}">\n<h2>{text(title)}</h2>\n{inner}\n</section>'


def _cells(columns: Titles, row: Row) -> str:
    values = ((name, number_text(name, row.get(name))) for name in columns)
    return "".join(f"<td{_class(name)}>{text(value)}</td>" for name, value in values)


def _class(name: str) -> str:
    if name in _SENTENCES:
        return ' class="words"'
    return "" if name in _TEXTS else ' class="number"'


# ---- Numbers as people read them: sizes, counts, shares, times -----------------------------------

NOTHING = "–"

_BYTES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "bytes"))

_COUNTS = ((10**9, "billion "), (10**6, "million "), (10**3, "thousand "), (1, ""))


def byte_unit(most: float) -> tuple[int, str]:
    """Return the divisor and the name of the unit for sizes up to a greatest one.

    >>> byte_unit(2_500_000), byte_unit(0)
    ((1000000, 'MB'), (1, 'bytes'))
    """
    return next((unit for unit in _BYTES if most >= unit[0]), _BYTES[-1])


def count_unit(most: float, what: str) -> tuple[int, str]:
    """Return the divisor and the name of the unit for counts up to a greatest one.

    >>> count_unit(25_000_000, "rows"), count_unit(9_999, "rows")
    ((1000000, 'million rows'), (1, 'rows'))
    """
    divisor, word = next((unit for unit in _COUNTS if most >= 10 * unit[0]), _COUNTS[-1])
    return divisor, f"{word}{what}"


def number_text(name: str, value: object) -> str:
    """Return a value of a table: its name says what it is.

    >>> number_text("size_bytes", 1500), number_text("rows", 1500), number_text("share", 0.25)
    ('1.5 kB', '1,500', '25.0%')
    """
    if value is None or value == "":
        return NOTHING
    if name in ("instant", "completed_at"):
        return time_text(str(value))
    if name.startswith("share") and isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith("_bytes"):
        return f"{value:,}"
    return printable(value) if isinstance(value, str) else cell_text(name, value)


def time_of(instant: str) -> datetime | None:
    """Return the time of an instant, on its clock; None if its digits are a counter."""
    try:
        return instant_to_datetime(instant)
    except TimelineError:
        return None


def time_text(instant: str) -> str:
    """Return the time of an instant for people.

    >>> time_text("20240102030405678")
    '2024-01-02 03:04:05'
    """
    at = time_of(instant)
    return instant if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


# ---- What a report shows: results of the calls of a table, all for one pinned state --------------


@dataclass(frozen=True, slots=True)
class TableReport:
    """The facts of a report.

    Attributes
    ----------
    overview : TableOverview
    buckets : Buckets
        What ``Table.buckets`` returns.
    timeline : sequence of TimelineEntry
        What ``Table.timeline`` returns.
    findings : Findings
        What ``Table.doctor`` returns.
    advice : AdviceList
        What ``Table.advise`` returns.
    zone : str
        Time zone of the timeline, in words.
    made_at : datetime
        When the facts were read.
    """

    overview: TableOverview
    buckets: Buckets
    timeline: Sequence[TimelineEntry]
    findings: Findings
    advice: AdviceList
    zone: str
    made_at: datetime


def table_report(handle: Handle) -> TableReport:
    """Read the facts of a table; no data file is read."""
    snapshot = handle.snapshot()
    index = handle.index_of(snapshot)
    return TableReport(
        overview=table_overview(handle.address, snapshot, index),
        buckets=list_buckets(snapshot, index),
        timeline=list_history(snapshot.storage, snapshot.timeline),
        findings=diagnose(handle.storage, handle.index),
        advice=advise_table(handle, snapshot, index, TARGET_FILE_SIZE_DEFAULT),
        zone="UTC" if snapshot.config.timeline_timezone == "UTC" else "local time",
        made_at=datetime.now(UTC),
    )
