"""The executors of a cluster on this machine, as processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def own_executor() -> int | None:
    """Find the executor that this Python worker belongs to, among its ancestors."""
    pid = os.getpid()
    while pid > 1:
        pid = parent_of(pid)
        if "CoarseGrainedExecutorBackend" in command_of(pid):
            return pid
    return None


def executors_of(application: str) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            command = command_of(int(folder.name))
            if "CoarseGrainedExecutorBackend" in command and application in command.split():
                yield int(folder.name)
