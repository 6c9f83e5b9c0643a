"""Functions of the source with a fault in them, to show that a test notices the fault."""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A fault, and the test that notices it.

    Attributes
    ----------
    fault : str
        What is wrong.
    function : callable
        Where.
    old, new : str
        Part of the source of the function, and what stands there instead.
    test : callable
        The test that fails.
    given : mapping of str to object
        Parameters of the test that are no fixtures.
    """

    fault: str
    function: Callable[..., Any]
    old: str
    new: str
    test: Callable[..., Any]
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def room(self) -> str:
        """The room of the function."""
        return inspect.unwrap(self.function).__module__.split(".")[1]


@contextmanager
def mutated(
    function: Callable[..., Any], *changes: tuple[str, str], **names: object
) -> Iterator[None]:
    """Run the body while parts of a function's text read otherwise.

    The function keeps its identity, so its callers need not be known.

    Parameters
    ----------
    function : callable
        A function of a module; it may be the body of a context manager.
    *changes : tuple of str and str
        A part of its source that occurs once, without the first indentation, and its replacement.
    **names : object
        What replacements use beside the names of the module.
    """
    inner: Any = inspect.unwrap(function)
    text = _text_of(inner)
    for old, new in changes:
        assert text.count(old) == 1, f"{inner.__name__} has {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    made: dict[str, Any] = {}
    flag = __future__.annotations.compiler_flag
    exec(compile(text, f"<mutant of {inner.__name__}>", "exec", flag), inner.__globals__, made)
    code = inner.__code__
    inner.__globals__.update(names)
    inner.__code__ = made[inner.__name__].__code__
    try:
        yield
    finally:
        inner.__code__ = code
        for name in names:
            inner.__globals__.pop(name, None)


def with_calls(function: Callable[..., Any], calls: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the text of a function, and the text with calls between its statements.

    Parameters
    ----------
    function : callable
    calls : iterable of str and str
        A part of the text that occurs once, and what is called before the statement that holds it.
    """
    text = _text_of(inspect.unwrap(function))
    lines, tree = text.split("\n"), ast.parse(text)
    statements = [one for one in ast.walk(tree.body[0]) if isinstance(one, ast.stmt)][1:]
    added = []
    for part, call in calls:
        assert text.count(part) == 1, f"{part!r} is there {text.count(part)} times"
        first = text.index(part) + len(part) - len(part.lstrip())
        line = text.count("\n", 0, first) + 1
        held = [one for one in statements if one.lineno <= line <= (one.end_lineno or 0)]
        held = [one for one in held if not lines[one.lineno - 1].lstrip().startswith("elif")]
        inner = max(held, key=lambda one: (one.lineno, one.col_offset))
        added.append((inner.lineno - 1, " " * inner.col_offset + call))
    for place, call in sorted(added, reverse=True):
        lines.insert(place, call)
    return text, "\n".join(lines)


def _text_of(function: Callable[..., Any]) -> str:
    source = textwrap.dedent(inspect.getsource(function))
    return source[source.index("def ") :]  # Without its decorators.


def is_broken(error: BaseException) -> bool:
    """Return whether a mutant only cannot run: such an error, or its cause, notices no fault."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    return any(
        isinstance(one, (NameError, TypeError, AttributeError, SyntaxError)) for one in causes
    )
