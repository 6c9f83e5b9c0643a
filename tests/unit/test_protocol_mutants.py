"""Each step of the protocol has a direct test that fails if the step is left out or misplaced.

Each case puts one fault into a function and runs the test that must notice it.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bucketlake.errors import CommitConflictError
from bucketlake.storage.location import open_storage
from bucketlake.timeline.instant import Action
from bucketlake.timeline.outcome import claim_rollback
from tests.mutants import Mutant, is_broken, mutated
from tests.protocol_mutants import MUTANTS
from tests.simulation import rare_states
from tests.unit.actions import test_turns
from tests.unit.actions.bare_table import BareTable


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault.replace(" ", "-"))
def test_a_faulty_step_of_the_protocol_fails_its_test(
    mutant: Mutant, new_path: Callable[[], str], tmp_path: Path
) -> None:
    run(mutant, new_path, tmp_path / "sound")  # It holds; what fails next is the mutant's fault.
    with (
        mutated(mutant.function, (mutant.old, mutant.new)),
        pytest.raises((Exception, pytest.fail.Exception)) as caught,
    ):
        run(mutant, new_path, tmp_path / "faulty")
    assert not is_broken(caught.value)


def run(mutant: Mutant, new_path: Callable[[], str], folder: Path) -> None:
    """Run the test of a mutant with fixtures of its module, or those that all tests have."""
    fixtures = vars(sys.modules[mutant.test.__module__])
    folder.mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch, ExitStack() as stack:
        known = {"new_path": new_path, "tmp_path": folder, "monkeypatch": monkeypatch}
        known |= mutant.given

        def given(name: str) -> Any:
            if name not in known and name in fixtures:
                fixture = inspect.unwrap(fixtures[name])
                made = fixture(**{one: given(one) for one in inspect.signature(fixture).parameters})
                if inspect.isgenerator(made):
                    stack.callback(next, made, None)
                    made = next(made)
                known[name] = made
            elif name not in known:
                known[name] = {"storage": open_storage}[name](new_path())
            return known[name]

        mutant.test(**{name: given(name) for name in inspect.signature(mutant.test).parameters})


def test_each_fault_has_one_name() -> None:
    assert len({mutant.fault for mutant in MUTANTS}) == len(MUTANTS)


def test_rare_states_are_counted_in_the_source(new_path: Callable[[], str]) -> None:
    table = BareTable.at(new_path())
    pending = table.leave(Action.COMMIT)
    claim_rollback(table.storage, pending.requested_at)
    counts: Counter[str] = Counter()
    with rare_states.counted(counts), pytest.raises(CommitConflictError):
        test_turns.put_out(table, pending)
    assert counts == {"a rollback won against a late publish": 1}
    assert len(rare_states.never(counts)) == len(rare_states.RARE_STATES) - 1
    with pytest.raises(CommitConflictError):
        test_turns.put_out(table, pending)
    assert counts.total() == 1
