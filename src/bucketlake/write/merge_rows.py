"""The rows that a merge writes: their hidden columns, their keys, and what is wrong with them.

``write/arrow_merge.py`` and ``spark/merge.py`` find the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.index.setting import TableIndex
from bucketlake.merge.incoming import ORDERING, at_least, comparable
from bucketlake.model.arrays import one_array
from bucketlake.model.batch_columns import table_columns
from bucketlake.model.evolution import evolve
from bucketlake.model.field_path import columns_at, fields_at
from bucketlake.model.keys import EMPTY_TEXT, NULL_TEXT, KeySpec, record_keys
from bucketlake.model.partition_path import DEFAULT_PARTITION, partition_paths
from bucketlake.model.schema import cast_batch, normalise_schema, with_flag_of
from bucketlake.read.snapshot import Snapshot
from bucketlake.where.predicate import Predicate
from bucketlake.write.ingest import ChangeCounts
from bucketlake.write.merge_binding import BoundClause
from bucketlake.write.merge_statement import Effect
from bucketlake.write.pack import RecordSource

EFFECT = "_bucketlake_effect"
"""Hidden column: what a row does, an :class:`Effect`."""

IDENTITY = pa.schema({"key": pa.string(), "path": pa.string(), "effect": pa.int32()})
"""Columns of :func:`identify`."""

NULL_MARKS = (("key", NULL_TEXT), ("key", EMPTY_TEXT), ("path", DEFAULT_PARTITION))
"""Texts of keys and paths that are made of nulls; in a condition a null equals nothing."""

_SHOWN_COLUMNS = 6


@dataclass(frozen=True, slots=True, eq=False)
class MergedRows:
    """The rows that a merge writes.

    Attributes
    ----------
    source : RecordSource
        The rows, with a flag of deletes.
    changes : ChangeCounts
        How many rows of each kind they are.
    predicate : Predicate or None
        A condition that all rows of the table which the merge can change fulfil.
    """

    source: RecordSource
    changes: ChangeCounts
    predicate: Predicate | None


@dataclass(frozen=True, slots=True, eq=False)
class MergeTarget:
    """A table that is pinned for a merge.

    Attributes
    ----------
    snapshot : Snapshot
        The pinned state.
    index : TableIndex or None
        The table's index, to prune buckets.
    is_global : bool
        Whether keys are unique in the whole table.
    """

    snapshot: Snapshot
    index: TableIndex | None
    is_global: bool

    @property
    def where(self) -> str:
        """The merge, for messages."""
        return f"merge into {self.snapshot.storage.root}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The fields that tell key and partition path."""
        return self.identities().fields

    def identities(self, ordering: tuple[str, ...] = ()) -> Identities:
        """Return what finds the keys of rows, and with ordering fields, updates that lose."""
        snapshot = self.snapshot
        return Identities(snapshot.config.key_spec, snapshot.schema, self.is_global, ordering)


