"""Which cases a run has, and which tests the second Spark version runs."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.choices import DEEP, keep_cases_of_this_version

LONG = ("attempts", "cluster", "flights_demo", "guides", "killed_together", "two_streams")
"""Files whose few cases take long; they come first, so that none is waited for at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a quarter of the cases; on PySpark 3.5 leave out what does not depend on the version."""
    here = Path(__file__).parent
    keep_cases_of_this_version(config, items, here, 4)
    counts = Counter(item.path for item in items if here in item.path.parents)
    long = {here / f"test_{name}.py" for name in LONG}
    items.sort(key=lambda item: (item.path not in long, -counts[item.path]))
    if DEEP or not version("pyspark").startswith("3."):
        return
    left_out = [item for item in items if item.get_closest_marker("any_spark")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
