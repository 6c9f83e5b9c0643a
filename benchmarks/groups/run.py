"""The benchmark of file groups: do upserts cost more where a bucket has several of them?

Each contender loads the orders into a fresh table, and upserts the changes twice: first 20 %
updates and 2 % inserts, then the same rows, whose keys are now all there. The tables of a pair have
as many files after the load. At the end a table must show the generator's checksum; anything else
ends the contender's run. The page and the plot are made by `render.py`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import Any

from benchmarks.common import command
from benchmarks.common.process import ContenderError
from benchmarks.common.race import Family, Race, compare
from benchmarks.common.rows import DataSet
from benchmarks.groups.steps import CONTENDERS, LOAD, STEPS, file_group_count

EXAMPLES = """examples:
  python -m benchmarks.groups --rows 200k --rounds 1         a first try, some minutes
  python -m benchmarks.groups                                2 M rows, five rounds
  python -m benchmarks.groups --render                       docs/benchmarks/groups.md and .svg
"""
FILES_TOLERANCE = 0.05


class GroupsRace(Race):
    """Load a fresh table in every turn, and upsert twice."""

    families = (
        Family("benchmarks.groups.contenders.bucketlake", spark35=False, contenders=CONTENDERS),
    )
    steps = STEPS

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        table = self.table_folder(name)
        shutil.rmtree(table, ignore_errors=True)
        measured = {}
        try:
            for step in self.steps:
                measured[step] = self.step(name, step, data, table)
                if step == LOAD:
                    self._check_files(name, data, measured[step]["data_files"])
            found = self.step(name, "read", data, table)["checksum"]
            compare(name, found, data.facts["checksum_after_upsert"])
        finally:
            self.drop(table)
        return measured

    def _check_files(self, name: str, data: DataSet, found: int) -> None:
        """Refuse a table whose number of files is not about the one that the pair should have."""
        options = self.options
        wanted = file_group_count(data.facts["partitions"], options.buckets, options.groups)
        if abs(found - wanted) > FILES_TOLERANCE * wanted:
            raise ContenderError(f"{name} has {found} files after its load instead of {wanted}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


def _add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    parser.add_argument(
        "--groups", type=command.count, default=4, help="file groups of a bucket (4)"
    )
    return ("groups",)


BENCHMARK = command.Benchmark(
    name="groups",
    description="Upserts into buckets of several file groups, beside as many simple buckets.",
    examples=EXAMPLES,
    race=GroupsRace,
    add_options=_add_options,
)
