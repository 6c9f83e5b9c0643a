"""Run the upsert benchmark: the same rows through every contender, interleaved, several rounds.

Each contender loads the orders into a fresh table, upserts the changes, and reads everything back;
a result that differs from the generator's checksum ends its run. Every contender's process stays
alive from the warm-up to the last round. The result file is written anew after each contender's
turn, so a run that is cut short keeps what it measured. Tables and plots are made by `render.py`.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.upsert import data as generator
from benchmarks.upsert import usage
from benchmarks.upsert.process import REPOSITORY, ContenderError, ContenderProcess
from benchmarks.upsert.rows import DataSet

STEPS = ("load", "upsert", "read")


@dataclass(frozen=True, slots=True)
class Family:
    """Contenders that share a process: one system on one interpreter."""

    module: str
    spark35: bool
    contenders: tuple[str, ...]


FAMILIES = (
    Family("bucketlake", spark35=False, contenders=("bucketlake-spark4",)),
    Family("bucketlake", spark35=True, contenders=("bucketlake-spark35",)),
    Family("polars_limit", spark35=False, contenders=("polars-limit",)),
    Family("delta", spark35=True, contenders=("delta-merge",)),
    Family(
        "hudi",
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
ALL = tuple(name for family in FAMILIES for name in family.contenders)

EXAMPLES = """examples:
  python -m benchmarks.upsert --rows 200k --rounds 1         a first try, some minutes
  python -m benchmarks.upsert                                2 M rows, five rounds, all contenders
  python -m benchmarks.upsert --rows 20m --rounds 1 --contenders bucketlake-spark4,polars-limit
  python -m benchmarks.upsert --render                       docs/benchmarks/upsert.md and .svg
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(ALL))
        return 0
    if options.render:
        from benchmarks.upsert.render import render  # It needs matplotlib, which no run does.

        for written in render(options.out, options.docs):
            print(written)
        return 0
    path, failed = run(options)
    print(path)
    if failed:
        _say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run(options: argparse.Namespace) -> tuple[Path, list[str]]:
    """Measure, and return the result file's path and the contenders that failed."""
    recipe = generator.Recipe(options.rows, options.partitions, options.seed)
    warmup_rows = min(options.warmup_rows, options.rows)
    small = generator.Recipe(warmup_rows, options.partitions, options.seed)
    data, warmup = (generator.prepare(options.work / "data", each) for each in (recipe, small))
    path = options.out / f"upsert-{options.rows}.json"
    settings = {
        "cores": options.cores,
        "driver_memory": options.driver_memory,
        "zstd_level": options.zstd_level,
        "buckets": options.buckets,
        "work": str(options.work),
    }
    result: dict[str, Any] = {
        "benchmark": "upsert",
        "data": data.facts,
        "settings": {
            **settings,
            "work": None,
            "rounds": options.rounds,
            "warmup": {"rows": warmup_rows, "rounds": options.warmup_rounds},
        },
        "machine": machine(),
        "contenders": {},
    }
    race = _Race(options, settings, result, path)
    try:
        race.start()
        for _ in range(options.warmup_rounds):
            race.round(warmup, None)
        for number in range(options.rounds):
            race.round(data, number)
    finally:
        race.close()
    return path, race.failed


