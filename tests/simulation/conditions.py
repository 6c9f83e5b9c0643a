"""Random ``where`` conditions, each with a Python function for SQL's three-valued logic."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from datetime import date
from typing import Any

from tests.simulation.shapes import Row

Answer = Callable[[Row], bool | None]
"""Returns whether a row matches a condition; None for SQL's unknown."""


class Conditions:
    """Draws random conditions: the text of each, and its Python function."""

    def __init__(self, drawn: random.Random, values: dict[str, list[Any]]) -> None:
        self.drawn = drawn
        self.values = values | {"v": [1, 500]}

    def draw(self) -> tuple[str, Answer]:
        text, holds = self._draw_simple()
        for _ in range(self.drawn.randrange(3)):
            other, holds_other = self._draw_simple()
            word, decided = self.drawn.choice([("AND", False), ("OR", True)])
            text, holds = f"({text}) {word} ({other})", _joined(holds, holds_other, decided)
        if self.drawn.random() < 0.2:
            text, holds = f"NOT ({text})", _negated(holds)
        return text, holds

    def _draw_simple(self) -> tuple[str, Answer]:
        name = self.drawn.choice([*self.values])
        value = self.drawn.choice(self.values[name])
        sign = self.drawn.choice(["=", "=", "<=>", "IN", "IS NULL", "<", ">=", "<>", "NOT IN"])
        if sign == "IS NULL":
            return f"{name} IS NULL", lambda row: row[name] is None
        if sign == "<=>":
            return f"{name} <=> {_literal(value)}", lambda row: bool(row[name] == value)
        if sign.endswith("IN"):
            some = self.drawn.sample([v for v in self.values[name] if v is not None], 1)
            some += [v for v in [value] if v is not None]
            listed = ", ".join(map(_literal, some))
            return f"{name} {sign} ({listed})", _unless_null(
                name, lambda held: (held in some) == (sign == "IN")
            )
        signs = {"=": operator.eq, "<": operator.lt, ">=": operator.ge, "<>": operator.ne}
        return f"{name} {sign} {_literal(value)}", _unless_null(
            name, lambda held: None if value is None else bool(signs[sign](held, value))
        )


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool | int):
        return "NULL" if value is None else str(value).lower()
    if isinstance(value, date):
        return f"DATE '{value}'"
    return f"'{value}'"


def _unless_null(name: str, holds: Callable[[Any], bool | None]) -> Answer:
    return lambda row: None if row[name] is None else holds(row[name])


def _joined(one: Answer, other: Answer, decided: bool) -> Answer:
    """Return AND (``decided`` is False) or OR (``decided`` is True) of two conditions."""

    def holds(row: Row) -> bool | None:
        answers = [one(row), other(row)]
        if decided in answers:
            return decided
        return None if None in answers else not decided

    return holds


def _negated(one: Answer) -> Answer:
    def holds(row: Row) -> bool | None:
        answer = one(row)
        return None if answer is None else not answer

    return holds
