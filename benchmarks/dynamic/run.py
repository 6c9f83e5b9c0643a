"""The benchmark of dynamic buckets.

Three questions:

- Tables on Spark: a load, an upsert and a read under dynamic buckets of both table types, beside
  every other kind of index of bucketlake, Hudi's record-level index (partitioned and global), and
  Delta's MERGE. Each table must show the generator's checksum at the end; anything else ends the
  contender's run.
- The cache and the index, without Spark: how fast the cache is filled, and bytes for each key.
- Sizes of buckets as a partition grows, without Spark, under each kind of index.

The last two are asked in the first round only. Tables and plots are made by `render.py`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import Any

from benchmarks.common import command
from benchmarks.common.command import row_count
from benchmarks.common.race import Family, Race, compare
from benchmarks.common.rows import DataSet
from benchmarks.dynamic.steps import (
    CACHE,
    DELTA,
    ENGINE_FREE,
    FILLS,
    GLOBAL,
    GROWN,
    GROWTH,
    KINDS,
    MAKE,
    OURS,
    PARTITIONED,
    READ,
    SIMPLE,
    SIZES,
    STEPS,
    fill_step,
    grow_step,
    size_step,
)

CONTENDERS = "benchmarks.dynamic.contenders"
EXAMPLES = """examples:
  python -m benchmarks.dynamic --rows 100k --rounds 1 --cache-keys 100k --bucket-rows 2000 \\
      --warmup-rounds 1                                        a first try, some minutes
  python -m benchmarks.dynamic                                 the figures of the page
  python -m benchmarks.dynamic --contenders cache,growth       without Spark
  python -m benchmarks.dynamic --render                        docs/benchmarks/dynamic.md and .svg
"""


class DynamicRace(Race):
    """Each contender does the steps of its question."""

    families = (
        Family(
            f"{CONTENDERS}.bucketlake",
            spark35=False,
            contenders=tuple(dict.fromkeys([*OURS.values(), *SIMPLE.values(), *KINDS])),
        ),
        Family(
            f"{CONTENDERS}.hudi",
            spark35=True,
            contenders=(*PARTITIONED.values(), *GLOBAL.values()),
        ),
        Family("benchmarks.upsert.contenders.delta", spark35=True, contenders=(DELTA,)),
        Family(f"{CONTENDERS}.engine_free", spark35=False, contenders=ENGINE_FREE),
    )
    in_first_round = ENGINE_FREE

    def steps_of(self, name: str) -> tuple[str, ...]:
        if name == CACHE:
            return (MAKE, *map(fill_step, range(FILLS)))
        if name == GROWTH:
            return (MAKE, *map(size_step, SIZES), *map(grow_step, GROWN))
        return STEPS

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        table = self.table_folder(name)
        shutil.rmtree(table, ignore_errors=True)
        try:
            measured = {step: self.step(name, step, data, table) for step in self.steps_of(name)}
            if READ in measured:
                found = measured[READ].pop("checksum")
                compare(name, found, data.facts["checksum_after_upsert"])
            return measured
        finally:
            self.drop(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


def _add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    add = parser.add_argument
    add("--cache-keys", type=row_count, default=4_000_000, help="keys in the cache (4m)")
    add(
        "--bucket-rows",
        type=row_count,
        default=50_000,
        help="rows of a bucket in the partition that grows (50k)",
    )
    return ("cache_keys", "bucket_rows")


BENCHMARK = command.Benchmark(
    name="dynamic",
    description="Dynamic buckets beside the other kinds of index, Hudi and Delta.",
    examples=EXAMPLES,
    race=DynamicRace,
    add_options=_add_options,
)
