"""Writes a merge: binds its statement to the pinned table, finds the rows, and commits them.

This is the one plan of a merge: which rows of the table are read, which checks follow in which
order, what is counted, and what is an error. Only the join is an engine's: in this process
(``write/arrow_merge.py``) or on Spark (``spark/merge.py``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.actions.stream_batches import was_committed
from bucketlake.actions.tombstone_list import tombstone_files
from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.hashing.texts import Texts, hash_texts
from bucketlake.merge.incoming import (
    ORDERING,
    BoolArray,
    at_least,
    commit_time_deletes,
    comparable,
    delete_flags,
)
from bucketlake.model.arrays import one_array
from bucketlake.model.field_path import columns_at, field_at, fields_at
from bucketlake.model.keys import EMPTY_TEXT, NULL_TEXT, KeySpec, record_keys
from bucketlake.model.partition_path import DEFAULT_PARTITION, partition_paths
from bucketlake.model.result import WriteResult
from bucketlake.model.schema import IS_DELETED, cast_batch, normalise_schema
from bucketlake.model.table_type import Operation
from bucketlake.read.read_plan import ReadPlan, plan_read
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.write.batch_schema import table_columns
from bucketlake.write.by_condition import require_same_matches
from bucketlake.write.ingest import write_records
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.merge_binding import BoundMerge, Values
from bucketlake.write.merge_statement import Effect, MergeStatement
from bucketlake.write.pack import RecordSource
from bucketlake.write.tag import EFFECT
from bucketlake.write.target import Target

# ---- The rows that a merge writes: hidden columns, keys, and what is wrong with them -------------


IDENTITY = pa.schema({"key": pa.string(), "path": pa.string(), "effect": pa.int32()})
"""Columns of :func:`identify`."""

COUNT = pa.field("_bucketlake_count", pa.int64())
"""Hidden column: for how many rows one stands."""

UNFIT = "_bucketlake_unfit"
"""Hidden column: a number that does not fit its column, in words."""

UNSURE = len(Effect)
"""The place of the number of inserted rows whose key may be stored, after those of effects."""

NULL_MARKS = (("key", NULL_TEXT), ("key", EMPTY_TEXT), ("path", DEFAULT_PARTITION))
"""Texts of keys and paths that are made of nulls; in a condition a null equals nothing."""

INSERTS = (Effect.INSERT.value, Effect.NONE.value)
"""Effects of rows whose key may not be stored."""

_SHOWN_COLUMNS = 6
_HASHES_MAX = 4_000_000  # The driver compares 32 MB of hashes at most.


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
    marker : (field, value) or None
        The column and value that mark a row as deleted.
    """

    spec: KeySpec
    schema: pa.Schema
    is_global: bool
    ordering: tuple[str, ...] = ()
    marker: tuple[str, str] | None = None

    @classmethod
    def of(cls, target: Target, ordering: tuple[str, ...] = ()) -> Self:
        """Return what finds the keys of rows, and with ordering fields, updates that lose."""
        spec, schema = target.config.key_spec, target.snapshot.schema
        return cls(spec, schema, target.index.has_global_keys, ordering, target.marker)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that tell key and partition path."""
        return tuple(dict.fromkeys((*self.spec.record_key_fields, *self.spec.partition_fields)))

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields of written rows that :meth:`identify` reads, if they are there."""
        marker = [each for each in (self.marker or ())[:1] if field_at(self.schema, each)]
        old = [old_name(number) for number, _ in enumerate(self.ordering)]
        names = (*self.fields, EFFECT, IS_DELETED, *marker, *self.ordering, *old)
        return tuple(dict.fromkeys(names))

    def identify(self, rows: pa.Table) -> pa.Table:
        """Return key, partition path and effect of each row, with the columns of ``IDENTITY``.

        An update with an ordering value that is less than the stored one has no effect. An update
        that marks its row as deleted is a delete, as the writer takes it.
        """
        columns = cast_batch(columns_at(rows, self.fields), fields_at(self.schema, self.fields))
        keys = one_array(record_keys(columns, self.spec))
        paths = one_array(partition_paths(columns, self.spec)).dictionary_decode()
        if self.is_global:
            paths = pa.repeat(pa.scalar(""), len(keys))
        effects = pa.nulls(len(keys), pa.int32())
        if EFFECT in rows.column_names:
            effects = self._effects(rows, one_array(rows[EFFECT]).to_numpy().copy())
        return pa.table([keys, paths, effects], schema=IDENTITY)

    def _effects(self, rows: pa.Table, stated: npt.NDArray[np.int32]) -> pa.Array:
        is_marked = delete_flags(rows, self.marker)
        updates, inserts = stated == Effect.UPDATE, stated == Effect.INSERT
        stated[updates & is_marked] = Effect.DELETE
        stated[inserts & is_marked] = Effect.NONE
        if self.ordering:
            stated[updates & self._loses(rows, is_marked)] = Effect.IGNORE
        return pa.array(stated)

    def _loses(self, rows: pa.Table, is_marked: BoolArray) -> BoolArray:
        stored = fields_at(self.schema, self.ordering)
        given = cast_batch(columns_at(rows, self.ordering, ORDERING), stored)
        new = tuple(comparable(given[name]) for name in self.ordering)
        old = tuple(
            comparable(rows[old_name(number)].cast(stored.field(name).type))
            for number, name in enumerate(self.ordering)
        )
        return ~(at_least(new, old) | commit_time_deletes(is_marked, given, self.ordering))


