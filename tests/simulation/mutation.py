"""Which faults of the protocol the explorer, the simulation and the crowd notice.

Each fault of ``tests/protocol_mutants.py`` is put into the code of a child process, which then runs
one of the three testers until a run fails. A table says how many faults each tester noticed; then
come those that none of them did, each with the direct test that does.

example: python -m tests.simulation.mutation
         python -m tests.simulation.mutation -k heartbeat --crowds 500 --testers crowd
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from unittest import mock

import pytest

from bucketlake.errors import ClockWarning, MetadataTableWarning, ServiceWarning
from tests.indexed_tables import ROWS_OF_LARGE
from tests.mutants import Mutant, is_broken, mutated
from tests.protocol_mutants import MUTANTS
from tests.simulation import test_one_writer, test_sequences
from tests.simulation.crowd import Crowd
from tests.simulation.indexes import LARGE_ROWS
from tests.simulation.interleavings import SCENARIOS, Exploration

KILLED, SURVIVED, TIMED_OUT, BROKEN = "killed", "survived", "time-out", "broken"
DYING, INTERRUPTED = ("rollback", "restore"), ("clean",)
"""Scenarios of the explorer in which a process dies, and in which a writer is interrupted."""

Runs = Iterator[Callable[[], object]]


def explorer(deaths_every: int) -> Runs:
    """Yield explorations: a process dies, or other processes go on before a change of a writer."""
    for scenario in SCENARIOS:
        if scenario.name in DYING:
            yield partial(Exploration(scenario).explore_deaths, 0, every=deaths_every)
        if scenario.name in INTERRUPTED:
            explore = Exploration(scenario).explore
            yield partial(explore, 1, before_reads=False, interrupts="writer 1")


def simulation(seeds: int) -> Runs:
    """Yield the runs of one writer: worlds, worlds that archive, sequences."""
    worlds = (
        test_one_writer.test_no_committed_row_is_lost_or_doubled_whatever_fails,
        test_one_writer.test_archival_among_all_steps_loses_nothing,
    )
    with pytest.MonkeyPatch.context() as patch:
        for seed in range(seeds):
            for world in worlds:
                yield partial(world, seed, None, patch)
            yield partial(
                test_sequences.test_a_sequence_of_operations_leaves_the_rows_that_its_commits_tell,
                seed,
            )


def crowd(crowds: int) -> Runs:
    """Yield the runs of several writers."""
    for seed in range(crowds):
        yield Crowd(seed).run


TESTERS = {"explorer": explorer, "simulation": simulation, "crowd": crowd}


@dataclass(frozen=True)
class Verdict:
    """What a tester said of a mutant.

    Attributes
    ----------
    said : str
        ``killed``, ``survived``, ``time-out``, or ``broken`` if the mutant cannot run.
    runs : int
        Number of runs until then.
    words : str
        The first line of the error.
    """

    said: str
    runs: int = 0
    words: str = ""


@dataclass
class _Child:
    """A process that runs a tester on a mutant."""

    mutant: Mutant | None
    tester: str
    process: BaseProcess
    answer: Connection
    ends_at: float


def judge(mutant: Mutant | None, tester: str, effort: int) -> Verdict:
    """Run a tester on a mutant, or on the code as it is, until a run fails."""
    runs = 0
    with ExitStack() as stack:
        stack.enter_context(mock.patch(ROWS_OF_LARGE, LARGE_ROWS))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore" if tester == "crowd" else "error")
        for category in (ClockWarning, MetadataTableWarning, ServiceWarning):
            warnings.simplefilter("ignore", category)
        if mutant is not None:
            stack.enter_context(mutated(mutant.function, (mutant.old, mutant.new)))
        try:
            for run in TESTERS[tester](effort):
                runs += 1
                run()
        except BaseException as error:  # Whatever a run raises is a finding.
            words = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            return Verdict(BROKEN if is_broken(error) else KILLED, runs, words)
    return Verdict(SURVIVED, runs)


def _run(mutant: Mutant | None, tester: str, effort: int, answer: Connection) -> None:
    gc.freeze()  # Exclude modules, which are most objects, from garbage collections.
    gc.set_threshold(50_000)
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BUCKETLAKE_CACHE_FOLDER"] = folder  # Tables of two processes have one name.
        answer.send(judge(mutant, tester, effort))
    os._exit(0)  # Threads of a run that failed may wait forever.


def verdicts(
    jobs: Sequence[tuple[Mutant | None, str]],
    efforts: dict[str, int],
    *,
    seconds_max: float,
    processes: int,
) -> Iterator[tuple[Mutant | None, str, Verdict]]:
    """Run testers on mutants in child processes; yield what they say as it comes.

    Parameters
    ----------
    jobs : sequence of (Mutant or None, str)
        Mutants, each with the name of a tester; None stands for the code as it is.
    efforts : mapping of str to int
        The testers, each with its number of seeds, or of changes between two deaths.
    seconds_max : float
        What a tester may take for a mutant.
    processes : int
        Number of processes at once.
    """
    fork = multiprocessing.get_context("fork")  # So that the modules are imported once.
    waiting = [*jobs]
    running: list[_Child] = []
    while waiting or running:
        while waiting and len(running) < processes:
            mutant, tester = waiting.pop(0)
            answer, child = fork.Pipe(duplex=False)
            process = fork.Process(
                target=_run, args=(mutant, tester, efforts[tester], child), daemon=True
            )
            process.start()
            child.close()
            running.append(_Child(mutant, tester, process, answer, monotonic() + seconds_max))
        soonest = min(one.ends_at for one in running)
        wait([one.answer for one in running], max(0.0, soonest - monotonic()))
        for one in [*running]:
            if one.answer.poll():
                try:
                    yield one.mutant, one.tester, one.answer.recv()
                except EOFError:
                    yield one.mutant, one.tester, Verdict(BROKEN, words="its process ended")
            elif monotonic() > one.ends_at:
                yield one.mutant, one.tester, Verdict(TIMED_OUT)
            else:
                continue
            one.process.kill()
            one.process.join()
            running.remove(one)


def tables(found: dict[tuple[str, str], Verdict], mutants: Sequence[Mutant]) -> Iterator[str]:
    """Yield the lines of a table with the rates of the testers, then what none of them noticed."""
    testers = list(dict.fromkeys(tester for _, tester in found))
    yield f"| room | mutants | {' | '.join(testers)} | one of them |"
    yield "|---|" + "---|" * (len(testers) + 2)
    rooms = [*dict.fromkeys(mutant.room for mutant in mutants)]
    for room in (*rooms, "**all**"):
        held = [one.fault for one in mutants if room in (one.room, "**all**")]
        seen = Counter(
            tester for fault in held for tester in testers if found[fault, tester].said == KILLED
        )
        late = Counter(
            tester for fault in held for tester in testers if found[fault, tester].said == TIMED_OUT
        )
        some = sum(any(found[fault, one].said == KILLED for one in testers) for fault in held)
        cells = [f"{seen[one]}{f' + {late[one]} time-outs' * bool(late[one])}" for one in testers]
        yield f"| {room} | {len(held)} | {' | '.join(cells)} | {some} |"
    yield ""
    for mutant in mutants:
        said = {found[mutant.fault, tester].said for tester in testers}
        if KILLED not in said:
            yield f"{', '.join(sorted(said))}: {mutant.fault} ({mutant.test.__name__} notices it)"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-k", default="", help="only faults with this text in them")
    add("--every", type=int, default=1, help="only every such fault")
    add("--testers", nargs="+", choices=[*TESTERS], default=[*TESTERS], help="by default all")
    add("--deaths-every", type=int, default=7, help="explorer: a death after each such change")
    add("--seeds", type=int, default=6, help="simulation: number of seeds")
    add("--crowds", type=int, default=50, help="crowd: number of runs")
    add("--seconds", type=float, default=300.0, help="what a tester may take for a fault")
    add("--processes", type=int, default=2, help="child processes at once")
    given = parser.parse_args(arguments)
    effort = {"explorer": given.deaths_every, "simulation": given.seeds, "crowd": given.crowds}
    chosen = [mutant for mutant in MUTANTS if given.k in mutant.fault][:: given.every]
    found: dict[tuple[str, str], Verdict] = {}
    began = monotonic()
    for mutant, tester, verdict in verdicts(
        [(mutant, tester) for mutant in (None, *chosen) for tester in given.testers],
        effort,
        seconds_max=given.seconds,
        processes=given.processes,
    ):
        fault = "no fault" if mutant is None else mutant.fault
        at = monotonic() - began
        print(f"{at:6.0f} s {tester}: {fault}: {verdict.said}, run {verdict.runs} {verdict.words}")
        sys.stdout.flush()
        if mutant is not None:
            found[mutant.fault, tester] = verdict
        elif verdict.said != SURVIVED:
            return 1  # The testers say nothing if they fail on the code as it is.
    print("", *tables(found, chosen), sep="\n")
    return int(any(verdict.said == BROKEN for verdict in found.values()))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # The explorer hashes states; runs repeat then.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.mutation", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
