"""The resize benchmark: what a resize of a hash ring costs, and what writes cost meanwhile.

Four questions, each with contenders of its own:

- Tables on Spark with the consistent, the simple bucket and the Bloom index, ours and Hudi's: load
  and upsert.
- The same upsert while a resize of all buckets is pending: seconds, and bytes on disk.
- A resize of two buckets against a rescale of the whole table, as the table grows.
- Lookups on a ring of 10,000 nodes.

Each upsert changes a fresh copy of the contender's loaded table. After each of them, and after the
resize, the table must show the generator's checksum; anything else ends the contender's run. Tables
and plots are made by `render.py`.
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
from benchmarks.resize.disk import disk_usage, growth
from benchmarks.resize.steps import (
    COMPLETE,
    GROWING,
    KINDS,
    LOAD,
    LOOKUP,
    LOOKUPS,
    PENDING,
    READ,
    SCHEDULE,
    SIZES,
    UPSERT,
    size_step,
    steps_of,
)
from bucketlake.errors import BucketLakeError

CONTENDERS = "benchmarks.resize.contenders"
EXAMPLES = """examples:
  python -m benchmarks.resize --rows 100k --rounds 1         a first try, some minutes
  python -m benchmarks.resize                                2 M rows, five rounds, all contenders
  python -m benchmarks.resize --contenders resize,rescale,lookup
  python -m benchmarks.resize --render                       docs/benchmarks/resize.md and .svg
"""


class ResizeRace(Race):
    """Each contender does the steps of its question."""

    families = (
        Family(f"{CONTENDERS}.bucketlake", spark35=True, contenders=KINDS[:2]),
        Family(f"{CONTENDERS}.hudi", spark35=True, contenders=KINDS[2:]),
        Family(f"{CONTENDERS}.engine_free", spark35=False, contenders=(*GROWING, LOOKUP)),
    )

    def steps_of(self, name: str) -> tuple[str, ...]:
        return steps_of(name)

    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        folder = self.table_folder(name)
        try:
            if name == LOOKUP:
                return {step: self.step(name, step, data, folder) for step in LOOKUPS}
            if name in GROWING:
                return {size_step(count): self._grow(name, count, data) for count in SIZES}
            return self._write(name, data)
        finally:
            self.drop(folder)

    def _grow(self, name: str, bucket_count: int, data: DataSet) -> dict[str, Any]:
        """Change a table of so many buckets; its rows stay the same."""
        table = self.table_folder(name) / f"{bucket_count}-buckets"
        shutil.rmtree(table, ignore_errors=True)
        self.step(name, LOAD, data, table)
        before = self.step(name, READ, data, table)
        measured = self.step(name, "change", data, table)
        measured |= growth(before["usage"], measured.pop("usage"))
        compare(name, self.step(name, READ, data, table)["checksum"], before["checksum"])
        return measured

    def _write(self, name: str, data: DataSet) -> dict[str, Any]:
        original, table = (self.table_folder(name) / each for each in ("loaded", "changed"))
        shutil.rmtree(original, ignore_errors=True)
        measured = {LOAD: self.step(name, LOAD, data, original)}
        if self.rehearsing:
            loaded = self.step(name, READ, data, original)["checksum"]
            compare(name, loaded, data.facts["checksum_after_load"])
        _copy(original, table)
        measured[UPSERT] = self._upsert(name, UPSERT, data, table)
        measured[READ] = self._read(name, data, table)
        for upsert in PENDING.get(name, ()):
            _copy(original, table)
            measured[SCHEDULE] = self.step(name, SCHEDULE, data, table)
            before = group_count(name, table)
            measured[upsert] = self._upsert(name, upsert, data, table)
            self._read(name, data, table)
            measured[COMPLETE] = self.step(name, COMPLETE, data, table)
            self._read(name, data, table)
            check_split(name, before, group_count(name, table))
        return measured

    def _upsert(self, name: str, step: str, data: DataSet, table: Path) -> dict[str, Any]:
        before = disk_usage(table)
        measured = self.step(name, step, data, table)
        return measured | growth(before, disk_usage(table))

    def _read(self, name: str, data: DataSet, table: Path) -> dict[str, Any]:
        measured = self.step(name, READ, data, table)
        compare(name, measured.pop("checksum"), data.facts["checksum_after_upsert"])
        return measured


def _copy(original: Path, table: Path) -> None:
    shutil.rmtree(table, ignore_errors=True)
    shutil.copytree(original, table)


def group_count(name: str, table: Path) -> int:
    try:
        return len(bl.open_table(str(table)).buckets())
    except BucketLakeError as error:
        raise ContenderError(f"{name} has an unreadable table: {error}") from error


def check_split(name: str, before: int, after: int) -> None:
    """Refuse a table whose buckets were not all split."""
    if after != 2 * before:
        raise ContenderError(f"{name} has {after} buckets after its resize, and had {before}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    return command.main(BENCHMARK, arguments)


BENCHMARK = command.Benchmark(
    name="resize",
    description="A resize of a hash ring, and writes meanwhile: bucketlake beside Hudi.",
    examples=EXAMPLES,
    race=ResizeRace,
)
