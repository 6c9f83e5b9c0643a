"""Each test that takes a ``case`` runs for each index kind and table type of the registry.

Marks say otherwise: ``merge_on_read`` runs for that table type alone. ``in_turns(name, values)``
gives the test each value with each kind, and the table types of the kind take turns. A test that
takes a ``damage`` gets the damages of each kind so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.conformance.cases import Case, Checked, cases_of
from tests.conformance.damages import Damage
from tests.conformance.kinds import Kind, kinds_named


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for its cases."""
    if "case" not in metafunc.fixturenames:
        return
    name = metafunc.config.getoption("--kind")
    of_logs = metafunc.definition.get_closest_marker("merge_on_read") is not None
    in_turns = metafunc.definition.get_closest_marker("in_turns")
    if "damage" in metafunc.fixturenames:
        pairs = [pair for kind in kinds_named(name) for pair in _damages(kind)]
        metafunc.parametrize(("case", "damage"), pairs, ids=_name_of)
    elif in_turns is not None:
        argument, values = in_turns.args
        pairs = [pair for kind in kinds_named(name) for pair in _in_turns(kind, values)]
        metafunc.parametrize(("case", argument), pairs, ids=_name_of)
    else:
        cases = [case for case in cases_of(name) if case.merges_on_read or not of_logs]
        metafunc.parametrize("case", cases, ids=str)


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
    return value.name if isinstance(value, Damage) else str(value)


@pytest.fixture
def table(case: Case, new_path: Callable[[], str]) -> Checked:
    """A table with keys 0 to 11 in the partitions a and b; see ``Case.filled``."""
    return case.filled(new_path())