def where_of_merge(target: Target) -> str:
    """Return the merge, for messages."""
    return f"merge into {target.storage.root}"


def source_schema(given: pa.Schema) -> pa.Schema:
    """Return the columns of a source in stored types, without meta columns of Hudi."""
    kept = [given.field(name) for name in table_columns(given, given.names)]
    return normalise_schema(pa.schema(kept), "source of the merge")


def written_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that go to the writer: those of the table, and the effect of a row."""
    return [name for name in names if name == EFFECT or not name.startswith("_bucketlake_")]


def old_name(number: int) -> str:
    """Return the hidden column of a stored ordering value."""
    return f"_bucketlake_old_{number}"


def changes_of(counts: Mapping[int, int]) -> dict[str, int]:
    """Return the changes of a merge as a result names them, from the rows of each effect."""
    kinds = (Effect.INSERT, Effect.UPDATE, Effect.DELETE, Effect.IGNORE)
    names = ("inserted", "updated", "deleted", "ignored")
    return {name: counts.get(kind.value, 0) for name, kind in zip(names, kinds, strict=True)}


def ambiguous(
    target: Target,
    key: str,
    path: str,
    pair: Sequence[tuple[int, Mapping[str, object] | None]],
) -> InputError:
    """Return the error that two rows of a merge have one key.

    ``pair`` has the effect of each, and its row of the source, if it has one. An insert is first.
    """
    where = f" in partition {path!r}" if path else ""
    rows = " and ".join(_shown(row) for _, row in pair if row is not None)
    inserts = [effect in INSERTS for effect, _ in pair]
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
    return InputError(where_of_merge(target), problem, step)


def stored_already(target: Target, key: str, path: str) -> InputError:
    """Return the error that the key of an inserted row is stored."""
    where = f" in partition {path!r}" if path else ""
    return InputError(
        where_of_merge(target),
        f"a row of the source matches no row, and would be inserted with key {key!r}{where}, which "
        "the table has",
        "equate the columns of the key in on, so that the row matches, or drop it by a condition",
    )


def _shown(row: Mapping[str, object]) -> str:
    held = [f"{name}={value!r}" for name, value in row.items()]
    more = ", …" if len(held) > _SHOWN_COLUMNS else ""
    return f"({', '.join(held[:_SHOWN_COLUMNS])}{more})"


# ---- What the tasks of an engine do with rows ----------------------------------------------------


def identified(
    identities: Identities, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield key, partition path and effect of rows, with the other columns of a schema.

    Raises
    ------
    InputError
        If a number does not fit its column.
    """
    for batch in batches:
        given = pa.Table.from_batches([batch])
        yield from identified_rows(identities, schema, given).to_batches()


def identified_rows(identities: Identities, schema: pa.Schema, given: pa.Table) -> pa.Table:
    """Return some rows as :func:`identified` does."""
    found = identities.identify(given)
    if UNFIT in given.column_names:
        _require_fit(given[UNFIT], found["key"])
    more = [given[name] for name in schema.names[len(IDENTITY) :]]
    return pa.table([*found.columns, *more], schema=schema)


def _require_fit(unfit: pa.ChunkedArray, keys: pa.ChunkedArray) -> None:
    """Raise InputError for the first number that does not fit its column."""
    found = pc.index(unfit.is_valid(), True).as_py()
    if found >= 0:
        step = "correct the value, for example round or cast it in the expression"
        raise InputError("merge", f"{unfit[found]} of key {keys[found].as_py()!r}", step)


def tell(identities: Identities, is_unsure: bool, given: pa.Table) -> tuple[Any, bytes | None]:
    """Return what a task tells of some rows.

    Numbers of rows by effect; and a hash of each key, or None if a row stands for several inserted
    ones.
    """
    rows = identified_rows(identities, pa.schema([*IDENTITY, COUNT]), given).combine_chunks()
    effects, marked = rows["effect"].to_numpy(), np.full(len(rows), is_unsure)
    for name, text in NULL_MARKS:
        marked |= pc.match_substring(rows[name], text).to_numpy()
    unsure = (marked & np.isin(effects, INSERTS)).sum()
    kinds = np.append(np.bincount(effects, minlength=UNSURE), unsure)
    if (rows[COUNT.name].to_numpy() != 1).any():
        return kinds, None
    identity = one_array(pc.binary_join_element_wise(rows["key"], rows["path"], "\0"))
    return kinds, hash_texts(Texts.of_array(identity)).tobytes()


def may_repeat(hashes: Sequence[bytes | None]) -> bool:
    """Return whether two rows may have one key, by the hashes that tasks told."""
    if any(known is None for known in hashes):
        return True
    every = np.frombuffer(b"".join(known or b"" for known in hashes), np.uint64)
    return len(every) > _HASHES_MAX or len(np.unique(every)) < len(every)


