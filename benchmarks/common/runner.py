"""The runner: contenders, each in a process that stays warm, take turns for several rounds.

The result file is written anew after each turn, so a run that is cut short keeps what it measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import data as generator
from benchmarks.common import usage
from benchmarks.common.benchmark import Benchmark, Contender
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
        self.path: Path = options.out / f"{benchmark.name}-{options.rows}.json"
        self.failed: list[str] = []
        own = {option.setting: getattr(options, option.setting) for option in benchmark.options}
        shared = {name: getattr(options, name) for name in ("cores", "driver_memory", "buckets")}
        self._settings = {**shared, **own}
        warmup = {"rows": min(WARMUP_ROWS, options.rows), "rounds": options.warmup_rounds}
        self._result: dict[str, Any] = {
            "benchmark": benchmark.name,
            "data": {"rows": options.rows, "seed": generator.SEED},
            "settings": {**self._settings, "rounds": options.rounds, "warmup": warmup},
            "machine": machine(),
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
        chosen = [c for c in chosen if c.name not in self.failed and (number == 0 or not c.once)]
        shift = (number or 0) % max(1, len(chosen))  # Nobody always runs after the same neighbour.
        for contender in chosen[shift:] + chosen[:shift]:
            try:
                measured = self._turn(contender, number, data)
            except ContenderError as error:
                self._fail(contender.name, error)
                continue
            self._tell(contender.name, number, measured)
            if number is not None:
                self._facts(contender.name)["rounds"].append(measured)
                self._save()

    def _data(self, number: int | None) -> DataSet:
        rows = self._options.rows if number is not None else min(WARMUP_ROWS, self._options.rows)
        recipe = generator.Recipe(rows, self._options.partitions)
        if not self.benchmark.orders:
            return DataSet(self._options.work)
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
            self._told_settings,
            number,
            partial(self._step, contender),
        )
        try:
            return (contender.turn or self.benchmark.turn)(turn)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            alone = (contender.name, contender.spark35)
            if contender.once and alone in self._processes:
                self._processes.pop(alone).close()

    def _step(self, contender: Contender, step: str, data: DataSet, table: Path) -> Measured:
        if self.benchmark.alone:
            start = partial(self._start, contender)
            return run_alone(start, step, contender.name, data, table)
        key = (contender.process or contender.name, contender.spark35)
        if key not in self._processes:
            self._processes[key] = self._start(contender)
        return self._processes[key].run(step, contender.name, data, table)

    @property
    def _told_settings(self) -> dict[str, Any]:
        options = self._options
        rows = {"rows": options.rows, "partitions": options.partitions, "seed": generator.SEED}
        return {**self._settings, **rows, "zstd_level": ZSTD_LEVEL, "work": str(options.work)}

    def _start(self, contender: Contender) -> ContenderProcess:
        """Start a process, with all the contenders that share it."""
        names = [
            each.name
            for each in self.benchmark.contenders
            if each.name in self._options.contenders
            and each.spark35 == contender.spark35
            and (each is contender or (each.process and each.process == contender.process))
        ]
        if not self.benchmark.alone:
            say(f"starting {', '.join(names)}")
        process = ContenderProcess(
            f"benchmarks.{self.benchmark.name}",
            names,
            str(SPARK35_PYTHON) if contender.spark35 else sys.executable,
            self._told_settings,
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

    def _fail(self, name: str, error: Exception) -> None:
        self.failed.append(name)
        say(f"{name} failed: {error}")
        self._facts(name)["error"] = str(error)
        self._save()

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self._result, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Return what the figures are measured on."""
    release = ".".join(platform.release().split(".")[:2])
    parts = (f"{platform.system()} {release}", platform.machine(), " ".join(platform.libc_ver()))
    return {
        "cores": usage.core_count(),
        "memory_bytes": usage.memory_bytes(),
        "processor": usage.processor_name(),
        "system": ", ".join(part.strip() for part in parts if part.strip()),
        "python": platform.python_version(),
    }


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)
