"""Parsing ``where``: SQL text in Spark's dialect becomes a predicate for pruning and filtering.

sqlglot parses the text. This module converts its tree, strictly: a node is understood only if each
of its parts is understood, and a literal only if Spark compares it exactly (:mod:`.comparable`).
The rest becomes :class:`~.predicate.Opaque`. The meaning is that of Spark with the settings in
:data:`~.spark_settings.SPARK_SETTINGS`; with other settings a caller must not use it for pruning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
from sqlglot import exp

from bucketlake.errors import InputError
from bucketlake.model.field_path import known_field
from bucketlake.model.names import did_you_mean
from bucketlake.model.schema import META_NAMES
from bucketlake.where import predicate as nodes
from bucketlake.where.comparable import comparable_value, comparable_values
from bucketlake.where.predicate import Operator, Predicate, leaves
from bucketlake.where.sql_literal import (
    LiteralKind,
    LiteralValue,
    NotUnderstood,
    SqlLiteral,
    cast_literal,
    number_literal,
)
from bucketlake.where.syntax import (
    LongList,
    find_doubt,
    find_regrouping,
    parse_tokens,
    refused,
    tokenize,
    without_long_lists,
)
from bucketlake.where.words import FUNCTIONS

OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: Operator.EQUAL,
    exp.NEQ: Operator.NOT_EQUAL,
    exp.LT: Operator.LESS,
    exp.LTE: Operator.LESS_OR_EQUAL,
    exp.GT: Operator.GREATER,
    exp.GTE: Operator.GREATER_OR_EQUAL,
    exp.NullSafeEQ: Operator.NULL_SAFE_EQUAL,
}
# Names that Spark resolves without a column: functions called without parentheses, file metadata.
_NOT_COLUMNS = FUNCTIONS | {"grouping__id", "_metadata"}
_NUMBERS = frozenset({LiteralKind.INTEGER, LiteralKind.DECIMAL})


def parse_where(text: str, schema: pa.Schema, *, time_zone: str | None = None) -> Predicate:
    """Parse a condition on the columns of a table.

    Parameters
    ----------
    text : str
        A condition in Spark's SQL, as for ``DataFrame.filter``.
    schema : pyarrow.Schema
        Allowed columns, and the fields inside structs (``header.eid``); as in Spark, names ignore
        case.
    time_zone : str or None
        Time zone of timestamps without a zone: Spark's ``spark.sql.session.timeZone``. None: only
        Spark can compare them.

    Returns
    -------
    Predicate
        The predicate, with the schema's spelling of column names.

    Raises
    ------
    InputError
        If the text is not a condition, or names a column that does not exist.

    Examples
    --------
    >>> parse_where("ID = 'a' AND n > 2", pa.schema({"id": pa.string(), "n": pa.int64()}))
    And(operands=(Comparison(column='id', operator=<Operator.EQUAL: '='>, value='a'), \
Comparison(column='n', operator=<Operator.GREATER: '>'>, value=2)))
    """
    short, lists = without_long_lists(text)
    if lists:
        # For errors and for Spark, only the whole text will do; and no list may be left over.
        with suppress(InputError):
            reader = _Reader(short, schema, time_zone, lists)
            found = _parsed(short, reader)
            if not (reader.lists or any(isinstance(leaf, nodes.Opaque) for leaf in leaves(found))):
                return found
    return _parsed(text, _Reader(text, schema, time_zone))


def _parsed(text: str, reader: _Reader) -> Predicate:
    tokens = tokenize(text)
    if (reason := find_doubt(text, tokens)) is not None:
        parse_tokens(text, tokens)
        return nodes.Opaque(text, reason)
    tree = parse_tokens(text, tokens)
    if (reason := find_regrouping(tree, tokens)) is not None:
        return nodes.Opaque(text, reason)
    try:
        return reader.read(tree)
    except RecursionError:
        raise refused(text, "it is nested too deeply", "use IN for long lists") from None


def predicate_of(node: exp.Expr, text: str, schema: pa.Schema) -> Predicate:
    """Return a part of a parsed text as a predicate; ``text`` is the whole text, for messages.

    Times without a zone are not understood.
    """
    return _Reader(text, schema, None).read(node)


def literal_of(node: exp.Expr) -> SqlLiteral:
    """Return a literal, or the cast of one; raises NotUnderstood for other nodes."""
    return _Reader("", pa.schema([]), None).literal(node)


class _Reader:
    """Converts the parser's tree, for a schema."""

    def __init__(
        self,
        text: str,
        schema: pa.Schema,
        time_zone: str | None,
        lists: Mapping[str, LongList] | None = None,
    ) -> None:
        self._text = text
        self.lists = dict(lists or {})  # Those that were not read yet, by their stand-in.
        self._schema = schema
        self._time_zone = time_zone
        self._forms: dict[type[exp.Expr], Callable[[exp.Expr], Predicate]] = {
            exp.Paren: lambda node: self.read(node.this),
            exp.And: lambda node: nodes.And(self._operands(node)),
            exp.Or: lambda node: nodes.Or(self._operands(node)),
            exp.Not: lambda node: nodes.Not(self.read(node.this)),
            exp.NullSafeNEQ: lambda node: nodes.Not(self._compare(node, Operator.NULL_SAFE_EQUAL)),
            exp.Between: self._between,
            exp.In: self._in,
            exp.Is: self._is,
            exp.Like: self._like,
            exp.Boolean: lambda node: nodes.Constant(bool(node.this)),
            exp.Null: lambda _: nodes.Constant(None),
            exp.Column: self._bare,
            exp.Dot: self._bare,
            **{
                form: partial(self._compare, operator=operator)
                for form, operator in OPERATORS.items()
            },
        }

    def read(self, node: exp.Expr) -> Predicate:
        form = self._forms.get(type(node))
        try:
            if form is None:
                raise NotUnderstood("this form of condition")
            return form(node)
        except NotUnderstood as reason:
            return nodes.Opaque(node.sql(dialect="spark", comments=False), str(reason))

    def _operands(self, node: exp.Expr) -> tuple[Predicate, ...]:
        return tuple(self.read(operand) for operand in node.flatten())

    def _compare(self, node: exp.Expr, operator: Operator) -> Predicate:
        _only(node, "this", "expression")
        left, right = _unwrapped(node.this), _unwrapped(node.expression)
        if not isinstance(left, exp.Column | exp.Dot):
            left, right, operator = right, left, operator.mirrored
        literal = self.literal(right)
        column = self._column(left)
        return self._comparison(column, operator, literal)

    def _comparison(self, column: str, operator: Operator, literal: SqlLiteral) -> Predicate:
        value = self._value(column, literal)
        if operator is Operator.NULL_SAFE_EQUAL and value is None:
            return nodes.IsNull(column)
        return nodes.Comparison(column, operator, value)

    def _between(self, node: exp.Expr) -> Predicate:
        _only(node, "this", "low", "high")
        column = self._column(_unwrapped(node.this))
        low, high = (self.literal(_unwrapped(node.args[end])) for end in ("low", "high"))
        _check_one_kind([low, high])
        return nodes.And(
            (
                self._comparison(column, Operator.GREATER_OR_EQUAL, low),
                self._comparison(column, Operator.LESS_OR_EQUAL, high),
            )
        )

    def _in(self, node: exp.Expr) -> Predicate:
        _only(node, "this", "expressions")
        if not node.expressions:
            raise refused(self._text, "IN () has no values", "list at least one value")
        column = self._column(_unwrapped(node.this))
        literals = [self.literal(_unwrapped(item)) for item in node.expressions]
        if (found := self.lists.pop(str(literals[0].value), None)) is not None:
            kind, given = found.kind, found.values()
            values = comparable_values(kind, given, self._type(column), time_zone=self._time_zone)
        else:
            _check_one_kind(literals)
            values = [self._value(column, literal, in_list=True) for literal in literals]
        return nodes.In(column, tuple(dict.fromkeys(values)))

    def _is(self, node: exp.Expr) -> Predicate:
        _only(node, "this", "expression")
        column = self._column(_unwrapped(node.this))
        if isinstance(node.expression, exp.Null):
            return nodes.IsNull(column)
        literal = self.literal(node.expression)
        if literal.kind is not LiteralKind.BOOLEAN or not self._is_boolean(column):
            raise NotUnderstood("this form of IS")
        return self._comparison(column, Operator.NULL_SAFE_EQUAL, literal)

    def _like(self, node: exp.Expr) -> Predicate:
        _only(node, "this", "expression", "negate")
        column = self._column(_unwrapped(node.this))
        pattern = self._value(column, self.literal(_unwrapped(node.expression)))
        if not isinstance(pattern, str) or "\\" in pattern:
            raise NotUnderstood("a pattern with escapes")
        like = nodes.Like(column, pattern)
        return nodes.Not(like) if node.args.get("negate") else like

    def _bare(self, node: exp.Expr) -> Predicate:
        column = self._column(node)
        if not self._is_boolean(column):
            raise NotUnderstood("a column that is not boolean as a condition")
        return nodes.Comparison(column, Operator.EQUAL, True)

    def _is_boolean(self, column: str) -> bool:
        return bool(pa.types.is_boolean(self._type(column)))

    def _type(self, column: str) -> pa.DataType:
        return known_field(self._schema, column).type

    def _value(self, column: str, literal: SqlLiteral, *, in_list: bool = False) -> LiteralValue:
        zone = self._time_zone
        return comparable_value(literal, self._type(column), time_zone=zone, in_list=in_list)

    def _column(self, node: exp.Expr) -> str:
        """Return the schema's spelling of a column, or of the path of a field inside a struct."""
        parts = _path_of(node)
        root = parts[0]
        path = self._spelling(root.name, self._schema.names, "")
        if path is None and not root.quoted and root.name.lower() in _NOT_COLUMNS:
            raise NotUnderstood(f"{root.name}, which is not a column")
        if path is None:
            problem = f"there is no column {'.'.join(part.name for part in parts)}"
            names = [name for name in self._schema.names if name not in META_NAMES]
            hint = did_you_mean(root.name, names)
            raise refused(self._text, problem, f"the columns are {', '.join(names)}{hint}")
        for part in parts[1:]:
            held = self._type(path)
            if not pa.types.is_struct(held):  # Spark finds values in maps and arrays, too.
                raise NotUnderstood("a field inside a column")
            fields = [held.field(i).name for i in range(held.num_fields)]
            step = self._spelling(part.name, fields, f"{path}.")
            if step is None:
                problem = f"column {path} has no field {part.name}"
                hint = did_you_mean(part.name, fields)
                raise refused(self._text, problem, f"its fields are {', '.join(fields)}{hint}")
            path = f"{path}.{step}"
        return path

    def _spelling(self, name: str, names: Sequence[str], prefix: str) -> str | None:
        """Return the name that a condition means; None if there is none."""
        if name in names:
            return name
        alike = [other for other in names if other.lower() == name.lower()]
        if len(alike) > 1:
            problem = f"column {prefix}{name} is ambiguous"
            raise refused(self._text, problem, f"the columns are {', '.join(alike)}")
        return alike[0] if alike else None

    def literal(self, node: exp.Expr) -> SqlLiteral:
        is_text = isinstance(node, exp.Literal) and node.is_string
        if is_text or isinstance(node, exp.RawString):
            return SqlLiteral(LiteralKind.STRING, str(node.this))
        if isinstance(node, exp.Literal):
            return number_literal(str(node.this))
        if type(node) is exp.Concat and all(part.is_string for part in node.expressions):
            # Spark joins texts that follow one another to one literal: 'a' 'b'.
            return SqlLiteral(LiteralKind.STRING, "".join(str(p.this) for p in node.expressions))
        if isinstance(node, exp.Boolean):
            return SqlLiteral(LiteralKind.BOOLEAN, bool(node.this))
        if isinstance(node, exp.Null):
            return SqlLiteral(LiteralKind.NULL, None)
        if isinstance(node, exp.Neg):
            return self.literal(_unwrapped(node.this)).negated()
        if isinstance(node, exp.Cast) and type(node) in (exp.Cast, exp.TryCast):
            return self._cast(node)
        raise NotUnderstood("a comparison with something other than a literal")

    def _cast(self, node: exp.Cast) -> SqlLiteral:
        _only(node, "this", "to", "safe")
        inner = self.literal(_unwrapped(node.this))
        sizes = [parameter.this for parameter in node.to.expressions]
        if any(not isinstance(size, exp.Literal) or size.is_string for size in sizes):
            raise NotUnderstood("a cast to a nested type")
        return cast_literal(
            inner, node.to.this.name, [int(size.this) for size in sizes], self._time_zone
        )


def _path_of(node: exp.Expr) -> list[exp.Identifier]:
    """Return the names of a column and of the fields inside it; NotUnderstood for other nodes."""
    # The parser takes the first four names as catalog, database, table and column.
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return [*_path_of(node.this), node.expression]
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
        return [part for part in node.parts if isinstance(part, exp.Identifier)]
    raise NotUnderstood("an expression instead of a column")


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _only(node: exp.Expr, *known: str) -> None:
    """Raise NotUnderstood if a node has parts that are not converted."""
    if any(part and name not in known for name, part in node.args.items()):
        raise NotUnderstood("this form of condition")


def _check_one_kind(literals: Sequence[SqlLiteral]) -> None:
    """Raise NotUnderstood for a list of several kinds, which Spark casts to a common type."""
    kinds = {literal.kind for literal in literals} - {LiteralKind.NULL}
    if len(kinds) > 1 and not kinds <= _NUMBERS:
        raise NotUnderstood("literals of several types")
