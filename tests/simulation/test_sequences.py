"""One writer, no faults, all operations in any order; see ``sequences.py``."""

from __future__ import annotations

from tests.simulation.sequences import Player

STEPS = 25


def test_a_sequence_of_operations_leaves_the_rows_that_its_commits_tell(seed: int) -> None:
    Player(seed).play(STEPS)
