"""A merge that is checked against the columns of a table and of a source.

Each clause gets the new value of every column as an SQL text, in which each column has the alias of
its side. So Spark and Arrow evaluate the same texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import ConfigError, InputError
from bucketlake.merge.group_merge import MergeRule
from bucketlake.model.field_path import field_at, known_field, roots_of, spelled, table_column
from bucketlake.model.keys import EMPTY_TEXT, NULL_TEXT
from bucketlake.model.names import did_you_mean, quoted
from bucketlake.model.partition_path import DEFAULT_PARTITION, formatted_fields
from bucketlake.model.schema import IS_DELETED, META_NAMES
from bucketlake.where.parser import parse_where
from bucketlake.where.predicate import And, Constant, In, Or, Predicate
from bucketlake.where.sides import (
    Equation,
    Sides,
    bare,
    column_named,
    conjuncts_of,
    equation_of,
    sided,
    without_side,
)
from bucketlake.where.sql_literal import LiteralValue
from bucketlake.write.by_condition import require_free
from bucketlake.write.merge_statement import Clause, Effect, Match, MergeStatement

VALUES_MAX = 1_000
"""Values of a source column by which partitions and buckets are pruned; for more, none is."""

_ALWAYS = "true"
_PRUNING_TYPES = (pa.types.is_string, pa.types.is_integer)

Values = Mapping[str, Sequence[LiteralValue] | None]
"""Distinct values that a source has for fields of a table; None if there are too many."""


@dataclass(frozen=True, slots=True, eq=False)
class BoundClause:
    """A clause with the new value of each column.

    Attributes
    ----------
    match, effect
        As in :class:`Clause`.
    role : str
        The clause in words, for errors.
    condition : str or None
        SQL condition; None for all rows.
    values : mapping of str to str or None
        The SQL expression of each column of the table; None for a null.
    """

    match: Match
    effect: Effect
    role: str
    condition: str | None
    values: Mapping[str, str | None]


class BoundMerge:
    """A merge that fits a table and a source.

    Parameters
    ----------
    statement : MergeStatement
        The merge.
    schema : pa.Schema
        Columns of the table.
    source_schema : pa.Schema
        Columns of the source.
    config : TableConfig
        The table's properties.
    is_global : bool
        Whether keys are unique in the whole table, and not in their partition.

    Attributes
    ----------
    alias, source_alias : str
        The names of the sides in all texts.
    schema, source_schema : pa.Schema
        Their columns.
    conjuncts : tuple of (SidedText, Equation or None)
        The conditions that ``on`` joins by AND; with an equation if they equate the two sides.
    clauses : tuple of BoundClause
        In their order.
    identity : tuple of str
        The fields of which at most one row of the table has the same values.
    equated : mapping of str to str
        What ``on`` equates with a field of the identity, by field: a text of the source.
    on_is_key : bool
        Whether ``on`` equates each field of the identity, and nothing else.
    formatted : frozenset of str
        Partition fields of which several values have one path, such as the times of a day.
    upserts : (str, str) or None
        If all columns are updated or inserted by key, and the source alone decides of which rows:
        the conditions on it of the update and of the insert. None for other merges, and if the
        caller does not want an upsert.
    ordering : tuple of str
        Ordering fields that the merge sets, if the table compares them.
    deletes_once : bool
        Whether matching rows are deleted, and nothing else: several matches are no ambiguity.

    Raises
    ------
    ConfigError
        If there is no clause, or one without a condition is not the last of its kind.
    InputError
        If a text is wrong, or a column does not exist or may not be changed.
    """

    def __init__(
        self,
        statement: MergeStatement,
        schema: pa.Schema,
        source_schema: pa.Schema,
        config: TableConfig,
        *,
        is_global: bool,
    ) -> None:
        self.alias, self.source_alias = statement.alias, statement.source_alias
        self.schema, self.source_schema, self._config = schema, source_schema, config
        self._sides: Sides = {self.alias: schema, self.source_alias: source_schema}
        spec = config.key_spec
        partitions = () if is_global else spec.partition_fields
        self.identity = tuple(dict.fromkeys((*spec.record_key_fields, *partitions)))
        self.formatted = frozenset(formatted_fields(spec)) & {*self.identity}
        self._moving = spec.partition_fields if is_global else ()
        self._compared = MergeRule(config.merge_mode, config.ordering_fields).compared
        _require_order(statement.clauses)
        on, role = statement.on, f"on {statement.on!r}"
        sided(on, self._sides, role)  # Raises the error of the whole text.
        texts = [sided(text, self._sides, role) for text in conjuncts_of(on)]
        self.conjuncts = tuple((each, equation_of(each.text, self._sides)) for each in texts)
        self.equated = self._equated_by([equation for _, equation in self.conjuncts])
        self.clauses = tuple(self._clause(clause) for clause in statement.clauses)
        covers = set(self.equated) == set(self.identity)
        # Every condition equates a field of the key, so that no other one can fail.
        self.on_is_key = covers and len(self.equated) == len(self.conjuncts)
        self.upserts = self._upserts(statement.clauses) if self.on_is_key else None
        self.ordering = self._ordering_set()
        matched = [each for each in self.clauses if each.match is Match.MATCHED]
        told = [(each.effect, each.condition) for each in matched]
        self.deletes_once = told == [(Effect.DELETE, None)]

    @property
    def on(self) -> str:
        """The condition of the join."""
        return " AND ".join(f"({each.text})" for each, _ in self.conjuncts)

    @property
    def matches(self) -> frozenset[Match]:
        """The kinds of rows that have a clause."""
        return frozenset(clause.match for clause in self.clauses)

    @property
    def is_upsert(self) -> bool:
        """Whether the merge is an upsert of all rows of the source."""
        return self.upserts == (_ALWAYS, _ALWAYS)

    @property
    def decided_by_source(self) -> str | None:
        """A condition on the source: if all its rows fulfil it, the merge is an upsert of some.

        A row fulfils it that is written whether it matches or not, or in neither case. An upsert
        casts values in its own way, and compares texts of keys and partitions: so both sides have
        the same types, and keys no nulls and no words for nulls. None if only the join can tell.
        """
        given = {field.name: field.type for field in self.source_schema}
        if (
            self.upserts is None
            or self.formatted
            or IS_DELETED in given
            or self.pruning_fields().keys() != {*self.identity}
            or any(given.get(field.name) != field.type for field in self.schema)
        ):
            return None
        words = ", ".join(f"'{word}'" for word in ("", NULL_TEXT, EMPTY_TEXT, DEFAULT_PARTITION))
        updated, inserted = (f"coalesce({text}, false)" for text in self.upserts)
        keys = [f"cast({text} AS string) NOT IN ({words})" for text in self.equated.values()]
        return " AND ".join([f"{updated} = {inserted}", *keys])

    @property
    def inserts_new(self) -> bool:
        """Whether a row that matches no row of the table has a new key, unless it holds a null."""
        return self.on_is_key and not self.formatted and self._inserts_equated()

    @property
    def columns(self) -> list[str]:
        """The table's columns that the source of an upsert gives, and its flag of deletes."""
        given = frozenset(self.source_schema.names)
        names = dict.fromkeys((*self.schema.names, IS_DELETED))
        return [name for name in names if name in given]

    def pruning_fields(self) -> dict[str, str]:
        """Return the fields of the identity whose values in the source prune, with their texts."""
        found = {}
        for field, text in self.equated.items():
            own = field_at(self.schema, field)
            path = column_named(text, self.source_alias, self.source_schema)
            given = None if path is None else field_at(self.source_schema, path)
            if own is None or given is None:
                continue
            if any(is_kind(own.type) and is_kind(given.type) for is_kind in _PRUNING_TYPES):
                found[field] = text
        return found

    def reads(self, values: Values, time_zone: str | None = None) -> Predicate | None:
        """Return a condition that all rows of the table that the merge can change fulfil.

        Parameters
        ----------
        values : mapping
            The distinct values of the source for :meth:`pruning_fields`, with nulls.
        time_zone : str, optional
            As for ``parse_where``.
        """
        tests = self._tests_of(
            {
                field: held and [value for value in held if value is not None]
                for field, held in values.items()
            }
        )
        for each, _ in self.conjuncts:
            if each.sides == {self.alias}:
                tests.append(self._predicate(each.text, time_zone))
        found: Predicate | None = And(tuple(tests)) if tests else None
        for clause in self.clauses:
            if clause.match is Match.BY_SOURCE:
                if found is None or clause.condition is None:
                    return None
                found = Or((found, self._predicate(clause.condition, time_zone)))
        return found

    def holds_new_keys(self, values: Values) -> Predicate | None:
        """Return a condition that stored rows with the keys of inserted rows fulfil."""
        # A null or empty text has a word of its own in keys and paths; several values may share it.
        exact = {
            field: held
            for field, held in values.items()
            if held is not None and field not in self.formatted and not {None, ""} & {*held}
        }
        tests = self._tests_of(exact) if self._inserts_equated() else []
        return And(tuple(tests)) if tests else None

    def _inserts_equated(self) -> bool:
        return all(
            _is_same(
                clause.values.get(field),
                self.equated.get(field),
                self.source_alias,
                self.source_schema,
            )
            for clause in self.clauses
            if clause.effect is Effect.INSERT
            for field in self.identity
        )

    def _tests_of(self, values: Values) -> list[Predicate]:
        tests: list[Predicate] = []
        for field, held in values.items():
            if held is None:
                continue
            if known_field(self.schema, field).type == pa.int32():  # No row has a larger number.
                held = [value for value in held if -(2**31) <= int(value) < 2**31]  # type: ignore[arg-type]
            tests.append(In(field, tuple(held)) if held else Constant(False))
        return tests

    def _predicate(self, text: str, time_zone: str | None) -> Predicate:
        return parse_where(
            without_side(text, self.alias, self.schema), self.schema, time_zone=time_zone
        )

    # ---- How a statement is bound ----------------------------------------------------------------

    def _equated_by(self, equations: Sequence[Equation | None]) -> dict[str, str]:
        found: dict[str, str] = {}
        for equation in equations:
            if equation is None:
                continue
            field = column_named(equation.left.text, self.alias, self.schema)
            if field in self.identity:
                found.setdefault(field, equation.right.text.strip())
        return found

    def _upserts(self, stated: Sequence[Clause]) -> tuple[str, str] | None:
        found = {each.effect: each.condition or _ALWAYS for each in self.clauses}
        if (
            sorted(each.effect for each in stated) != [Effect.INSERT, Effect.UPDATE]
            or self.matches != {Match.MATCHED, Match.NOT_MATCHED}
            or any(each.values is not None for each in stated)
            or any(self._named(text) != field for field, text in self.equated.items())
            or any(
                self.alias in sided(text, self._sides, "condition").sides for text in found.values()
            )
        ):
            return None
        return found[Effect.UPDATE], found[Effect.INSERT]

    def _named(self, text: str) -> str | None:
        return column_named(text, self.source_alias, self.source_schema)

    def _ordering_set(self) -> tuple[str, ...]:
        kept = {name: self._own(name) for name in self.schema.names}
        roots = roots_of(self._compared, self.schema.names)
        updates = [clause.values for clause in self.clauses if clause.effect is Effect.UPDATE]
        is_set = any(values[root] != kept[root] for values in updates for root in roots)
        return self._compared if is_set else ()

    def _clause(self, clause: Clause) -> BoundClause:
        sides = {
            Match.MATCHED: self._sides,
            Match.NOT_MATCHED: {self.source_alias: self.source_schema},
            Match.BY_SOURCE: {self.alias: self.schema},
        }[clause.match]
        role, condition = clause.role, None
        if clause.condition is not None:
            condition = sided(clause.condition, sides, role).text
        if clause.effect is Effect.DELETE:
            values = self._deleted()
        elif clause.values is None:
            values = self._all_of(clause)
        else:
            values = self._named_values(clause, clause.values, sides)
        return BoundClause(clause.match, clause.effect, role, condition, values)

    def _own(self, column: str) -> str:
        return quoted([self.alias, column])

    def _deleted(self) -> dict[str, str | None]:
        """Return the row of a delete: without ordering values, it deletes whatever is stored."""
        values: dict[str, str | None] = {name: self._own(name) for name in self.schema.names}
        for name in self._compared:
            field = self.schema.field(name) if name in values else None
            if field is not None and field.nullable and name not in self._key_roots():
                values[name] = None
        return values

    def _key_roots(self) -> list[str]:
        spec = self._config.key_spec
        return roots_of((*spec.record_key_fields, *spec.partition_fields), self.schema.names)

    def _all_of(self, clause: Clause) -> dict[str, str | None]:
        """Return the value of each column: that of the source, as is its flag of deletes."""
        values: dict[str, str | None] = {}
        flag = spelled(self.source_schema, IS_DELETED)
        if flag is not None:
            values[IS_DELETED] = quoted([self.source_alias, flag])
        for name in self.schema.names:
            given = spelled(self.source_schema, name)
            if name == IS_DELETED and given is None:
                values[name] = self._own(name) if clause.effect is Effect.UPDATE else "false"
                continue
            if given is None:
                hint = did_you_mean(name, self.source_schema.names)
                raise InputError(
                    clause.role,
                    f"the source has no column {name!r}{hint}",
                    "add the column to the source, or name the columns and their values",
                )
            text = quoted([self.source_alias, given])
            values[name] = (
                text if clause.effect is Effect.INSERT else self._kept(clause, name, text)
            )
        return values

    def _named_values(
        self, clause: Clause, given: Mapping[str, str], sides: Sides
    ) -> dict[str, str | None]:
        is_insert = clause.effect is Effect.INSERT
        values: dict[str, str | None] = {
            name: None if is_insert else self._own(name) for name in self.schema.names
        }
        named: set[str] = set()
        for name, text in given.items():
            column = self._column(clause, name)
            if column in named:
                raise InputError(
                    f"{clause.role}, column {name!r}", "it is named twice", "name it once"
                )
            named.add(column)
            value = sided(text, sides, f"{clause.role}, {column} = {text!r}").text
            values[column] = value if is_insert else self._kept(clause, column, value)
        missing = [name for name in self._key_roots() if name not in named] if is_insert else []
        if missing:
            problem = (
                f"the inserted row has no {missing[0]!r}, which is part of its key or partition"
            )
            raise InputError(clause.role, problem, f"name all of {', '.join(self._key_roots())}")
        return values

    def _column(self, clause: Clause, name: str) -> str:
        """Return the column of the table that an assignment names, perhaps with the alias."""
        where = f"{clause.role}, column {name!r}"
        path = bare(name, self.alias, self.schema)
        column = table_column(self.schema, path, where)
        if column in META_NAMES or self.schema.get_field_index(column) < 0:
            require_free(column, self.schema, self._config)  # Raises the error.
        return column

    def _kept(self, clause: Clause, column: str, text: str) -> str:
        """Return the new value of a column of a stored row; raise InputError if it may not change.

        What ``on`` equates with a field of the key is the value that is stored.
        """
        if _is_same(text, self.equated.get(column), self.source_alias, self.source_schema):
            return self._own(column)
        may_set = [*self._moving]
        if clause.match is Match.MATCHED:  # The source gives ordering fields, as an upsert does.
            may_set += self._config.ordering_fields
            may_set += [field for field in self.equated if self._holds(column, field, text)]
        try:
            require_free(column, self.schema, self._config, may_set)
        except InputError as error:
            step = "leave it out"
            if clause.match is Match.MATCHED:
                step = f"equate it in on, as {self.alias}.{column} = {text}, or {step}"
            raise InputError(f"{clause.role}, column {column!r}", error.problem, step) from None
        return text

    def _holds(self, column: str, field: str, text: str) -> bool:
        """Return whether a field inside a column keeps its value if the column gets a new one."""
        root, _, rest = field.partition(".")
        path = self._named(text)
        return (
            bool(rest) and root == column and self._named(self.equated[field]) == f"{path}.{rest}"
        )


def _require_order(clauses: Sequence[Clause]) -> None:
    if not clauses:
        raise ConfigError("merge", None, "add a clause, such as .when_matched_update_all()", "run")
    for match in Match:
        own = [clause for clause in clauses if clause.match is match]
        for clause in own[:-1]:
            if clause.condition is None:
                raise ConfigError(
                    "merge",
                    clause.role,
                    f"no later {match.value} can apply; give it a condition, or put it last",
                    "followed by another clause of its kind",
                )


def _is_same(text: str | None, equated: str | None, alias: str, schema: pa.Schema) -> bool:
    """Return whether two texts of the source are the same value, perhaps spelled differently."""
    if text is None or equated is None:
        return False
    named = column_named(text, alias, schema)
    return text == equated or (named == column_named(equated, alias, schema) is not None)
