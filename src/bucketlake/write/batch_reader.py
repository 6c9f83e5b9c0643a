"""The rows of a batch as incoming records: cast to the table's schema, with their delete flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.column_groups import ColumnGroups
from bucketlake.merge.combining import Combining
from bucketlake.merge.duplicates import combine_duplicates
from bucketlake.merge.group_merge import MergeRule
from bucketlake.merge.incoming import (
    ORDERING,
    BoolArray,
    IncomingRecords,
    IntArray,
    codes_of_repeated_keys,
    commit_time_deletes,
    comparable,
    delete_flags,
    distinct_rows,
)
from bucketlake.model.alike_keys import refuse_repeat, require_distinct_texts
from bucketlake.model.arrays import one_array
from bucketlake.model.cast import require_valid
from bucketlake.model.field_path import column_of, columns_at, fields_at
from bucketlake.model.schema import IS_DELETED, cast_batch
from bucketlake.write.tag import EFFECT

WHOLE, RESET, ERASED = "_bucketlake_whole", "_bucketlake_reset", "_bucketlake_erased"
"""Hidden columns with ``is_whole``, ``is_reset`` and ``erased`` of ``IncomingRecords``."""

HIDDEN_COLUMNS = WHOLE, RESET, EFFECT, ERASED


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Makes incoming records of the rows of a batch; a small picklable value.

    Attributes
    ----------
    table : str
        Path of the table, for messages.
    schema : pa.Schema
        Data schema of the write.
    rule : MergeRule
        Which record wins.
    deletes_by_key : bool
        Whether every row deletes its key; then the rows have only key columns.
    delete_marker : (field, value) or None
        The column and value that mark a delete in this table, beside ``_hoodie_is_deleted``.
    key_fields : tuple of str
        The record key fields; different keys with the same text are an error.
    combining : Combining, optional
        How columns are combined with those of other rows; None if a record replaces whole rows.
    refuses_repeats : bool
        Whether two rows with one key are an error: the rows of an update or merge.
    """

    table: str
    schema: pa.Schema
    rule: MergeRule
    deletes_by_key: bool
    delete_marker: tuple[str, str] | None = None
    key_fields: tuple[str, ...] = ()
    combining: Combining | None = None
    refuses_repeats: bool = False

    def read(self, rows: pa.Table, keys: pa.Array) -> IncomingRecords:
        """Return rows with these keys as incoming records; InputError if a value does not fit."""
        if self.deletes_by_key:
            stored = fields_at(self.schema, self.key_fields)
            self._require_distinct(cast_batch(columns_at(rows, self.key_fields), stored), keys)
            every = np.ones(rows.num_rows, np.bool_)
            return IncomingRecords(keys, rows.select([]), (), every, every)
        where = f"write to {self.table}"
        held = frozenset(rows.column_names)
        hidden = {name: rows[name] for name in HIDDEN_COLUMNS if name in held}
        flags = {name: hidden[name].to_numpy() for name in hidden if name != ERASED}
        rows = rows.drop_columns([*hidden])
        require_valid(rows, where=where)
        columns = cast_batch(
            rows,
            self._read_as,
            where=where,
            may_widen=not self.refuses_repeats,  # An update or merge changes no schema.
            computed=self.refuses_repeats,
            keys=lambda: keys,
        ).combine_chunks()
        self._require_distinct(columns, keys)
        if self.refuses_repeats and codes_of_repeated_keys(keys) is not None:
            refuse_repeat(columns, keys, where)
        fields, deleted = self.rule.compared, self.delete_flags(rows)
        if self.groups is not None:
            columns = self.groups.brought(columns, deleted, where)
        return IncomingRecords(
            keys,
            columns,
            tuple(comparable(column_of(columns, field, ORDERING)) for field in fields),
            deleted,
            commit_time_deletes(deleted, columns, fields) | flags.get(RESET, np.False_),
            flags.get(WHOLE),
            erased=one_array(hidden[ERASED]) if ERASED in hidden else None,
        )

    @property
    def groups(self) -> ColumnGroups | None:
        """Columns with orderings of their own."""
        return None if self.combining is None else self.combining.groups

    @property
    def _read_as(self) -> pa.Schema:
        """The schema to which a batch is cast: stored rows may have the values that it lacks."""
        if self.combining is None or not self.combining.gaps:
            return self.schema
        names = self.combining.required
        return pa.schema([f.with_nullable(True) if f.name in names else f for f in self.schema])

    def distinct(
        self, records: IncomingRecords, positions: IntArray | None
    ) -> tuple[IncomingRecords, IntArray]:
        """Return one record for each key, and the position of the last record of each key."""
        if self.refuses_repeats and not self.deletes_by_key:  # Then they were read as such.
            return records, np.arange(len(records))
        if self.combining is not None and not self.deletes_by_key:
            chosen, rows = combine_duplicates(records, positions, self.combining)
        else:
            rows = distinct_rows(records, positions)
            chosen = records.take(rows)
        if len(chosen) == len(records) or records.is_reset.all() or not records.is_reset.any():
            return chosen, rows
        found = pc.is_in(chosen.keys, records.keys.filter(pa.array(records.is_reset)))
        return replace(chosen, is_reset=found.to_numpy(zero_copy_only=False)), rows

    def rows_of(self, records: IncomingRecords) -> pa.Table:
        """Return records as rows; :meth:`read` makes the same records of them."""
        deleted = pa.array(records.deleted)
        rows, flag = records.columns, IS_DELETED
        if flag in rows.column_names:
            rows = rows.set_column(rows.column_names.index(flag), flag, deleted)
        else:
            rows = rows.append_column(flag, deleted)
        if self.groups is not None:
            rows = rows.append_column(ERASED, records.erases)
        return self.with_resets(rows.append_column(WHOLE, pa.array(records.whole)), records)

    def with_resets(self, rows: pa.Table, records: IncomingRecords | None) -> pa.Table:
        """Return the rows of records, with what :meth:`read` cannot see of ``is_reset``.

        None are records whose keys are distinct in the batch.
        """
        if not self.rule.compares or self.deletes_by_key:
            return rows
        resets = np.zeros(rows.num_rows, np.bool_) if records is None else records.is_reset
        return rows.append_column(RESET, pa.array(resets))

    def _require_distinct(self, columns: pa.Table, keys: pa.Array) -> None:
        if len(self.key_fields) > 1:  # A key of one field has the text of its value.
            require_distinct_texts(columns, keys, self.key_fields, f"write to {self.table}")

    def delete_flags(self, rows: pa.Table) -> BoolArray:
        """Return which rows delete their key."""
        if self.deletes_by_key:
            return np.ones(rows.num_rows, np.bool_)
        return delete_flags(rows, self.delete_marker)
