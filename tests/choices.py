"""How many combinations of a test's parameters are run: few each time, all in a deep run."""

from __future__ import annotations

import itertools
import operator
import os
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    import pytest

One = TypeVar("One")

DEEP = os.environ.get("BUCKETLAKE_DEEP") == "1"
"""Whether this is a deep run, which takes hours."""


def combinations(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combine parameters: every choice of each in some combination; in a deep run all of them.

    The choices of each parameter are gone through in turn, each at its own pace, so the number of
    combinations is that of the longest list.

    Examples
    --------
    >>> combinations(["a", "b", "c"], [1, 2])
    [('a', 1), ('b', 2), ('c', 1)]
    """
    if DEEP:
        return list(itertools.product(*choices))
    count = max(map(len, choices))
    return [tuple(one[i % len(one)] for one in choices) for i in range(count)]


def every_second(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return every second combination, so that each two choices still meet; in a deep run all.

    They meet where there are three parameters or more.

    Examples
    --------
    >>> every_second(["a", "b"], [1, 2], [True, False])
    [('a', 1, True), ('a', 2, False), ('b', 1, False), ('b', 2, True)]
    """
    places = itertools.product(*(range(len(one)) for one in choices))
    kept = [held for held in places if DEEP or sum(held) % 2 == 0]
    return [tuple(map(operator.getitem, choices, held)) for held in kept]


@cache
def code_version() -> str:
    """Return hexadecimal digits that name the committed code and tests; "0" outside of a checkout.

    A commit of documents alone has the same cases.
    """
    asked = ["git", "-C", str(Path(__file__).parents[1]), "rev-parse", "HEAD:src", "HEAD:tests"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "0"
    source, tests = (int(tree, 16) for tree in done.stdout.split())
    return f"{source ^ tests:040x}"


def of_this_version(found: Sequence[One], share: int, at: str | None = None) -> list[One]:
    """Return every ``share``-th, at other versions of the code other ones; in a deep run all.

    Parameters
    ----------
    found : sequence
        The choices.
    share : int
        How many versions it takes at least until all were chosen.
    at : str, optional
        A version of the code; by default that of this checkout.

    Examples
    --------
    >>> of_this_version("abcdef", 2, at="8"), of_this_version("abcdef", 2, at="9")
    (['a', 'c', 'e'], ['b', 'd', 'f'])
    """
    if DEEP:
        return list(found)
    return list(found[int(at or code_version(), 16) % share :: share])


def some(found: Sequence[One], most: int) -> list[One]:
    """Return at most so many, spread evenly, with the first and the last; in a deep run all.

    Examples
    --------
    >>> some(range(100), 4)
    [0, 33, 66, 99]
    """
    if DEEP or len(found) <= most:
        return list(found)
    return [found[turn * (len(found) - 1) // (most - 1)] for turn in range(most)]


def keep_cases_of_this_version(
    config: pytest.Config, items: list[pytest.Item], folder: Path, share: int, few: int = 1
) -> None:
    """Of each test of a folder with more than a few cases keep every ``share``-th.

    So of the tests of a file that are marked ``slow``. At other versions of the code others are
    kept. A deep run has all, and so has a run of tests that are named. Tests whose cases are all
    needed each time are marked ``every_case``; seeds are chosen by options.
    """
    if config.getoption("keyword") or any("::" in given for given in config.args):
        return
    groups: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        is_seeded = "seed" in getattr(item, "fixturenames", ())
        if folder not in item.path.parents or is_seeded or item.get_closest_marker("every_case"):
            continue
        is_slow = item.get_closest_marker("slow") is not None
        groups[item.path, "" if is_slow else item.name.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for (path, name), held in groups.items():
        if len(held) > few:
            turn = f"{int(code_version(), 16) + crc32(f'{path.name} {name}'.encode()):x}"
            left_out |= {*held} - {*(of_this_version(held, share, turn) or held[:1])}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])
