"""Schema evolution: which schema a table has after a batch of another schema.

The table grows, it never shrinks: columns and fields are added, numbers widened. What the common
type of two may be was measured on Hudi 1.2.0 and is told, with the differences, in
docs/spec/types.md. Data are brought to the new schema by :mod:`bucketlake.model.cast`.
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
    """Find the schema that a table has once a batch is written to it.

    Parameters
    ----------
    table_schema : pyarrow.Schema
        The table's columns, without meta columns.
    incoming : pyarrow.Schema
        The batch's columns, without meta columns; normalised here.
    where : str
        The table, for messages.
    fill_missing : bool
        Whether columns of the table that the batch lacks are filled with nulls; refused if not.

    Returns
    -------
    pyarrow.Schema
        The table's columns in their order, widened where the batch is wider, then the batch's new
        columns, nullable. Equal to ``table_schema`` where the batch brings nothing new.

    Raises
    ------
    InputError
        Naming the column, the table's type, the batch's type and the next step.

    Notes
    -----
    Structs, also those in arrays and maps, get new fields by the same rules; numbers inside them
    are not widened, since Hudi could not read the older files. Whether a batch holds nulls in a
    required column is a matter of its data: ``cast_table`` refuses them.

    Examples
    --------
    >>> evolve(pa.schema({"n": pa.int32()}), pa.schema({"n": pa.int64(), "tag": pa.string()}))
    n: int64
    tag: string
    """
    stored = stored_fields(list(incoming), "", where)
    return pa.schema(_Evolution(where, fill_missing).fields(list(table_schema), stored, ""))


class _Evolution:
    """One comparison of two schemas, with what its messages need."""

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
    """Type of a column that held one scalar type and meets another; None where they don't mix."""
    if table == incoming:
        return table
    for order in (_INTEGERS, _FLOATS):
        if table in order and incoming in order:
            return order[max(order.index(table), order.index(incoming))]
    if table in _INTEGERS and incoming in _FLOATS:
        return pa.float64()  # Hudi makes bigint with float a float, and rounds what is there.
    if table in _FLOATS and incoming in _INTEGERS:
        return table
    if pa.types.is_decimal128(table):
        return _common_decimal(table, incoming)
    return None


def _common_decimal(table: pa.DataType, incoming: pa.DataType) -> pa.DataType | None:
    """One of the two where it holds every value of the other; whole numbers fit by value."""
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
