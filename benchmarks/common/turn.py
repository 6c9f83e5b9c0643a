"""A contender's turn: its steps with a fresh table, and what makes its result wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.common.process import ContenderError
from benchmarks.common.rows import DataSet

Measured = dict[str, Any]
"""What was measured of a step: seconds, processor seconds, and what the system observed."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a benchmark has to take a contender's turn.

    Attributes
    ----------
    contender : str
        Its name.
    steps : tuple of str
        What is to be measured.
    data : DataSet
        The orders.
    folder : Path
        Where its tables go. It is removed after the turn.
    settings : mapping
        Those of the run.
    number : int or None
        The round, from 0; None in the warm-up, where there is time for more checks.
    run : callable
        Runs a step of the contender with a data set and a table.
    """

    contender: str
    steps: tuple[str, ...]
    data: DataSet
    folder: Path
    settings: Mapping[str, Any]
    number: int | None
    run: Callable[[str, DataSet, Path], Measured]

    def step(self, step: str, table: Path, data: DataSet | None = None) -> Measured:
        """Run one step."""
        return self.run(step, data or self.data, table)

    def fresh(self, name: str, copy_of: Path | None = None) -> Path:
        """Return the path of a table that does not exist, or is a copy of another one."""
        table = self.folder / name
        shutil.rmtree(table, ignore_errors=True)
        if copy_of is not None:
            shutil.copytree(copy_of, table)
        return table

    def check(self, measured: Measured, after: str = "upsert") -> Measured:
        """Take the sums out of a step; refuse them unless the generator predicts them."""
        expected = self.data.facts[f"checksum_after_{after}"] if "checksum" in measured else {}
        found = measured.pop("checksum", {})
        wrong = {name: (sum_, expected[name]) for name, sum_ in found.items()}
        if differing := {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}:
            self.refuse(f"has a wrong table; column: (found, expected) {differing}")
        return measured

    def refuse(self, reason: str) -> NoReturn:
        """End the contender's run."""
        raise ContenderError(f"{self.contender} {reason}")


def load_and_change(turn: Turn) -> dict[str, Measured]:
    """Run the steps with a fresh table of orders; what a step reads must be right."""
    table = turn.fresh("orders")
    measured = {}
    for step in turn.steps:
        measured[step] = turn.check(turn.step(step, table))
        if turn.number is None and step == "load":
            turn.check(turn.step("read", table), after="load")
    if turn.number is None and "read" not in turn.steps:
        turn.check(turn.step("read", table))
    return measured


def plain_work(turn: Turn) -> dict[str, Measured]:
    """Run the steps of a workload that checks itself."""
    table = turn.fresh("table")
    table.parent.mkdir(parents=True, exist_ok=True)
    return {step: turn.step(step, table) for step in turn.steps}
