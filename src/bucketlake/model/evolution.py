"""Schema evolution: which schema a table has after a batch of another schema.

A schema only grows: columns and fields are added, numbers are widened. The common type of two types
was measured on Hudi 1.2.0; docs/spec/types.md lists it with the differences.
:mod:`bucketlake.model.cast` casts data to the new schema.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.column_type import (
    DECIMAL_PRECISION_MAX,
    list_of,
    map_of,
    stored_fields,
    type_name,
)

_INTEGERS = (pa.int32(), pa.int64())  # In order of width.
_FLOATS = (pa.float32(), pa.float64())


def evolve(
    table_schema: pa.Schema,
    incoming: pa.Schema,
    *,
    where: str = "table",
    fill_missing: bool = False,
) -> pa.Schema:
    """Return the schema of a table after a batch is written to it.

    Parameters
    ----------
    table_schema : pyarrow.Schema
        The table's columns, without meta columns.
    incoming : pyarrow.Schema
        The batch's columns, without meta columns; normalised here.
    where : str
        The table, for messages.
    fill_missing : bool
        Whether columns that the batch lacks are filled with nulls; if not, they are an error.

    Returns
    -------
    pyarrow.Schema
        The table's columns in their order, widened if the batch is wider, then new columns of the
        batch, nullable. Equal to ``table_schema`` if the batch has nothing new.

    Raises
    ------
    InputError
        If the types do not fit; the error names column, both types and the next step.

    Notes
    -----
    Structs, also in arrays and maps, get new fields by the same rules. Numbers inside them are not
    widened, because Hudi could not read the older files. ``cast_table`` rejects nulls in required
    columns.

    Examples
    --------
    >>> evolve(pa.schema({"n": pa.int32()}), pa.schema({"n": pa.int64(), "tag": pa.string()}))
    n: int64
    tag: string
    """
    stored = stored_fields(list(incoming), "", where)
    return pa.schema(_Evolution(where, fill_missing).fields(list(table_schema), stored, ""))


class _Evolution:
    """Compares two schemas."""

    def __init__(self, where: str, fill_missing: bool) -> None:
        self._where = where
        self._fill_missing = fill_missing

    def fields(
        self, table: list[pa.Field], incoming: list[pa.Field], prefix: str
    ) -> list[pa.Field]:
        """Merge the fields of two schemas or structs."""
        self._check_case(table, incoming, prefix)
        by_name = {field.name: field for field in incoming}
        known = {field.name for field in table}
        kept = [self._field(field, by_name.get(field.name), prefix) for field in table]
        return kept + [field for field in incoming if field.name not in known]

    def _field(self, table: pa.Field, incoming: pa.Field | None, prefix: str) -> pa.Field:
        path = prefix + table.name
        if incoming is not None:
            return table.with_type(self._type(table.type, incoming.type, path))
        if self._fill_missing and table.nullable:
            return table
        raise InputError(
            f"{self._where}, column {path}",
            f"the table has it as {_words(table)}, the batch lacks it",
            "add it to the batch" + (", with nulls for unknown values" if table.nullable else ""),
        )

    def _check_case(
        self, table: Iterable[pa.Field], incoming: Iterable[pa.Field], prefix: str
    ) -> None:
        by_lower_name = {field.name.lower(): field.name for field in table}
        for field in incoming:
            name = by_lower_name.get(field.name.lower(), field.name)
            if name != field.name:
                problem = f"the table has {prefix}{name}, and Spark ignores case"
                where = f"{self._where}, column {prefix}{field.name}"
                raise InputError(where, problem, f"rename it to {name}")

    def _type(self, table: pa.DataType, incoming: pa.DataType, path: str) -> pa.DataType:
        if pa.types.is_struct(table) and pa.types.is_struct(incoming):
            return pa.struct(self.fields(list(table), list(incoming), f"{path}."))
        if pa.types.is_list(table) and pa.types.is_list(incoming):
            element = self._type(table.value_type, incoming.value_type, f"{path}[]")
            return list_of(element, nullable=table.value_field.nullable)
        if pa.types.is_map(table) and pa.types.is_map(incoming):
            value = self._type(table.item_type, incoming.item_type, f"{path}{{}}")
            return map_of(value, nullable=table.item_field.nullable)
        common = _common_type(table, incoming)
        if common is None or (common != table and _is_nested(path)):
            held = f"the table holds {type_name(table)}, the batch {type_name(incoming)}"
            raise InputError(
                f"{self._where}, column {path}",
                held if common is None else f"{held}, and only whole columns can be widened",
                f"cast the batch's column to {type_name(table)}, or give it another name",
            )
        return common


def _is_nested(path: str) -> bool:
    # Hudi 1.2.0 writes such a batch, and then fails on every older file of the table ("Nested types
    # with type changes ... cannot be read in vectorized mode").
    return any(mark in path for mark in ".[{")


def _words(field: pa.Field) -> str:
    return f"{'' if field.nullable else 'required '}{type_name(field.type)}"


def _common_type(table: pa.DataType, incoming: pa.DataType) -> pa.DataType | None:
    """Return the common type of two scalar types; None if there is none."""
    if table == incoming:
        return table
    for order in (_INTEGERS, _FLOATS):
        if table in order and incoming in order:
            return order[max(order.index(table), order.index(incoming))]
    if table in _INTEGERS and incoming in _FLOATS:
        return pa.float64()  # Hudi combines bigint and float to float and rounds stored values.
    if table in _FLOATS and incoming in _INTEGERS:
        return table
    if pa.types.is_decimal128(table):
        return _common_decimal(table, incoming)
    return None


def _common_decimal(table: pa.DataType, incoming: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all values of both, if one of them does; integers by value."""
    if incoming in _INTEGERS:
        return table
    if not pa.types.is_decimal128(incoming):
        return None
    scale = max(table.scale, incoming.scale)
    precision = scale + max(table.precision - table.scale, incoming.precision - incoming.scale)
    if precision > DECIMAL_PRECISION_MAX:
        return None
    common = pa.decimal128(precision, scale)
    return common if common in (table, incoming) else None
