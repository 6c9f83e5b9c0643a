"""SQL texts over the two sides of a merge, whose columns have the alias of their side: ``t.id``.

Each column gets the alias of its side, unless it has one. The rest of a text stays as it was
written, because Spark may read it otherwise than sqlglot does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import Token, TokenType, exp

from bucketlake.errors import InputError
from bucketlake.model.field_path import spelled
from bucketlake.model.names import did_you_mean, quoted
from bucketlake.model.schema import META_NAMES
from bucketlake.where.expression import may_be_function
from bucketlake.where.syntax import find_regrouping, parse_tokens, tokenize

Sides = Mapping[str, pa.Schema]
"""The columns of each side that a text may name, by alias."""


@dataclass(frozen=True, slots=True)
class SidedText:
    """An SQL text in which each column has the alias of its side.

    Attributes
    ----------
    text : str
        The text.
    sides : frozenset of str
        The aliases of its columns.
    """

    text: str
    sides: frozenset[str]


@dataclass(frozen=True, slots=True)
class Equation:
    """Two texts that a condition equates: one of the columns of each side."""

    left: SidedText
    right: SidedText


def sided(text: str, sides: Sides, role: str) -> SidedText:
    """Give each column of a text the alias of its side.

    Parameters
    ----------
    text : str
        An expression or a condition.
    sides : mapping of str to pa.Schema
        The sides that it may name.
    role : str
        What the text is for, for errors.

    Raises
    ------
    InputError
        If the text is no expression, or names a column that no side has, or both have.

    Examples
    --------
    >>> both = {"t": pa.schema({"n": pa.int64()}), "s": pa.schema({"m": pa.int64()})}
    >>> sided("n + s.m", both, "set").text
    '`t`.n + s.m'
    """
    tree = _parsed(text, role)
    found: set[str] = set()
    missing: list[tuple[int, str]] = []
    for column in tree.find_all(exp.Column):
        side = _side_of(column, sides, role)
        if side is None:
            continue
        alias, has_it = side
        found.add(alias)
        missing += [] if has_it else [(_start(column), alias)]
    for place, alias in sorted(missing, reverse=True):
        text = f"{text[:place]}`{alias}`.{text[place:]}"
    return SidedText(text, frozenset(found))


def without_side(text: str, alias: str, schema: pa.Schema) -> str:
    """Take the alias off the columns of a text.

    A struct column may have the name of the alias; as in Spark, the alias goes before it.

    >>> without_side("t.n + `t`.m", "t", pa.schema({"n": pa.int64(), "m": pa.int64()}))
    '`n` + `m`'
    """
    found = []
    for column in _parsed(text, "the text").find_all(exp.Column):
        parts = column.parts
        if _has_alias([part.name for part in parts], alias, schema):
            # In backquotes, because `t.true` is a column, and `true` is a value.
            found.append((_start(column), int(parts[1].meta["end"]) + 1, parts[1].name))
    for start, end, name in sorted(found, reverse=True):
        text = text[:start] + quoted([name]) + text[end:]
    return text


def bare(name: str, alias: str, schema: pa.Schema) -> str:
    """Return the name of a column without the alias.

    >>> bare("T.n", "t", pa.schema({"n": pa.int64()}))
    'n'
    """
    return name.partition(".")[2] if _has_alias(name.split("."), alias, schema) else name


def conjuncts_of(text: str) -> list[str]:
    """Return the conditions that a text joins by AND; they are texts, too.

    >>> conjuncts_of("(a = 1 AND b BETWEEN 2 AND 3) AND (c = 4 OR d = 5)")
    ['a = 1', 'b BETWEEN 2 AND 3', 'c = 4 OR d = 5']
    """
    tokens, tree = tokenize(text), _parsed(text, "on")
    while isinstance(tree, exp.Paren):
        tokens, tree = tokens[1:-1], tree.this
    if any(token.token_type is TokenType.OR for token in outer(tokens)):
        return [_slice(text, tokens)]
    cuts, between = [], 0
    for token in outer(tokens):
        between += token.token_type is TokenType.BETWEEN
        if token.token_type is TokenType.AND:
            if not between:
                cuts.append(tokens.index(token))
            between = max(0, between - 1)
    parts = [tokens[a + 1 : b] for a, b in zip([-1, *cuts], [*cuts, len(tokens)], strict=True)]
    if len(parts) == 1:
        return [_slice(text, tokens)]
    return [found for part in parts for found in conjuncts_of(_slice(text, part))]


def equation_of(text: str, sides: Sides) -> Equation | None:
    """Return the sides of ``=``, in the order of ``sides``; None for other conditions."""
    tree, tokens = _parsed(text, "on"), tokenize(text)
    if not isinstance(tree, exp.EQ) or find_regrouping(tree, tokens) is not None:
        return None
    signs = [t for t in outer(tokens) if t.token_type is TokenType.EQ]
    if not signs:
        return None
    at = signs[-1]
    halves = [sided(each, sides, "on") for each in (text[: at.start], text[at.end + 1 :])]
    for left, right in (halves, halves[::-1]):
        if [left.sides, right.sides] == [frozenset([alias]) for alias in sides]:
            return Equation(left, right)
    return None


def column_named(text: str, alias: str, schema: pa.Schema) -> str | None:
    """Return the column or field that a text is; None if it is another expression."""
    tree = _parsed(text, "the text")
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if not isinstance(tree, exp.Column):
        return None
    first, *rest = (part.name for part in tree.parts)
    return spelled(schema, ".".join(rest)) if first.lower() == alias.lower() else None


def outer(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens outside of parentheses, brackets and ``CASE … END``."""
    depth = 0
    for token in tokens:
        depth -= token.token_type in _CLOSING
        if depth == 0 and token.token_type not in _CLOSING | _OPENING:
            yield token
        depth += token.token_type in _OPENING


