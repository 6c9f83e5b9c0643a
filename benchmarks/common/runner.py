"""The runner: contenders, each in a process that stays warm, take turns for several rounds.

The result file is written anew after each turn, so a run that is cut short keeps what it measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import data as generator
from benchmarks.common import usage
from benchmarks.common.benchmark import SHAPES, Benchmark, Contender
from benchmarks.common.process import REPOSITORY, ContenderError, ContenderProcess, run_alone
from benchmarks.common.rows import DataSet
from benchmarks.common.turn import Measured, Turn

SPARK35_PYTHON = REPOSITORY / ".venv-spark35/bin/python"
WARMUP_ROWS = 100_000
ZSTD_LEVEL = 1  # Of the peers; bucketlake writes the same.


class Runner:
    """A run of a benchmark: its processes, and what has been measured."""

    def __init__(self, benchmark: Benchmark, options: argparse.Namespace) -> None:
        self.benchmark, self._options = benchmark, options
        self._shape = getattr(options, "shape", SHAPES[0])
        suffix = "" if self._shape == SHAPES[0] else f".{self._shape}"
        if getattr(options, "metastore", ""):
            suffix = ".metastore"
        self.path: Path = options.out / f"{benchmark.name}-{options.rows}{suffix}.json"
        self.failed: list[str] = []
        own = {option.setting: getattr(options, option.setting) for option in benchmark.options}
        shared = {name: getattr(options, name) for name in ("cores", "driver_memory", "buckets")}
        settings = {**shared, **own}
        seed = own.get("seed", generator.SEED)
        rows = {"rows": options.rows, "partitions": options.partitions, "seed": seed}
        work = {"zstd_level": ZSTD_LEVEL, "work": str(options.work)}
        self._told: dict[str, Any] = {**settings, **rows, **work}
        warmup = {"rows": min(WARMUP_ROWS, options.rows), "rounds": options.warmup_rounds}
        self._result: dict[str, Any] = {
            "benchmark": benchmark.name,
            "data": {"rows": options.rows, "seed": seed},
            "settings": {**settings, "rounds": options.rounds, "warmup": warmup},
            "machine": usage.machine(),
            "contenders": {},
        }
        self._processes: dict[tuple[str, bool], ContenderProcess] = {}

    def run(self) -> None:
        """Go through all rounds."""
        rounds = [None] * self._options.warmup_rounds + [*range(self._options.rounds)]
        shutil.rmtree(self._tables, ignore_errors=True)
        try:
            for number in rounds:
                self._round(number)
        finally:
            for process in self._processes.values():
                process.close()
            shutil.rmtree(self._tables, ignore_errors=True)

    @property
    def _tables(self) -> Path:
        folder: Path = self._options.work / "tables"
        return folder

    def _round(self, number: int | None) -> None:
        """Let each contender take its turn; a numbered round is kept, the warm-up is not."""
        data = self._data(number)
        chosen = [c for c in self.benchmark.contenders if c.name in self._options.contenders]
        chosen = [c for c in chosen if number == 0 or not c.once]
        shift = (number or 0) % max(1, len(chosen))  # Nobody always runs after the same neighbour.
        for contender in chosen[shift:] + chosen[:shift]:
            if contender.name not in self.failed:
                self._take_turn(contender, number, data)

    def _take_turn(self, contender: Contender, number: int | None, data: DataSet) -> None:
        try:
            measured = self._turn(contender, number, data)
        except (ContenderError, OSError) as error:
            self._fail(contender, error)
            return
        self._tell(contender.name, number, measured)
        if number is not None:
            self._facts(contender.name)["rounds"].append(measured)
            self._save()

    def _data(self, number: int | None) -> DataSet:
        if not self.benchmark.orders:
            return DataSet(self._options.work)
        rows = self._options.rows if number is not None else min(WARMUP_ROWS, self._options.rows)
        recipe = generator.Recipe(rows, self._options.partitions, shape=self._shape)
        data = generator.prepare(self._options.work / "data", recipe)
        if number is not None:
            self._result["data"] = data.facts
        return data

    def _turn(self, contender: Contender, number: int | None, data: DataSet) -> dict[str, Measured]:
        folder = self._tables / contender.name
        turn = Turn(
            contender.name,
            contender.steps or self.benchmark.steps,
            data,
            folder,
            self._told,
            number,
            partial(self._step, contender),
        )
        try:
            return (contender.turn or self.benchmark.turn)(turn)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if contender.once and contender.key in self._processes:
                self._processes.pop(contender.key).close()

    def _step(self, contender: Contender, step: str, data: DataSet, table: Path) -> Measured:
        if self.benchmark.alone:
            start = partial(self._start, contender)
            return run_alone(start, step, contender.name, data, table)
        if contender.key not in self._processes:
            self._processes[contender.key] = self._start(contender)
        return self._processes[contender.key].run(step, contender.name, data, table)

    def _sharing(self, contender: Contender) -> list[str]:
        """Return the contenders of the process of one of them."""
        return [
            each.name
            for each in self.benchmark.contenders
            if each.name in self._options.contenders and each.key == contender.key
        ]

    def _start(self, contender: Contender) -> ContenderProcess:
        """Start a process, with all the contenders that share it."""
        names = self._sharing(contender)
        if not self.benchmark.alone:
            say(f"starting {', '.join(names)}")
        process = ContenderProcess(
            f"benchmarks.{self.benchmark.name}",
            names,
            str(SPARK35_PYTHON) if contender.spark35 else sys.executable,
            self._told,
            self._options.work / "logs" / f"{names[0]}.log",
        )
        for name in names:
            self._facts(name).update(process.facts[name])
        return process

    def _facts(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._result["contenders"].setdefault(name, {"rounds": []})
        return found

    def _tell(self, name: str, number: int | None, measured: Mapping[str, Measured]) -> None:
        label = "warm-up" if number is None else f"round {number + 1}/{self._options.rounds}"
        times = "  ".join(f"{step} {seen['seconds']:.2f} s" for step, seen in measured.items())
        busy = max(seen["other_cpu_share"] for seen in measured.values())
        say(f"{label}  {name}  {times}  (others used up to {busy:.0%} of the machine)")

    def _fail(self, contender: Contender, error: Exception) -> None:
        """End the run of a contender, and of all that share a process that did not start."""
        is_running = contender.key in self._processes or self.benchmark.alone
        say(f"{contender.name} failed: {error}")
        for name in [contender.name] if is_running else self._sharing(contender):
            self.failed.append(name)
            self._facts(name)["error"] = str(error)
        self._save()

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self._result, indent=1) + "\n")


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)
