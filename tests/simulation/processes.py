"""Runs actors as separate processes that share the clock of their stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any
from unittest import mock

from bucketlake.flow import threads
from bucketlake.read import arrow_reader, snapshot
from bucketlake.storage import waiting
from bucketlake.timeline import active, commit_order, heartbeat, instant, locks
from bucketlake.timeline.instant import IssuedTimes
from tests.simulation.stage import InTurn, Stage, threads_of

_decoded = lru_cache(maxsize=64)(active.decode_commit_metadata)
_understood = lru_cache(maxsize=64)(snapshot.understood_columns)
"""They decode equal bytes once for all processes; nobody changes a result."""


class Processes:
    """Gives each process of an actor its own process state.

    Parameters
    ----------
    stage : Stage
        Tells which actor runs.
    renew : bool
        Whether heartbeats and locks are renewed.
    """

    def __init__(self, stage: Stage, *, renew: bool) -> None:
        self._stage, self._renew = stage, renew
        self._lives: Counter[str] = Counter()
        self._issued: dict[str, IssuedTimes] = {}

    def begin(self, name: str) -> None:
        """Let an actor continue as a new process."""
        self._lives[name] += 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace clock, sleep, threads and process state by those of the simulation."""
        with ExitStack() as stack:
            set_ = lambda *args: stack.enter_context(mock.patch.object(*args))  # noqa: E731
            set_(waiting, "time", self._stage)
            for module in (threads, arrow_reader):
                set_(module, "ThreadPoolExecutor", InTurn)
            for module in (heartbeat, locks):
                set_(module, "threading", threads_of(self._stage, renew=self._renew))
            set_(locks, "system_now_ms", lambda: self._stage.now_ms)
            set_(heartbeat, "_this_process", self._process)
            set_(heartbeat, "_machine", lambda: "here")  # Each process is elsewhere.
            set_(active, "decode_commit_metadata", _decoded)
            set_(snapshot, "understood_columns", _understood)
            set_(heartbeat, "_beating", _PerProcess(self._process))
            set_(instant, "issued_times", self._issued_times)
            set_(commit_order, "_KEPT", 1)  # No actor is overtaken by many others.
            yield

    def _process(self) -> dict[str, Any]:
        actor = self._stage.actor
        name = "nobody" if actor is None else actor.process
        return {"process": f"{name} {self._lives[name]}", "machine": "elsewhere", "pid": 1}

    def _issued_times(self, *_: object) -> IssuedTimes:
        return self._issued.setdefault(self._process()["process"], IssuedTimes())


class _PerProcess(dict[Any, Any]):
    """A dictionary with separate entries for each process."""

    def __init__(self, process: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._process = process

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((self._process()["process"], key), value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__((self._process()["process"], key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__((self._process()["process"], key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((self._process()["process"], key), default)
