"""A race: contenders, each in a process that stays warm, take turns for several rounds.

What a turn is, and what makes its result wrong, each benchmark says in a class of its own. The
result file is written anew after each turn, so a run that is cut short keeps what it measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.common import usage
from benchmarks.common.process import ContenderError, ContenderProcess
from benchmarks.common.rows import DataSet


@dataclass(frozen=True, slots=True)
class Family:
    """Contenders that share a process: one system on one interpreter."""

    module: str
    spark35: bool
    contenders: tuple[str, ...]


class Race(ABC):
    """The contenders' processes and what has been measured of them.

    Parameters
    ----------
    options : Namespace
        The command line, see ``command.py``.
    settings : mapping
        What each process is told.
    result : dict
        The result, without contenders.
    path : Path
        Its file.
    """

    families: ClassVar[tuple[Family, ...]]
    steps: ClassVar[tuple[str, ...]]  # Those of a turn that are measured.
    in_first_round: ClassVar[Collection[str]] = ()  # Contenders that take one turn, in round 1.

    def __init__(
        self,
        options: argparse.Namespace,
        settings: Mapping[str, Any],
        result: dict[str, Any],
        path: Path,
    ) -> None:
        self.options = options
        self._settings, self.result, self._path = settings, result, path
        self._processes: dict[str, ContenderProcess] = {}
        self.failed: list[str] = []
        self.rehearsing = False  # In the warm-up, where there is time for more checks.

    @abstractmethod
    def turn(self, name: str, data: DataSet) -> dict[str, Any]:
        """Have a contender do its steps; return what was measured of each, by the step's name.

        Raises
        ------
        ContenderError
            If a step failed or its result is wrong.
        """

    def steps_of(self, name: str) -> tuple[str, ...]:  # noqa: ARG002 -- for other races.
        """Return the steps of a contender's turn that are measured."""
        return self.steps

    def contenders_in(self, number: int | None) -> Sequence[str]:
        """Return the contenders of a round; None is the warm-up."""
        names: Sequence[str] = self.options.contenders
        return [name for name in names if number == 0 or name not in self.in_first_round]

    def run(self, data: DataSet, warmup: DataSet) -> None:
        """Start each family that has a contender in this run, and go through all rounds."""
        try:
            self._start()
            for _ in range(self.options.warmup_rounds):
                self._round(warmup, None)
            for number in range(self.options.rounds):
                self._round(data, number)
        finally:
            for process in set(self._processes.values()):
                process.close()
            for name in self._processes:
                self.drop(self.table_folder(name))

    def step(self, name: str, step: str, data: DataSet, table: Path) -> dict[str, Any]:
        """Have a contender do one step."""
        limit = self.options.step_limit
        return self._processes[name].run(step, name, data, table, timeout_s=limit)

    def table_folder(self, name: str) -> Path:
        """Where a contender's tables are."""
        return self.options.work / "tables" / name

    def drop(self, table: Path) -> None:
        """Remove a table, or all of a contender, that is done with, unless tables are kept."""
        if not self.options.keep_tables:
            shutil.rmtree(table, ignore_errors=True)

    def _start(self) -> None:
        for family in self.families:
            names = [name for name in family.contenders if name in self.options.contenders]
            if not names:
                continue
            python = str(self.options.spark35_python if family.spark35 else sys.executable)
            log = self.options.work / "logs" / f"{names[0]}.log"
            say(f"starting {', '.join(names)}")
            try:
                process = ContenderProcess(family.module, python, self._settings, log)
            except (ContenderError, OSError) as error:
                for name in names:
                    self._fail(name, error)
                continue
            for name in names:
                shutil.rmtree(self.table_folder(name), ignore_errors=True)
                self._processes[name] = process
                self.result["contenders"][name] = {**process.facts[name], "rounds": []}

    def _round(self, data: DataSet, number: int | None) -> None:
        """Let each contender take its turn; a numbered round is kept, the warm-up is not."""
        self.rehearsing = number is None
        names = [name for name in self.contenders_in(number) if name not in self.failed]
        shift = (number or 0) % max(1, len(names))  # Nobody always runs after the same neighbour.
        for name in names[shift:] + names[:shift]:
            try:
                measured = self.turn(name, data)
            except ContenderError as error:
                self._fail(name, error)
                continue
            label = "warm-up" if number is None else f"round {number + 1}/{self.options.rounds}"
            steps = self.steps_of(name)
            times = "  ".join(f"{step} {measured[step]['seconds']:.2f} s" for step in steps)
            busy = max(measured[step]["other_cpu_share"] for step in steps)
            say(f"{label}  {name}  {times}  (others used up to {busy:.0%} of the machine)")
            if number is not None:
                self.result["contenders"][name]["rounds"].append(measured)
                self._save()

    def _fail(self, name: str, error: Exception) -> None:
        self.failed.append(name)
        say(f"{name} failed: {error}")
        self.result["contenders"].setdefault(name, {"rounds": []})["error"] = str(error)
        self._save()

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.result, indent=1) + "\n")


def contenders_of(families: Iterable[Family]) -> tuple[str, ...]:
    """Names of all contenders, in their order."""
    return tuple(name for family in families for name in family.contenders)


def compare(name: str, found: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Refuse a table whose sums are not those that the generator predicts."""
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
        "system": system_name(),
        "python": platform.python_version(),
    }


def system_name() -> str:
    """System, processor family and C library, without what is of one build of a kernel."""
    release = ".".join(platform.release().split(".")[:2])
    library = " ".join(platform.libc_ver()).strip()
    parts = (f"{platform.system()} {release}", platform.machine(), library)
    return ", ".join(part for part in parts if part)


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)
