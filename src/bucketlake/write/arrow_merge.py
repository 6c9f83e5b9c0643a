"""A merge of an Arrow table, without Spark: the join, the clauses, and the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.field_path import column_of
from bucketlake.model.schema import IS_DELETED, cast_batch
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.read_plan import plan_read
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.where.expression import Expression
from bucketlake.where.predicate import Predicate
from bucketlake.where.sides import Equation
from bucketlake.write.arrow_source import ArrowSource, selectable
from bucketlake.write.merge_binding import VALUES_MAX, BoundClause, BoundMerge, Values
from bucketlake.write.merge_pairs import Candidates, Rows
from bucketlake.write.merge_rows import (
    EFFECT,
    NULL_MARKS,
    MergedRows,
    MergeTarget,
    ambiguous,
    changes_of,
    old_name,
    require_types,
    source_schema,
    stored_already,
)
from bucketlake.write.merge_statement import Effect, Match
from bucketlake.write.pack import RecordSource

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

Pairs: TypeAlias = Mapping[str, Rows]
"""Positions of rows by the alias of their side: pairs of rows, or the rows of one side."""


class ArrowMerge:
    """The source of a merge, as an Arrow table.

    Parameters
    ----------
    given : pa.Table
        The rows.
    """

    def __init__(self, given: pa.Table) -> None:
        stored = source_schema(given.schema)
        rows = selectable(given.select(stored.names))
        self._rows = cast_batch(rows, stored, where="source of the merge")

    @property
    def schema(self) -> pa.Schema:
        """Columns of the source."""
        return self._rows.schema

    def records(self) -> RecordSource:
        """Return the rows as the records of an upsert."""
        return ArrowSource(self._rows)

    def close(self) -> None:
        """Do nothing: nothing is kept."""

    def rows(self, bound: BoundMerge, target: MergeTarget) -> MergedRows:
        """Find the rows that the merge writes.

        Raises
        ------
        InputError
            If two of them have one key, or the key of an inserted row is stored.
        UnsupportedFeatureError
            If only Spark can evaluate the merge.
        """
        snapshot = target.snapshot
        values = self._values(bound)
        predicate = bound.reads(values)
        plan = plan_read(PinnedRead(snapshot), target.index, besides=predicate)
        stored = read_arrow(snapshot.storage, plan)
        found = _Join(bound, target, stored, self._rows).rows()
        keys = target.identities(bound.ordering).identify(found)
        self._require_distinct(found, keys, target)
        inserted = keys.filter(pc.equal(keys["effect"], Effect.INSERT.value))
        if bound.inserts_new:
            marks = [pc.match_substring(inserted[name], text) for name, text in NULL_MARKS]
            inserted = inserted.filter(reduce(pc.or_, marks))
        if len(inserted):
            _require_new(inserted, bound.holds_new_keys(values), target)
        counted = pc.value_counts(keys["effect"]).to_pylist()
        hidden = [name for name in found.column_names if name.startswith("_bucketlake_")]
        source = ArrowSource(found.drop_columns(hidden))
        changes = changes_of({each["values"]: each["counts"] for each in counted})
        return MergedRows(source, changes, predicate)

    def _values(self, bound: BoundMerge) -> Values:
        found = {}
        for field, text in bound.pruning_fields().items():
            held = _evaluated(text, {bound.source_alias: self._rows}).unique()
            found[field] = held.to_pylist() if len(held) <= VALUES_MAX else None
        return found

    def _require_distinct(self, found: pa.Table, keys: pa.Table, target: MergeTarget) -> None:
        counted = keys.group_by(["key", "path"]).aggregate([([], "count_all")])
        repeated = counted.filter(pc.greater(counted["count_all"], 1))
        if not len(repeated):
            return
        key, path = repeated["key"][0], repeated["path"][0]
        is_same = pc.and_(pc.equal(keys["key"], key), pc.equal(keys["path"], path))
        pair = found.filter(is_same).slice(0, 2)
        shown = self._rows.take(pair[_SOURCE_ROW].drop_null()).to_pylist()
        raise ambiguous(target, key.as_py(), path.as_py(), pair[EFFECT].to_pylist(), shown)


def _require_new(inserted: pa.Table, pruning: Predicate | None, target: MergeTarget) -> None:
    snapshot = target.snapshot
    pinned = PinnedRead(snapshot, ReadRequest(columns=target.key_columns))
    held = read_arrow(snapshot.storage, plan_read(pinned, target.index, besides=pruning))
    names = ["key", "path"]
    stored = target.identities().identify(held).select(names)
    both = inserted.select(names).join(stored, names, join_type="left semi")
    if len(both):
        raise stored_already(target, both["key"][0].as_py(), both["path"][0].as_py())


class _Join:
    """The pairs of matching rows, and what the clauses make of them.

    Pairs are made and tested in blocks. Only those are kept to which a clause applies, and a row of
    the table may have one of them. So many-to-many joins need no more memory than others.
    """

    def __init__(
        self, bound: BoundMerge, target: MergeTarget, stored: pa.Table, given: pa.Table
    ) -> None:
        self._bound, self._target = bound, target
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
                pairs = _where(_flags(expression.holds(self._taken(test, pairs))), pairs)
            yield pairs

    def _require_few(self) -> None:
        count = self._candidates.pair_count
        if count > _PAIRS_MAX:
            raise UnsupportedFeatureError(
                f"on = {self._bound.on!r}, by which {count} pairs of rows may match, without Spark",
                self._target.where,
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
                holds = _flags(expression.holds(self._taken(clause.condition, pairs)))
            yield clause, _where(holds, pairs)
            pairs = _where(~holds, pairs)

    def _all_written(self, chosen: Iterable[tuple[BoundClause, Pairs]]) -> pa.Table:
        parts = [self._written(clause, pairs) for clause, pairs in chosen]
        return pa.concat_tables([self._written_schema().empty_table(), *parts])

    def _written(self, clause: BoundClause, at: Pairs) -> pa.Table:
        """Return the rows that a clause writes."""
        bound, count = self._bound, len(next(iter(at.values())))
        columns = {}
        for name, text in clause.values.items():
            if text is None:
                columns[name] = pa.nulls(count, bound.schema.field(name).type)
            else:
                expression = self._expression(text, at, f"{clause.role}, column {name!r}")
                columns[name] = expression.values(self._taken(text, at))
        rows = pa.table(columns)
        require_types(rows.schema, clause, self._target)
        rows = cast_batch(rows, bound.schema, where=clause.role)
        schema = self._written_schema()
        is_delete = clause.effect is Effect.DELETE
        if IS_DELETED not in rows.column_names:
            rows = rows.append_column(IS_DELETED, pa.repeat(pa.scalar(is_delete), count))
        elif is_delete:
            deleted = pa.repeat(pa.scalar(True), count)
            rows = rows.set_column(rows.schema.get_field_index(IS_DELETED), IS_DELETED, deleted)
        given_at = at.get(bound.source_alias)
        places = pa.nulls(count, pa.int64()) if given_at is None else pa.array(given_at)
        hidden = [
            pa.repeat(pa.scalar(clause.effect.value, pa.int32()), count),
            places,
            *self._old_ordering(clause, at, count),
        ]
        return pa.table([*rows.columns, *hidden], schema=schema)

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
        sides = {alias: self._sides[alias].schema.empty_table() for alias in at}
        return Expression(text, _side_by_side(sides).schema, role)

    def _taken(self, text: str, at: Pairs) -> pa.Table:
        """Return the rows of a clause, with the columns that a text may name."""
        taken = {alias: _named(self._sides[alias], text).take(pa.array(at[alias])) for alias in at}
        return _side_by_side(taken)


def _named(side: pa.Table, text: str) -> pa.Table:
    """Return the columns that a text may name."""
    names = [name for name in side.column_names if name.lower() in text.lower()]
    return side.select(names or side.column_names[:1])


def _side_by_side(sides: Mapping[str, pa.Table]) -> pa.Table:
    """Return tables with equally many rows as the struct columns of one table."""
    columns = {}
    for alias, rows in sides.items():
        batches = rows.combine_chunks().to_batches()
        chunks = [batch.to_struct_array() for batch in batches]
        columns[alias] = pa.chunked_array(chunks, pa.struct([*rows.schema]))
    return pa.table(columns)


def _evaluated(text: str, sides: Mapping[str, pa.Table]) -> pa.ChunkedArray:
    rows = _side_by_side({alias: _named(side, text) for alias, side in sides.items()})
    return Expression(text, rows.schema, "on").values(rows)


def _where(flags: npt.NDArray[np.bool_], pairs: Pairs) -> Pairs:
    return {alias: rows[flags] for alias, rows in pairs.items()}


def _first_repeated(rows: Sequence[Rows]) -> int | None:
    """Return the first row that is there twice; None if none is."""
    held = np.sort(np.concatenate([np.empty(0, np.int64), *rows]))
    repeated = held[1:][held[1:] == held[:-1]]
    return int(repeated[0]) if len(repeated) else None


def _joined(blocks: Sequence[Pairs]) -> Pairs:
    return {alias: np.concatenate([pairs[alias] for pairs in blocks]) for alias in blocks[0]}


def _flags(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = values.to_numpy()
    return flags
