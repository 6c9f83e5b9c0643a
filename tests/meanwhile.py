"""Something that happens between the tasks of a write and its commit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake.write.arrow_source import ArrowSource


def meanwhile(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let something happen between the tasks of the next write of an Arrow table and its commit."""
    write = ArrowSource.write_slots

    def write_slowly(self: ArrowSource, *arguments: object) -> object:
        written = write(self, *arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        other()
        return written

    monkeypatch.setattr(ArrowSource, "write_slots", write_slowly)
