"""Tables that follow a real database through real Debezium and Kafka, as the demo shows it.

The job, the connector, the broker and the database are killed once each; then the table equals the
database, row by row. Deep runs have long histories of several seeds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.choices import DEEP
from tests.in_ci import skip_or_fail

DEMO = Path(__file__).parents[2] / "examples" / "database" / "demo.py"
UNAVAILABLE = 3
SEEDS = range(1, 6) if DEEP else [1]
TRANSACTIONS = "2000" if DEEP else "120"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_a_table_equals_the_database_after_each_part_was_killed(
    database: str, seed: int, tmp_path: Path
) -> None:
    options = ["--database", database, "--transactions", TRANSACTIONS, "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, DEMO, *options, "--folder", tmp_path / "demo"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == UNAVAILABLE:
        skip_or_fail("a change stream", done.stderr.strip())
    assert "The table equals the database" in done.stdout, done.stdout + done.stderr
    assert " 0 dead letters" in done.stdout
