"""Bounds of the source that a test makes small, so that small data reaches them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest


def set_bounds(monkeypatch: pytest.MonkeyPatch, module: ModuleType | str, **bounds: float) -> None:
    """Set sizes, counts and times that are constants of a module, until the test ends.

    Parameters
    ----------
    monkeypatch : MonkeyPatch
        Takes them back.
    module : module or str
        The module, or its name.
    **bounds : object
        The constants by name.
    """
    owner = import_module(module) if isinstance(module, str) else module
    for name, bound in bounds.items():
        assert name.isupper(), f"{name} is no constant"
        monkeypatch.setattr(owner, name, bound)
