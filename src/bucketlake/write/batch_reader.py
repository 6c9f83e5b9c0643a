"""The rows of a batch as incoming records: cast to the table's schema, with their delete flags."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.merge.group_merge import MergeRule
from bucketlake.merge.incoming import (
    ORDERING,
    BoolArray,
    IncomingRecords,
    commit_time_deletes,
    comparable,
    delete_flags,
)
from bucketlake.model.alike_keys import require_distinct_texts, require_no_repeat
from bucketlake.model.cast import require_valid
from bucketlake.model.field_path import column_of, columns_at, fields_at
from bucketlake.model.schema import cast_batch


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
    refuses_repeats : bool
        Whether two rows with one key are an error.
    """

    table: str
    schema: pa.Schema
    rule: MergeRule
    deletes_by_key: bool
    delete_marker: tuple[str, str] | None = None
    key_fields: tuple[str, ...] = ()
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
        require_valid(rows, where=where)
        columns = cast_batch(rows, self.schema, where=where, may_widen=True).combine_chunks()
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
        )

    def _require_distinct(self, columns: pa.Table, keys: pa.Array) -> None:
        if len(self.key_fields) > 1:  # A key of one field has the text of its value.
            require_distinct_texts(columns, keys, self.key_fields, f"write to {self.table}")

    def delete_flags(self, rows: pa.Table) -> BoolArray:
        """Return which rows delete their key."""
        if self.deletes_by_key:
            return np.ones(rows.num_rows, np.bool_)
        return delete_flags(rows, self.delete_marker)
