"""Results that depend on schemas, kept for the next call.

A write asks the same of the schema of each of its files. Arrow compares schemas in C++, but hashes
them field by field in Python, which takes as long as some of the questions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

_KEPT = 16

Given = ParamSpec("Given")
Result = TypeVar("Result")


def by_schema(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Keep the last results of a function of schemas and plain values, given by position."""
    kept: tuple[tuple[tuple[Any, ...], Result], ...] = ()  # Replaced as a whole: threads read it.

    @wraps(function)
    def call(*given: Given.args, **named: Given.kwargs) -> Result:
        nonlocal kept
        assert not named
        for known, result in kept:
            if all(map(_is_same, known, given)):
                return result
        result = function(*given, **named)
        kept = ((given, result), *kept[: _KEPT - 1])
        return result

    return call


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, pa.Schema):
        return one is other or bool(one.equals(other, check_metadata=True))
    return one == other
