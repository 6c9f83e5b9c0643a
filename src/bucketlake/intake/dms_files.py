"""Files that AWS DMS writes to a bucket: rows of a full load, and changes with ``Op`` I, U or D.

While a full load runs, DMS also collects changes. They have the time of their commit, and a loaded
row has the time when it was copied, which may be later than that of a change that came after it. So
a loaded row loses against any change: it gets no ordering value.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.arrays import one_array
from bucketlake.table import Table

DELETE_MARKER = ("Op", "D")
"""What makes a row of DMS a delete."""

_OP = DELETE_MARKER[0]


def is_of_load(path: str) -> bool:
    """Return whether a file is of a full load, by its name.

    >>> is_of_load("s3://landing/shop/orders/LOAD00000001.csv"), is_of_load("20261102-0801.csv")
    (True, False)
    """
    return PurePosixPath(path.rpartition("//")[2]).name.startswith("LOAD")


def as_changes(rows: pa.Table, ordering: Sequence[str], *, are_loaded: bool) -> pa.Table:
    """Return rows of files with the column ``Op``, and without ordering values where it is null.

    Raises
    ------
    InputError
        If an operation is unknown.
    """
    count = len(rows)
    if _OP not in rows.column_names:
        rows = rows.append_column(_OP, pa.nulls(count, pa.string()))
    operations = one_array(rows[_OP]).cast(pa.string())
    known = pc.is_in(operations, pa.array(["I", "U", "D", None]))
    for operation in operations.filter(pc.invert(known))[:1].to_pylist():
        step = "correct the file; changes of AWS DMS have I, U or D"
        raise InputError("column Op", f"the operation {operation!r} is unknown", step)
    loaded = pa.repeat(True, count) if are_loaded else operations.is_null()
    for name in ordering:
        if name in rows.column_names:
            column = rows.schema.get_field_index(name)
            values = pc.if_else(loaded, pa.scalar(None, rows[name].type), rows[name])
            rows = rows.set_column(column, name, values)
    return rows


def ordering_of(table: Table | None, new: Sequence[str]) -> Sequence[str]:
    """Return the ordering columns of a table, or of one that is to be made.

    Raises
    ------
    ConfigError
        If there are none, or the table has another delete marker than that of DMS.
    """
    config = None if table is None else table.config()
    if config is not None and config.custom_marker != DELETE_MARKER:
        wanted = f"the table has the delete marker {config.custom_marker}; make one with"
        raise ConfigError("envelope", "dms", f"{wanted} delete_marker={DELETE_MARKER}")
    found = new if config is None else config.ordering_fields
    if not found:
        wanted = "name the column of TimestampColumnName of the endpoint, in a new table"
        raise ConfigError("ordering", None, f"{wanted}: ordering=... (--ordering)")
    return found
