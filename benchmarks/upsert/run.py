"""The upsert benchmark: the same rows through every contender, interleaved, several rounds.

Each contender loads the orders into a fresh table, upserts the changes, and reads everything back;
a result that differs from the generator's checksum ends its run. Tables and plots are made by
`render.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from benchmarks.common import command
from benchmarks.common.race import Family, Race, compare
from benchmarks.common.rows import DataSet

CONTENDERS = "benchmarks.upsert.contenders"
EXAMPLES = """examples:
  python -m benchmarks.upsert --rows 200k --rounds 1         a first try, some minutes
  python -m benchmarks.upsert                                2 M rows, five rounds, all contenders
  python -m benchmarks.upsert --rows 20m --rounds 1 --contenders bucketlake-spark4,polars-limit
  python -m benchmarks.upsert --render                       docs/benchmarks/upsert.md and .svg
"""


class UpsertRace(Race):
    """Load, upsert and read a fresh table in every turn."""

    families = (
        Family(
            f"{CONTENDERS}.bucketlake",
            spark35=False,
            contenders=("bucketlake-spark4", "bucketlake-mdt-spark4"),
        ),
        Family(
            f"{CONTENDERS}.bucketlake",
            spark35=True,
            contenders=("bucketlake-spark35", "bucketlake-mdt-spark35"),
        ),
        Family(f"{CONTENDERS}.polars_limit", spark35=False, contenders=("polars-limit",)),
        Family(f"{CONTENDERS}.delta", spark35=True, contenders=("delta-merge",)),
        Family(
            f"{CONTENDERS}.hudi",
            spark35=True,
            contenders=(
                "hudi-bucket-upsert",
                "hudi-bucket-upsert-nomdt",
                "hudi-bucket-bulk_insert",
                "hudi-bucket-bulk_insert-nomdt",
                "hudi-bloom",
            ),
        ),
    )
    steps = ("load", "upsert", "read")

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        table = self.table_folder(name)
        shutil.rmtree(table, ignore_errors=True)
        measured = {}
        try:
            for step in self.steps:
                measured[step] = self.step(name, step, data, table)
                if step == "load" and self.rehearsing:
                    loaded = self.step(name, "read", data, table)["checksum"]
                    compare(name, loaded, data.facts["checksum_after_load"])
            found = measured["read"].pop("checksum")
            compare(name, found, data.facts["checksum_after_upsert"])
        finally:
            self.drop(table)
        return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


BENCHMARK = command.Benchmark(
    name="upsert",
    description="Load, upsert and read order-like rows: bucketlake beside Hudi, Delta, polars.",
    examples=EXAMPLES,
    race=UpsertRace,
)
