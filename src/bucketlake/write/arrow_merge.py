"""A merge of an Arrow table, without Spark: the join, and what the clauses make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.merge.incoming import BoolArray, IntArray
from bucketlake.model.cast import assigned, selectable
from bucketlake.model.field_path import column_of
from bucketlake.model.schema import IS_DELETED, cast_batch
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.read_plan import ReadPlan
from bucketlake.where.expression import Expression
from bucketlake.where.sides import Equation
from bucketlake.write.by_condition import require_assignable
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.merge_binding import VALUES_MAX, BoundClause, BoundMerge, Values
from bucketlake.write.merge_statement import Effect, Match
from bucketlake.write.merge_write import (
    INSERTS,
    NULL_MARKS,
    UNSURE,
    Identities,
    ambiguous,
    old_name,
    rows_in_files,
    source_schema,
    where_of_merge,
    written_columns,
)
from bucketlake.write.pack import ArrowSource, RecordSource
from bucketlake.write.tag import EFFECT
from bucketlake.write.target import Target

# ---- Pairs of stored and given rows: equal keys, or blocks of all combinations -------------------
#
# The pairs of a join can be many more than its rows. So they are never all in memory.


BLOCK_PAIRS = 1 << 20
_NOTHING = -1


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The pairs of rows that are equal in what a merge equates; all pairs if it equates nothing.

    Attributes
    ----------
    stored, given : IntArray
        For each row of the table and of the source, the number of its values; -1 for values that
        the source lacks, and for nulls, which equal nothing.
    size : int
        The numbers are less than it.
    """

    stored: IntArray
    given: IntArray
    size: int

    @classmethod
    def of_keys(
        cls,
        keys: Sequence[tuple[pa.ChunkedArray, pa.ChunkedArray]],
        stored_count: int,
        given_count: int,
    ) -> Self:
        """Give the rows numbers by what is equated.

        Parameters
        ----------
        keys : sequence of (pa.ChunkedArray, pa.ChunkedArray)
            The two sides of each equation: of the table and of the source, of one type.
        stored_count, given_count : int
            Numbers of rows.

        Examples
        --------
        >>> ids = pa.chunked_array([["a", "b", None]]), pa.chunked_array([["b", "c", None, "b"]])
        >>> found = Candidates.of_keys([ids], 3, 4)
        >>> [(stored.tolist(), given.tolist()) for stored, given in found.blocks()]
        [([1, 1], [0, 3])]
        """
        stored, given, size = np.zeros(stored_count, int), np.zeros(given_count, int), 1
        for stored_key, given_key in keys:
            values = given_key.unique().drop_null()
            stored = _numbered(stored, stored_key, values)
            given = _numbered(given, given_key, values)
            size *= len(values)
            if size > given_count:
                distinct = np.unique(given[given >= 0])
                stored, given = _positions(stored, distinct), _positions(given, distinct)
                size = len(distinct)
        return cls(stored, given, size)

    @property
    def pair_count(self) -> int:
        """Number of pairs."""
        return int(self._given_per_number()[self.stored].sum())

    def matching(self) -> tuple[BoolArray, BoolArray]:
        """Return which rows of the table, and of the source, are in a pair."""
        is_stored = np.zeros(self.size + 1, np.bool_)
        is_stored[self.stored] = True
        is_stored[_NOTHING] = False
        return self._given_per_number()[self.stored] > 0, is_stored[self.given]

    def one_each(self) -> tuple[IntArray, IntArray]:
        """Return one pair of each row of the table that has some."""
        per_number, first, in_order = self._given_in_order()
        rows = np.flatnonzero(per_number[self.stored])
        return rows, in_order[first[self.stored[rows]]]

    def blocks(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the pairs as positions in the table and in the source, in at least one block.

        A block has all pairs of its rows of the table, in the order of these rows.
        """
        per_number, first, in_order = self._given_in_order()
        counts = per_number[self.stored]
        rows = np.flatnonzero(counts)
        ends = np.cumsum(counts[rows])
        start = 0
        while start == 0 or start < len(rows):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK_PAIRS, "right")))
            held = rows[start:stop]
            lengths = counts[held]
            shifts = first[self.stored[held]] - (np.cumsum(lengths) - lengths)
            places = np.repeat(shifts, lengths) + np.arange(lengths.sum())
            yield np.repeat(held, lengths), in_order[places]
            start = stop

    def _given_in_order(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the rows of the source by number: how many, where they begin, and the rows."""
        per_number = self._given_per_number()
        in_order = np.argsort(self.given, kind="stable")[np.count_nonzero(self.given < 0) :]
        return per_number, np.cumsum(per_number) - per_number, in_order

    def _given_per_number(self) -> IntArray:
        """Return how many rows of the source have each number; the last entry, of -1, is 0."""
        return np.bincount(self.given[self.given >= 0], minlength=self.size + 1)


def _numbered(before: IntArray, key: pa.ChunkedArray, values: pa.Array) -> IntArray:
    """Return numbers of rows by another key, too."""
    found = pc.fill_null(pc.index_in(key, value_set=values), _NOTHING).to_numpy()
    return np.where((before < 0) | (found < 0), _NOTHING, before * len(values) + found)


def _positions(numbers: IntArray, distinct: IntArray) -> IntArray:
    """Return where numbers are among some; -1 for others."""
    found = np.full(len(numbers), _NOTHING)
    rows = np.flatnonzero(numbers >= 0)
    if len(distinct):
        places = np.searchsorted(distinct, numbers[rows])
        places = np.minimum(places, len(distinct) - 1)
        is_there = distinct[places] == numbers[rows]
        found[rows[is_there]] = places[is_there]
    return found


# ---- The join of an Arrow table, and what the clauses make of it ---------------------------------

_SOURCE_ROW = "_bucketlake_source_row"
_PAIRS_MAX = 1 << 28
_KEY_KINDS = (
    pa.types.is_string,
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_boolean,
    pa.types.is_binary,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)

Pairs: TypeAlias = Mapping[str, IntArray]
"""Positions of rows by the alias of their side: pairs of rows, or the rows of one side."""


class ArrowMerge:
    """The source of a merge that this process joins.

    Parameters
    ----------
    given : pa.Table or FileSource
        The rows.
    """

    time_zone: str | None = None

    def __init__(self, given: pa.Table | FileSource) -> None:
        self._given = given

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the source."""
        return source_schema(self._given.schema)

    @cached_property
    def _rows(self) -> pa.Table:
        given = self._given
        rows = given if isinstance(given, pa.Table) else rows_in_files(given)
        chosen = selectable(rows.select(self.schema.names))
        return cast_batch(chosen, self.schema, where="source of the merge")

    def records(self) -> RecordSource:
        """Return the rows as the records of an upsert."""
        given = self._given
        return ArrowSource(self._rows) if isinstance(given, pa.Table) else given

    def close(self) -> None:
        """Drop what is kept of files."""
        if not isinstance(self._given, pa.Table):
            self._given.close()

    def values(self, bound: BoundMerge) -> Values:
        """Return the distinct values of the source by which the table is pruned."""
        found = {}
        for field, text in bound.pruning_fields().items():
            values = _evaluated(text, {bound.source_alias: self._rows}).unique()
            found[field] = values.to_pylist() if len(values) <= VALUES_MAX else None
        return found

    def upserted(self, _bound: BoundMerge) -> RecordSource | None:
        """Return None: this is unknown before the join."""
        return None

    def rows(self, bound: BoundMerge, target: Target, plan: ReadPlan) -> RecordSource:
        """Join the source with the stored rows of a plan, and apply the clauses."""
        stored = read_arrow(target.storage, plan)
        self._target = target
        self._found = _Join(bound, target, stored, self._rows).rows()
        self._keys = Identities.of(target, bound.ordering).identify(self._found)
        self._inserted = self._keys.filter(_are_inserts(self._keys["effect"]))
        if bound.inserts_new:
            marks = [pc.match_substring(self._inserted[name], text) for name, text in NULL_MARKS]
            self._inserted = self._inserted.filter(reduce(pc.or_, marks))
        return ArrowSource(self._found.select(written_columns(self._found.column_names)))

    def counts(self) -> Mapping[int, int]:
        """Return the number of rows of each effect, and of those whose key may be stored."""
        effects = pc.value_counts(self._keys["effect"]).to_pylist()
        of_effects = {each["values"]: each["counts"] for each in effects}
        return {**of_effects, UNSURE: len(self._inserted)}

    def ambiguity(self) -> InputError | None:
        """Return the error that two rows have one key; None if keys are distinct."""
        keys = self._keys
        counted = keys.group_by(["key", "path"]).aggregate([([], "count_all")])
        repeated = _first_key(counted.filter(pc.greater(counted["count_all"], 1)))
        if repeated is None:
            return None
        key, path = repeated
        is_same = pc.and_(pc.equal(keys["key"], key), pc.equal(keys["path"], path))
        effects = keys.filter(is_same)["effect"]
        first = np.argsort(~_are_inserts(effects).to_numpy(), kind="stable")[:2]
        rows = [
            None if at is None else self._rows.slice(at, 1).to_pylist()[0]
            for at in self._found.filter(is_same)[_SOURCE_ROW].take(first).to_pylist()
        ]
        pair = [*zip(effects.take(first).to_pylist(), rows, strict=True)]
        return ambiguous(self._target, key, path, pair)

    def stored_among(self, plan: ReadPlan) -> tuple[str, str] | None:
        """Return key and partition path of an inserted row that stored rows have."""
        names = ["key", "path"]
        rows = read_arrow(self._target.storage, plan)
        stored = Identities.of(self._target).identify(rows).select(names)
        return _first_key(self._inserted.select(names).join(stored, names, join_type="left semi"))


def _are_inserts(effects: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(effects, pa.array(INSERTS, pa.int32()))


def _first_key(keys: pa.Table) -> tuple[str, str] | None:
    return (keys["key"][0].as_py(), keys["path"][0].as_py()) if len(keys) else None


class _Join:
    """The pairs of matching rows, and what the clauses make of them.

    Pairs are made and tested in blocks. Only those are kept to which a clause applies, and a row of
    the table may have one of them. So many-to-many joins need no more memory than others.
    """

    def __init__(
        self, bound: BoundMerge, target: Target, stored: pa.Table, given: pa.Table
    ) -> None:
        self._bound, self._target, self._identities = bound, target, Identities.of(target)
        self._schemas: dict[tuple[str, ...], pa.Schema] = {}
        self._sides = {bound.alias: stored, bound.source_alias: given}
        self._tests: list[str] = []
        keys = []
        for condition, equation in bound.conjuncts:
            found = None if equation is None else self._comparable(equation)
            if found is None:
                self._tests.append(condition.text)
            else:
                keys.append(found)
        self._candidates = Candidates.of_keys(keys, len(stored), len(given))

    def rows(self) -> pa.Table:
        """Return the rows that the merge writes, with hidden columns.

        If two of them are one row of the table, only these two are returned.
        """
        bound, (stored, given) = self._bound, self._sides
        kept = {c: list[Pairs]() for c in bound.clauses if c.match is Match.MATCHED}
        if not self._tests and (bound.deletes_once or not kept):
            is_stored, is_given = self._candidates.matching()
            blocks: Iterable[Pairs] = [
                dict(zip(self._sides, self._candidates.one_each(), strict=True))
            ]
        else:
            is_stored, is_given = (np.zeros(len(side), np.bool_) for side in self._sides.values())
            blocks = self._pairs()
        for pairs in blocks:
            is_stored[pairs[stored]] = True
            is_given[pairs[given]] = True
            block = dict(self._chosen(Match.MATCHED, self._needed(pairs)))
            twice = _first_repeated([at[stored] for at in block.values()])
            if twice is not None:
                return self._all_written(
                    (c, _where(at[stored] == twice, at)) for c, at in block.items()
                )
            for clause, at in block.items():
                kept[clause].append(at)
        return self._all_written(
            [
                *((clause, _joined(blocks)) for clause, blocks in kept.items()),
                *self._chosen(Match.NOT_MATCHED, {given: np.flatnonzero(~is_given)}),
                *self._chosen(Match.BY_SOURCE, {stored: np.flatnonzero(~is_stored)}),
            ]
        )

    def _comparable(self, equation: Equation) -> tuple[pa.Array, pa.Array] | None:
        """Return the two sides of an equation, if Arrow's join compares them as SQL does."""
        stored, given = (
            _evaluated(text.text, {alias: self._sides[alias]})
            for text in (equation.left, equation.right)
            for alias in text.sides
        )
        if not any(is_kind(stored.type) and is_kind(given.type) for is_kind in _KEY_KINDS):
            return None
        if stored.type != given.type and not pa.types.is_integer(stored.type):
            return None
        if pa.types.is_integer(stored.type):
            stored, given = stored.cast(pa.int64()), given.cast(pa.int64())
        return stored, given

    def _pairs(self) -> Iterator[Pairs]:
        """Yield the matching rows in blocks, each with all pairs of its rows of the table."""
        for number, block in enumerate(self._candidates.blocks()):
            if number == 1:  # If several rows match one row, the first block shows two of them.
                self._require_few()
            pairs: Pairs = dict(zip(self._sides, block, strict=True))
            for test in self._tests:
                expression = self._expression(test, pairs, "on")
                pairs = _where(_flags(expression.holds(self._taken(expression, pairs))), pairs)
            yield pairs

    def _require_few(self) -> None:
        count = self._candidates.pair_count
        if count > _PAIRS_MAX:
            raise UnsupportedFeatureError(
                f"on = {self._bound.on!r}, by which {count} pairs of rows may match, without Spark",
                where_of_merge(self._target),
                "equate more columns of both sides, or start a SparkSession first",
            )

    def _needed(self, pairs: Pairs) -> Pairs:
        """Return the pairs of which a clause may change a row; one is enough for deletes."""
        if not self._bound.deletes_once:
            return pairs
        rows = pairs[self._bound.alias]
        return _where(np.diff(rows, prepend=-1) > 0, pairs)

    def _chosen(self, match: Match, pairs: Pairs) -> Iterator[tuple[BoundClause, Pairs]]:
        """Yield the clauses with their rows; each pair goes to the first that holds for it."""
        for clause in self._bound.clauses:
            if clause.match is not match:
                continue
            holds = np.ones(len(next(iter(pairs.values()))), np.bool_)
            if clause.condition is not None:
                expression = self._expression(clause.condition, pairs, clause.role)
                holds = _flags(expression.holds(self._taken(expression, pairs)))
            yield clause, _where(holds, pairs)
            pairs = _where(~holds, pairs)

    def _all_written(self, chosen: Iterable[tuple[BoundClause, Pairs]]) -> pa.Table:
        parts = [self._written(clause, pairs) for clause, pairs in chosen]
        return pa.concat_tables([self._written_schema().empty_table(), *parts])

    def _written(self, clause: BoundClause, at: Pairs) -> pa.Table:
        """Return the rows that a clause writes."""
        bound, count = self._bound, len(next(iter(at.values())))
        columns, schema = {}, self._written_schema()
        for name, text in clause.values.items():
            if text is None:
                columns[name] = pa.nulls(count, schema.field(name).type)
            else:
                expression = self._expression(text, at, f"{clause.role}, column {name!r}")
                values = expression.values(self._taken(expression, at))
                columns[name] = assigned(values, schema.field(name).type)
        is_delete = clause.effect is Effect.DELETE
        flags = pa.repeat(pa.scalar(is_delete), count)
        if IS_DELETED not in bound.schema.names:
            flags = columns.pop(IS_DELETED, flags)
        given = pa.table(columns)
        require_assignable(bound.schema, given.schema, clause.role, self._identities.fields)
        keys = partial(self._keys, given)
        rows = cast_batch(given, bound.schema, where=clause.role, computed=True, keys=keys)
        if IS_DELETED not in rows.column_names:
            rows = rows.append_column(IS_DELETED, flags)
        elif is_delete:
            rows = rows.set_column(rows.schema.get_field_index(IS_DELETED), IS_DELETED, flags)
        given_at = at.get(bound.source_alias)
        places = pa.nulls(count, pa.int64()) if given_at is None else pa.array(given_at)
        hidden = [
            pa.repeat(pa.scalar(clause.effect.value, pa.int32()), count),
            places,
            *self._old_ordering(clause, at, count),
        ]
        return pa.table([*rows.columns, *hidden], schema=schema)

    def _keys(self, rows: pa.Table) -> pa.Array:
        return self._identities.identify(rows)["key"]

    def _old_ordering(
        self, clause: BoundClause, at: Pairs, count: int
    ) -> Iterator[pa.Array | pa.ChunkedArray]:
        alias = self._bound.alias
        for number, field in enumerate(self._bound.ordering):
            if clause.effect is Effect.INSERT:
                schema = self._written_schema()
                yield pa.nulls(count, schema.field(old_name(number)).type)
            else:
                stored = self._sides[alias]
                yield column_of(stored, field, "ordering").take(pa.array(at[alias]))

    def _written_schema(self) -> pa.Schema:
        bound = self._bound
        fields = [*bound.schema]
        if IS_DELETED not in bound.schema.names:
            fields.append(pa.field(IS_DELETED, pa.bool_()))
        fields += [pa.field(EFFECT, pa.int32()), pa.field(_SOURCE_ROW, pa.int64())]
        stored = self._sides[bound.alias]
        for number, field in enumerate(bound.ordering):
            held = column_of(stored.schema.empty_table(), field, "ordering").type
            fields.append(pa.field(old_name(number), held))
        return pa.schema(fields)

    def _expression(self, text: str, at: Pairs, role: str) -> Expression:
        aliases = tuple(at)
        if aliases not in self._schemas:  # Made once, not for each column of a wide table.
            self._schemas[aliases] = _schema_of({alias: self._sides[alias] for alias in aliases})
        return Expression(text, self._schemas[aliases], role)

    def _taken(self, expression: Expression, at: Pairs) -> pa.Table:
        """Return the rows of a clause, with the columns that an expression names."""
        sides = {alias: self._sides[alias] for alias in at}
        return _side_by_side(
            {a: side.take(pa.array(at[a])) for a, side in _named(sides, expression).items()}
        )


def _named(sides: Mapping[str, pa.Table], expression: Expression) -> dict[str, pa.Table]:
    """Return the columns of each side that an expression names; one of them for its rows."""
    names: dict[str, list[str]] = {alias: [] for alias in sides}
    for path in sorted(expression.columns):
        alias, name, *_ = path.split(".")
        if name not in names[alias]:
            names[alias].append(name)
    return {
        alias: side.select(names[alias] or side.column_names[:1]) for alias, side in sides.items()
    }


def _schema_of(sides: Mapping[str, pa.Table]) -> pa.Schema:
    return pa.schema([(alias, pa.struct([*side.schema])) for alias, side in sides.items()])


def _side_by_side(sides: Mapping[str, pa.Table]) -> pa.Table:
    """Return tables with equally many rows as the struct columns of one table."""
    columns = {}
    for alias, rows in sides.items():
        batches = rows.combine_chunks().to_batches()
        chunks = [batch.to_struct_array() for batch in batches]
        columns[alias] = pa.chunked_array(chunks, pa.struct([*rows.schema]))
    return pa.table(columns)


def _evaluated(text: str, sides: Mapping[str, pa.Table]) -> pa.ChunkedArray:
    expression = Expression(text, _schema_of(sides), "on")
    return expression.values(_side_by_side(_named(sides, expression)))


def _where(flags: BoolArray, pairs: Pairs) -> Pairs:
    return {alias: rows[flags] for alias, rows in pairs.items()}


def _first_repeated(rows: Sequence[IntArray]) -> int | None:
    """Return the first row that is there twice; None if none is."""
    held = np.sort(np.concatenate([np.empty(0, np.int64), *rows]))
    repeated = held[1:][held[1:] == held[:-1]]
    return int(repeated[0]) if len(repeated) else None


def _joined(blocks: Sequence[Pairs]) -> Pairs:
    return {alias: np.concatenate([pairs[alias] for pairs in blocks]) for alias in blocks[0]}


def _flags(values: pa.ChunkedArray) -> BoolArray:
    return np.asarray(values.to_numpy())
