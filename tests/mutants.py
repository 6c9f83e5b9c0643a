"""Functions of the source with a fault in them, to show that a test notices the fault."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def mutated(function: Callable[..., Any], old: str, new: str) -> Iterator[None]:
    """Run the body while a part of a function's text reads otherwise.

    The function keeps its identity, so its callers need not be known.

    Parameters
    ----------
    function : callable
        A function of a module; it may be the body of a context manager.
    old, new : str
        A part of its source that occurs once, without the first indentation, and its replacement.
    """
    inner: Any = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(inner))
    assert source.count(old) == 1, f"{inner.__name__} has {old!r} {source.count(old)} times"
    text = source[source.index("def ") :].replace(old, new)  # Without its decorators.
    made: dict[str, Any] = {}
    flag = __future__.annotations.compiler_flag
    exec(compile(text, f"<mutant of {inner.__name__}>", "exec", flag), inner.__globals__, made)
    code = inner.__code__
    inner.__code__ = made[inner.__name__].__code__
    try:
        yield
    finally:
        inner.__code__ = code
