"""Several writers, a reader and services at once; see ``crowd.py``."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from tests.choices import DEEP
from tests.simulation import rare_states
from tests.simulation.crowd import Crowd
from tests.simulation.crowd_runs import CrowdRuns, totals
from tests.simulation.interleavings import SCENARIOS, Exploration

_PROGRESS_EVERY = 1000

_counting = ExitStack()
_reached: Counter[str] = Counter()


def _begin_process() -> None:
    gc.freeze()  # Exclude modules, which are most objects, from garbage collections.
    gc.set_threshold(50_000)
    _counting.enter_context(rare_states.counted(_reached))


def finding_of(kind_name: str | None, seed: int) -> tuple[str | None, Counter[str], float]:
    """Run one crowd; return its finding with the log of the run, or None.

    Its rare states and its processor seconds follow.
    """
    _reached.clear()
    finding, began = None, time.process_time()
    try:
        Crowd(seed, kind_name).run()
    except Exception as error:  # Whatever a run raises is a finding.
        finding = f"seed {seed}: {type(error).__name__} {error}"
    return finding, Counter(_reached), time.process_time() - began


def test_a_crowd_of_writers_loses_and_doubles_nothing(
    crowds: range,
    kind_name: str | None,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its rare states are told at the end."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # So that a replay is identical.
    processes = multiprocessing.get_context("spawn")
    findings: list[str] = []
    taken: list[float] = []
    reached: Counter[str] = Counter()
    began = time.monotonic()

    def say(word: str) -> None:
        with capsys.disabled():
            print(f"crowd: {word}", flush=True)

    # One more process than processors, because a run idles while its threads pass turns.
    with ProcessPoolExecutor((os.cpu_count() or 1) + 1, processes, _begin_process) as pool:
        found_in = partial(finding_of, kind_name)
        runs = pool.map(found_in, crowds, chunksize=5)
        for done, (found, states, seconds) in enumerate(runs, start=1):
            reached.update(states)
            taken.append(seconds)
            if found:
                findings.append(found)
                say(found)
            if done % _PROGRESS_EVERY == 0:
                so_far = time.monotonic() - began
                say(f"{done:,} of {len(crowds):,} runs, {so_far:,.0f} s, {len(findings)} found")
    for state, times in reached.most_common():
        say(f"{times:,} times {state}")
    for state in rare_states.never(reached):
        say(f"never {state}")
    if (path := request.config.getoption("--runs")) is not None:
        ran = CrowdRuns.of(kind_name, crowds, findings, time.monotonic() - began, taken)
        ran.add_to(path)
        for line in totals(path):
            say(line)
    assert not findings, f"{len(findings)} of {len(crowds)} runs:\n" + "\n\n".join(findings[:3])


@pytest.mark.skipif(not DEEP, reason="it takes more than an hour: a deep run has it")
def test_every_rare_state_is_reached_by_crowds_or_interleavings() -> None:
    """A state that nothing reaches is tested by nothing; some are for direct tests alone."""
    wanted = {state.words for state in rare_states.RARE_STATES} - {*rare_states.IN_DIRECT_TESTS}
    reached: Counter[str] = Counter()
    with rare_states.counted(reached):
        for scenario in SCENARIOS:
            Exploration(scenario).explore(1)
        for seed in range(5000):
            if wanted <= reached.keys():
                break
            Crowd(seed).run()
    assert wanted - reached.keys() == set()
