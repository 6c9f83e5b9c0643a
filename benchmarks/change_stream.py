"""Does a table equal a database after an hour of random changes, while every part is killed?

Two tables of Postgres change at a steady rate; Debezium and Kafka carry the changes, and
``bucketlake ingest`` keeps a merge-on-read table of dynamic buckets for each, with its services
(`workloads/followed_database.py`). At random moments one part is killed and started again. The run
fails unless both tables equal the database at its end, row by row. The page judges what must stay
as it was by the first and the last quarter of the time.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.common.benchmark import Benchmark, Contender, Option, count
from benchmarks.common.figures import Result
from benchmarks.common.flatness import (
    QUARTERS,
    Sample,
    Told,
    field,
    lines_of_run,
    percentile_95,
    table_of_quarters,
)
from benchmarks.common.plot import BLUE, FAINT, ORANGE, OURS, Chart, Lines
from benchmarks.common.report import Page
from benchmarks.common.tables import listing
from benchmarks.common.turn import plain_work
from benchmarks.workloads.followed_database import SAMPLE_SECONDS, TABLES, FollowedDatabase

NAME = "bucketlake"
SETTLED_SECONDS = 120
"""A job that was started so long ago has read, written and compacted."""


def seen(result: Result) -> Mapping[str, Any]:
    """Return what the run told; nothing if it did not end."""
    return result.first(NAME, "run")


def parts_of(result: Result) -> Mapping[str, Sequence[Sample]]:
    """Return batches, samples, those of a job that runs for a while, and use of the machine."""
    run, began = seen(result), dict[int, float]()
    settled = []
    for each in run["samples"]:
        began.setdefault(each["job"], each["at"])
        if each["at"] - began[each["job"]] >= SETTLED_SECONDS:
            settled.append(each)
    machine = [
        {"at": b["at"], "busy": 100 * (b["machine"] - a["machine"]) / (b["at"] - a["at"])}
        for a, b in pairwise(run["samples"])
    ]
    kept = {"batches": run["batches"], "samples": run["samples"]}
    return {**kept, "settled": settled, "machine": machine}


# ---- what is told of a quarter ------------------------------------------------------------------


METADATA = ("metadata_files", "metadata_timeline_files")


def files(*kinds: str) -> Callable[[Sample], float]:
    """Return what adds up the files of some kinds over the tables."""
    return lambda sample: sum(each.get(kind, 0) for each in sample["tables"] for kind in kinds)


def others(sample: Sample) -> float:
    """Return how many files of ``.hoodie`` are none of the timelines and metadata tables."""
    known = files("timeline_files", "archive_files", *METADATA)(sample)
    return files("hoodie_files")(sample) - known


ROWS: Sequence[Told] = (
    ("seconds of a batch, median", "batches", field("seconds"), statistics.median, 2),
    ("seconds of a batch, p95", "batches", field("seconds"), percentile_95, 2),
    ("lag, messages, median", "samples", field("lag"), statistics.median, 0),
    ("base files, most", "samples", files("data_files"), max, 0),
    ("log files, most", "samples", files("log_files"), max, 0),
    ("files of the timelines, most", "samples", files("timeline_files"), max, 0),
    ("files of the metadata tables, most", "samples", files(*METADATA), max, 0),
    ("other files of `.hoodie`, most", "samples", others, max, 0),
    ("bytes of `.hoodie`, MB, most", "samples", lambda s: files("hoodie_bytes")(s) / 1e6, max, 1),
    ("memory of Python, MB, median", "settled", field("python_bytes", 1e6), statistics.median, 0),
    ("memory of the JVM, MB, median", "settled", field("jvm_bytes", 1e6), statistics.median, 0),
    ("open handles, median", "settled", field("handles"), statistics.median, 0),
)
PLAIN: Sequence[Told] = (
    ("commits", "batches", field("seconds"), len, 0),
    ("messages in a batch, median", "batches", field("rows"), statistics.median, 0),
    ("lag, messages, most", "samples", field("lag"), max, 0),
    ("machine in use, by anybody, %, median", "machine", field("busy"), statistics.median, 0),
)
"""Not judged: what follows from the load, and from how long a part was away."""


def flatness(result: Result) -> str:
    """Tell the figures of the quarters, and judge the last one by the first."""
    if not seen(result):
        return ""
    text = (
        f"Seconds are those of each commit with the services after it; the rest is seen each "
        f"{SAMPLE_SECONDS} seconds, of both tables together. Memory and handles are those of a job "
        f"that was started {SETTLED_SECONDS} seconds ago or more. A metadata table keeps what is "
        "younger than five minutes, and a clean leaves files of remembered deletes for an hour, so "
        "these follow the commits of that time."
    )
    length = 60 * result.settings["minutes"] / QUARTERS
    return table_of_quarters(
        text, parts_of(result), lambda each: int(each["at"] // length), ROWS, PLAIN
    )


# ---- the rest of the page -----------------------------------------------------------------------


def summary(result: Result) -> str:
    """Tell what was changed, killed and found."""
    run = seen(result)
    if not run:
        return ""
    kills = Counter(each["part"] for each in run["kills"])
    told = ", ".join(f"{part} {number} times" for part, number in sorted(kills.items()))
    ended = len(run["ended"])
    return (
        f"**Both tables equal the database, row by row**, {run['equal_after']:.0f} seconds after "
        f"its last change, and after {run['rows_changed']:,} changed rows "
        f"({run['rows_changed'] / 60 / result.settings['minutes']:.0f} a second) in "
        f"{len(run['batches']):,} commits. Killed and started again: {told}. The job ended by "
        f"itself {ended} times{', and was started again' if ended else ''}."
    )


def tables(result: Result) -> str:
    """Tell rows, dead letters and findings of the tables."""
    rows = []
    for each in seen(result).get("tables", []):
        letters = Counter(each["dead_letters"])
        reasons = "; ".join(f"{number}: {text}" for text, number in letters.items()) or "none"
        findings = "; ".join(each["findings"]) or "none"
        data, log = (f"{each['files'][kind]:,}" for kind in ("data_files", "log_files"))
        rows.append([each["name"], f"{each['rows']:,}", data, log, reasons, findings])
    heads = ["<table", "rows", "base files", "log files", "<dead letters", "<doctor"]
    return listing("The tables at the end", "", heads, rows)


def ended(result: Result) -> str:
    """Tell why the job ended by itself."""
    rows = [
        [f"{each['at'] / 60:.1f}", each["words"].strip().splitlines()[-1].replace("|", "/")]
        for each in seen(result).get("ended", [])
    ]
    return listing("Ends of the job that nobody asked for", "", ["minute", "<last line"], rows)


lines = lines_of_run(seen)

PANELS = [
    Lines("lag", lines(("messages", "samples", field("lag"), OURS)), ("minute", "messages")),
    Lines(
        "time of a batch",
        lines(("a commit with its services", "batches", field("seconds"), FAINT)),
        ("minute", "seconds"),
    ),
    Lines(
        "files",
        lines(
            ("base files", "samples", files("data_files"), OURS),
            ("log files", "samples", files("log_files"), ORANGE),
            ("timelines", "samples", files("timeline_files"), BLUE),
            ("all of .hoodie", "samples", files("hoodie_files"), FAINT),
        ),
        ("minute", "number"),
    ),
    Lines(
        "memory of the job",
        lines(
            ("JVM", "samples", field("jvm_bytes", 1e6), ORANGE),
            ("Python", "samples", field("python_bytes", 1e6), OURS),
        ),
        ("minute", "MB"),
    ),
]

BENCHMARK = Benchmark(
    name="change_stream",
    description="A random database followed through Debezium and Kafka while all parts are "
    "killed. The figures of the page: --minutes 60 --kills 20 --rate 15.",
    contenders=(Contender(NAME, FollowedDatabase, steps=("run",), once=True),),
    turn=plain_work,
    orders=False,
    options=[
        Option("--minutes", float, 60.0, "time of the run"),
        Option("--seed", int, 1, "what the changes and the kills follow from"),
        Option("--kills", count, 20, "parts that are killed, one after another"),
        Option("--rate", count, 15, "rows that the database changes in a second"),
    ],
    defaults={"rows": 5_000, "rounds": 1, "warmup_rounds": 0},
    quick={"rows": 1_000, "warmup_rounds": 0, "minutes": 2.0, "kills": 4, "rate": 30},
    page=Page(
        title="Benchmark of a followed database",
        text="Two tables of Postgres change at random; Debezium and Kafka carry the changes, and "
        "one `bucketlake ingest` keeps a merge-on-read table with dynamic buckets and "
        '`upkeep="auto"` for each ([follow a database](../how-to/follow-a-database.md)). Broker, '
        "connector, database and job are killed at random moments and started again.",
        image="Lag, time of the batches, files and memory, by minute",
        head="{minutes:g} minutes of random changes and kills",
        blocks=[
            lambda result: (
                f"Tables of {result.row_count:,} rows ({', '.join(TABLES)}): inserts, updates, "
                "deletes, new keys, new partitions, texts of 3 to 6 kB that updates of `lines` "
                "leave out, transactions that are rolled back, columns that come and go."
            ),
            summary,
            flatness,
            tables,
            ended,
        ],
        chart=Chart("A followed database", PANELS, bars=6),
    ),
)
