"""Runs histories for a time, each of another seed, and prints what the checker found.

With ``--fault`` the code of the processes has a fault of ``tests/protocol_mutants.py``: that shows
what the checker notices.

example: python -m tests.histories --minutes 10 --seed 3
         python -m tests.histories --seed 17 --runs 1 --keep /tmp/histories
"""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from tests.histories.links import why_no_links
from tests.histories.world import Plan, World
from tests.versitygw import versitygw_process


def fault_of(words: str) -> tuple[str, ...]:
    """Return a fault by its words: module, function, what it reads, and what it is to read."""
    from tests.protocol_mutants import MUTANTS  # It imports half of the tests.

    [mutant] = [mutant for mutant in MUTANTS if mutant.fault == words]
    function = inspect.unwrap(mutant.function)
    return function.__module__, function.__qualname__, mutant.old, mutant.new


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.histories",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, help="begin no run after this time")
    add("--seed", type=int, default=0, help="the first seed")
    add("--runs", type=int, help="how many seeds at most")
    add("--seconds", type=float, default=60.0, help="how long the processes of a run work")
    add("--keep", type=Path, help="a folder for the histories and tables of runs with findings")
    add("--fault", help="the words of a fault of the protocol, to see whether it is noticed")
    given = parser.parse_args(arguments)
    fault = fault_of(given.fault) if given.fault else ()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Namespaces outlive no run.
    if problem := why_no_links():
        print(f"no link is cut: {problem}", flush=True)
    ends_at, failures, totals = time.monotonic() + given.minutes * 60, 0, Counter[str]()
    for seed in count(given.seed):
        if time.monotonic() > ends_at or seed - given.seed == given.runs:
            break
        kept = given.keep and given.keep / f"seed-{seed}"
        with tempfile.TemporaryDirectory() as temporary, versitygw_process() as server:
            folder = kept or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            plan = Plan.of_seed(seed, given.seconds, hosts=0 if problem else 2)
            world = World(replace(plan, fault=fault), folder, server)
            findings = world.run()
            print("; ".join(world.summary()), *findings, sep="\n    ", flush=True)
            if findings and kept:
                world.save_table()
        failures += bool(findings)
        totals += Counter(world.events)
        if world.history is not None:
            for (operation, outcome), number in world.history.ends.items():
                totals[f"{operation} {outcome}"] += number
        totals["run"] += 1
    print(f"{failures} of {totals['run']} runs have findings;", dict(sorted(totals.items())))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
