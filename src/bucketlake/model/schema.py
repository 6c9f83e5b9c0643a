"""The schema of a table: its columns without Hudi's meta columns, and how it may grow.

A table schema is a :class:`pyarrow.Schema` of stored types (:mod:`bucketlake.model.column_type`).
The schema of a batch is normalised first. Then :func:`bucketlake.model.evolution.evolve` returns
the table's next schema, or raises an error that names the column. :func:`cast_batch` casts batches
to it, and :func:`bucketlake.model.cast.cast_table` older files.
:mod:`bucketlake.format.avro.table_schema` has the Avro form in commit metadata.

All columns of new tables are nullable, also record keys. A null key is rejected before anything is
written. A required column would restrict every later writer, because Hudi's schema check rejects an
added required column. Required columns of a table that Hudi made stay required.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.cast import Columns, cast_table
from bucketlake.model.column_type import stored_fields, untyped_path

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

OPERATION_COLUMN = "_hoodie_operation"
"""A sixth meta column, in tables with change flags."""

IS_DELETED = "_hoodie_is_deleted"
"""The only data column with Hudi's prefix: true means that the record is deleted.

In a batch it is an instruction and adds no column. A table stores it only if its schema has it,
because the schema was created so or because Hudi added it.
"""

UNAVAILABLE = "_unavailable"
"""A column of tables that follow a database which does not send all values of a row.

It is a map: names of columns whose value a row's newest change did not show, and the position of
the change from which the value is; an empty text if none showed it yet. Writes keep it right in
any order of changes (``merge/column_rules.py``).
"""

UNAVAILABLE_TYPE = pa.map_(pa.string(), pa.string())
NONE_LACKS, SOME_LACK = {b"lacks": b"none"}, {b"lacks": b"some"}
"""Metadata of that column in a batch whose rows have all values, or of which some lack one."""

META_NAMES: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""Names of the meta columns, in the order of base files."""

META_FIELDS: tuple[pa.Field, ...] = tuple(pa.field(name, pa.string()) for name in META_NAMES)

_HUDI_PREFIX = "_hoodie_"


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Put the five meta columns before a table's columns."""
    return pa.schema([*META_FIELDS, *without_meta(schema)])


def without_meta(schema: pa.Schema) -> pa.Schema:
    """Remove the meta columns from a schema."""
    hidden = {*META_NAMES, OPERATION_COLUMN}
    return pa.schema([field for field in schema if field.name not in hidden])


def without_flag(schema: pa.Schema) -> pa.Schema:
    """Remove the flag of deletes from a schema."""
    fields = [field for field in schema if field.name != IS_DELETED]
    return pa.schema(fields, schema.metadata)  # pandas names its index there.


def with_flag_of(table: pa.Schema, batch: pa.Schema) -> pa.Schema:
    """Return a batch's schema with the flag of deletes if, and only if, the table stores it."""
    flags = [field for field in table if field.name == IS_DELETED]
    return pa.schema([*without_flag(batch), *flags])


def cast_batch(
    data: Columns,
    target: pa.Schema,
    *,
    where: str = "table",
    may_widen: bool = False,
    computed: bool = False,
    keys: Callable[[], pa.Array] | None = None,
) -> Columns:
    """Cast a batch to the table's schema: no number loses a digit, see :func:`cast_table`.

    The batch may have the flag of deletes or lack it, whatever the table stores.
    """
    if IS_DELETED in data.schema.names and IS_DELETED not in target.names:
        data = data.drop_columns([IS_DELETED])
    elif IS_DELETED in target.names and IS_DELETED not in data.schema.names:
        data = data.append_column(IS_DELETED, pa.repeat(pa.scalar(False), data.num_rows))
    return cast_table(
        data, target, where=where, exact=True, may_widen=may_widen, computed=computed, keys=keys
    )


def normalise_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """Return a schema with the types in which a table stores the columns.

    Parameters
    ----------
    schema : pyarrow.Schema
        Schema of a Spark frame or an Arrow table.
    where : str
        The table or input, for messages.

    Returns
    -------
    pyarrow.Schema
        The same columns in the same order, with stored types and all nullable. Field metadata keeps
        only the comment.

    Raises
    ------
    InputError
        If a type cannot be stored, Avro cannot hold a name, two names differ only by case, a name
        is reserved by Hudi, the delete flag is not boolean, or there is no column.

    Examples
    --------
    >>> normalise_schema(pa.schema({"id": pa.large_string(), "n": pa.int16()}), "orders")
    id: string
    n: int32
    """
    if len(schema) == 0:
        raise InputError(where, "there are no columns", "give data with columns")
    for name in schema.names:
        if name.startswith(_HUDI_PREFIX) and name != IS_DELETED:
            raise InputError(
                f"{where}, column {name}", "Hudi reserves this name", "drop or rename the column"
            )
    flag = schema.field(IS_DELETED).type if IS_DELETED in schema.names else pa.bool_()
    if not (pa.types.is_boolean(flag) or pa.types.is_null(flag)):
        raise InputError(
            f"{where}, column {IS_DELETED}",
            f"this flag of deletes must be boolean, but is {flag}",
            "cast it to boolean",
        )
    return pa.schema(stored_fields(list(schema), "", where))


def require_types(schema: pa.Schema, where: str) -> None:
    """Raise InputError for a column of a new table whose type is null, or contains null.

    pandas and polars give this type to a column without values.
    """
    for field in schema:
        path = untyped_path(field.type, field.name)
        if path is not None:
            raise InputError(
                f"{where}, column {path}",
                "it has the null type, which does not tell the type of later values",
                "give the column a type, or leave it out",
            )
