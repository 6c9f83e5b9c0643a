"""The tree of a predicate: the few forms of conditions that bucketlake understands.

Each comparison compares plain values (:mod:`.comparable`). Everything else is :class:`Opaque`:
Spark can answer it, bucketlake cannot. A predicate is true, false or unknown for a row, as in SQL.
The values are frozen and picklable. :func:`evaluate` tells whether a predicate can be true for some
row of a partition or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from bucketlake.model.arrays import Mask
from bucketlake.where.sql_literal import LiteralValue


class Operator(Enum):
    """How a column is compared with a value; the value is SQL's spelling."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    NULL_SAFE_EQUAL = "<=>"

    @property
    def mirrored(self) -> Operator:
        """The equivalent operator with exchanged sides."""
        return _MIRRORED.get(self, self)

    @property
    def negated(self) -> Operator | None:
        """The operator that is true where this one is false; None if there is none."""
        return _NEGATED.get(self)


_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.GREATER: Operator.LESS,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}
_NEGATED = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.GREATER,
}


@dataclass(frozen=True, slots=True)
class And:
    """True if all operands are true."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any operand is true."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; unknown stays unknown."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a value; with NULL it is unknown for every row.

    The column of each test is a path, such as ``header.eid`` (``model/field_path.py``).
    """

    column: str
    operator: Operator
    value: LiteralValue


@dataclass(frozen=True, slots=True)
class In:
    """A column that equals one of several values."""

    column: str
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True, slots=True)
class Among:
    """Columns whose values are one of the rows of a set; :mod:`.sets` makes it of alternatives.

    With several columns it is false where the alternatives would be unknown, so it stands under no
    ``Not``. Nulls equal nulls; only keys that a caller gives have some.

    Attributes
    ----------
    keys : pyarrow.RecordBatch
        The rows, each once; a column has the path of the column that it is compared with.
    """

    keys: pa.RecordBatch

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.keys.schema.names)

    def of(self, columns: Sequence[str]) -> Among:
        """Return what the set says about some of its columns."""
        return Among(self.keys.select(columns)) if len(columns) < len(self.columns) else self


@dataclass(frozen=True, slots=True)
class Within:
    """A column that lies in one of several intervals: disjoint, ascending, with both ends.

    The ends are the numbers for which :func:`.sets.numbers_of` stands.
    """

    column: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column that is null; never unknown."""

    column: str


@dataclass(frozen=True, slots=True)
class Like:
    """A text column that matches a pattern of ``%`` and ``_``, without escapes."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Constant:
    """The same result for every row; None is unknown."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition that only Spark can answer: its SQL, and the reason."""

    text: str
    reason: str


ColumnTest: TypeAlias = Comparison | In | Within | IsNull | Like
"""Predicates about one column."""
Predicate: TypeAlias = And | Or | Not | Among | ColumnTest | Constant | Opaque

COLUMN_TESTS = (Comparison, In, Within, IsNull, Like)


def leaves(predicate: Predicate) -> Iterator[Among | ColumnTest | Constant | Opaque]:
    """Yield the leaves of a predicate, from left to right."""
    if isinstance(predicate, And | Or):
        for operand in predicate.operands:
            yield from leaves(operand)
    elif isinstance(predicate, Not):
        yield from leaves(predicate.operand)
    else:
        yield predicate


def tested_columns(predicate: Predicate) -> tuple[str, ...]:
    """Return the columns that a predicate tests, each once."""
    found: dict[str, None] = {}
    for leaf in leaves(predicate):
        if isinstance(leaf, Among):
            found |= dict.fromkeys(leaf.columns)
        elif isinstance(leaf, COLUMN_TESTS):
            found[leaf.column] = None
    return tuple(found)


def negate(predicate: Predicate) -> Predicate:
    """Return the opposite of a predicate, with ``Not`` moved inwards as far as possible.

    Examples
    --------
    >>> negate(Or((Comparison("n", Operator.LESS, 3), IsNull("m"))))
    And(operands=(Comparison(column='n', operator=<Operator.GREATER_OR_EQUAL: '>='>, value=3), \
Not(operand=IsNull(column='m'))))
    """
    if isinstance(predicate, And):
        return Or(tuple(negate(operand) for operand in predicate.operands))
    if isinstance(predicate, Or):
        return And(tuple(negate(operand) for operand in predicate.operands))
    if isinstance(predicate, Not):
        return predicate.operand
    if isinstance(predicate, Comparison) and (opposite := predicate.operator.negated):
        return Comparison(predicate.column, opposite, predicate.value)
    if isinstance(predicate, Constant) and predicate.value is not None:
        return Constant(not predicate.value)
    return Not(predicate)


Asked: TypeAlias = Callable[[ColumnTest | Among], "Satisfaction | None"]
"""Returns the outcome of a test for each partition or file; None if nothing is known about it."""


@dataclass(frozen=True, slots=True)
class Satisfaction:
    """Whether a predicate can be true, and can be false, for a row of each partition or file."""

    can_be_true: Mask
    can_be_false: Mask

    @classmethod
    def unknown(cls, count: int) -> Satisfaction:
        """Return the outcome where nothing is known."""
        return cls(np.ones(count, np.bool_), np.ones(count, np.bool_))


def evaluate(predicate: Predicate, answer: Asked, count: int) -> Satisfaction:
    """Return whether a predicate can be true for some row, from what is known of single columns.

    Partitions and files are asked alike: a function answers the test of one column for all of them
    at once, and the predicate joins the answers. The joined answer may be too careful, because it
    forgets that the tests are about the same row.

    Parameters
    ----------
    predicate : Predicate
        The predicate.
    answer : callable
        Answers the tests.
    count : int
        Number of partitions or files.
    """
    if isinstance(predicate, And | Or):
        parts = [evaluate(operand, answer, count) for operand in predicate.operands]
        all_of, any_of = np.logical_and.reduce, np.logical_or.reduce
        true, false = (all_of, any_of) if isinstance(predicate, And) else (any_of, all_of)
        return Satisfaction(
            true([part.can_be_true for part in parts]), false([part.can_be_false for part in parts])
        )
    if isinstance(predicate, Not):
        inner = evaluate(predicate.operand, answer, count)
        return Satisfaction(inner.can_be_false, inner.can_be_true)
    if isinstance(predicate, Constant):
        return Satisfaction(*(np.full(count, predicate.value is found) for found in (True, False)))
    found = None if isinstance(predicate, Opaque) else answer(predicate)
    return Satisfaction.unknown(count) if found is None else found
