"""The rescale benchmark: another bucket count for one partition of many, and for all of them.

Each contender makes its own table once, with the partition-level index. Every turn rescales fresh
copies of it, so all turns do the same work; neither the making nor the copying is timed. After each
step the table must show the generator's checksum, and its files the new counts, with every row in
its bucket; anything else ends the contender's run. Tables and plots are made by `render.py`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.common import command
from benchmarks.common.process import ContenderError
from benchmarks.common.race import Family, Race, compare, say
from benchmarks.common.rows import DataSet
from benchmarks.rescale.counts import STEPS, counts_after
from benchmarks.rescale.layout import layout_errors
from bucketlake.errors import BucketLakeError

CONTENDERS = "benchmarks.rescale.contenders"
EXAMPLES = """examples:
  python -m benchmarks.rescale --rows 200k --rounds 1        a first try, some minutes
  python -m benchmarks.rescale                               2 M rows, five rounds, all contenders
  python -m benchmarks.rescale --partitions 16 --new-buckets 16
  python -m benchmarks.rescale --render                      docs/benchmarks/rescale.md and .svg
"""

T = TypeVar("T")

# Tasks of Hudi 1.2.0 share a plain map of rules without a lock, and now and then one fails on it;
# nothing is committed then, and a user runs the job again.
HUDI_STUMBLED = "java.util.ConcurrentModificationException"


class RescaleRace(Race):
    """Rescale one partition, and then all, of fresh copies of a contender's table."""

    families = (
        Family(f"{CONTENDERS}.bucketlake", spark35=False, contenders=("bucketlake-spark4",)),
        Family(f"{CONTENDERS}.bucketlake", spark35=True, contenders=("bucketlake-spark35",)),
        Family(
            f"{CONTENDERS}.hudi",
            spark35=True,
            contenders=("hudi-procedure", "hudi-procedure-nomdt"),
        ),
    )
    steps = STEPS

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        original = self.table_folder(name) / f"original-{data.facts['rows']}"
        if not original.exists():
            self._run(name, partial(self._make, name, data, original))
        measured = {}
        for step in self.steps:
            table = self.table_folder(name) / step
            try:
                work = partial(self._rescale, name, step, data, original, table)
                measured[step] = self._run(name, work)
            finally:
                self.drop(table)
        return measured

    def _run(self, name: str, work: Callable[[], T]) -> T:
        outcome, reruns = run_again_if_hudi_stumbled(work)
        facts = self.result["contenders"][name]
        facts["reruns"] = facts.get("reruns", 0) + reruns
        return outcome

    def _make(self, name: str, data: DataSet, table: Path) -> None:
        shutil.rmtree(table, ignore_errors=True)
        self.step(name, "load", data, table)
        self._check_rows(name, data, table)

    def _rescale(
        self, name: str, step: str, data: DataSet, original: Path, table: Path
    ) -> dict[str, Any]:
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(original, table)
        before = self.step(name, "prepare", data, table)
        measured = self.step(name, step, data, table)
        measured["written_bytes"] = measured["data_bytes"] - before["data_bytes"]
        self._check_rows(name, data, table)
        self._check_layout(name, step, data, table)
        return measured

    def _check_rows(self, name: str, data: DataSet, table: Path) -> None:
        found = self.step(name, "read", data, table)["checksum"]
        compare(name, found, data.facts["checksum_after_load"])

    def _check_layout(self, name: str, step: str, data: DataSet, table: Path) -> None:
        counts = counts_after(
            step,
            partitions=data.facts["partitions"],
            old=self.options.buckets,
            new=self.options.new_buckets,
        )
        try:
            errors = layout_errors(table, counts)
        except BucketLakeError as error:  # What cannot be read is as wrong as what is misplaced.
            errors = [str(error)]
        if errors:
            raise ContenderError(f"{name} has a wrong layout after {step}: {'; '.join(errors)}")


def run_again_if_hudi_stumbled(action: Callable[[], T]) -> tuple[T, int]:
    """Run an action, and once more where Hudi failed on its own map; tell how often that was."""
    try:
        return action(), 0
    except ContenderError as error:
        if HUDI_STUMBLED not in str(error):
            raise
        say(f"once more, after a {HUDI_STUMBLED}")
        return action(), 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


def _add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    parser.add_argument(
        "--new-buckets", type=command.count, default=8, help="buckets after a rescale (8)"
    )
    return ("new_buckets",)


BENCHMARK = command.Benchmark(
    name="rescale",
    description="Another bucket count for one partition, and for all: bucketlake beside Hudi.",
    examples=EXAMPLES,
    race=RescaleRace,
    add_options=_add_options,
)
