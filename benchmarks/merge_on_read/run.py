"""The merge-on-read benchmark: changes go into log files, reads merge them, a compaction ends them.

Each contender loads the orders into a fresh table, upserts the changes, reads all columns and a
few, compacts, and reads all columns again. What a read tells must be what the generator predicts,
and there must be live log files before the compaction and none after it; anything else ends the
contender's run. Tables and plots are made by `render.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bucketlake as bl
from benchmarks.common import command
from benchmarks.common.process import ContenderError
from benchmarks.common.race import Family, Race, compare
from benchmarks.common.rows import DataSet
from benchmarks.merge_on_read.steps import COMPACT, FEW_SUMS, LOAD, READ_FEW, STEPS, UPSERT
from bucketlake.errors import BucketLakeError

CONTENDERS = "benchmarks.merge_on_read.contenders"
EXAMPLES = """examples:
  python -m benchmarks.merge_on_read --rows 200k --rounds 1  a first try, some minutes
  python -m benchmarks.merge_on_read                         2 M rows, five rounds, all contenders
  python -m benchmarks.merge_on_read --render                docs/benchmarks/merge_on_read.md, .svg
"""


class MergeOnReadRace(Race):
    """Load, upsert, read, compact and read a fresh table in every turn."""

    families = (
        Family(f"{CONTENDERS}.bucketlake", spark35=False, contenders=("bucketlake-mor-spark4",)),
        Family(f"{CONTENDERS}.bucketlake", spark35=True, contenders=("bucketlake-mor-spark35",)),
        Family(f"{CONTENDERS}.hudi", spark35=True, contenders=("hudi-mor", "hudi-mor-nomdt")),
    )
    steps = STEPS

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        table = self.table_folder(name)
        shutil.rmtree(table, ignore_errors=True)
        measured = {}
        try:
            for step in self.steps:
                measured[step] = self.step(name, step, data, table)
                if step == LOAD and self.rehearsing:
                    loaded = self.step(name, "read", data, table)["checksum"]
                    compare(name, loaded, data.facts["checksum_after_load"])
                if "checksum" in measured[step]:
                    found = measured[step].pop("checksum")
                    compare(name, found, expected_sums(step, data.facts["checksum_after_upsert"]))
                if step in (UPSERT, COMPACT):
                    check_log_files(name, step, table)
        finally:
            self.drop(table)
        return measured


def expected_sums(step: str, sums: dict[str, int]) -> dict[str, int]:
    """Return the part of a table's checksum that a read tells."""
    return {name: sums[name] for name in FEW_SUMS} if step == READ_FEW else sums


def check_log_files(name: str, step: str, table: Path) -> None:
    """Refuse a table without live log files after its upsert, or with some after its compaction."""
    try:
        live = sum(bucket.log_files for bucket in bl.open_table(str(table)).buckets())
    except BucketLakeError as error:  # What cannot be read is as wrong as what is left over.
        raise ContenderError(f"{name} has an unreadable table after {step}: {error}") from error
    if (live > 0) != (step == UPSERT):
        raise ContenderError(f"{name} has {live} live log files after {step}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


BENCHMARK = command.Benchmark(
    name="merge_on_read",
    description="Upserts into log files, merged reads, compaction: bucketlake beside Hudi.",
    examples=EXAMPLES,
    race=MergeOnReadRace,
)
