"""A driver killed at any moment leaves each batch written or not, and a table to go on with.

Two rounds by default; BUCKETLAKE_LONG=100 asks for more. Where the moment falls follows from the
round, so that a failure can be looked for again.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

import bucketlake as bl
from tests.spark.drivers.common import left_over, make_table, model_of, rows_of_round, table_rows
from tests.spark.processes import kill_group, start_driver, tail

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROUNDS = int(os.environ.get("BUCKETLAKE_LONG", "2"))
START_SECONDS_MAX = 300


def logged(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_driver_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    table = make_table(str(tmp_path / "table"))
    log, written = tmp_path / "log", 0
    for kill in range(ROUNDS):
        chance = random.Random(kill)
        driver = start_driver("endless", tmp_path, written + 1, log, log=tmp_path / "errors")
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not any(number > written for number in logged(log)):
                assert driver.poll() is None, tail(tmp_path / "errors")
                assert time.monotonic() < deadline, tail(tmp_path / "errors")
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 3))
        finally:
            kill_group(driver)
        returned = logged(log)[-1]
        rows = table_rows(table.path)
        possible = {n: model_of(range(n + 1)) for n in (returned, returned + 1)}
        assert rows in possible.values(), f"kill {kill} after batch {returned}"
        written = next(n for n, model in possible.items() if rows == model) + 1
        # The next write settles what the killed one left, and nothing of that stays.
        bl.open_table(table.path).upsert(rows_of_round(written))
        assert table_rows(table.path) == model_of(range(written + 1))
        left = left_over(table.path)
        assert (left["markers"], left["files"], left["pending"]) == ([], [], [])
        with log.open("a") as lines:
            lines.write(f"{written}\n")
