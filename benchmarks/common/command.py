"""The command line that the benchmarks share: run a race into a result file, or render results."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common import data as generator
from benchmarks.common.process import REPOSITORY
from benchmarks.common.race import Race, contenders_of, machine, say


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a benchmark brings to its command line.

    Attributes
    ----------
    name : str
        Its package below ``benchmarks``, and the start of its files' names. ``render`` in its
        module of that name writes the page and the plot of a folder's results into another folder.
    description, examples : str
        What ``--help`` says.
    race : type of Race
        Its contenders and their turns.
    add_options : callable, optional
        Adds options of its own, and returns their names; each is a setting of the run.
    """

    name: str
    description: str
    examples: str
    race: type[Race]
    add_options: Callable[[argparse.ArgumentParser], tuple[str, ...]] = lambda _: ()


def main(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    parser, settings = _parser(benchmark)
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(contenders_of(benchmark.race.families)))
        return 0
    if options.render:
        # Imported here, because it needs matplotlib, which no run does.
        module = import_module(f"benchmarks.{benchmark.name}.render")
        for written in module.render(options.out, options.docs):
            print(written)
        return 0
    path, failed = _run(benchmark, options, {name: getattr(options, name) for name in settings})
    print(path)
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _run(
    benchmark: Benchmark, options: argparse.Namespace, settings: dict[str, Any]
) -> tuple[Path, list[str]]:
    """Measure, and return the result file's path and the contenders that failed."""
    recipe = generator.Recipe(options.rows, options.partitions, options.seed)
    warmup_rows = min(options.warmup_rows, options.rows)
    small = generator.Recipe(warmup_rows, options.partitions, options.seed)
    data, warmup = (generator.prepare(options.work / "data", each) for each in (recipe, small))
    path = options.out / f"{benchmark.name}-{options.rows}.json"
    result: dict[str, Any] = {
        "benchmark": benchmark.name,
        "data": data.facts,
        "settings": {
            **settings,
            "rounds": options.rounds,
            "warmup": {"rows": warmup_rows, "rounds": options.warmup_rounds},
        },
        "machine": machine(),
        "contenders": {},
    }
    race = benchmark.race(options, {**settings, "work": str(options.work)}, result, path)
    race.run(data, warmup)
    return path, race.failed


def count(text: str) -> int:
    """Parse a whole number of at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def row_count(text: str) -> int:
    """Parse a number of rows, such as 200k or 2m."""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    rows = int(float(text.rstrip("kKmM").replace("_", "")) * scale)
    if not 1_000 <= rows <= 100_000_000:
        raise argparse.ArgumentTypeError("rows must be between 1k and 100m")
    return rows


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown {unknown}; there are {', '.join(known)}")
        return names

    return parse


def _parser(benchmark: Benchmark) -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """Return the parser, and the options that are settings of the run."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{benchmark.name}",
        description=benchmark.description,
        epilog=benchmark.examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    everyone = contenders_of(benchmark.race.families)
    add = parser.add_argument
    add("--rows", type=row_count, default=2_000_000, help="rows of the load: 100k to 50m (2m)")
    add("--rounds", type=count, default=5, help="rounds whose median counts (5)")
    add(
        "--contenders",
        type=_names(everyone),
        default=list(everyone),
        help="comma-separated; see --list",
    )
    add("--list", action="store_true", help="print the contenders and stop")
    add("--out", type=Path, default=REPOSITORY / "benchmarks/results", help="folder of results")
    add("--render", action="store_true", help="run nothing; make the page and plot of the results")
    add("--docs", type=Path, default=REPOSITORY / "docs/benchmarks", help="where these two go")
    add("--partitions", type=count, default=8, help="partitions of the table (8)")
    add("--buckets", type=count, default=4, help="buckets of a partition (4)")
    add("--seed", type=int, default=generator.Recipe(1).seed, help="what the rows follow from")
    add("--cores", type=count, default=2, help="cores of each contender (2)")
    add("--driver-memory", default="4g", help="heap of each Spark process (4g)")
    add("--zstd-level", type=int, default=1, help="of the peers; 1 is what bucketlake writes (1)")
    add("--warmup-rows", type=row_count, default=200_000, help="rows of the warm-up's load (200k)")
    add("--warmup-rounds", type=int, default=2, help="rounds before those that count (2)")
    add("--step-limit", type=float, default=3_600, help="seconds after which a step is ended")
    add(
        "--work",
        type=Path,
        default=REPOSITORY / "build" / benchmark.name,
        help="data, tables, logs",
    )
    add(
        "--spark35-python",
        type=Path,
        default=REPOSITORY / ".venv-spark35/bin/python",
        help="interpreter with PySpark 3.5, for the contenders that run there",
    )
    add("--keep-tables", action="store_true", help="leave the last round's tables in place")
    own = benchmark.add_options(parser)
    return parser, ("cores", "driver_memory", "zstd_level", "buckets", *own)
