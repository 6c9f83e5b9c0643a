"""Each test that takes a ``case`` runs for each index kind of the registry.

Tests run for pairs, not for all products: the table types alternate, and so do the variants of
kinds. So each test runs for each kind and each table type, and each kind runs with each table type.
``--kind NAME`` runs all tests for all table types of one kind; ``BUCKETLAKE_DEEP=1`` runs them for
all kinds.

The mark ``merge_on_read`` runs a test only for that table type. ``in_turns(name, values)`` runs a
test for each value with each kind. A test with ``damage`` runs for each damage with
every fourth kind, in turns; with ``index_state`` too, for kinds that need a record-level
index, and for the states in turn. One with ``index_state`` and ``is_twice`` runs for each state
with each of these kinds, and takes turns whether a key is stored twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any
from unittest import mock
from zlib import crc32

import pytest

from tests.choices import DEEP, code_version, every_second
from tests.conformance.cases import Case, Checked
from tests.conformance.damages import INDEX_STATES, Damage
from tests.conformance.kinds import LARGE_ROWS, Kind, kinds_named
from tests.indexed_tables import ROWS_OF_LARGE

_KINDS_SHARE = 4  # Each damage runs with every fourth kind, at other versions with other ones;
_INDEXED_SHARE = 3  # and with a damaged index, too, with one of the three that need it.


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for its cases."""
    if "case" not in metafunc.fixturenames:
        return
    name = metafunc.config.getoption("--kind")
    kinds = kinds_named(name)
    of_logs = metafunc.definition.get_closest_marker("merge_on_read") is not None
    in_turns = metafunc.definition.get_closest_marker("in_turns")
    if "index_state" in metafunc.fixturenames:
        chosen = [kind for kind in kinds if kind.needs_metadata_table and not kind.is_variant]
        if "damage" not in metafunc.fixturenames:
            each = [pair for kind in chosen for pair in _in_turns(kind, INDEX_STATES)]
            if "is_twice" in metafunc.fixturenames:
                both = (product if name else every_second)(each, [False, True])
                triples = [(*pair, is_twice) for pair, is_twice in both]
                metafunc.parametrize(("case", "index_state", "is_twice"), triples, ids=_name_of)
            else:
                metafunc.parametrize(("case", "index_state"), each, ids=_name_of)
            return
        repaired = [(c, d) for kind in chosen for c, d in _damages(kind) if d.is_repaired]
        if not name and not DEEP:
            repaired = _few_of_each_damage(repaired, _INDEXED_SHARE)
        states = (INDEX_STATES[n % len(INDEX_STATES)] for n in range(len(repaired)))
        triples = [(*pair, state) for pair, state in zip(repaired, states, strict=False)]
        metafunc.parametrize(("case", "damage", "index_state"), triples, ids=_name_of)
    elif "damage" in metafunc.fixturenames:
        pairs = [pair for kind in kinds for pair in _damages(kind)]
        if not name and not DEEP:
            pairs = _few_of_each_damage(pairs, _KINDS_SHARE)
        metafunc.parametrize(("case", "damage"), pairs, ids=_name_of)
    elif in_turns is not None:
        argument, values = in_turns.args
        chosen = [kind for kind in kinds if name or not kind.is_variant]
        pairs = [pair for kind in chosen for pair in _in_turns(kind, values)]
        metafunc.parametrize(("case", argument), pairs, ids=_name_of)
    else:
        wanted = ["merge_on_read"] if of_logs else ["copy_on_write", "merge_on_read"]
        cases = [Case(kind, one) for kind in kinds for one in wanted if one in kind.table_types]
        if not name and not DEEP:
            cases = _one_of_each(cases, crc32(metafunc.function.__name__.encode()))
        metafunc.parametrize("case", cases, ids=str)


def _few_of_each_damage(
    pairs: Sequence[tuple[Case, Damage]], share: int
) -> list[tuple[Case, Damage]]:
    """Return some kinds for each damage, other ones for the next: each kind has its share."""
    by_damage: dict[str, list[tuple[Case, Damage]]] = defaultdict(list)
    for pair in pairs:
        by_damage[pair[1].name].append(pair)
    return [
        pair
        for turn, held in enumerate(by_damage.values(), int(code_version(), 16))
        for place, pair in enumerate(held)
        if (place + turn) % share == 0 or len(held) < share
    ]


def _one_of_each(cases: Sequence[Case], turn: int) -> list[Case]:
    """Return a case of each kind, and a case of one variant; ``turn`` chooses them."""
    variants = [case for case in cases if case.kind.is_variant]
    chosen = []
    for kind in dict.fromkeys(case.kind for case in cases if not case.kind.is_variant):
        own = [case for case in cases if case.kind == kind]
        chosen.append(own[(turn + len(chosen)) % len(own)])
    return [*chosen, variants[turn % len(variants)]] if variants else chosen


def _in_turns(kind: Kind, values: Sequence[Any]) -> Iterator[tuple[Case, Any]]:
    for turn, value in enumerate(values):
        yield Case(kind, kind.table_types[turn % len(kind.table_types)]), value


def _damages(kind: Kind) -> Iterator[tuple[Case, Damage]]:
    yield from _in_turns(kind, [one for one in kind.damages if not one.for_logs_only])
    if "merge_on_read" in kind.table_types:
        for damage in kind.damages:
            if damage.for_logs_only:
                yield Case(kind, "merge_on_read"), damage


def _name_of(value: object) -> str:
    if isinstance(value, Damage):
        return value.name
    return value.__name__.strip("_") if callable(value) else str(value)


@pytest.fixture(autouse=True)
def _few_rows_are_large() -> Iterator[None]:
    with mock.patch(ROWS_OF_LARGE, LARGE_ROWS):
        yield


@pytest.fixture
def table(case: Case, new_path: Callable[[], str]) -> Checked:
    """A table with keys 0 to 11 in the partitions a and b; see ``Case.filled``."""
    return case.filled(new_path())
