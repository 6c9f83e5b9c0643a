"""Several writers, a reader and services at once; see ``crowd.py``."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.simulation.crowd import Crowd

_PROGRESS_EVERY = 1000


def _begin_process() -> None:
    gc.freeze()  # Exclude modules, which are most objects, from garbage collections.
    gc.set_threshold(50_000)


def finding_of(kind_name: str | None, seed: int) -> str | None:
    """Run one crowd; return its finding with the log of the run, or None."""
    try:
        Crowd(seed, kind_name).run()
    except Exception as error:  # Whatever a run raises is a finding.
        return f"seed {seed}: {type(error).__name__} {error}"
    return None


def test_a_crowd_of_writers_loses_and_doubles_nothing(
    crowds: range,
    kind_name: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # So that a replay is identical.
    processes = multiprocessing.get_context("spawn")
    findings: list[str] = []
    began = time.monotonic()

    def say(word: str) -> None:
        with capsys.disabled():
            print(f"crowd: {word}", flush=True)

    # One more process than processors, because a run idles while its threads pass turns.
    with ProcessPoolExecutor((os.cpu_count() or 1) + 1, processes, _begin_process) as pool:
        found_in = partial(finding_of, kind_name)
        for done, found in enumerate(pool.map(found_in, crowds, chunksize=5), start=1):
            if found:
                findings.append(found)
                say(found)
            if done % _PROGRESS_EVERY == 0:
                seconds = time.monotonic() - began
                say(f"{done:,} of {len(crowds):,} runs, {seconds:,.0f} s, {len(findings)} found")
    assert not findings, f"{len(findings)} of {len(crowds)} runs:\n" + "\n\n".join(findings[:3])
