"""How many rows a second do two streams of upserts write with the same keys, beside one stream?

``python -m benchmarks.two_writers``: processes without Spark write batches with all keys into a
merge-on-read table. Two streams into one table are compared with one, and with two that have a
table each: more than these this machine does not give. A conflict is a write that was done again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import bucketlake as bl
from bucketlake.actions import conflict

CASES = {"one stream": ["a"], "two, the same keys": ["a", "a"], "two, a table each": ["a", "b"]}


def rows_of(count: int, number: int, columns: int) -> pa.Table:
    """Make a batch: each key once, a new ordering value, numbers."""
    made = np.random.default_rng(number)
    values = {f"v{n}": made.random(count) for n in range(columns)}
    keys = pa.array(np.arange(count)).cast(pa.string())
    return pa.table({"id": keys, "at": np.full(count, number), **values})


def stream(table: str, batches: Sequence[pa.Table], barrier: Any) -> tuple[float, float, int]:
    """Write the batches; return when that began and ended, and the number of conflicts."""
    met: list[str] = []
    opened = bl.open_table(table)
    opened.upsert(batches[0])  # What is imported late.
    barrier.wait()
    began = time.time()
    with mock.patch.object(conflict, "count", lambda name, *_, **__: met.append(name)):
        for rows in batches[1:]:
            opened.upsert(rows)
    return began, time.time(), met.count("conflicts")


def run(case: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write the batches of a case into new tables."""
    names = CASES[case]
    for name in {*names}:
        bl.create_table(
            str(folder / name),
            schema=rows_of(0, 0, options.columns).schema,
            record_key="id",
            ordering="at",
            index=bl.SimpleBucket(options.buckets),
            table_type="merge_on_read",
        ).upsert(rows_of(options.rows, 0, options.columns))
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as shared, ProcessPoolExecutor(len(names), spawn) as pool:
        barrier = shared.Barrier(len(names))
        running = []
        for place, name in enumerate(names):
            numbers = range(1 + place, 1 + place + 2 * (options.batches + 1), 2)
            batches = [rows_of(options.rows, n, options.columns) for n in numbers]
            running.append(pool.submit(stream, str(folder / name), batches, barrier))
        ended = [one.result() for one in running]
    seconds = max(end for _, end, _ in ended) - min(begin for begin, _, _ in ended)
    written = options.rows * options.batches * len(names)
    newest = 2 * (options.batches + 1) + len(names) - 2
    for name in {*names}:
        found = bl.open_table(str(folder / name)).to_arrow(columns=["id", "at"])
        assert found.num_rows == options.rows, "each key is there once"
        assert names.count(name) < len(names) or {*found["at"].to_pylist()} == {newest}
    return {"rows a second": written / seconds, "conflicts": sum(met for _, _, met in ended)}


def main() -> None:
    """Run each case, in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 200_000), ("batches", 8), ("columns", 8), ("buckets", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measured: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
    for _ in range(options.rounds):
        for case, found in measured.items():
            folder = Path(tempfile.mkdtemp())
            try:
                found.append(run(case, options, folder))
            finally:
                shutil.rmtree(folder)
    first = float(np.median([each["rows a second"] for each in measured["one stream"]]))
    for case, found in measured.items():
        rate = float(np.median([each["rows a second"] for each in found]))
        met = sum(each["conflicts"] for each in found)
        print(f"{case:20} {rate:12,.0f} rows a second  {rate / first:5.2f} ×  {met} conflicts")


if __name__ == "__main__":
    main()
