"""A call of a user: what it does is noted where it happens, and told to those who watch.

OpenTelemetry gets a span of each call and of its steps, and counts. It gets nothing, and nothing is
imported, where the application has not loaded it itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

_Value = TypeVar("_Value")


@dataclass(slots=True)
class Call:
    """What one call of a user has done so far.

    Attributes
    ----------
    name : str
        Name of the function or method.
    table : str
        Address of the table, without secrets.
    began_at : datetime
    instants : list of str
        Instants that it put on the timeline.
    completed : dict of str to bytes
        Instants that it completed, also of others, and what commits among them say.
    inputs : list of (str, callable)
        Addresses of files that it read, and what returns the names of their columns.
    entries : list of (str, str)
        Addresses of catalogs, and the names that they have for the table.
    told : set of str
        What tasks told of their requests; it may come twice.
    """

    name: str
    table: str
    began_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    instants: list[str] = field(default_factory=list)
    completed: dict[str, bytes] = field(default_factory=dict)
    inputs: list[tuple[str, Callable[[], list[str]]]] = field(default_factory=list)
    entries: list[tuple[str, str]] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    @property
    def changes(self) -> dict[str, bytes]:
        """What became of its own instants: those that it completed."""
        return {each: self.completed[each] for each in self.instants if each in self.completed}


_CALL: ContextVar[Call | None] = ContextVar("call", default=None)
_WORK: ContextVar[tuple[str, ...]] = ContextVar("work", default=())  # In words, for people.


def current_call() -> Call | None:
    """Return the call that is at work; None outside of any."""
    return _CALL.get()


def note(change: Callable[[Call], object]) -> None:
    """Note something of the call that is at work, if there is one."""
    call = _CALL.get()
    if call is not None:
        change(call)


@contextmanager
def calling(call: Call) -> Iterator[None]:
    """Let the body be a call: its span, its duration, and whether it failed."""
    began, failed = time.perf_counter(), True
    name = call.table.rstrip("/").rpartition("/")[2]
    try:
        with (
            _set(_CALL, call),
            _set(_WORK, (f"bucketlake {call.name}: {name}",)),
            span(f"bucketlake {call.name}", table=call.table),
        ):
            yield
            failed = False
    finally:
        seconds = time.perf_counter() - began
        _record("create_histogram", "call.duration", "s", seconds, call=call.name, failed=failed)


@contextmanager
def doing(*words: str) -> Iterator[None]:
    """Let the body be a step of the call; say what it does, after what its caller does."""
    with _set(_WORK, (*_WORK.get(), *words)), span(words[-1]):
        yield


def work_in_words() -> str:
    """Return what is being done, from the whole to its step; empty outside of any work."""
    return " · ".join(_WORK.get())


@contextmanager
def _set(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


# ---- OpenTelemetry -------------------------------------------------------------------------------

_PREFIX = "bucketlake."


@contextmanager
def span(name: str, **facts: str) -> Iterator[None]:
    """Let the body be a span; an error is noted in it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield
        return
    tracer = trace.get_tracer("bucketlake")
    with tracer.start_as_current_span(name, attributes=_named(facts)):
        yield


def is_watched() -> bool:
    """Return whether the application has loaded OpenTelemetry."""
    return "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules


def add_facts(**facts: str | int) -> None:
    """Add facts to the current span."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        trace.get_current_span().set_attributes(_named(facts))


def count(name: str, number: int = 1, **facts: str) -> None:
    """Add to a counter."""
    _record("create_counter", name, "1", number, **facts)


def count_request(operation: str) -> None:
    """Count a request to storage; a task keeps it for the driver."""
    kept = _KEPT[:]  # At once: a thread may ask while its task ends.
    if kept:
        kept[0].append(operation)
    else:
        count("storage.requests", operation=operation)


_KEPT: list[list[str]] = []  # Not by context: a task asks storage in threads, too.


@contextmanager
def keeping_requests() -> Iterator[list[str]]:
    """Let the body be the task of this process; yield its requests, as they come."""
    _KEPT[:] = [[]]
    try:
        yield _KEPT[0]
    finally:
        _KEPT.clear()


def _record(kind: str, name: str, unit: str, number: float, **facts: str | bool) -> None:
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return
    instrument = _instrument(metrics, kind, name, unit)
    put = instrument.add if kind == "create_counter" else instrument.record
    put(number, attributes=_named(facts))


@cache
def _instrument(metrics: Any, kind: str, name: str, unit: str) -> Any:
    return getattr(metrics.get_meter("bucketlake"), kind)(_PREFIX + name, unit=unit)


def _named(facts: dict[str, Any]) -> dict[str, Any]:
    return {_PREFIX + key: fact for key, fact in facts.items()}