@dataclass(frozen=True, slots=True)
class Identities:
    """Finds the keys of rows; a small picklable value.

    Attributes
    ----------
    spec : KeySpec
        Key and partition columns.
    schema : pa.Schema
        Columns of the table.
    is_global : bool
        Whether keys are unique in the whole table.
    ordering : tuple of str
        Ordering fields by which an update can lose.
    """

    spec: KeySpec
    schema: pa.Schema
    is_global: bool
    ordering: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that tell key and partition path."""
        return tuple(dict.fromkeys((*self.spec.record_key_fields, *self.spec.partition_fields)))

    def identify(self, rows: pa.Table) -> pa.Table:
        """Return key, partition path and effect of each row, with the columns of ``IDENTITY``.

        An update with an ordering value that is less than the stored one has no effect.
        """
        columns = cast_batch(columns_at(rows, self.fields), fields_at(self.schema, self.fields))
        keys = one_array(record_keys(columns, self.spec))
        paths = one_array(partition_paths(columns, self.spec)).dictionary_decode()
        if self.is_global:
            paths = pa.repeat(pa.scalar(""), len(keys))
        effects = pa.nulls(len(keys), pa.int32())
        if EFFECT in rows.column_names:
            effects = one_array(rows[EFFECT]).cast(pa.int32())
            if self.ordering:
                effects = self._with_losers(rows, effects)
        return pa.table([keys, paths, effects], schema=IDENTITY)

    def _with_losers(self, rows: pa.Table, effects: pa.Array) -> pa.Array:
        stored = fields_at(self.schema, self.ordering)
        given = cast_batch(columns_at(rows, self.ordering, ORDERING), stored)
        new = tuple(comparable(given[name]) for name in self.ordering)
        old = tuple(
            comparable(rows[old_name(number)].cast(stored.field(name).type))
            for number, name in enumerate(self.ordering)
        )
        loses = pc.and_(pc.equal(effects, Effect.UPDATE), pa.array(~at_least(new, old)))
        return pc.if_else(loses, pa.scalar(Effect.IGNORE.value, pa.int32()), effects)


def source_schema(given: pa.Schema) -> pa.Schema:
    """Return the columns of a source in stored types, without meta columns of Hudi."""
    kept = [given.field(name) for name in table_columns(given, given.names)]
    return normalise_schema(pa.schema(kept), "source of the merge")


def old_name(number: int) -> str:
    """Return the hidden column of a stored ordering value."""
    return f"_bucketlake_old_{number}"


def changes_of(counts: Mapping[int, int]) -> ChangeCounts:
    """Return the changes of a merge, from the number of rows of each effect."""
    return ChangeCounts(*(counts.get(effect.value, 0) for effect in Effect))


def require_types(rows: pa.Schema, clause: BoundClause, target: MergeTarget) -> None:
    """Raise InputError if the type of a value does not fit its column."""
    held = target.snapshot.schema
    batch = with_flag_of(held, normalise_schema(rows, clause.role))
    try:
        evolve(held, batch, where=clause.role, keys=target.key_columns)
    except InputError as error:
        step = "cast the value to the type of the column"
        raise InputError(
            error.where, error.problem.replace("the batch", "the value"), step
        ) from None


def ambiguous(
    target: MergeTarget,
    key: str,
    path: str,
    effects: Sequence[int],
    shown: Sequence[Mapping[str, object]],
) -> InputError:
    """Return the error that two rows of a merge have one key, with the rows of the source."""
    where = f" in partition {path!r}" if path else ""
    rows = " and ".join(_shown(row) for row in shown)
    inserts = [Effect(effect) is Effect.INSERT for effect in effects]
    problem = f"two rows of the source change the row with key {key!r}{where}: {rows}"
    step = "give each row at most one match: narrow on or the conditions, or the source"
    if all(inserts):
        problem = f"two rows of the source would be inserted with key {key!r}{where}: {rows}"
        step = "give the source one row a key"
    elif any(inserts):
        problem = (
            f"a row of the source would be inserted with key {key!r}{where}, and the row of the "
            f"table with this key is changed, too: {rows}"
        )
        step = "equate the columns of the key in on, so that the row matches"
    return InputError(target.where, problem, step)


def stored_already(target: MergeTarget, key: str, path: str) -> InputError:
    """Return the error that the key of an inserted row is stored."""
    where = f" in partition {path!r}" if path else ""
    return InputError(
        target.where,
        f"a row of the source matches no row, and would be inserted with key {key!r}{where}, which "
        "the table has",
        "equate the columns of the key in on, so that the row matches, or drop it by a condition",
    )


def _shown(row: Mapping[str, object]) -> str:
    held = [f"{name}={value!r}" for name, value in row.items()]
    more = ", …" if len(held) > _SHOWN_COLUMNS else ""
    return f"({', '.join(held[:_SHOWN_COLUMNS])}{more})"
