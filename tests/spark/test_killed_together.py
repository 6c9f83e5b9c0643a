"""Two Spark writers and a compactor on one table, killed at random: nothing is lost or doubled.

Four rounds by default; BUCKETLAKE_LONG=200 asks for more. In each one of the three dies by SIGKILL,
its Spark with it, and is started again while the others go on. The writers' streams repeat the
batch that they had no answer for. A driver that is killed alone, in two rounds by default, leaves
each batch written or not.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import bucketlake as bl
from bucketlake.actions.tombstone_list import BATCHES
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import opened_table
from tests.spark.drivers.common import (
    BUCKETS,
    SCHEMA,
    batch_of,
    left_over,
    make_table,
    rows_of_round,
    table_rows,
)
from tests.spark.drivers.common import model_of as model_of_rounds
from tests.spark.processes import kill_group, start_driver, tail
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROUNDS = int(os.environ.get("BUCKETLAKE_LONG", "4"))
ALONE_ROUNDS = int(os.environ.get("BUCKETLAKE_LONG", "2"))
WRITERS = ("one", "two")

Row = tuple[str, str, int, int]


def returned(folder: Path, name: str) -> int:
    """Return the last batch of a stream whose write returned; -1 before the first."""
    log = folder / f"{name}.log"
    lines = log.read_text().split() if log.exists() else []
    return int(lines[-1]) if lines else -1


def model_of(name: str, last: int) -> set[Row]:
    held = {row[0]: row for number in range(last + 1) for row in batch_of(name, number)}
    return set(held.values())


def check(table: bl.Table, folder: Path) -> None:
    """Read the table: each stream is there up to a batch that had, or could have, returned."""
    before = {name: returned(folder, name) for name in WRITERS}
    found = table.to_arrow().to_pylist()
    rows = {(row["id"], row["part"], row["ts"], row["v"]) for row in found}
    assert len({row["id"] for row in found}) == len(found), "a row is there twice"
    for name in WRITERS:
        own = {row for row in rows if row[0].startswith(name)}
        # The one that had no answer yet may be there, and what came since the log was read.
        possible = range(before[name], returned(folder, name) + 2)
        assert any(own == model_of(name, last) for last in possible), f"{name}: {possible}"


def test_writers_and_a_compactor_killed_at_random_lose_and_double_nothing(tmp_path: Path) -> None:
    path, chance = str(tmp_path / "table"), random.Random(0)
    table = bl.create_table(
        path, schema=SCHEMA, record_key=["id"], partition_by=["part"], ordering="ts",
        index=bl.SimpleBucket(BUCKETS), table_type="merge_on_read",
    )  # fmt: skip
    compactions = tmp_path / "compactions"
    commands: dict[str, Callable[[], subprocess.Popen[str]]] = {
        "compactor": lambda: start_driver("compactor", path, compactions, log=tmp_path / "c.err")
    }
    for name in WRITERS:
        commands[name] = lambda name=name: start_driver(  # type: ignore[misc]
            "stream", path, name, tmp_path / f"{name}.log", log=tmp_path / f"{name}.err"
        )
    running = {name: start() for name, start in commands.items()}

    def require_all() -> None:
        for name, process in running.items():
            errors = tmp_path / ("c.err" if name == "compactor" else f"{name}.err")
            assert process.poll() is None, f"{name}: {tail(errors)}"

    def is_any_later_than(before: dict[str, int]) -> bool:
        require_all()
        return any(returned(tmp_path, name) > before[name] for name in WRITERS)

    def was_any_compacted() -> bool:
        require_all()
        return compactions.exists() and bool(compactions.read_text())

    try:
        for _ in range(ROUNDS):
            before = {name: returned(tmp_path, name) for name in WRITERS}
            wait_until(partial(is_any_later_than, before), lambda: "both streams stand still")
            time.sleep(chance.uniform(0, 2))
            victim = chance.choice(list(running))
            kill_group(running[victim])
            check(table, tmp_path)
            running[victim] = commands[victim]()
        wait_until(was_any_compacted, lambda: "nothing was compacted meanwhile")
    finally:
        for process in running.values():
            kill_group(process)
    check(table, tmp_path)
    table.upsert(SCHEMA.empty_table())  # Settles what the killed ones left.
    table.compact()
    check(table, tmp_path)
    left = left_over(path)
    # A writer that was killed leaves the copy of its input, which is no part of the table.
    files = [name for name in left["files"] if not name.startswith(".hoodie/")]
    assert (left["markers"], files, left["pending"]) == ([], [], [])
    require_each_batch_once(path)


def require_each_batch_once(path: str) -> None:
    """Each commit of a stream is the next batch of its query, and of it alone."""
    storage = LocalStorage(path)
    timeline = load_timeline(opened_table(storage, bl.open_table(path).config()))
    commits = [i for i in timeline.completed_commits() if i.action is Action.DELTA_COMMIT]
    last: dict[str, int] = {}
    for commit in sorted(commits, key=lambda one: one.completed_at or ""):
        said = json.loads(timeline.read_commit(storage, commit).extra[BATCHES])
        told = {name: one["batch"] for name, one in said.items()}
        news = {name: number for name, number in told.items() if last.get(name, -1) != number}
        assert len(news) == 1, f"{commit}: {news}"
        [(name, number)] = news.items()
        assert number == last.get(name, -1) + 1, f"{commit}: {name} {number} after {last}"
        last = told


def logged(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_driver_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    table = make_table(str(tmp_path / "table"))
    log, errors, written = tmp_path / "log", tmp_path / "errors", 0

    def has_gone_on(driver: subprocess.Popen[str], since: int) -> bool:
        assert driver.poll() is None, tail(errors)
        return any(number > since for number in logged(log))

    for kill in range(ALONE_ROUNDS):
        chance = random.Random(kill)
        driver = start_driver("endless", tmp_path, written + 1, log, log=errors)
        try:
            wait_until(partial(has_gone_on, driver, written), partial(tail, errors))
            time.sleep(chance.uniform(0, 3))
        finally:
            kill_group(driver)
        returned = logged(log)[-1]
        rows = table_rows(table.path)
        possible = {n: model_of_rounds(range(n + 1)) for n in (returned, returned + 1)}
        assert rows in possible.values(), f"kill {kill} after batch {returned}"
        written = next(n for n, model in possible.items() if rows == model) + 1
        # The next write settles what the killed one left, and nothing of that stays.
        bl.open_table(table.path).upsert(rows_of_round(written))
        assert table_rows(table.path) == model_of_rounds(range(written + 1))
        left = left_over(table.path)
        assert (left["markers"], left["files"], left["pending"]) == ([], [], [])
        with log.open("a") as lines:
            lines.write(f"{written}\n")
