"""Processes write a history over an S3 server, disturbed; a checker from outside judges it.

These are the shortest runs; ``python -m tests.histories`` has long ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.choices import code_version
from tests.histories.links import why_no_links
from tests.histories.world import KINDS, Plan, World
from tests.in_ci import skip_or_fail

SECONDS = 6.0


def require_sound(plan: Plan, folder: Path, server: str) -> None:
    world = World(plan, folder, server)
    findings = world.run()
    assert not findings, "\n".join([*world.summary(), *findings])
    assert world.history is not None
    ends = world.history.ends
    assert sum(count for (_, how), count in ends.items() if how == "ok") >= 10
    assert world.events


def seed_of_this_version() -> int:
    """Return another seed at another version of the code, so that all kinds get their turn."""
    return int(code_version(), 16) % (20 * len(KINDS))


def test_processes_that_are_killed_and_get_no_answers_leave_a_sound_history(
    tmp_path: Path, versitygw: str
) -> None:
    plan = Plan.of_seed(seed_of_this_version(), SECONDS, hosts=0)
    require_sound(plan, tmp_path, versitygw)


def test_hosts_whose_link_is_cut_leave_a_sound_history(tmp_path: Path, versitygw: str) -> None:
    if problem := why_no_links():
        if "root" in problem:
            pytest.skip(problem)
        skip_or_fail("network namespaces", problem)
    plan = Plan.of_seed(seed_of_this_version() + 1, SECONDS, hosts=2)
    require_sound(plan, tmp_path, versitygw)
