"""Requests and bytes that a write sends to storage, counted at the storage in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.storage.memory import MemoryStorage

WRITES = ("put", "put_if_absent", "put_if_version")
OTHERS = (
    "read read_range read_version stat list list_named list_folders duplicate delete delete_folder"
).split()


@dataclass(slots=True)
class Sent:
    """What was sent to storage.

    Attributes
    ----------
    requests : int
        Calls; each is a request to an object store.
    written_bytes, metadata_bytes : int
        Bytes written to the whole table, and to its metadata table alone.
    """

    requests: int = 0
    written_bytes: int = 0
    metadata_bytes: int = 0

    def add(self, path: str, data: Any = b"") -> None:
        """Count a request."""
        self.requests += 1
        self.written_bytes += len(data)
        if path.startswith(METADATA_TABLE_FOLDER):
            self.metadata_bytes += len(data)


@contextmanager
def counting() -> Iterator[Sent]:
    """Count what all handles of the storage in memory are asked for, until the block ends."""
    sent = Sent()
    counted: dict[str, Any] = {name: _counted(sent, name) for name in (*WRITES, *OTHERS)}
    with patch.multiple(MemoryStorage, **counted):
        yield sent


def _counted(sent: Sent, name: str) -> Callable[..., Any]:
    original = getattr(MemoryStorage, name)

    def call(self: MemoryStorage, path: str, *arguments: Any, **named: Any) -> Any:
        sent.add(path, arguments[0] if name in WRITES else b"")
        return original(self, path, *arguments, **named)

    return call
