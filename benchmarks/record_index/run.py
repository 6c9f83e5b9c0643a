"""The benchmark of the record-level index.

Four questions:

- Tables on Spark under the partitioned index, ours and Hudi's, of both types: a load, the build of
  the index from the loaded table, an upsert of many rows and one of a single row through it. Each
  table must show the generator's checksum at the end; anything else ends the contender's run.
- Bytes of the index for equal random keys.
- The index as its table grows, without Spark.
- The plan of a write to a table of a million file groups, without data files.

The last three are asked in the first round only. Tables and plots are made by `render.py`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import Any

from benchmarks.common import command
from benchmarks.common.command import count, row_count
from benchmarks.common.race import Family, Race, compare
from benchmarks.common.rows import DataSet
from benchmarks.record_index.keys import prepare_keys
from benchmarks.record_index.steps import (
    BUILD,
    ENGINE_FREE,
    GROWTH,
    GROWTH_STEPS,
    KEY_KINDS,
    KINDS,
    LOAD,
    MAKE,
    READ,
    SCALE,
    STEPS,
    WRITES,
    growth_step,
    index_step,
    plan_step,
)

CONTENDERS = "benchmarks.record_index.contenders"
SIZED = ("bucketlake-spark4", "hudi-cow")
"""Contenders whose index's size is told; the type of the table makes no difference to it."""

EXAMPLES = """examples:
  python -m benchmarks.record_index --rows 100k --rounds 1 --key-counts 20k --growth 100k \\
      --groups 10000 --folders 100                             a first try, some minutes
  python -m benchmarks.record_index                            the figures of the page
  python -m benchmarks.record_index --contenders growth,scale  without Spark
  python -m benchmarks.record_index --render                   docs/benchmarks/record_index.md
"""


class RecordIndexRace(Race):
    """Each contender does the steps of its question."""

    families = (
        Family(
            f"{CONTENDERS}.bucketlake",
            spark35=False,
            contenders=("bucketlake-spark4", "bucketlake-mor-spark4"),
        ),
        Family(f"{CONTENDERS}.hudi", spark35=True, contenders=("hudi-cow", "hudi-mor")),
        Family(f"{CONTENDERS}.engine_free", spark35=False, contenders=ENGINE_FREE),
    )
    in_first_round = ENGINE_FREE

    def steps_of(self, name: str) -> tuple[str, ...]:
        if name == GROWTH:
            return tuple(growth_step(s, n) for n in self.options.growth for s in GROWTH_STEPS)
        if name == SCALE:
            return tuple(plan_step(kind, write) for kind in KINDS for write in WRITES)
        return STEPS

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        table = self.table_folder(name)
        shutil.rmtree(table, ignore_errors=True)
        try:
            if name == GROWTH:
                return self._grow(data)
            if name == SCALE:
                self.step(name, MAKE, data, table)
                return {step: self.step(name, step, data, table) for step in self.steps_of(name)}
            measured = {step: self.step(name, step, data, table) for step in STEPS}
            found = measured[READ].pop("checksum")
            compare(name, found, data.facts["checksum_after_upsert"])
            is_first = not self.result["contenders"][name]["rounds"]
            if is_first and not self.rehearsing and name in SIZED:
                measured |= self._sizes(name)
            return measured
        finally:
            self.drop(table)

    def _sizes(self, name: str) -> dict[str, Any]:
        """Measure the build of the index for random keys."""
        options, found = self.options, {}
        for kind in KEY_KINDS:
            for keys in options.key_counts:
                rows = prepare_keys(
                    options.work / "data", kind, keys, options.partitions, options.seed
                )
                table = self.table_folder(name) / index_step(kind, keys)
                self.step(name, LOAD, rows, table)
                found[index_step(kind, keys)] = self.step(name, BUILD, rows, table)
                self.drop(table)
        return found

    def _grow(self, data: DataSet) -> dict[str, Any]:
        """Measure the steps with a table of each size."""
        measured = {}
        for keys in self.options.growth:
            table = self.table_folder(GROWTH) / str(keys)
            for step in GROWTH_STEPS:
                measured[growth_step(step, keys)] = self.step(GROWTH, step, data, table)
            self.drop(table)
        return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


def _add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    add = parser.add_argument
    add("--key-counts", type=_counts, default=[200_000, 2_000_000], help="sizes (200k,2m)")
    add(
        "--growth",
        type=_counts,
        default=[1_000_000, 5_000_000, 20_000_000, 50_000_000],
        help="keys of the growing table (1m,5m,20m,50m)",
    )
    add("--folders", type=count, default=10_000, help="partitions of the large table (10,000)")
    add("--groups", type=count, default=1_000_000, help="its file groups (1,000,000)")
    return ("key_counts", "growth", "folders", "groups")


def _counts(text: str) -> list[int]:
    return [row_count(part) for part in text.split(",")]


BENCHMARK = command.Benchmark(
    name="record_index",
    description="The record-level index beside Hudi's, as it grows, and in a very large table.",
    examples=EXAMPLES,
    race=RecordIndexRace,
    add_options=_add_options,
)
