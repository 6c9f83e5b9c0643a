"""Which faults of the protocol the explorer, the simulation and the crowd notice.

Each fault of ``tests/protocol_mutants.py`` is put into the code of a child process, which then runs
one of the three testers until a run fails. The runs on the code as it is come first: they tell
which runs reach the place of which fault, and only those are repeated with it.

A table says how many of the faults that a tester reached it noticed. Then come the faults that no
tester noticed, each with the direct test that does.

example: python -m tests.simulation.mutation
         python -m tests.simulation.mutation -k heartbeat --crowds 500 --testers crowd
"""

from __future__ import annotations

import argparse
import gc
import inspect
import logging
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections import defaultdict
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
from tests.mutants import Mutant, is_broken, mutated, with_calls
from tests.protocol_mutants import MUTANTS
from tests.simulation import test_one_writer, test_sequences
from tests.simulation.crowd import Crowd
from tests.simulation.indexes import LARGE_ROWS
from tests.simulation.interleavings import SCENARIOS, Exploration

KILLED, SURVIVED, NOT_REACHED = "killed", "survived", "not reached"
TIMED_OUT, BROKEN = "time-out", "broken"
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
    play = test_sequences.test_a_sequence_of_operations_leaves_the_rows_that_its_commits_tell
    with pytest.MonkeyPatch.context() as patch:
        for seed in range(seeds):
            for world in worlds:
                yield partial(world, seed, None, patch)
            yield partial(play, seed)


def crowd(crowds: int) -> Runs:
    """Yield the runs of several writers."""
    for seed in range(crowds):
        yield Crowd(seed).run


TESTERS = {"explorer": explorer, "simulation": simulation, "crowd": crowd}


@dataclass(frozen=True)
class Job:
    """A tester, and the mutant that it is to notice.

    Attributes
    ----------
    tester : str
    effort : int
        Its number of seeds, or of changes between two deaths.
    mutant : Mutant or None
        None stands for the code as it is.
    runs : set of int
        Numbers of the runs to do; not for the code as it is, which does all.
    """

    tester: str
    effort: int
    mutant: Mutant | None = None
    runs: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """What a tester said.

    Attributes
    ----------
    said : str
        ``killed``, ``survived``, ``not reached``, ``time-out``; ``broken`` if a mutant cannot run.
    words : str
        The number of the run, and the first line of its error.
    reached : tuple of set of str
        The faults whose places each run reached, of the code as it is.
    """

    said: str
    words: str = ""
    reached: tuple[frozenset[str], ...] = ()


@dataclass
class _Child:
    """A process that does a job."""

    job: Job
    process: BaseProcess
    answer: Connection
    ends_at: float


def judge(job: Job) -> Verdict:
    """Let a tester do its runs until one fails."""
    now: set[str] = set()
    reached: list[frozenset[str]] = []
    with ExitStack() as stack:
        stack.enter_context(mock.patch(ROWS_OF_LARGE, LARGE_ROWS))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore" if job.tester == "crowd" else "error")
        for category in (ClockWarning, MetadataTableWarning, ServiceWarning):
            warnings.simplefilter("ignore", category)
        if job.mutant is None:
            _watch(stack, now.add)
        else:
            change = job.mutant.old, job.mutant.new
            stack.enter_context(mutated(job.mutant.function, change))
        try:
            for number, run in enumerate(TESTERS[job.tester](job.effort)):
                if job.mutant is None or number in job.runs:
                    run()
                reached.append(frozenset(now))
                now.clear()
        except BaseException as error:  # Whatever a run raises is a finding.
            words = f"run {number}: {type(error).__name__}: {error}".splitlines()[0][:160]
            return Verdict(BROKEN if is_broken(error) else KILLED, words)
    return Verdict(SURVIVED, reached=tuple(reached))


def _watch(stack: ExitStack, reached: Callable[[str], None]) -> None:
    """Tell which places of faults are reached, until the stack is closed."""
    calls: dict[Callable[..., object], list[tuple[str, str]]] = defaultdict(list)
    for mutant in MUTANTS:
        calls[inspect.unwrap(mutant.function)].append((mutant.old, f"_reached({mutant.fault!r})"))
    for function, held in calls.items():
        stack.enter_context(mutated(function, with_calls(function, held), _reached=reached))