class _Race:
    """The contenders' processes and what has been measured of them."""

    def __init__(
        self,
        options: argparse.Namespace,
        settings: dict[str, Any],
        result: dict[str, Any],
        path: Path,
    ) -> None:
        self._options, self._settings = options, settings
        self._result, self._path = result, path
        self._processes: dict[str, ContenderProcess] = {}
        self.failed: list[str] = []

    def start(self) -> None:
        """Start each family that has a contender in this run."""
        for family in FAMILIES:
            names = [name for name in family.contenders if name in self._options.contenders]
            if not names:
                continue
            python = str(self._options.spark35_python if family.spark35 else sys.executable)
            log = self._options.work / "logs" / f"{names[0]}.log"
            _say(f"starting {', '.join(names)}")
            try:
                process = ContenderProcess(
                    f"benchmarks.upsert.contenders.{family.module}", python, self._settings, log
                )
            except (ContenderError, OSError) as error:
                for name in names:
                    self._fail(name, error)
                continue
            for name in names:
                self._processes[name] = process
                self._result["contenders"][name] = {**process.facts[name], "rounds": []}

    def round(self, data: DataSet, number: int | None) -> None:
        """Let each contender take its turn; a numbered round is kept, the warm-up is not."""
        names = [name for name in self._options.contenders if name not in self.failed]
        turn = (number or 0) % max(1, len(names))  # Nobody always runs after the same neighbour.
        for name in names[turn:] + names[:turn]:
            try:
                measured = self._turn(name, data, check_load=number is None)
            except ContenderError as error:
                self._fail(name, error)
                continue
            label = "warm-up" if number is None else f"round {number + 1}/{self._options.rounds}"
            times = "  ".join(f"{step} {measured[step]['seconds']:.2f} s" for step in STEPS)
            busy = max(measured[step]["other_cpu_share"] for step in STEPS)
            _say(f"{label}  {name}  {times}  (others used up to {busy:.0%} of the machine)")
            if number is not None:
                self._result["contenders"][name]["rounds"].append(measured)
                self._save()

    def _turn(self, name: str, data: DataSet, *, check_load: bool) -> dict[str, Any]:
        table = self._options.work / "tables" / name
        shutil.rmtree(table, ignore_errors=True)
        measured = {}
        try:
            for step in STEPS:
                measured[step] = self._step(name, step, data, table)
                if step == "load" and check_load:
                    loaded = self._step(name, "read", data, table)["checksum"]
                    _compare(name, loaded, data.facts["checksum_after_load"])
            found = measured["read"].pop("checksum")
            _compare(name, found, data.facts["checksum_after_upsert"])
        finally:
            if not self._options.keep_tables:
                shutil.rmtree(table, ignore_errors=True)
        return measured

    def _step(self, name: str, step: str, data: DataSet, table: Path) -> dict[str, Any]:
        limit = self._options.step_limit
        return self._processes[name].run(step, name, data, table, timeout_s=limit)

    def _fail(self, name: str, error: Exception) -> None:
        self.failed.append(name)
        _say(f"{name} failed: {error}")
        self._result["contenders"].setdefault(name, {"rounds": []})["error"] = str(error)
        self._save()

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._result, indent=1) + "\n")

    def close(self) -> None:
        """End every process."""
        for process in set(self._processes.values()):
            process.close()


def _compare(name: str, found: dict[str, int], expected: dict[str, int]) -> None:
    if found != expected:
        wrong = {key: (found.get(key), expected[key]) for key in expected}
        differing = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
        raise ContenderError(f"{name} has a wrong table; column: (found, expected) {differing}")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": usage.core_count(),
        "memory_bytes": usage.memory_bytes(),
        "processor": usage.processor_name(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _rows(text: str) -> int:
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    rows = int(float(text.rstrip("kKmM").replace("_", "")) * scale)
    if not 1_000 <= rows <= 100_000_000:
        raise argparse.ArgumentTypeError("rows must be between 1k and 100m")
    return rows


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return count


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(ALL)):
        raise argparse.ArgumentTypeError(f"unknown {unknown}; there are {', '.join(ALL)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.upsert",
        description="Load, upsert and read order-like rows: bucketlake beside Hudi, Delta, polars.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", type=_rows, default=2_000_000, help="rows of the load: 100k to 50m (2m)")
    add("--rounds", type=_count, default=5, help="rounds whose median counts (5)")
    add("--contenders", type=_names, default=list(ALL), help="comma-separated; see --list")
    add("--list", action="store_true", help="print the contenders and stop")
    add("--out", type=Path, default=REPOSITORY / "benchmarks/results", help="folder of results")
    add("--render", action="store_true", help="run nothing; make the page and plot of the results")
    add("--docs", type=Path, default=REPOSITORY / "docs/benchmarks", help="where these two go")
    add("--partitions", type=_count, default=8, help="partitions of the table (8)")
    add("--buckets", type=_count, default=4, help="buckets of a partition (4)")
    add("--seed", type=int, default=generator.Recipe(1).seed, help="what the rows follow from")
    add("--cores", type=_count, default=2, help="cores of each contender (2)")
    add("--driver-memory", default="4g", help="heap of each Spark process (4g)")
    add("--zstd-level", type=int, default=1, help="of the peers; 1 is what bucketlake writes (1)")
    add("--warmup-rows", type=_rows, default=200_000, help="rows of the warm-up's load (200k)")
    add("--warmup-rounds", type=int, default=2, help="rounds before those that count (2)")
    add("--step-limit", type=float, default=3_600, help="seconds after which a step is ended")
    add("--work", type=Path, default=REPOSITORY / "build/upsert", help="data, tables, logs")
    add(
        "--spark35-python",
        type=Path,
        default=REPOSITORY / ".venv-spark35/bin/python",
        help="interpreter with PySpark 3.5, for Hudi, Delta and bucketlake-spark35",
    )
    add("--keep-tables", action="store_true", help="leave the last round's tables in place")
    return parser
