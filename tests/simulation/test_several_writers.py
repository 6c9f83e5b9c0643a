"""Several writers, a reader and services at once; see ``crowd.py``."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.crowd import Crowd


def finding_of(seed: int) -> str | None:
    """Run one crowd; return what it found, with its story."""
    try:
        Crowd(seed).run()
    except Exception as error:  # Whatever a run raises is a finding.
        return f"seed {seed}: {type(error).__name__} {error}"
    return None


def test_a_crowd_of_writers_loses_and_doubles_nothing(
    crowds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # So that a replay goes the same way.
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), processes) as pool:
        findings = [found for found in pool.map(finding_of, crowds, chunksize=5) if found]
    assert not findings, f"{len(findings)} of {len(crowds)} runs:\n" + "\n\n".join(findings[:3])