def _run(job: Job, answer: Connection) -> None:
    gc.freeze()  # Exclude modules, which are most objects, from garbage collections.
    gc.set_threshold(50_000)
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BUCKETLAKE_CACHE_FOLDER"] = folder  # Tables of two processes have one name.
        answer.send(judge(job))
    os._exit(0)  # Threads of a run that failed may wait forever.


def verdicts(
    jobs: Sequence[Job], *, seconds_max: float, processes: int
) -> Iterator[tuple[Job, Verdict]]:
    """Do jobs in child processes; yield what they say as it comes.

    Parameters
    ----------
    jobs : sequence of Job
    seconds_max : float
        What a job may take.
    processes : int
        Number of processes at once.
    """
    fork = multiprocessing.get_context("fork")  # So that the modules are imported once.
    waiting, running = [*jobs], list[_Child]()
    while waiting or running:
        while waiting and len(running) < processes:
            job = waiting.pop(0)
            answer, child = fork.Pipe(duplex=False)
            process = fork.Process(target=_run, args=(job, child), daemon=True)
            process.start()
            child.close()
            running.append(_Child(job, process, answer, monotonic() + seconds_max))
        soonest = min(one.ends_at for one in running)
        wait([one.answer for one in running], max(0.0, soonest - monotonic()))
        for one in [*running]:
            if one.answer.poll():
                try:
                    yield one.job, one.answer.recv()
                except EOFError:
                    yield one.job, Verdict(BROKEN, "its process ended")
            elif monotonic() > one.ends_at:
                yield one.job, Verdict(TIMED_OUT)
            else:
                continue
            one.process.kill()
            one.process.join()
            running.remove(one)


def tables(said: dict[tuple[str, str], str], mutants: Sequence[Mutant]) -> Iterator[str]:
    """Yield the lines of a table with the rates of the testers, then what none of them noticed.

    Parameters
    ----------
    said : mapping of (str, str) to str
        What testers said, by fault and name of the tester.
    mutants : sequence of Mutant
    """
    testers = list(dict.fromkeys(tester for _, tester in said))
    yield f"| room | faults | {' | '.join(testers)} | one of them | time-outs |"
    yield "|---|" + "---|" * (len(testers) + 3)
    for room in (*dict.fromkeys(mutant.room for mutant in mutants), "**all**"):
        held = [one.fault for one in mutants if room in (one.room, "**all**")]
        cells = []
        for tester in testers:
            words = [said[fault, tester] for fault in held]
            reached = len(words) - words.count(NOT_REACHED)
            cells.append(f"{words.count(KILLED)} of {reached}")
        some = sum(any(said[fault, one] == KILLED for one in testers) for fault in held)
        late = sum(any(said[fault, one] == TIMED_OUT for one in testers) for fault in held)
        yield f"| {room} | {len(held)} | {' | '.join(cells)} | {some} | {late} |"
    yield ""
    for mutant in mutants:
        words = sorted({said[mutant.fault, tester] for tester in testers})
        if KILLED not in words:
            yield f"{', '.join(words)}: {mutant.fault} ({mutant.test.__name__} notices it)"


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
    began = monotonic()

    def done(jobs: Sequence[Job]) -> Iterator[tuple[Job, Verdict]]:
        said = verdicts(jobs, seconds_max=given.seconds, processes=given.processes)
        for job, verdict in said:
            fault = "no fault" if job.mutant is None else job.mutant.fault
            at = f"{monotonic() - began:6.0f} s"
            print(f"{at} {job.tester}: {fault}: {verdict.said} {verdict.words}", flush=True)
            yield job, verdict

    sound = {job.tester: told for job, told in done([Job(t, effort[t]) for t in given.testers])}
    if any(told.said != SURVIVED for told in sound.values()):
        return 1  # A tester that fails on the code as it is says nothing.
    said = {(one.fault, tester): NOT_REACHED for one in chosen for tester in given.testers}
    jobs = []
    for mutant, tester in ((mutant, tester) for mutant in chosen for tester in given.testers):
        runs = [n for n, held in enumerate(sound[tester].reached) if mutant.fault in held]
        if runs:
            jobs.append(Job(tester, effort[tester], mutant, frozenset(runs)))
    for job, verdict in done(jobs):
        assert job.mutant is not None
        said[job.mutant.fault, job.tester] = verdict.said
    print("", *tables(said, chosen), sep="\n")
    return int(BROKEN in said.values())


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # The explorer hashes states; runs repeat then.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.mutation", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