_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})


def _parsed(text: str, role: str) -> exp.Expr:
    try:
        tree = parse_tokens(text, tokenize(text))
    except InputError as error:
        raise InputError(role, error.problem, "give an SQL expression") from None
    if tree.find(exp.Query) is not None:
        raise InputError(role, "it has a subquery", "join what it reads into the source")
    return tree


def _side_of(column: exp.Column, sides: Sides, role: str) -> tuple[str, bool] | None:
    """Return the alias of a column's side, and whether it has it; None of a function's name."""
    names = [part.name for part in column.parts]
    path, inner = ".".join(names), ".".join(names[1:])
    owners = [each for each, schema in sides.items() if spelled(schema, path) is not None]
    for alias, schema in sides.items():
        is_named = _has_alias(names, alias, schema)
        if is_named or (inner and names[0].lower() == alias.lower() and not owners):
            if spelled(schema, inner) is None:
                raise _unknown(inner, {alias: schema}, role)
            return alias, True
    if len(owners) > 1:
        problem = f"column {path!r} is in both sides"
        raise InputError(role, problem, f"write {' or '.join(f'{each}.{path}' for each in owners)}")
    if not owners and may_be_function(column):
        return None
    if not owners:
        raise _unknown(path, sides, role)
    return owners[0], False


def _has_alias(names: Sequence[str], alias: str, schema: pa.Schema) -> bool:
    """Return whether the first of some names is an alias, and the next one a column."""
    is_alias = len(names) > 1 and names[0].lower() == alias.lower()
    return is_alias and spelled(schema, names[1]) is not None


def _unknown(path: str, sides: Sides, role: str) -> InputError:
    known = [
        f"{alias}.{name}"
        for alias, schema in sides.items()
        for name in schema.names
        if name not in META_NAMES
    ]
    first = f"{next(iter(sides))}.{path}"
    given = path if len(sides) > 1 or "." in path else first
    hint = did_you_mean(given, known) or did_you_mean(first, known)
    step = f"the columns are {', '.join(known)}; put texts in single quotes{hint}"
    return InputError(role, f"there is no column {given!r}", step)


def _start(column: exp.Column) -> int:
    return int(column.parts[0].meta["start"])


def _slice(text: str, tokens: Sequence[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end + 1] if tokens else ""
