"""What a test does without a program that it needs: CI must have it."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI", "") not in ("", "0", "false")


def skip_or_fail(what: str, problem: str) -> NoReturn:
    """Skip the test, or fail in CI, because something cannot be had."""
    if IN_CI:
        pytest.fail(f"CI asks for {what}, but {problem}", pytrace=False)
    pytest.skip(f"{what} cannot be had: {problem}")
