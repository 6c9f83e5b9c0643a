"""Options of the simulation: one seed to replay, or how many to run."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a ``seed`` once for each."""
    if "seed" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        count = metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", [one] if one is not None else range(count))
