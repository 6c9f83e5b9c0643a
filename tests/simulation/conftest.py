"""Options of the simulation: a seed or a number of seeds, and an index kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.choices import keep_cases_of_this_version
from tests.indexed_tables import ROWS_OF_LARGE
from tests.simulation.indexes import LARGE_ROWS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the argument ``seed`` once for each seed."""
    if "seed" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        count = metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", [one] if one is not None else range(count))


@pytest.fixture(autouse=True)
def _few_rows_are_large() -> Iterator[None]:
    with mock.patch(ROWS_OF_LARGE, LARGE_ROWS):
        yield


@pytest.fixture
def crowds(request: pytest.FixtureRequest) -> range:
    """The seeds of runs with several writers: many in CI, or only the given seed.

    The greatest seeds come first, because a run with fewer seeds did not use them.
    """
    one, count = request.config.getoption("--seed"), request.config.getoption("--crowds")
    first = request.config.getoption("--first")
    return range(one, one + 1) if one is not None else range(first, first + count)[::-1]


@pytest.fixture
def kind_name(request: pytest.FixtureRequest) -> str | None:
    """The index kind that is asked for; None where each seed picks one."""
    name: str | None = request.config.getoption("--kind")
    return name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep half of the cases, and all seeds. A service after a commit may fail.

    The commit stands then, and only a warning tells of it.
    """
    keep_cases_of_this_version(config, items, Path(__file__).parent, 2)
    for item in items:
        if "simulation" in item.path.parts:
            for name in ("ServiceWarning", "MetadataTableWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::bucketlake.errors.{name}"))
