"""The history of rows (SCD type 2): changes become rows with the interval in which they held.

Each change is one row of the table, keyed by the keys and its place in the sequence, so the table
follows from the set of changes alone: their order, batches and repetitions do not count. A row
ends where the next change of its keys begins. A delete is a row with an empty interval, which no
time falls into. It stays, so that an older row that comes later still ends there.

:meth:`Intervals.turned` is the rule, for columns of Arrow; Spark runs it in tasks that have all
rows of a key (``spark/frame_source.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.creating import marker_of
from bucketlake.engine import (
    are_files,
    arrow_schema,
    engine_of,
    given_columns,
    input_of,
    sample_rows,
    turning,
)
from bucketlake.errors import ConfigError, InputError
from bucketlake.merge.incoming import BoolArray, delete_flags, sort_nulls_first
from bucketlake.merge.row_changes import differing
from bucketlake.model.arguments import check_kinds, check_texts, names_of
from bucketlake.model.arrays import one_array
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import type_name
from bucketlake.model.evolution import evolve, typed_schema
from bucketlake.model.field_path import field_at, why_missing
from bucketlake.model.names import Names
from bucketlake.model.result import WriteResult
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.schema import cast_batch, normalise_schema, without_flag
from bucketlake.model.table_type import Operation
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.table import Table, handle_of
from bucketlake.timeline.open_table import OpenTable
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource, RecordSource
from bucketlake.write.target import target_of
from bucketlake.writing import commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bucketlake.config.merge_entries import DeleteMarker
    from bucketlake.engine import Records
    from bucketlake.write.input_files.files import InputFiles

_WITHOUT_ORDER = (
    pa.types.is_nested,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_binary,
    pa.types.is_null,
)
_WIDER = SchemaMerge(widen_types=True)  # Values that do not fit are refused when they are cast.


def history(
    data: Records,
    *,
    keys: Names,
    sequence_by: str,
    delete_marker: DeleteMarker | None = None,
    columns: Sequence[str] = ("valid_from", "valid_to", "is_current"),
) -> ChangeHistory:
    """Turn changes into rows with the interval in which they held (SCD type 2).

    Parameters
    ----------
    data : DataFrame, pa.Table, ArrowData or InputFiles
        The changes, as :meth:`Table.upsert` takes rows: each has the whole row as it was from its
        place in the sequence on. One whose ``_hoodie_is_deleted`` is true, or with the delete
        marker, says that the row was deleted; of its columns only keys and sequence count. They
        may come in any order, late, and several times.
    keys : str or sequence of str
        Columns that identify what changes.
    sequence_by : str
        Column that orders the changes of a key, such as a time or a log position: a number, text,
        date or time, without nulls.
    delete_marker : (str, str), optional
        A column and the text in it that make a change a delete, such as ``("op", "D")``.
    columns : sequence of str
        Names of the three columns of the interval. The first one stands in place of
        ``sequence_by``; the second one, exclusive, is null while the row holds; the third one says
        whether it does.

    Returns
    -------
    ChangeHistory
        Apply it to a table with ``ChangeHistory.apply(table)``. A new table for it has the schema
        ``ChangeHistory.schema`` and the record key ``ChangeHistory.record_key``.

    Raises
    ------
    InputError
        If a column is missing, or ``sequence_by`` has a type without an order.

    Examples
    --------
    >>> import bucketlake as bl
    >>> seen = [{"id": 1, "city": "Rome", "at": 10}, {"id": 1, "city": "Oslo", "at": 30}]
    >>> changes = bl.history(seen, keys="id", sequence_by="at")
    >>> homes = bl.create_table("memory://docs/homes", schema=changes.schema,
    ...                         record_key=changes.record_key)
    >>> changes.apply(homes).inserted
    2
    >>> late = bl.history([{"id": 1, "city": "Bonn", "at": 20}], keys="id", sequence_by="at")
    >>> late.apply(homes).updated  # Rome ends at it, and Oslo is written again.
    2
    >>> homes.show()
    id  city  valid_from  valid_to  is_current
    --  ----  ----------  --------  ----------
     1  Rome          10        20  false
     1  Oslo          30      null  true
     1  Bonn          20        30  false
    """
    check_texts(sequence_by=sequence_by)
    names = names_of(columns, "columns")
    if len(names) != 3:
        raise ConfigError("columns", columns, "name three: begin, end, and whether the row holds")
    marker = None if delete_marker is None else marker_of(delete_marker)
    rule = Intervals(names_of(keys, "keys"), sequence_by, names, marker)
    for argument, given in (("keys", rule.keys), ("columns", names)):
        if not given or len({*given}) < len(given):
            raise ConfigError(argument, given, "give names, each of them once")
    if sequence_by in rule.keys:
        raise ConfigError("sequence_by", sequence_by, "name a column that is none of the keys")
    found = ChangeHistory(input_of(data, "data of a history"), rule)
    rule.schema_of(found._columns)  # Raises InputError.
    return found


@dataclass(frozen=True, slots=True, repr=False)
class ChangeHistory:
    """Changes that are to be turned into rows with intervals; :func:`history` returns it.

    Attributes
    ----------
    data : DataFrame, pa.Table or InputFiles
        The changes.
    rule : Intervals
        How they become rows.
    """

    data: DataFrame | pa.Table | InputFiles
    rule: Intervals

    @property
    def record_key(self) -> tuple[str, ...]:
        """Record key of a table of such rows: the keys, and the begin of the interval."""
        return self.rule.record_key

    @property
    def schema(self) -> pa.Schema:
        """Columns of a table of such rows; a delete has nulls in all but those of the key."""
        return self.rule.schema_of(typed_schema(self._columns, "history"))

    @property
    def _columns(self) -> pa.Schema:
        given = arrow_schema(given_columns(self.data, "history"))
        return without_flag(normalise_schema(given, "history"))

    def apply(self, table: Table) -> WriteResult:
        """Write the rows that the changes make, and those whose interval they end, by one commit.

        The stored rows of the batch's keys are read, so the cost follows the batch. If another
        writer changes one of their partitions meanwhile, they are read and turned again. The result
        has no instant if all changes are there already.

        Parameters
        ----------
        table : Table
            A table with the record key of this history, partitioned by columns of the key or not
            at all, and without another ordering column than the begin of the interval.

        Raises
        ------
        InputError
            If two changes of a key differ and have one place in the sequence, a key or a place is
            null, or the columns do not fit the table.
        ConfigError
            If the table has another key, partition or ordering, or a delete marker.
        """
        # Here, because the SQL parser is slow to import.
        from bucketlake.read.arrow_reader import read_arrow
        from bucketlake.read.read_plan import plan_read
        from bucketlake.write.by_condition import require_same_matches

        check_kinds((Table,), table=table)
        handle = handle_of(table)
        with handle.at_work("history"), ExitStack() as kept:
            records, spark = self.data, None
            if not (isinstance(records, pa.Table) or are_files(records)):
                spark = turning(cast("DataFrame", records), handle.storage, handle.path)
                kept.callback(spark.close)
            changes = sample_rows(records, None, "history") if spark is None else None
            session = None if spark is None else spark.session

            def write(opened: OpenTable) -> WriteResult:
                rule, snapshot = self.rule, load_snapshot(opened)
                self._require_fit(snapshot, handle.address)
                names = (*snapshot.schema.names,)
                keys = changes if spark is None else spark.keys_of(rule.keys)
                request = ReadRequest(columns=names, keys=keys, key_columns=rule.keys)
                plan = plan_read(PinnedRead(snapshot, request), handle.index_of(snapshot))
                source: RecordSource
                if spark is None:
                    stored = read_arrow(handle.storage, plan)
                    rows = rule.rows(snapshot.schema, changes)
                    source = ArrowSource(rule.turned(rows, stored))
                else:
                    given = partial(rule.rows, snapshot.schema)
                    source = spark.source(plan, given, rule.turned, rule.keys)
                still_same = partial(require_same_matches, snapshot, plan.predicate)
                with closing(source):
                    target = target_of(handle, opened, engine_of(session))
                    return write_records(target, Operation.UPSERT, source, checks=(still_same,))

            return commit(handle, write, session)

    def _require_fit(self, snapshot: Snapshot, root: str) -> None:
        """Raise an error for a table that cannot hold the rows, or has other columns."""
        config, key = snapshot.config, self.record_key
        held, paths = config.key_spec.record_key_fields, config.key_spec.partition_fields
        orders, marker = config.ordering_fields, config.custom_marker
        fits = {*held} == {*key} and {*paths} <= {*key} and {*orders} <= {key[-1]}
        if not fits or marker is not None:
            found = f"record_key={held}, partition_by={paths}, ordering={orders}, marker={marker}"
            step = f"create it with record_key={key}, partitioned by columns of the key or not at "
            raise ConfigError(f"table {root}", found, f"{step}all, without ordering and marker")
        made, wanted = self.rule.schema_of(self._columns), {*snapshot.schema.names}
        if (given := {*made.names}) != wanted:
            problem = f"the changes lack {sorted(wanted - given)} and add {sorted(given - wanted)}"
            raise InputError(f"history of {root}", problem, "give all columns of the table")
        evolve(snapshot.schema, made, where=f"history of {root}", merge=_WIDER)  # For its errors.


@dataclass(frozen=True, slots=True)
class Intervals:
    """How changes become rows with intervals; a small picklable value.

    Attributes
    ----------
    keys : tuple of str
        Columns that identify what changes.
    sequence : str
        Column of the changes that orders those of a key.
    columns : tuple of str
        Columns of the rows: begin, end, and whether the row holds now.
    marker : (field, text) or None
        What makes a change a delete, beside its flag.
    """

    keys: tuple[str, ...]
    sequence: str
    columns: tuple[str, ...]
    marker: DeleteMarker | None

    @property
    def record_key(self) -> tuple[str, ...]:
        """Columns of the record key of the rows."""
        return (*self.keys, self.columns[0])

    def schema_of(self, changes: pa.Schema) -> pa.Schema:
        """Return the columns of the rows that changes make.

        Raises
        ------
        InputError
            If a column is missing or has a name of the interval, or the sequence has no order.
        """
        given, marked = {*changes.names}, () if self.marker is None else (self.marker[0],)
        for name in (*self.keys, self.sequence, *marked):
            if name not in given and (name not in marked or not field_at(changes, name)):
                problem = f"the batch {why_missing(changes, name)}"
                raise InputError(f"history, column {name}", problem, "name columns of the changes")
        taken = {*self.columns} & given - {self.sequence}
        if taken:
            problem = f"the changes have {sorted(taken)}, which are names of the interval"
            raise InputError("history", problem, "give other names: columns=(begin, end, current)")
        begin, end, current = self.columns
        order = changes.field(self.sequence).type
        if any(is_kind(order) for is_kind in _WITHOUT_ORDER):
            problem = f"it is a column of type {type_name(order)}"
            step = "sequence by whole numbers, decimals, texts, dates or timestamps"
            raise InputError(f"history, column {self.sequence}", problem, step)
        held = [
            f.with_nullable(f.name not in self.keys) for f in changes if f.name != self.sequence
        ]
        interval = [pa.field(begin, order, nullable=False), (end, order), (current, pa.bool_())]
        return pa.schema([*held, *interval])

    def rows(self, schema: pa.Schema, changes: pa.Table) -> pa.Table:
        """Return changes as rows of a table, without an end; that of a delete is its begin.

        Raises
        ------
        InputError
            If a key or a place in the sequence is null, or a value does not fit its column.
        """
        begin, end, _ = self.columns
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        deleted = pa.array(delete_flags(changes, self.marker))
        given = cast_batch(
            changes.rename_columns({self.sequence: begin}), nullable, where="history"
        )
        for name in self.record_key:
            if given[name].null_count:
                raise InputError(f"history, column {name}", "a change has a null", "give a value")
        gone = given.filter(deleted).select(self.record_key)
        gone = cast_table(gone.append_column(end, gone[begin]), nullable)
        return pa.concat_tables([gone, given.filter(pc.invert(deleted))])

    def turned(self, given: pa.Table, stored: pa.Table) -> pa.Table:
        """Return the rows that are new, and the stored rows whose interval changes.

        Parameters
        ----------
        given : pa.Table
            Rows of :meth:`rows`, in any order.
        stored : pa.Table
            All stored rows of their keys, and perhaps others.

        Raises
        ------
        InputError
            If two changes of one place differ.
        """
        begin, end, current = self.columns
        rows = pa.concat_tables([given, stored.select(given.column_names).cast(given.schema)])
        is_stored = np.arange(len(rows)) >= len(given)
        keys = [rows[name] for name in self.record_key]
        # At one place a delete comes after a row, and a stored row after a change.
        order = sort_nulls_first([*keys, self._is_delete(rows), pa.array(is_stored)])
        rows, is_stored = rows.take(pa.array(order)), is_stored[order]
        is_last = _are_last(rows.select(self.record_key))
        self._require_one(rows, ~is_last[:-1])
        held, is_stored = rows.filter(pa.array(is_last)), is_stored[is_last]
        ends_never, begins = _are_last(held.select(self.keys)), one_array(held[begin])
        following = pa.array(np.arange(1, len(held) + 1), mask=ends_never)
        ends = pc.if_else(self._is_delete(held), begins, begins.take(following))
        interval = {end: ends, current: ends.is_null()}
        columns = [interval.get(name, held[name]) for name in held.column_names]
        made = pa.Table.from_arrays(columns, schema=held.schema)
        # The row after a new one is written, too: the new one ends at it, so that a rollback of its
        # commit is refused without a rollback of this one.
        ends_new = np.append(False, ~(is_stored | ends_never)[:-1])[: len(held)]
        return made.filter(pa.array(~is_stored | ends_new | differing(made, held)))

    def _is_delete(self, rows: pa.Table) -> pa.Array:
        """Return which rows have an empty interval."""
        return pc.fill_null(pc.equal(*(one_array(rows[name]) for name in self.columns[:2])), False)

    def _require_one(self, rows: pa.Table, is_same: BoolArray) -> None:
        """Raise InputError if two rows of one key and place, neither of them a delete, differ."""
        deleted = self._is_delete(rows.slice(1)).to_numpy(zero_copy_only=False)
        pairs = np.flatnonzero(is_same & ~deleted)  # A delete is the last one of its place.
        held = rows.drop_columns([*self.columns[1:]])
        two = [held.take(pa.array(pairs + next_one)) for next_one in (0, 1)]
        for at in np.flatnonzero(differing(*two))[:1]:
            first, second = (side.slice(at, 1).to_pylist()[0] for side in two)
            problem = f"two changes of one key and place in the sequence differ: {first}, {second}"
            step = "sequence them by a column that tells them apart, or correct one of them"
            raise InputError("history", problem, step)


def _are_last(rows: pa.Table) -> BoolArray:
    """Return which rows differ from the next one."""
    before = rows.slice(0, max(len(rows) - 1, 0))
    return np.append(differing(before, rows.slice(1)), True)[: len(rows)]
