"""Something that happens between the tasks of a write and its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bucketlake.write.record_index.located_arrow import LocatedArrow

from bucketlake.write.arrow_source import ArrowSource


def meanwhile(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let something happen between the tasks of the next write of an Arrow table and its commit."""
    for owner, name in ((ArrowSource, "write_slots"), (LocatedArrow, "write")):
        monkeypatch.setattr(owner, name, _slowly(monkeypatch, getattr(owner, name), other))


def _slowly(
    monkeypatch: pytest.MonkeyPatch, write: Callable[..., Any], other: Callable[[], object]
) -> Callable[..., Any]:
    def write_slowly(*arguments: object) -> object:
        written = write(*arguments)
        monkeypatch.undo()
        other()
        return written

    return write_slowly
