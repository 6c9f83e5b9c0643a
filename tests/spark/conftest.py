"""Which cases a run has, and which tests the second Spark version runs."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.choices import DEEP, keep_cases_of_this_commit


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a quarter of the cases; on PySpark 3.5 leave out what does not depend on the version."""
    keep_cases_of_this_commit(config, items, Path(__file__).parent, 4)
    if DEEP or not version("pyspark").startswith("3."):
        return
    left_out = [item for item in items if item.get_closest_marker("any_spark")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
