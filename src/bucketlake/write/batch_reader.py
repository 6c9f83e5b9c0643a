"""The rows of a batch as incoming records: cast to the table's schema, with their delete flags."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.merge.combining import Combining
from bucketlake.merge.duplicates import combine_duplicates
from bucketlake.merge.group_merge import MergeRule
from bucketlake.merge.incoming import (
    ORDERING,
    BoolArray,
    IncomingRecords,
    IntArray,
    commit_time_deletes,
    comparable,
    delete_flags,
    distinct_rows,
)
from bucketlake.model.alike_keys import require_distinct_texts, require_no_repeat
from bucketlake.model.cast import require_valid
from bucketlake.model.field_path import column_of, columns_at, fields_at
from bucketlake.model.schema import IS_DELETED, cast_batch

WHOLE = "_bucketlake_whole"
"""Hidden column: whether a record takes nothing of the stored row, see ``IncomingRecords``."""


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
        Whether two rows with one key are an error.
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
            given, stored = (
                columns_at(rows, self.key_fields),
                fields_at(self.schema, self.key_fields),
            )
            self._require_distinct(cast_batch(given, stored), keys)
            every = np.ones(rows.num_rows, np.bool_)
            return IncomingRecords(keys, rows.select([]), (), every, every)
        where = f"write to {self.table}"
        is_whole = None
        if WHOLE in rows.column_names:
            is_whole = rows[WHOLE].to_numpy()
            rows = rows.drop_columns([WHOLE])
        require_valid(rows, where=where)
        columns = cast_batch(rows, self._read_as, where=where, may_widen=True).combine_chunks()
        self._require_distinct(columns, keys)
        if self.refuses_repeats:
            require_no_repeat(columns, keys, where)
        fields = self.rule.ordering_fields if self.rule.compares else ()
        deleted = self.delete_flags(rows)
        return IncomingRecords(
            keys,
            columns,
            tuple(comparable(column_of(columns, field, ORDERING)) for field in fields),
            deleted,
            commit_time_deletes(deleted, columns, fields),
            is_whole,
        )

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
        if self.combining is not None and not self.deletes_by_key:
            return combine_duplicates(records, positions, self.combining)
        rows = distinct_rows(records, positions)
        return records.take(rows), rows

    def rows_of(self, records: IncomingRecords) -> pa.Table:
        """Return records as rows; :meth:`read` makes the same records of them."""
        deleted = pa.array(records.deleted)
        whole = np.zeros(len(records), np.bool_) if records.is_whole is None else records.is_whole
        rows, flag = records.columns, IS_DELETED
        if flag in rows.column_names:
            rows = rows.set_column(rows.column_names.index(flag), flag, deleted)
        else:
            rows = rows.append_column(flag, deleted)
        return rows.append_column(WHOLE, pa.array(whole))

    def _require_distinct(self, columns: pa.Table, keys: pa.Array) -> None:
        if len(self.key_fields) > 1:  # A key of one field has the text of its value.
            require_distinct_texts(columns, keys, self.key_fields, f"write to {self.table}")

    def delete_flags(self, rows: pa.Table) -> BoolArray:
        """Return which rows delete their key."""
        if self.deletes_by_key:
            return np.ones(rows.num_rows, np.bool_)
        return delete_flags(rows, self.delete_marker)
