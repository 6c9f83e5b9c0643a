"""JSON from a file of a table or of a landing folder: bounded before a parser sees it.

Whoever wrote such a file may be careless or hostile. Thousands of brackets inside each other end a
parser in C with a crash and one in Python with a RecursionError; ``Infinity``, ``1e999`` and
numbers of thousands of digits are no JSON that other programs read. ``docs/spec/bounds.md`` has all
bounds.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import numpy as np

NESTING_MAX: Final = 200
"""Brackets inside each other, in JSON and in Avro schemas: about 50 structs inside each other."""

_ESCAPES = re.compile(rb"\\.", re.DOTALL)
_NO_MARKS = bytes({*range(256)} - {*b'[]{}"'})
_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"[{"]], _STEPS[[*b"]}"]] = 1, -1
_CHUNK = 1 << 20  # Marks that are looked at together.


def parse_json(text: bytes | str) -> Any:
    """Parse JSON.

    Raises
    ------
    ValueError
        If the text is no JSON, is nested too deeply, or has a number that is none.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json('{"a": Infinity}')
    Traceback (most recent call last):
        ...
    ValueError: Infinity is no number of JSON
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    opening = data.count(b"[") + data.count(b"{")  # Nearly always few.
    if opening > NESTING_MAX and nesting_of(data) > NESTING_MAX:
        raise ValueError(f"more than {NESTING_MAX} brackets inside each other")
    return json.loads(text, parse_constant=_no_number, parse_float=_number)


def nesting_of(data: bytes) -> int:
    """Return how many brackets are inside each other at most, without those in texts.

    >>> nesting_of(b'{"a": ["[[[", {}]}'), nesting_of(b"[" * 10**6)
    (3, 1000000)
    """
    whole = _ESCAPES.sub(b"", data) if b"\\" in data else data
    marks = np.frombuffer(whole.translate(None, _NO_MARKS), np.uint8)
    quotes = depth = deepest = 0
    for start in range(0, len(marks), _CHUNK):
        part = marks[start : start + _CHUNK]
        inside = (quotes + np.cumsum(part == ord('"'), dtype=np.int32)) & 1
        steps = _STEPS[part]
        steps[inside == 1] = 0
        depths = depth + np.cumsum(steps, dtype=np.int32)
        quotes, depth, deepest = int(inside[-1]), int(depths[-1]), max(deepest, int(depths.max()))
    return deepest


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        return _no_number(text)
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text[:20]} is no number of JSON")
