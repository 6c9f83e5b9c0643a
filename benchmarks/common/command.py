"""The command line: run a benchmark into a result file, or make the page of its results."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import plot, report
from benchmarks.common.benchmark import NAMES, Benchmark, count, load_benchmark
from benchmarks.common.figures import Result
from benchmarks.common.process import REPOSITORY
from benchmarks.common.runner import Runner, say

EXAMPLES = """examples:
  scripts/bench {name} --quick                     a first try: small tables, one round
  scripts/bench {name}                             {rows:,} rows, {rounds} rounds, all contenders
  scripts/bench {name} --contenders {contender}
  scripts/bench {name} --render                    docs/benchmarks/{name}.md and its plot
"""
DEFAULTS = {"rows": 2_000_000, "rounds": 5, "warmup_rounds": 2}
QUICK = {"rows": 100_000, "rounds": 1, "warmup_rounds": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    chooser = argparse.ArgumentParser(prog="python -m benchmarks", add_help=False)
    chooser.add_argument("name", choices=NAMES)
    chosen, rest = chooser.parse_known_args(arguments)
    benchmark = load_benchmark(chosen.name)
    options = parse(benchmark, rest)
    if options.render:
        for written in render(benchmark, options.out, options.docs):
            print(written)
        return 0
    runner = Runner(benchmark, options)
    runner.run()
    print(runner.path)
    if runner.failed:
        say(f"failed: {', '.join(runner.failed)}")
    return 1 if runner.failed else 0


def render(benchmark: Benchmark, results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    paths = sorted(results.glob(f"{benchmark.name}-*.json"))
    found = [Result(json.loads(path.read_text())) for path in paths]
    if not found:
        raise SystemExit(f"no {benchmark.name}-*.json in {results}; run the benchmark first")
    found.sort(key=lambda result: result.row_count)
    docs.mkdir(parents=True, exist_ok=True)
    text = docs / f"{benchmark.name}.md"
    text.write_text(report.page_text(benchmark.name, benchmark.page, found))
    yield text
    most_telling = max(found, key=lambda result: (result.round_count, result.row_count))
    for chart, ending in ((benchmark.page.chart, ""), (benchmark.page.headline, "_headline")):
        if chart is not None:
            picture = docs / f"{benchmark.name}{ending}.svg"
            plot.draw(chart, most_telling, picture)
            yield picture


def parse(benchmark: Benchmark, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options of a benchmark."""
    parser = _parser(benchmark)
    parser.set_defaults(**benchmark.defaults)
    if "--quick" in arguments:
        folder = REPOSITORY / "build" / benchmark.name / "quick"
        parser.set_defaults(**QUICK, out=folder, docs=folder)
        parser.set_defaults(**benchmark.quick)
    options = parser.parse_args(arguments)
    known = [contender.name for contender in benchmark.contenders]
    if unknown := sorted(set(options.contenders) - set(known)):
        parser.error(f"unknown {unknown}; there are {', '.join(known)}")
    return options


def _parser(benchmark: Benchmark) -> argparse.ArgumentParser:
    everyone = [contender.name for contender in benchmark.contenders]
    defaults = {**DEFAULTS, **benchmark.defaults}
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {benchmark.name}",
        description=benchmark.description,
        epilog=EXAMPLES.format(name=benchmark.name, contender=everyone[0], **defaults),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a first try; results and page go to build/")
    add("--rows", type=count, help=f"rows of the load ({defaults['rows']:,})")
    add("--rounds", type=count, help=f"rounds whose median counts ({defaults['rounds']})")
    add("--warmup-rounds", type=int, help=f"rounds before ({defaults['warmup_rounds']})")
    names = ", ".join(everyone)
    add("--contenders", type=lambda text: text.split(","), default=everyone, help=names)
    add("--partitions", type=count, default=8, help="partitions of the table (8)")
    add("--buckets", type=count, default=4, help="buckets of a partition (4)")
    for own in benchmark.options:
        add(own.flag, type=own.type, default=own.default, help=f"{own.help} ({own.default})")
    add("--cores", type=count, default=2, help="cores of each contender (2)")
    add("--driver-memory", default="4g", help="heap of each Spark process (4g)")
    add("--render", action="store_true", help="run nothing; make the page and plot of the results")
    results, docs, work = "benchmarks/results", "docs/benchmarks", f"build/{benchmark.name}"
    add("--out", type=Path, default=REPOSITORY / results, help=f"folder of results ({results})")
    add("--docs", type=Path, default=REPOSITORY / docs, help=f"folder of pages ({docs})")
    add("--work", type=Path, default=REPOSITORY / work, help=f"data, tables, logs ({work})")
    parser.set_defaults(**DEFAULTS)
    return parser
