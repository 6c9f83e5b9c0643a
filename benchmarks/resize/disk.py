"""What a table takes on disk: each file once, however many names it has."""

from __future__ import annotations

import os
from pathlib import Path

_BLOCK_BYTES = 512  # The unit of st_blocks, whatever the file system's own block is.


def disk_usage(table: Path) -> dict[str, int]:
    """Return bytes, bytes of whole blocks, and names of the files below a folder.

    Two names of one file are hard links: their bytes are on the disk once.
    """
    found: dict[tuple[int, int], os.stat_result] = {}
    names = 0
    for folder, _, files in os.walk(table):
        for name in files:
            status = (Path(folder) / name).stat()
            found[status.st_dev, status.st_ino] = status
            names += 1
    return {
        "bytes": sum(status.st_size for status in found.values()),
        "block_bytes": sum(status.st_blocks * _BLOCK_BYTES for status in found.values()),
        "names": names,
    }


def growth(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return what a step added, under names of their own."""
    return {f"added_{name}": after[name] - before[name] for name in before}
