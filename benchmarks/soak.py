"""What does not stay flat in hours of a table that everybody uses, with kill -9 at any time?

See `workloads/soak.py`. A run is a piece; further pieces with the same ``--state`` go on, and the
page covers all of them. The run fails unless each read shows the rows of a plain model, and the
doctor finds no error at the end of each piece.
"""

from __future__ import annotations

import signal
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.benchmark import Benchmark, Contender, Option, count
from benchmarks.common.figures import Result
from benchmarks.common.flatness import (
    QUARTERS,
    Sample,
    Tell,
    Told,
    field,
    lines_of_run,
    percentile_95,
    table_of_quarters,
)
from benchmarks.common.plot import BLUE, FAINT, ORANGE, OURS, Chart, Lines
from benchmarks.common.report import Page
from benchmarks.common.tables import listing
from benchmarks.common.turn import Measured, Turn, plain_work
from benchmarks.workloads.soak import FOLDERS, SAMPLE_SECONDS, Soak
from benchmarks.workloads.soak_parts import FILL, INGEST, PARTS, READER, SERVICES

NAME = "bucketlake"
ARCHIVES = ("archive", "archive of the metadata table")
"""They keep each commit for ever, so they are not judged."""


def seen(result: Result) -> Mapping[str, Any]:
    """Return what all pieces told; nothing if the last one did not end."""
    return result.first(NAME, "run")


def piece_until_told(turn: Turn) -> dict[str, Measured]:
    """Run a piece; SIGTERM ends it early, as if its time were over."""
    stop = Path(turn.settings["state"]) / "stop"
    before = signal.signal(signal.SIGTERM, lambda *_: stop.touch())
    try:
        return plain_work(turn)
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- what is told of a quarter ------------------------------------------------------------------


def of_kinds(what: str, *kinds: str, unit: float = 1) -> Tell:
    """Return what adds up files or bytes of some kinds."""
    return lambda sample: sum(sample[what][kind] for kind in kinds) / unit


def of_part(part: str, name: str, unit: float = 1) -> Tell:
    """Return what tells a value of a process; None while it does not run."""

    def tell(sample: Sample) -> float | None:
        value = sample["parts"].get(part, {}).get(name)
        return value / unit if value else None

    return tell


FLAT_KINDS = [kind for kind in ("base files", "log files", *FOLDERS) if kind not in ARCHIVES]
ROWS: Sequence[Told] = (
    ("seconds of a batch, median", "batches", field("seconds"), statistics.median, 2),
    ("seconds of a batch, p95", "batches", field("seconds"), percentile_95, 2),
    ("seconds of a snapshot, median", "reads", field("seconds"), statistics.median, 2),
    *((f"{kind}, files, most", "samples", of_kinds("files", kind), max, 0) for kind in FLAT_KINDS),
    ("bytes of all these, MB, most", "samples", of_kinds("bytes", *FLAT_KINDS, unit=1e6), max, 1),
    ("location cache, files, most", "samples", of_kinds("files", "location cache"), max, 0),
    ("location cache, MB, most", "samples", of_kinds("bytes", "location cache", unit=1e6), max, 2),
    *(
        (f"memory of `{part}`, MB, median", "samples",
         of_part(part, "python_bytes", 1e6), statistics.median, 0)
        for part in PARTS
    ),
    ("open handles of `ingest`, median", "samples", of_part(INGEST, "handles"),
     statistics.median, 0),
)  # fmt: skip
PLAIN: Sequence[Told] = (
    *((f"{kind}, files, most", "samples", of_kinds("files", kind), max, 0) for kind in ARCHIVES),
    ("bytes of the archives, MB, most", "samples",
     of_kinds("bytes", *ARCHIVES, unit=1e6), max, 2),
    ("memory of Hudi's JVM, MB, median", "samples", field("hudi_bytes", 1e6),
     statistics.median, 0),
    ("minutes", "samples", lambda _: 1.0, lambda found: len(found) * SAMPLE_SECONDS / 60, 0),
)  # fmt: skip


