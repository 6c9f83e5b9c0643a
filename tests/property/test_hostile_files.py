"""Hostile and damaged files of every kind: a value or an error of ours, soon, and in a gigabyte.

Processes of their own read them all (``tests/hostile/reading.py``), also as files of a table
(``tests/hostile/tables.py``), since what is tried here are crashes and hangs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.choices import DEEP

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 3_600


@pytest.mark.parametrize(
    ("program", "count"), [("reading", 300 if DEEP else 6), ("tables", 2_000 if DEEP else 6)]
)
def test_hostile_files_give_a_result_or_an_error_within_bounds(program: str, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.hostile.{program}", "1", str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    last_read = done.stderr.splitlines()[-3:]
    assert (done.stdout, done.returncode) == ("end\n", 0), last_read
