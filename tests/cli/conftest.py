"""Settings that all tests of the command line share."""

from __future__ import annotations

import pytest

from bucketlake.cli import output
from tests.bounds import set_bounds


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show no progress: what a slow machine would print is no part of an answer."""
    set_bounds(monkeypatch, output, _PROGRESS_AFTER_SECONDS=600.0)
