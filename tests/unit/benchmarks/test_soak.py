"""The soak: its model of the rows, and the page that judges equal numbers of commits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from benchmarks.soak import BENCHMARK
from benchmarks.workloads.soak import FOLDERS
from benchmarks.workloads.soak_events import BACKFILL, HUDI, STREAM, Events, differences
from benchmarks.workloads.soak_parts import PARTS
from tests.unit.benchmarks.pages import contender, content, measured, page_of


@pytest.fixture
def events(tmp_path: Path) -> Events:
    made = Events(tmp_path / "events.sqlite", 40)
    made.load()
    drawn = random.Random(7)
    for _ in range(4):
        for source in (STREAM, BACKFILL, HUDI):
            made.draw(source, 15, drawn)
    return made


def test_the_model_follows_a_table_whatever_the_order_of_the_batches(
    events: Events, tmp_path: Path
) -> None:
    table = bl.create_table(
        str(tmp_path / "table"), schema=events.rows_of(STREAM, 1).schema, record_key="id",
        partition_by="region", ordering="ts", table_type="merge_on_read",
    )  # fmt: skip
    batches = [(STREAM, n) for n in range(1, 6)] + [(BACKFILL, n) for n in range(1, 5)]
    random.Random(3).shuffle(batches)
    newest = dict.fromkeys((STREAM, BACKFILL), 0)
    for source, number in batches:
        table.upsert(events.rows_of(source, number))
        newest[source] = max(newest[source], number)
    assert differences(table.to_arrow(), events) == []
    assert events.expected({**newest, HUDI: 0}) != events.expected(events.newest())


def test_a_row_that_is_lost_old_or_there_twice_is_a_difference(events: Events) -> None:
    shown = events.newest()
    rows = [{"id": k, "ts": ts, "v": v} for k, (ts, v) in events.expected(shown).items()]
    rows += [{"id": f"marker-{source}", "ts": n, "v": n} for source, n in shown.items()]
    assert differences(pa.Table.from_pylist(rows), events) == []
    lost, old = rows[1:], [{**rows[0], "ts": 0}, *rows[1:]]
    for wrong in (lost, old, [*rows, rows[0]]):
        assert len(differences(pa.Table.from_pylist(wrong), events)) == 2


def result(growth: float) -> dict[str, Any]:
    """Return a run whose second half has ten times the commits of the first."""
    kinds = ("base files", "log files", "location cache", *FOLDERS)
    samples = []
    for number in range(200):
        commits = number if number < 100 else 100 + 10 * (number - 100)
        files = dict.fromkeys(kinds, 10) | {"turns": round(10 + growth * commits)}
        part = {"python_bytes": 10**8, "handles": 9}
        samples.append({
            "piece": 1, "at": 20.0 * number, "commits": commits, "hudi_bytes": None,
            "parts": dict.fromkeys(PARTS, part), "files": files, "bytes": files,
        })  # fmt: skip
    run = measured(
        1.0,
        samples=samples,
        batches=[{"at": each["at"], "seconds": 1.0, "rows": 3} for each in samples],
        reads=[{"at": 5.0, "seconds": 0.5}],
        pieces=[{"piece": 1, "base": 0.0}],
        ends=[{"piece": 1, "findings": []}],
        kills=[{"at": 9.0, "part": "ingest"}],
        turns=[{"at": 9.0}],
        services={"compact": 3},
        changes={"stream": 3, "backfill": 2, "hudi": 1},
    )
    settings = {"minutes": 20.0, "rate": 15, "turn_minutes": 5.0, "filling_minutes": 10.0}
    return content({"bucketlake": contender({"run": run})}, **settings)


@pytest.mark.parametrize(("growth", "verdict"), [(0.0, "met"), (0.1, "**missed**")])
def test_the_page_compares_quarters_with_as_many_commits(growth: float, verdict: str) -> None:
    page = page_of(BENCHMARK, result(growth))
    assert "Each quarter has as many commits, 265" in page
    (row,) = (line for line in page.splitlines() if line.startswith("| turns, files"))
    assert row.endswith(f"| {verdict} |")
    assert "| 1 | 66 | 1,090 | 1 |" in page
