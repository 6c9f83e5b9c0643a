"""A function of the caller that makes the rows to store, and the checks of what it returns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bucketlake.errors import BucketLakeError, InputError
from bucketlake.model.cast import cast_table
from bucketlake.model.names import did_you_mean
from bucketlake.model.row_merge import MergeFunction


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function of stored and new rows; it travels to tasks as Spark's own functions do.

    Attributes
    ----------
    function : callable
        The function.
    table : str
        Path of the table, for messages.
    fixed : tuple of str
        Columns that it must not change: those of record key, partition and ordering.
    """

    function: MergeFunction
    table: str
    fixed: tuple[str, ...]

    def rows(self, older: pa.Table, newer: pa.Table, what: str) -> pa.Table:
        """Return the rows that the function makes.

        Parameters
        ----------
        older, newer : pa.Table
            Rows of the same keys, in the same order, with the columns of the table.
        what : str
            Where the rows are from, for messages.

        Raises
        ------
        InputError
            If the function fails, or returns other rows, columns, types or keys.
        """
        name = getattr(self.function, "__name__", type(self.function).__name__)
        where = f"write to {self.table}, {what}, merge function {name!r}"
        try:
            found = self.function(older, newer)
        except Exception as error:
            problem = f"it raised {type(error).__name__}: {error}"
            raise InputError(where, problem, "correct the function") from error
        if isinstance(found, pa.RecordBatch):
            found = pa.Table.from_batches([found])
        if not isinstance(found, pa.Table):
            _refuse(where, f"it returned {type(found).__name__}", "return a pyarrow.Table")
        if found.num_rows != newer.num_rows:
            problem = f"it got {newer.num_rows} rows and returned {found.num_rows}"
            _refuse(where, problem, "return a row for each row, in the same order")
        _require_columns(found, newer, where)
        try:
            rows = cast_table(found, newer.schema, where=where, exact=True).combine_chunks()
        except BucketLakeError as error:
            raise InputError(where, str(error), "return the types of the table") from error
        for column in self.fixed:
            if not rows[column].equals(newer[column]):
                _refuse(
                    where,
                    f"it changed the column {column!r}, which decides where or when a row counts",
                    "return the columns of key, partition and ordering of the new rows",
                )
        return rows


def _require_columns(found: pa.Table, newer: pa.Table, where: str) -> None:
    names, wanted = found.column_names, newer.column_names
    lacking = [name for name in wanted if name not in names]
    unknown = [name for name in names if name not in wanted]
    if lacking or unknown or len(names) != len(wanted):
        problem = f"it returned the columns {names}, the table has {wanted}"
        hint = did_you_mean(lacking[0], unknown) if lacking and unknown else ""
        _refuse(where, problem, f"return the columns of the table{hint}")


def _refuse(where: str, problem: str, next_step: str) -> None:
    raise InputError(where, problem, next_step)
