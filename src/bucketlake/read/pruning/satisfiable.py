"""Whether a predicate can be true for some row, from what is known about single columns.

Partitions and files are asked alike: a function answers the test of one column for all of them at
once, and the predicate joins the answers. The joined answer may be too careful, because it forgets
that the tests are about the same row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bucketlake.where.predicate import (
    COLUMN_TESTS,
    And,
    ColumnTest,
    Constant,
    Not,
    Or,
    Predicate,
)

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a predicate can be true, and can be false, for a row of each partition or file."""

    can_be_true: Mask
    can_be_false: Mask

    @classmethod
    def unknown(cls, count: int) -> Outcome:
        """Return the outcome where nothing is known."""
        return cls(np.ones(count, np.bool_), np.ones(count, np.bool_))


def evaluate(
    predicate: Predicate, answer: Callable[[ColumnTest], Outcome | None], count: int
) -> Outcome:
    """Evaluate a predicate.

    Parameters
    ----------
    predicate : Predicate
        The predicate.
    answer : callable
        Returns the outcome of a test of one column; None if nothing is known about the column.
    count : int
        Number of partitions or files.
    """
    if isinstance(predicate, And | Or):
        parts = [evaluate(operand, answer, count) for operand in predicate.operands]
        all_of, any_of = np.logical_and.reduce, np.logical_or.reduce
        true, false = (all_of, any_of) if isinstance(predicate, And) else (any_of, all_of)
        return Outcome(
            true([part.can_be_true for part in parts]), false([part.can_be_false for part in parts])
        )
    if isinstance(predicate, Not):
        inner = evaluate(predicate.operand, answer, count)
        return Outcome(inner.can_be_false, inner.can_be_true)
    if isinstance(predicate, Constant):
        return Outcome(*(np.full(count, predicate.value is found) for found in (True, False)))
    found = answer(predicate) if isinstance(predicate, COLUMN_TESTS) else None
    return Outcome.unknown(count) if found is None else found
