"""Something that happens between the tasks of a write and its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bucketlake.write.pack import PackedRecords
from bucketlake.write.record_index.indexed_write import IndexedWrite

WRITING = ((PackedRecords, "write"), (IndexedWrite, "run"))
"""The methods that run the tasks of a write: of most kinds, and under a record-level index."""


def meanwhile(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let something happen between the tasks of the next write and its commit."""
    for owner, name in WRITING:
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