def distinct_lists(
    schema: pa.Schema, most: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the distinct values of each column as a list; null if there are too many.

    A task stops to read if there are too many of all.
    """
    found: list[set[object]] = [set() for _ in schema]
    for batch in batches:
        for values, column in zip(found, batch.columns, strict=True):
            if len(values) <= most:
                values.update(column.unique().slice(0, 2 * most + 2).to_pylist())
        if all(len(values) > most for values in found):
            break
    lists = [[*values] if len(values) <= most else None for values in found]
    yield pa.RecordBatch.from_pylist([dict(zip(schema.names, lists, strict=True))], schema)


# ---- The plan of a merge: what its engine joins, and the write -----------------------------------


class MergeSource(Protocol):
    """The source of a merge, for an engine that joins it with the table and applies the clauses.

    Of files, a merge that is an upsert writes the records as an upsert of them does. For other
    merges the engine reads their rows, once.

    Attributes
    ----------
    time_zone : str or None
        As for ``parse_where``.
    """

    time_zone: str | None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the source; an upsert may drop some of the records' later."""

    def records(self) -> RecordSource:
        """Return the rows as the records of an upsert."""

    def close(self) -> None:
        """Drop what is kept."""

    def values(self, bound: BoundMerge) -> Values | None:
        """Return the distinct values of the source for ``BoundMerge.pruning_fields``.

        None if conditions of a read do not mean what they mean in the source.
        """

    def upserted(self, bound: BoundMerge) -> RecordSource | None:
        """Return the rows of which the merge is an upsert; None if it is none, or this is unknown.

        The distinct values are known.
        """

    def rows(self, bound: BoundMerge, target: Target, plan: ReadPlan) -> RecordSource:
        """Join the source with the stored rows of a plan; return what the clauses make of them.

        The methods below are about these rows, which have a flag of deletes.

        Raises
        ------
        InputError
            If the engine cannot evaluate a text.
        UnsupportedFeatureError
            If only Spark can evaluate the merge.
        """

    def ambiguity(self) -> InputError | None:
        """Return the error that two of the rows have one key; None if keys are distinct.

        The rows are packed. See :func:`ambiguous`.
        """

    def counts(self) -> Mapping[int, int]:
        """Return the number of rows of each effect, and of ``UNSURE``, if there are some."""

    def stored_among(self, plan: ReadPlan) -> tuple[str, str] | None:
        """Return key and partition path of an inserted row that stored rows have; None if none."""


def write_merge(target: Target, source: MergeSource, statement: MergeStatement) -> WriteResult:
    """Run a merge once; the errors are those of :meth:`Merge.execute`."""
    snapshot, index, origin = target.snapshot, target.index, statement.origin
    if was_committed(target.table, snapshot.timeline, origin):  # Before the source.
        return WriteResult(None, skipped=True)
    if snapshot.config.ordering_groups:
        what, step = "a merge with orderings of columns", "upsert(..., missing='keep') obeys them"
        raise UnsupportedFeatureError(what, where_of_merge(target), step)
    is_global = index.has_global_keys
    bound = BoundMerge(
        statement, snapshot.schema, source.schema, snapshot.config, is_global=is_global
    )
    target = replace(target, refuses_repeats=True)
    if bound.is_upsert:
        records = source.records()
        records.keep(bound.columns)
        return write_records(target, Operation.UPSERT, records, origin=origin)
    if target.appends or target.marker or tombstone_files(target.table, snapshot.timeline):
        bound.upserts = None  # Its counts, or what stays out, would be others.
    values = source.values(bound)
    upserted = source.upserted(bound)
    if upserted is not None:
        with closing(upserted):
            return write_records(target, Operation.UPSERT, upserted, origin=origin)
    predicate = None if values is None else bound.reads(values, source.time_zone)
    plan = plan_read(PinnedRead(snapshot), index, besides=predicate)
    rows = source.rows(bound, target, plan)

    def count_changes() -> dict[str, int]:
        if (error := source.ambiguity()) is not None:
            raise error
        counts = source.counts()
        if counts.get(UNSURE):
            found = source.stored_among(_stored_keys(target, bound, values))
            if found is not None:
                raise stored_already(target, *found)
        return changes_of(counts)

    try:
        check = partial(require_same_matches, snapshot, predicate)
        return write_records(
            target,
            Operation.UPSERT,
            rows,
            origin=origin,
            still_match=check,
            count_changes=count_changes,
        )
    finally:
        rows.close()


def _stored_keys(target: Target, bound: BoundMerge, values: Values | None) -> ReadPlan:
    """Plan the read of the stored keys that inserted rows may have."""
    read = PinnedRead(target.snapshot, ReadRequest(columns=Identities.of(target).fields))
    pruning = None if values is None else bound.holds_new_keys(values)
    return plan_read(read, target.index, besides=pruning)


def rows_in_files(files: FileSource) -> pa.Table:
    """Read files into memory."""
    reader, pieces = files.reading()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = [table for read in pool.map(lambda p: [*reader.read(p)], pieces) for table in read]
    return pa.concat_tables([reader.schema.empty_table(), *tables])
