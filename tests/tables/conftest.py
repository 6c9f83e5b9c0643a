"""Which cases a run of the room has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.choices import keep_cases_of_this_version


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a third of the cases of a test with more than three; a file that is named has all."""
    if not any(".py" in given for given in config.args):
        keep_cases_of_this_version(config, items, Path(__file__).parent, 3, few=3)
