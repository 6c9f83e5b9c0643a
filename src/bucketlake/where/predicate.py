"""The tree of a predicate: what ``where`` says, in the few forms that bucketlake reasons about.

Values are chosen so that each comparison is one of plain values (:mod:`.comparable`); everything
else is :class:`Opaque`, which Spark can answer and bucketlake cannot. A predicate is true, false or
unknown for a row, as in SQL. Frozen and picklable.
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
        """The operator that says the same with its sides exchanged."""
        return _MIRRORED.get(self, self)

    @property
    def negated(self) -> Operator | None:
        """The operator that is true where this one is false; None where there is none."""
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
    """All of its operands."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of its operands."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; unknown stays unknown."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column against a value; with NULL it is unknown for every row."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class In:
    """A column among values."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column without a value; never unknown."""

    column: str


@dataclass(frozen=True, slots=True)
class Like:
    """A text column against a pattern of ``%`` and ``_``, without escapes."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Constant:
    """The same for every row; None is unknown."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """What only Spark can answer: the SQL, and why."""

    text: str
    reason: str


Predicate: TypeAlias = And | Or | Not | Comparison | In | IsNull | Like | Constant | Opaque
ColumnTest: TypeAlias = Comparison | In | IsNull | Like
"""Predicates about one column."""

COLUMN_TESTS = (Comparison, In, IsNull, Like)


def leaves(predicate: Predicate) -> Iterator[ColumnTest | Constant | Opaque]:
    """Yield the parts of a predicate that hold no others, from left to right."""
    if isinstance(predicate, And | Or):
        for operand in predicate.operands:
            yield from leaves(operand)
    elif isinstance(predicate, Not):
        yield from leaves(predicate.operand)
    else:
        yield predicate


def negate(predicate: Predicate) -> Predicate:
    """Return the opposite of a predicate, with ``Not`` moved inwards as far as it goes.

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
