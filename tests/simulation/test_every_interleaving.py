"""All interleavings of two writers and a service, or of a writer and two services, up to a number
of switches; see ``interleavings.py``.
"""

from __future__ import annotations

import pytest

from tests.choices import DEEP
from tests.simulation.interleavings import (
    METADATA_6,
    SCENARIOS,
    TWO_COMPACTIONS,
    TWO_SERVICES,
    Exploration,
    Scenario,
)

_IN_SECONDS = (
    "compaction",
    "compaction of version 6",
    "clean",
    "rollback",
    METADATA_6,
)  # The others take minutes.


def _named(*scenarios: Scenario) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", scenarios, ids=[one.name for one in scenarios])


@_named(*(one for one in SCENARIOS if DEEP or one.name in _IN_SECONDS))
def test_every_interleaving_of_two_writers_and_a_service_keeps_all_commits(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    explored = Exploration(scenario).explore(2 if DEEP else 1, before_reads=DEEP)
    with capsys.disabled():
        print(f"\n{scenario.name}: {explored.runs:,} runs, {explored.states:,} states")


@_named(*(TWO_SERVICES if DEEP else TWO_COMPACTIONS))
def test_every_interleaving_of_a_writer_and_two_services_keeps_all_commits(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only in version 6 does a planner act between its last look and its turn."""
    reads, only = DEEP or scenario.version == 6, None if DEEP else scenario.name
    explored = Exploration(scenario).explore(1, before_reads=reads, interrupts=only)
    with capsys.disabled():
        print(f"\n{scenario.name}: {explored.runs:,} runs, {explored.states:,} states")


@_named(*SCENARIOS, *(TWO_SERVICES if DEEP else TWO_COMPACTIONS[:1]))
def test_a_process_that_dies_after_any_change_loses_no_commit_of_the_others(
    scenario: Scenario,
) -> None:
    Exploration(scenario).explore_deaths(1 if DEEP else 0, every=1 if DEEP else 7)
