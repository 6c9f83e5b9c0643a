"""A merge of an Arrow table, without Spark: the join, the clauses, and the checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

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
_BLOCK_PAIRS = 1 << 20  # Pairs of rows that are compared at once, if nothing is equated.
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

Rows = npt.NDArray[np.int64]
"""Positions of rows."""


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
            held = _evaluated(text, {bound.source_alias: self._rows}, "on").unique()
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
    """The pairs of matching rows, and what the clauses make of them."""

    def __init__(
        self, bound: BoundMerge, target: MergeTarget, stored: pa.Table, given: pa.Table
    ) -> None:
        self._bound, self._target = bound, target
        self._sides = {bound.alias: stored, bound.source_alias: given}
        self._keys: list[tuple[pa.Array, pa.Array]] = []
        self._tests: list[str] = []
        for condition, equation in bound.conjuncts:
            keys = None if equation is None else self._comparable(equation)
            if keys is None:
                self._tests.append(condition.text)
            else:
                self._keys.append(keys)

    def rows(self) -> pa.Table:
        """Return the rows that the merge writes, with hidden columns."""
        bound, stored, given = self._bound, *self._sides.values()
        stored_at, given_at = self._pairs()
        new, left = _others(given_at, len(given)), _others(stored_at, len(stored))
        if bound.deletes_once:
            stored_at, first = np.unique(stored_at, return_index=True)
            given_at = given_at[first]
        parts = [
            *self._applied(Match.MATCHED, {bound.alias: stored_at, bound.source_alias: given_at}),
            *self._applied(Match.NOT_MATCHED, {bound.source_alias: new}),
            *self._applied(Match.BY_SOURCE, {bound.alias: left}),
        ]
        return pa.concat_tables([self._written_schema().empty_table(), *parts])

    def _comparable(self, equation: Equation) -> tuple[pa.Array, pa.Array] | None:
        """Return the two sides of an equation, if Arrow's join compares them as SQL does."""
        stored, given = (
            _evaluated(text.text, {alias: self._sides[alias]}, "on")
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

    def _pairs(self) -> tuple[Rows, Rows]:
        """Return the matching rows: positions in the table and in the source."""
        found = []
        for stored_at, given_at in self._candidates():
            for test in self._tests:
                at = dict(zip(self._sides, (stored_at, given_at), strict=True))
                holds = _flags(self._expression(test, at, "on").holds(self._taken(test, at)))
                stored_at, given_at = stored_at[holds], given_at[holds]
            found.append((stored_at, given_at))
        none = np.empty(0, np.int64)
        stored, given = zip((none, none), *found, strict=True)
        return np.concatenate(stored), np.concatenate(given)

    def _candidates(self) -> Iterator[tuple[Rows, Rows]]:
        """Yield pairs of rows that are equal in what is equated; all pairs if nothing is."""
        stored_count, given_count = (side.num_rows for side in self._sides.values())
        if self._keys:
            names = [f"key{number}" for number in range(len(self._keys))]
            stored = pa.table(
                [*(pair[0] for pair in self._keys), np.arange(stored_count)], [*names, "stored"]
            )
            given = pa.table(
                [*(pair[1] for pair in self._keys), np.arange(given_count)], [*names, "given"]
            )
            both = stored.join(given, names, join_type="inner")
            yield both["stored"].to_numpy(), both["given"].to_numpy()
        elif stored_count * given_count > _PAIRS_MAX:
            raise UnsupportedFeatureError(
                f"on = {self._bound.on!r}, which equates no columns, for {stored_count} rows of "
                f"the table and {given_count} of the source without Spark",
                self._target.where,
                "equate columns of both sides, or start a SparkSession first",
            )
        elif stored_count and given_count:
            block = max(1, _BLOCK_PAIRS // stored_count)
            for start in range(0, given_count, block):
                given_at = np.arange(start, min(start + block, given_count))
                yield (
                    np.tile(np.arange(stored_count), len(given_at)),
                    np.repeat(given_at, stored_count),
                )

    def _applied(self, match: Match, at: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Yield the rows of each clause; each pair goes to the first that holds for it."""
        for clause in self._bound.clauses:
            if clause.match is not match:
                continue
            count = len(next(iter(at.values())))
            holds = np.ones(count, np.bool_)
            if clause.condition is not None:
                expression = self._expression(clause.condition, at, clause.role)
                holds = _flags(expression.holds(self._taken(clause.condition, at)))
            yield self._written(clause, {alias: rows[holds] for alias, rows in at.items()})
            at = {alias: rows[~holds] for alias, rows in at.items()}

    def _written(self, clause: BoundClause, at: Mapping[str, Rows]) -> pa.Table:
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
        self, clause: BoundClause, at: Mapping[str, Rows], count: int
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

    def _expression(self, text: str, at: Mapping[str, Rows], role: str) -> Expression:
        sides = {alias: self._sides[alias].schema.empty_table() for alias in at}
        return Expression(text, _side_by_side(sides).schema, role)

    def _taken(self, text: str, at: Mapping[str, Rows]) -> pa.Table:
        """Return the rows of a clause, with the columns that a text may name."""
        taken = {}
        for alias, rows in at.items():
            side = self._sides[alias]
            names = [name for name in side.column_names if name.lower() in text.lower()]
            taken[alias] = side.select(names or side.column_names[:1]).take(pa.array(rows))
        return _side_by_side(taken)


def _side_by_side(sides: Mapping[str, pa.Table]) -> pa.Table:
    """Return tables with equally many rows as the struct columns of one table."""
    columns = {}
    for alias, rows in sides.items():
        batches = rows.combine_chunks().to_batches()
        chunks = [batch.to_struct_array() for batch in batches]
        columns[alias] = pa.chunked_array(chunks, pa.struct([*rows.schema]))
    return pa.table(columns)


def _evaluated(text: str, sides: Mapping[str, pa.Table], role: str) -> pa.ChunkedArray:
    rows = _side_by_side(sides)
    return Expression(text, rows.schema, role).values(rows)


def _others(found: Rows, count: int) -> Rows:
    """Return the positions that were not found."""
    is_found = np.zeros(count, np.bool_)
    is_found[found] = True
    return np.flatnonzero(~is_found)


def _flags(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = values.to_numpy()
    return flags
