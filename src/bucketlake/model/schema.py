"""The schema of a table: its columns without Hudi's meta columns, and how it may grow.

A table schema is a :class:`pyarrow.Schema` of stored types (:mod:`bucketlake.model.column_type`).
What comes in is normalised first, then :func:`evolve` finds the table's next schema or refuses
with the column named; :func:`cast_table` brings batches and older files to it. The Avro form in
commit metadata is :mod:`bucketlake.format.avro.schema`'s.

New tables have nullable columns only, record keys included: a null key is refused by value before
anything is written, and a required column would bind every later writer (Hudi's schema check
refuses an added one). Required columns of a table that Hudi made stay required.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import stored_fields
from bucketlake.model.evolution import evolve

__all__ = [
    "COMMIT_SEQNO",
    "COMMIT_TIME",
    "FILE_NAME",
    "IS_DELETED",
    "META_FIELDS",
    "META_NAMES",
    "OPERATION",
    "PARTITION_PATH",
    "RECORD_KEY",
    "cast_table",
    "evolve",
    "normalise_schema",
    "with_meta",
    "without_meta",
]

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

OPERATION = "_hoodie_operation"
"""A sixth meta column, in tables that keep change flags."""

IS_DELETED = "_hoodie_is_deleted"
"""The one column under Hudi's prefix that is data: true asks for the record's deletion."""

META_NAMES: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""Names of the meta columns, in the order in which base files hold them."""

META_FIELDS: tuple[pa.Field, ...] = tuple(pa.field(name, pa.string()) for name in META_NAMES)

_HUDI_PREFIX = "_hoodie_"


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Put the five meta columns before a table's columns."""
    return pa.schema([*META_FIELDS, *without_meta(schema)])


def without_meta(schema: pa.Schema) -> pa.Schema:
    """Drop the meta columns from a schema, wherever they stand."""
    return pa.schema(_data_fields(schema))


def _data_fields(schema: pa.Schema) -> Iterable[pa.Field]:
    return (field for field in schema if field.name not in META_NAMES and field.name != OPERATION)


def normalise_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """Give every column the type in which a table stores it.

    Parameters
    ----------
    schema : pyarrow.Schema
        Schema of a Spark frame or an Arrow table.
    where : str
        The table or input, for messages.

    Returns
    -------
    pyarrow.Schema
        The same columns in the same order, of stored types and all nullable; of field metadata
        the comment is kept.

    Raises
    ------
    InputError
        For a type that cannot be stored, a name that Avro cannot hold, two names that differ by
        case alone, a name that Hudi keeps for itself, a flag of deletes that is not boolean, or no
        column at all.

    Examples
    --------
    >>> normalise_schema(pa.schema({"id": pa.large_string(), "n": pa.int16()}), "orders")
    id: string
    n: int32
    """
    if len(schema) == 0:
        raise InputError(where, "there are no columns", "hand in a frame that has some")
    for name in schema.names:
        if name.startswith(_HUDI_PREFIX) and name != IS_DELETED:
            raise InputError(
                f"{where}, column {name}", "the name belongs to Hudi", "drop or rename the column"
            )
    if IS_DELETED in schema.names and not pa.types.is_boolean(schema.field(IS_DELETED).type):
        raise InputError(
            f"{where}, column {IS_DELETED}",
            f"it tells which records are deleted, and is {schema.field(IS_DELETED).type}",
            "cast it to boolean",
        )
    return pa.schema(stored_fields(list(schema), "", where))
