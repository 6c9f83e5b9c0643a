"""The rows of ``INSERT INTO … VALUES``, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.column_type import type_name
from bucketlake.model.field_path import spelled, why_missing
from bucketlake.model.schema import META_NAMES, cast_batch, without_meta
from bucketlake.where.expression import Expression
from bucketlake.write.sql_statement import InsertText

_WHERE = "INSERT of the statement"


def inserted_columns(found: InsertText, schema: pa.Schema) -> list[str]:
    """Return the columns that a statement names, in their order; by default all of the table.

    Raises
    ------
    InputError
        If there is no such column, one is named twice, or a row has another number of values.
    """
    own = [name for name in schema.names if name not in META_NAMES]
    names: list[str] = []
    for given in own if found.columns is None else found.columns:
        name = spelled(schema, given)
        if name is None or name not in own:
            problem = f"the table {why_missing(schema, given)}"
            raise InputError(f"{_WHERE}, column {given!r}", problem, "name a column of the table")
        if name in names:
            raise InputError(_WHERE, f"column {name!r} is named twice", "name it once")
        names.append(name)
    for number, row in enumerate(found.values or ()):
        require_as_many(len(row), names, f"{_WHERE}, row {number}")
    return names


def require_as_many(count: int, names: Sequence[str], where: str = _WHERE) -> None:
    """Raise InputError if rows have another number of values than there are columns."""
    if count != len(names):
        problem = f"{len(names)} columns ({', '.join(names)}) get {count} values"
        raise InputError(where, problem, "give each column one value")


def values_of(found: InsertText, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the rows; columns that the statement does not name are null.

    Raises
    ------
    InputError
        If a value is no expression, or does not fit its column.
    UnsupportedFeatureError
        If only Spark can evaluate a value.
    """
    given = pa.schema([schema.field(name) for name in names])
    nothing = pa.table({"": pa.nulls(1)})
    rows = []
    for number, texts in enumerate(found.values or ()):
        where = f"{_WHERE}, row {number}"
        values = [
            Expression(text, pa.schema([]), f"{where}, column {name!r}").values(nothing)
            for name, text in zip(names, texts, strict=True)
        ]
        row = pa.table(values, names=[*names])
        _require_no_text(row.schema, given, where)
        rows.append(cast_batch(row, given, where=where))
    held, stored = pa.concat_tables(rows), without_meta(schema)
    columns = [
        held[field.name] if field.name in names else pa.nulls(len(held), field.type)
        for field in stored
    ]
    return pa.table(columns, names=stored.names)


def _require_no_text(row: pa.Schema, given: pa.Schema, where: str) -> None:
    """Raise InputError for a text in a column of another type, which Spark does not take."""
    for field, wanted in zip(row, given, strict=True):
        if pa.types.is_string(field.type) and not pa.types.is_string(wanted.type):
            problem = f"the table holds {type_name(wanted.type)}, the value is a text"
            step = "give a value of this type"
            raise InputError(f"{where}, column {field.name!r}", problem, step)
