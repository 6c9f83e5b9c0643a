"""What a benchmark states: its contenders and their steps, its options, its page.

A benchmark is a module ``benchmarks/NAME.py`` with a constant ``BENCHMARK``. The runner
(`runner.py`), the page (`report.py`) and the plot (`plot.py`) are the same for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from benchmarks.common.report import Page
from benchmarks.common.turn import Measured, Turn, load_and_change

Settings = Mapping[str, Any]
"""The options of a run that its contenders are told."""

NAMES = (
    "upsert few_rows vectors lakeloader growth statements merge_on_read rescale resize groups "
    "startup metadata record_index dynamic dimensions spark_dimensions streaming change_stream "
    "topic_rate soak tombstones location_cache catalog_sync base_files hashing"
).split()


class System(Protocol):
    """What a contender makes in its process. Each step is a method ``step(data, table)``.

    A step that reads a table returns the sums of `rows.CHECKSUM_SQL`, or some of them. Only steps
    are timed.
    """

    def settle(self) -> None:
        """Leave nothing of the last step to run inside the next one's time."""

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """Return what is worth telling of the step that has just run."""

    def facts(self) -> dict[str, Any]:
        """Return versions and settings, for the result file."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One system under one set of options.

    Attributes
    ----------
    name : str
        Ours begin with ``bucketlake``.
    make : callable
        Makes the system from the settings of the run, in the contender's process.
    process : str
        Contenders with the same one share a process, and so a warm JVM. Its own if empty.
    spark35 : bool
        Whether the process needs PySpark 3.5.
    steps : tuple of str, optional
        The steps of a turn, if they are not those of the benchmark. ``name-a-b`` is the method
        ``name`` with the further arguments ``a`` and ``b``.
    turn : callable, optional
        What a turn is, if it is not that of the benchmark.
    once : bool
        Whether it takes one turn, in the first round, and none in the warm-up.
    """

    name: str
    make: Callable[[Settings], System]
    process: str = ""
    spark35: bool = False
    steps: tuple[str, ...] = ()
    turn: Callable[[Turn], dict[str, Measured]] | None = None
    once: bool = False

    @property
    def key(self) -> tuple[str, bool]:
        """What contenders of one process have in common."""
        return self.process or self.name, self.spark35


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one benchmark: ``--new-buckets`` is the setting ``new_buckets``."""

    flag: str
    type: Callable[[str], Any]
    default: Any
    help: str

    @property
    def setting(self) -> str:
        """Its name in the settings."""
        return self.flag.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A question, who answers it, and how the answer is shown.

    Attributes
    ----------
    name, description : str
        The name of its module, and what ``--help`` says.
    contenders : sequence of Contender
        In the order in which they take turns.
    page : Page
        The page and the plot.
    steps : tuple of str
        What is measured in a turn.
    turn : callable
        What a turn is.
    options : sequence of Option
        Those that other benchmarks do not have.
    defaults, quick : mapping
        Values of options: of a run, and of a first try (``--quick``).
    alone : bool
        Whether each step is a process of its own, of which the whole life is measured.
    orders : bool
        Whether the contenders read generated orders (`data.py`).
    """

    name: str
    description: str
    contenders: Sequence[Contender]
    page: Page
    steps: tuple[str, ...] = ()
    turn: Callable[[Turn], dict[str, Measured]] = load_and_change
    options: Sequence[Option] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False
    orders: bool = True


def load_benchmark(name: str) -> Benchmark:
    """Import a benchmark by its name."""
    found: Benchmark = import_module(f"benchmarks.{name}").BENCHMARK
    return found


def count(text: str) -> int:
    """Parse a whole number of at least one, such as 12, 200k or 2m."""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    number = int(float(text.rstrip("kKmM").replace("_", "")) * scale)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def counts(text: str) -> list[int]:
    """Parse several numbers, such as 100k,10m."""
    return [count(part) for part in text.split(",")]


SHAPES = ("orders", "lines")


def shape_option(shapes: Sequence[str], text: str) -> Option:
    """Return the option for the shape of rows of a benchmark; the first one is the default."""

    def shape(given: str) -> str:
        if given not in shapes:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(shapes)}")
        return given

    return Option("--shape", shape, shapes[0], f"shape of rows: {text}")


SHAPE = shape_option(SHAPES, "orders, or repetitive lines of orders")
"""An option of benchmarks that compare formats: one shape alone flatters."""

REPEATS = Option("--repeats", count, 5, "measurements of each rate")
"""An option of benchmarks that measure rates in one process."""
