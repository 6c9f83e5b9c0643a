"""Heartbeats: how others tell a writer that is at work from one that died.

A writer renews one small file per pending instant, in Hudi's place, so that a writer of Hudi's with
the lazy policy leaves it alone, too. A write whose file is missing or old counts as dead and is
rolled back by the next writer. The file also says which process it is of: one that is gone from
this very machine is known to be dead at once, and need not be waited for. Within a process it says
which write it is of, by a name drawn for it: a table's path has many spellings.

Taking a slow writer for dead does no harm but to its work: it cannot commit any more
(``timeline/outcome.py``).
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bucketlake.config.layout import HEARTBEAT_FOLDER
from bucketlake.errors import ObjectNotFoundError, StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage

INTERVAL_SECONDS = 15.0
EXPIRES_AFTER_MS = 60_000
HUDI_EXPIRES_AFTER_MS = 120_000  # Two of Hudi's intervals, at its defaults; its files are empty.

_beating: dict[str, tuple[InstantTime, int]] = {}  # This process's writes, and their threads.
_PROCESS = uuid.uuid4().hex  # A forked process has it too, and another number.


@contextmanager
def beating(storage: Storage, instant: InstantTime, *, is_new: bool = True) -> Iterator[None]:
    """Renew the heartbeat of a write while the body runs, and take it away afterwards.

    Begins before the instant is on the timeline; a pending instant without one counts as dead.

    Parameters
    ----------
    storage, instant
        The table, and the pending instant.
    is_new : bool
        Whether the instant is yet to be put on the timeline; else it is somebody's who died.

    Raises
    ------
    AlreadyExistsError
        If another writer is about to take the new instant.
    """
    stop, write = threading.Event(), uuid.uuid4().hex
    if is_new:
        storage.put_if_absent(_path(instant), _content(write))
    else:
        _beat(storage, instant, write)
    thread = threading.Thread(
        target=_renew,
        args=(storage, instant, write, stop),
        name=f"heartbeat-{instant}",
        daemon=True,
    )
    _beating[write] = instant, threading.get_ident()
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        del _beating[write]
        with suppress(StorageError):  # It grows old by itself.
            delete_heartbeat(storage, instant)


def delete_heartbeat(storage: Storage, instant: InstantTime) -> None:
    """Forget the heartbeat of a write that was completed or rolled back."""
    storage.delete(_path(instant))


def is_alive(storage: Storage, instant: InstantTime, now_ms: Callable[[], int]) -> bool:
    """Tell whether the writer of a pending instant seems to be at work."""
    try:
        process = _parsed(storage.read(_path(instant)))
    except ObjectNotFoundError:
        return False
    this = _this_process()
    if (process.get("process"), process.get("pid")) == (this["process"], this["pid"]):
        return process.get("write") in _beating
    stored = storage.stat(_path(instant))
    limit_ms = EXPIRES_AFTER_MS if process else HUDI_EXPIRES_AFTER_MS
    is_fresh = stored is not None and now_ms() - stored.modified_at_ms <= limit_ms
    return is_fresh and not _is_gone(process)


def is_of_this_thread(instant: InstantTime) -> bool:
    """Tell whether the caller is itself at work on a pending instant."""
    return (instant, threading.get_ident()) in [*_beating.values()]


def _path(instant: InstantTime) -> str:
    return f"{HEARTBEAT_FOLDER}/{instant}"


def _renew(storage: Storage, instant: InstantTime, write: str, stop: threading.Event) -> None:
    while not stop.wait(INTERVAL_SECONDS):
        with suppress(StorageError):  # The next one may get through.
            _beat(storage, instant, write)


def _beat(storage: Storage, instant: InstantTime, write: str) -> None:
    storage.put(_path(instant), _content(write))


def _content(write: str) -> bytes:
    return json.dumps({**_this_process(), "write": write}).encode()


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"process": _PROCESS, "machine": _machine(), "pid": pid, "started": _started(pid)}


def _parsed(content: bytes) -> dict[str, Any]:
    """Read what a heartbeat says of its process; Hudi's are empty and say nothing."""
    try:
        process = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return process if isinstance(process, dict) else {}


def _is_gone(process: dict[str, Any]) -> bool:
    """Tell whether a process of this machine has ended; False of one on another machine."""
    machine, pid = process.get("machine"), process.get("pid")
    if not machine or machine != _machine() or not isinstance(pid, int) or pid < 1:
        return False
    started = _started(pid)
    if started is None:
        return not _exists(pid)
    return started != process.get("started")


def _exists(pid: int) -> bool:
    """Tell whether there is a process, also of another user whose processes /proc hides."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _machine() -> str:
    """Name this boot of this machine and its process numbers; empty where it cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Return when a process started, since numbers are used again; None where /proc tells not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19]  # Field 22 of proc(5), the name and what is before it taken off.