def flatness(result: Result) -> str:
    """Tell the figures of the quarters of all commits, and judge the last one by the first."""
    run = seen(result)
    if not run:
        return ""
    samples = run["samples"]
    # The first minutes fill what is kept for some commits, whatever the length of the run.
    begun = [each for each in samples if each["at"] >= 60 * result.settings["filling_minutes"]]
    if not begun:
        return ""
    times = [each["at"] for each in samples]
    first, last = begun[0]["commits"], samples[-1]["commits"]

    def quarter_of(value: Sample) -> int:
        sample = samples[min(bisect_left(times, value["at"]), len(samples) - 1)]
        return int((sample["commits"] - first) * QUARTERS // (last - first + 1))

    text = (
        f"Each quarter has as many commits, {(last - first) // QUARTERS:,}, from minute "
        f"{result.settings['filling_minutes']:g} on. Files, memory and handles are looked at each "
        f"{SAMPLE_SECONDS} seconds. A clean leaves files of remembered deletes and ledgers for an "
        "hour, so these follow the commits of an hour. The archives keep each commit for ever, as "
        "Hudi's do."
    )
    parts = {name: run[name] for name in ("samples", "batches", "reads")}
    return table_of_quarters(text, parts, quarter_of, ROWS, PLAIN)


# ---- the rest of the page -----------------------------------------------------------------------


def summary(result: Result) -> str:
    """Tell what was written, read and killed."""
    run = seen(result)
    if not run:
        return ""
    kills = Counter(each["part"] for each in run["kills"])
    told = ", ".join(f"`{part}` {number} times" for part, number in sorted(kills.items()))
    commits, turns = run["samples"][-1]["commits"], run["turns"]
    return (
        f"**Each of {len(run['reads']):,} snapshots showed the rows of the model**, beside "
        f"{commits:,} commits in {run['samples'][-1]['at'] / 60:.0f} minutes, and so did both "
        f"programs before and after each of {len(turns)} turns of Hudi. Killed and started again: "
        f"{told or 'nothing'}. Hudi's write failed by itself {len(run.get('failures', ()))} times, "
        f"and was repeated. There were {run['changes']['stream']:,} files of the stream, "
        f"{run['changes']['backfill']:,} batches of older rows, {run['changes']['hudi']:,} upserts "
        f"by Hudi, and {run['services'].get('compact', 0):,} rounds of the services beside the "
        "upkeep of the writers."
    )


def pieces(result: Result) -> str:
    """Tell of each piece."""
    run, rows = seen(result), []
    ends = {each["piece"]: each for each in run.get("ends", [])}
    for piece in run.get("pieces", []):
        number = piece["piece"]
        held = [each for each in run["samples"] if each["piece"] == number]
        end = ends.get(number)
        if not held:
            continue
        findings = Counter(end["findings"] if end else ())
        rows.append([
            str(number),
            f"{(held[-1]['at'] - piece['base']) / 60:.0f}",
            f"{held[-1]['commits'] - held[0]['commits']:,}",
            str(sum(piece["base"] <= each["at"] <= held[-1]["at"] for each in run["kills"])),
            f"{sum(held[-1]['files'][kind] for kind in FLAT_KINDS):,}",
            "equal" if end else "killed",
            f"{len(findings)} leftovers" if findings else "none",
        ])  # fmt: skip
    heads = ["piece", "minutes", "commits", "kills", "files at its end"]
    return listing("The pieces", "", [*heads, "<both programs' rows", "<doctor"], rows)


lines = lines_of_run(seen)
PANELS = [
    Lines(
        "files of the table",
        lines(
            ("base files", "samples", of_kinds("files", "base files"), OURS),
            ("log files", "samples", of_kinds("files", "log files"), ORANGE),
            ("timeline", "samples", of_kinds("files", "timeline"), BLUE),
        ),
        ("minute", "number"),
    ),
    Lines(
        "files below .hoodie",
        lines(
            ("metadata table", "samples", of_kinds("files", "metadata table"), OURS),
            ("its timeline", "samples", of_kinds("files", "timeline of the metadata table"), BLUE),
            ("remembered deletes", "samples", of_kinds("files", "remembered deletes"), ORANGE),
            ("ledgers", "samples", of_kinds("files", "ledgers"), FAINT),
        ),
        ("minute", "number"),
    ),
    Lines(
        "memory",
        lines(
            ("ingest", "samples", of_part(INGEST, "python_bytes", 1e6), OURS),
            ("services", "samples", of_part(SERVICES, "python_bytes", 1e6), ORANGE),
            ("older rows", "samples", of_part(FILL, "python_bytes", 1e6), BLUE),
            ("reader", "samples", of_part(READER, "python_bytes", 1e6), FAINT),
        ),
        ("minute", "MB"),
    ),
    Lines(
        "time of a batch",
        lines(("a commit with its services", "batches", field("seconds"), FAINT)),
        ("minute", "seconds"),
    ),
]

BENCHMARK = Benchmark(
    name="soak",
    description="A table that a stream, a backfill, services, readers and Hudi use, while all are "
    "killed. A second run with the same --state goes on: pieces of --minutes 20, for hours.",
    contenders=(Contender(NAME, Soak, steps=("run",), turn=piece_until_told, once=True),),
    orders=False,
    options=[
        Option("--minutes", float, 20.0, "time of this piece"),
        Option("--state", str, "build/soak/state", "folder from which the piece goes on"),
        Option("--seed", int, 1, "what the changes and the kills follow from"),
        Option("--kills", count, 12, "processes that are killed, one after another"),
        Option("--rate", count, 15, "rows of the stream in a second"),
        Option("--turn-minutes", float, 5.0, "time from one turn of Hudi to the next"),
        Option("--filling-minutes", float, 10.0, "minutes of the first piece before its quarters"),
    ],
    defaults={"rows": 8_000, "rounds": 1, "warmup_rounds": 0},
    quick={
        "rows": 1_000,
        "warmup_rounds": 0,
        "minutes": 2.0,
        "kills": 4,
        "turn_minutes": 1.0,
        "filling_minutes": 0.5,
        "state": "build/soak/quick-state",
    },
    page=Page(
        title="Benchmark of a soak",
        text="A merge-on-read table with dynamic buckets is used by everybody at once, for hours: "
        '`bl.ingest` takes a [landing zone](../how-to/landing-folder.md) with `upkeep="auto"`, a '
        "backfill upserts older rows, a process compacts, cleans and archives once more, and a "
        "reader compares snapshots with a model in SQLite. Every few minutes Hudi's Spark writer "
        "[takes a turn](../how-to/share-a-table-with-hudi.md). Processes are killed by SIGKILL at "
        "random moments, Hudi's writer among them.",
        image="Files, memory and time of the batches, by minute",
        head="Pieces of up to 20 minutes",
        blocks=[
            lambda result: (
                f"{result.row_count:,} keys, a fifth of the changes deletes; a file of "
                f"{result.settings['rate']} rows each second, and a turn of Hudi after "
                f"{result.settings['turn_minutes']:g} minutes."
            ),
            summary,
            flatness,
            pieces,
        ],
        chart=Chart("A soak", PANELS, bars=6),
    ),
)
