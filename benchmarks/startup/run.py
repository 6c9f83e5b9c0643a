"""The start-up benchmark: what a job costs that starts, writes once and ends.

Each step is a fresh process with a JVM and Python workers of its own: a first load, then, in the
next process, a first upsert. Contenders take turns for several rounds. In the warm-up, whose
figures do not count, each contender's table is read back and compared with what the generator
predicts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import command
from benchmarks.common.race import Family, Race, compare, say
from benchmarks.common.rows import DataSet
from benchmarks.startup.job import FACTS, READ, ContenderError, Job, run_job

CONTENDERS = "benchmarks.upsert.contenders"
STEPS = ("load", "upsert")
EXAMPLES = """examples:
  python -m benchmarks.startup --rows 200k --rounds 1          a first try, some minutes
  python -m benchmarks.startup                                 1 M rows, five rounds
  python -m benchmarks.startup --contenders bucketlake-spark35,delta-merge
  python -m benchmarks.startup --render                        docs/benchmarks/startup.md and .svg
"""


class StartupRace(Race):
    """Load and upsert a fresh table in every turn, a process for each."""

    families = (
        Family(f"{CONTENDERS}.bucketlake", spark35=True, contenders=("bucketlake-spark35",)),
        Family(
            "benchmarks.startup.contenders.parquet", spark35=True, contenders=("plain-parquet",)
        ),
        Family(f"{CONTENDERS}.delta", spark35=True, contenders=("delta-merge",)),
        Family(f"{CONTENDERS}.hudi", spark35=True, contenders=("hudi-bucket-upsert",)),
    )
    steps = STEPS

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        table = self.table_folder(name)
        shutil.rmtree(table, ignore_errors=True)
        try:
            measured = {step: self.step(name, step, data, table) for step in self.steps}
            if self.rehearsing:
                found = self.step(name, READ, data, table)["checksum"]
                compare(name, found, data.facts["checksum_after_upsert"])
        finally:
            self.drop(table)
        return measured

    def step(self, name: str, step: str, data: DataSet, table: Path) -> dict[str, Any]:
        """Have a contender do one step in a fresh process."""
        [family] = [each for each in self.families if name in each.contenders]
        python = str(self.options.spark35_python if family.spark35 else sys.executable)
        job = Job(family.module, name, step, str(data.path), str(table), self._settings)
        log = self.options.work / "logs" / f"{name}-{step}.log"
        return run_job(job, python, log, self.options.step_limit)

    def _start(self) -> None:
        """Ask each contender for its facts; that also fetches the jars that it needs."""
        for name in self.options.contenders:
            say(f"asking {name} for its versions")
            nowhere = self.options.work
            try:
                facts = self.step(name, FACTS, DataSet(nowhere), nowhere)
            except ContenderError as error:
                self._fail(name, error)
                continue
            kept = {key: facts[key] for key in ("versions", "settings")}
            self.result["contenders"][name] = {**kept, "rounds": []}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


def _add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    parser.set_defaults(rows=1_000_000, warmup_rounds=1, warmup_rows=100_000)
    return ()


BENCHMARK = command.Benchmark(
    name="startup",
    description="A first load and a first upsert, each a whole process: bucketlake beside plain "
    "Parquet, Delta and Hudi. One million rows and one round of warm-up unless told otherwise.",
    examples=EXAMPLES,
    race=StartupRace,
    add_options=_add_options,
)
