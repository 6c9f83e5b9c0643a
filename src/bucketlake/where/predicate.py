"""The tree of a predicate: the few forms of conditions that bucketlake understands.

Each comparison compares plain values (:mod:`.comparable`). Everything else is :class:`Opaque`:
Spark can answer it, bucketlake cannot. A predicate is true, false or unknown for a row, as in SQL.
The values are frozen and picklable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from bucketlake.where.sql_literal import Value


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
    value: Value


@dataclass(frozen=True, slots=True)
class In:
    """A column that equals one of several values."""

    column: str
    values: tuple[Value, ...]


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


Predicate: TypeAlias = And | Or | Not | Comparison | In | IsNull | Like | Constant | Opaque
ColumnTest: TypeAlias = Comparison | In | IsNull | Like
"""Predicates about one column."""

COLUMN_TESTS = (Comparison, In, IsNull, Like)


def leaves(predicate: Predicate) -> Iterator[ColumnTest | Constant | Opaque]:
    """Yield the leaves of a predicate, from left to right."""
    if isinstance(predicate, And | Or):
        for operand in predicate.operands:
            yield from leaves(operand)
    elif isinstance(predicate, Not):
        yield from leaves(predicate.operand)
    else:
        yield predicate


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
