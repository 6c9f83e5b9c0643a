"""Heartbeats: how other writers distinguish a running writer from a dead one.

A writer renews one small file per pending instant, where Hudi has it too. So a Hudi writer with the
lazy policy does not roll the write back. A write whose file is missing or old is treated as dead,
and the next writer rolls it back. The file also names the process: if that process has ended on
this machine, the write is dead immediately. The file also has a random name of the write, to
recognise writes of this process: the path of a table has many spellings. And it has the slots to
which the write appends blindly (``write/stages.py``), so that such writes let each other pass.

A slow writer that is treated as dead loses only its work: it cannot commit any more
(``timeline/outcome.py``).
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER
from bucketlake.errors import StorageError
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.file_name import InstantTime
from bucketlake.model.grouping import grouped
from bucketlake.storage.base import Storage, read_if_there
from bucketlake.storage.waiting import repeating

INTERVAL_SECONDS = 15.0
EXPIRES_AFTER_MS = 60_000
HUDI_EXPIRES_AFTER_MS = 120_000  # Two of Hudi's default intervals. Hudi's heartbeats are empty.

_beating: dict[str, tuple[InstantTime, int]] = {}  # The writes of this process and their threads.
_PROCESS = uuid.uuid4().hex  # A forked process has the same value, but another process id.


@contextmanager
def beating(
    storage: Storage,
    instant: InstantTime,
    *,
    is_new: bool = True,
    appended: Collection[tuple[str, str]] = (),
) -> Iterator[None]:
    """Renew the heartbeat of a write while the body runs, then delete it.

    The heartbeat starts before the instant is on the timeline, because a pending instant without a
    heartbeat is treated as dead.

    Parameters
    ----------
    storage, instant
        The table, and the pending instant.
    is_new : bool
        True if the instant is not on the timeline yet; False if its writer died.
    appended : collection of (str, str)
        Conflict keys of the slots to which the write appends blindly.

    Raises
    ------
    AlreadyExistsError
        If another writer is about to take the new instant.
    """
    write = uuid.uuid4().hex
    content = _content(write, appended)
    if is_new:
        storage.put_if_absent(_path(instant), content)
    else:
        storage.put(_path(instant), content)
    _beating[write] = instant, threading.get_ident()
    renew = partial(_renew, storage, instant, content)
    try:
        with repeating(renew, INTERVAL_SECONDS, f"heartbeat-{instant}"):
            yield
    finally:
        del _beating[write]
        with suppress(StorageError):  # Without renewal it expires.
            delete_heartbeat(storage, instant)


def delete_heartbeat(storage: Storage, instant: InstantTime) -> None:
    """Delete the heartbeat of a completed or rolled-back write."""
    storage.delete(_path(instant))


def is_alive(storage: Storage, instant: InstantTime, now_ms: Callable[[], int]) -> bool:
    """Return whether the writer of a pending instant seems to be running."""
    content = read_if_there(storage, _path(instant))
    if content is None:
        return False
    process = _parsed(content)
    this = _this_process()
    if (process.get("process"), process.get("pid")) == (this["process"], this["pid"]):
        return process.get("write") in _beating
    stored = storage.stat(_path(instant))
    limit_ms = EXPIRES_AFTER_MS if process else HUDI_EXPIRES_AFTER_MS
    is_fresh = stored is not None and now_ms() - stored.modified_at_ms <= limit_ms
    return is_fresh and not _is_gone(process)


def appended_by(storage: Storage, instant: InstantTime) -> set[tuple[str, str]]:
    """Return the slots to which a pending write appends blindly, as its heartbeat says."""
    try:
        told = _parsed(read_if_there(storage, _path(instant)) or b"").get("appends", {})
        return {(path, slot) for path, slots in told.items() for slot in slots}
    except (AttributeError, TypeError):  # It says nothing sensible.
        return set()


def is_of_this_thread(instant: InstantTime) -> bool:
    """Return whether the calling thread itself writes a pending instant."""
    return (instant, threading.get_ident()) in [*_beating.values()]


def _path(instant: InstantTime) -> str:
    return f"{HEARTBEAT_FOLDER}/{instant}"


def _renew(storage: Storage, instant: InstantTime, content: bytes) -> None:
    with suppress(StorageError):  # The next renewal may succeed.
        storage.put(_path(instant), content)


def _content(write: str, appended: Collection[tuple[str, str]]) -> bytes:
    told = {**_this_process(), "write": write}
    return json.dumps(told | ({"appends": grouped(sorted(appended))} if appended else {})).encode()


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"process": _PROCESS, "machine": _machine(), "pid": pid, "started": _started(pid)}


def _parsed(content: bytes) -> dict[str, Any]:
    """Return what a heartbeat says about its process; empty for a heartbeat of Hudi."""
    try:
        process = parse_json(content)
    except ValueError:
        return {}
    return process if isinstance(process, dict) else {}


def _is_gone(process: dict[str, Any]) -> bool:
    """Return whether a process has ended; False for a process of another machine."""
    machine, pid = process.get("machine"), process.get("pid")
    if not machine or machine != _machine() or not isinstance(pid, int) or pid < 1:
        return False
    started = _started(pid)
    if started is None:
        return not _exists(pid)
    return started != process.get("started")


def _exists(pid: int) -> bool:
    """Return whether a process exists, also if /proc hides it because it is another user's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _machine() -> str:
    """Return an id of this boot and its process namespace; empty if it cannot be read."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Return when a process started, because process ids are reused; None if /proc has no entry."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19]  # Field 22 of proc(5): the first two fields were removed above.
