"""Schema evolution: which schema a table has after a batch of another schema.

A schema only grows: columns and fields are added, numbers are widened. Each change must be asked
for (:mod:`bucketlake.model.row_merge`), and no change loses a digit. docs/spec/types.md lists
the common type of two types, with what was measured on Hudi 1.2.0.
:mod:`bucketlake.model.cast` casts data to the new schema.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.column_type import (
    BLOB,
    is_list,
    is_number_type,
    list_type,
    map_of,
    stored_fields,
    stored_type,
    type_name,
    untyped_path,
)
from bucketlake.model.names import closest_name
from bucketlake.model.row_merge import NO_CHANGE, SchemaMerge, how_to_allow
from bucketlake.model.variant import VARIANT, may_be_variants
from bucketlake.model.vector import is_vector

_INTEGERS = (pa.int32(), pa.int64())  # In order of width.
_FLOATS = (pa.float32(), pa.float64())


def evolve(
    table_schema: pa.Schema,
    incoming: pa.Schema,
    *,
    where: str = "table",
    merge: SchemaMerge = NO_CHANGE,
    keys: Collection[str] = (),
    may_lack: bool = False,
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
    merge : SchemaMerge
        The changes that the write may make; by default none.
    keys : collection of str
        Columns of the record key and the partition path. They keep their type, because another
        type could change the text of stored keys; only an integer may become wider.
    may_lack : bool
        Whether the batch may lack columns, because their stored values stay.

    Returns
    -------
    pyarrow.Schema
        The table's columns in their order, widened if the batch is wider, then new columns of the
        batch, nullable. Equal to ``table_schema`` if the batch has nothing new.

    Raises
    ------
    InputError
        If the types do not fit, or the batch needs a change that ``merge`` does not allow; the
        error names the columns, the types and the next step.

    Notes
    -----
    A null type in the batch takes the table's type. A new column or field of the null type is
    ignored with a warning, because it has no values; a new array or map of unknown element type is
    an error. Structs, also in arrays and maps, get new fields by the same rules. Numbers inside
    them are not widened, because Hudi could not read the older files. Numbers of any type are taken
    into a column of numbers; ``cast_batch`` rejects those that do not fit, and nulls in required
    columns.

    Examples
    --------
    >>> batch = pa.schema({"n": pa.int64(), "tag": pa.string()})
    >>> evolve(pa.schema({"n": pa.int32()}), batch, merge=SchemaMerge.of(True))
    n: int64
    tag: string
    """
    stored = stored_fields(list(incoming), "", where)
    evolution = _Evolution(where, merge, keys, may_lack, [], [])
    evolved = evolution.fields(list(table_schema), stored, "")
    evolution.require_allowed()
    evolution.warn_of_ignored()
    return pa.schema(evolved)


def typed_schema(incoming: pa.Schema, where: str) -> pa.Schema:
    """Return the schema of a table that is made from a batch: without columns of the null type.

    The metadata of the schema stay, where pandas names its index. Warns and raises as
    :func:`evolve` does for columns that the table lacks.
    """
    every = SchemaMerge(add_columns=True)
    typed = evolve(pa.schema([]), incoming, where=where, merge=every)
    return typed.with_metadata(incoming.metadata)


@dataclass(slots=True)
class _Evolution:
    """Compares two schemas, and collects the changes that the write may not make."""

    where: str
    merge: SchemaMerge
    keys: Collection[str]
    may_lack: bool
    ignored: list[str]
    refused: list[tuple[str, str, str]]  # Path, word of the change, what it is.

    def fields(
        self, table: list[pa.Field], incoming: list[pa.Field], prefix: str
    ) -> list[pa.Field]:
        """Merge the fields of two schemas or structs."""
        self._check_case(table, incoming, prefix)
        by_name = {field.name: field for field in incoming}
        known = {field.name for field in table}
        kept = [self._field(field, by_name.get(field.name), prefix) for field in table]
        added = self._with_types([f for f in incoming if f.name not in known], prefix)
        if not self.merge.add_columns:
            lacking = [name for name in known if name not in by_name]
            for field in added:
                meant = closest_name(field.name, lacking) or closest_name(field.name, sorted(known))
                self._refuse(
                    prefix + field.name,
                    "add_columns",
                    f"the table has no such column, the batch has it as {type_name(field.type)}"
                    + (f" (did you mean {prefix + meant!r}?)" if meant else ""),
                )
        return kept + added

    def _with_types(self, added: list[pa.Field], prefix: str) -> list[pa.Field]:
        """Return the new fields without those of the null type, which have no values."""
        typed = []
        for field in added:
            path = prefix + field.name
            if pa.types.is_null(field.type):
                self.ignored.append(path)
                continue
            if pa.types.is_struct(field.type):
                fields = self._with_types(list(field.type), f"{path}.")
                field = field.with_type(pa.struct(fields))
            unknown = untyped_path(field.type, path)
            if unknown is not None or field.type == pa.struct([]):
                raise InputError(
                    f"{self.where}, column {unknown or path}",
                    "the table has no such column, and the batch does not tell its type: it has "
                    "no values there",
                    "give the column a type, or leave it out",
                )
            typed.append(field)
        return typed

    def require_allowed(self) -> None:
        """Raise InputError if the write may not make one of the changes."""
        if not self.refused:
            return
        words = list(dict.fromkeys(word for _, word, _ in self.refused))
        if len(self.refused) == 1:
            ((path, _, problem),) = self.refused
            where = f"{self.where}, column {path}"
        else:
            where = self.where
            problem = "; ".join(f"column {path}: {what}" for path, _, what in self.refused)
        nulls = ", which writes nulls, also into stored records" if "fill_missing" in words else ""
        next_step = f"correct the batch, or allow the change with {how_to_allow(words)}{nulls}"
        if "fill_missing" in words and not any("." in path for path, *_ in self.refused):
            next_step += (
                "; an upsert with missing='keep' (--missing keep) keeps stored values there"
            )
        raise InputError(where, problem, next_step)

    def warn_of_ignored(self) -> None:
        """Warn about new columns of the null type."""
        for path in self.ignored:
            warnings.warn(
                f"{self.where}: column {path} is ignored; the table has no such column, and the "
                "batch has only nulls without a type",
                stacklevel=3,
            )

    def _refuse(self, path: str, word: str, problem: str) -> None:
        self.refused.append((path, word, problem))

    def _field(self, table: pa.Field, incoming: pa.Field | None, prefix: str) -> pa.Field:
        path = prefix + table.name
        if incoming is not None:
            return table.with_type(self._type(table.type, incoming.type, path))
        if self.may_lack and not prefix:
            return table
        problem = f"the table has it as {_words(table)}, the batch lacks it"
        if not table.nullable:
            raise InputError(f"{self.where}, column {path}", problem, "add it to the batch")
        if not self.merge.fill_missing:
            self._refuse(path, "fill_missing", problem)
        return table

    def _check_case(
        self, table: Iterable[pa.Field], incoming: Iterable[pa.Field], prefix: str
    ) -> None:
        by_lower_name = {field.name.lower(): field.name for field in table}
        for field in incoming:
            name = by_lower_name.get(field.name.lower(), field.name)
            if name != field.name:
                problem = f"the table has {prefix}{name}, and Spark ignores case"
                where = f"{self.where}, column {prefix}{field.name}"
                raise InputError(where, problem, f"rename it to {name}")

    def _type(self, table: pa.DataType, incoming: pa.DataType, path: str) -> pa.DataType:
        if pa.types.is_null(incoming):
            return table
        if table == VARIANT and may_be_variants(incoming):
            return table
        if table != VARIANT and pa.types.is_struct(table) and pa.types.is_struct(incoming):
            return pa.struct(self.fields(list(table), list(incoming), f"{path}."))
        if is_vector(table) and is_list(incoming):
            held, fits = incoming.value_type, not is_vector(incoming)
            fits = fits or incoming.list_size == table.list_size
            if fits and (is_number_type(held) or pa.types.is_null(held)):
                return table  # The cast checks each length.
        elif pa.types.is_list(table) and is_list(incoming):
            held = stored_type(incoming.value_type, f"{path}[]", self.where)
            element = self._type(table.value_type, held, f"{path}[]")
            return list_type(element, nullable=table.value_field.nullable)
        if pa.types.is_map(table) and pa.types.is_map(incoming):
            value = self._type(table.item_type, incoming.item_type, f"{path}{{}}")
            return map_of(value, nullable=table.item_field.nullable)
        is_key = path in self.keys
        keeps = is_key and incoming in _FLOATS and table not in (incoming, pa.float64())
        if is_numeric(table) and is_numeric(incoming) and not keeps:
            # Without the change the column stays, and each value that fits is taken.
            common = wider_number(table, incoming)
            is_kept = _is_nested(path) or (is_key and common not in _INTEGERS)
            return common if self.merge.widen_types and not is_kept else table
        if table == incoming:
            return table
        why = ", and a column of the key keeps its type" if is_key else ""
        raise InputError(
            f"{self.where}, column {path}",
            f"the table holds {type_name(table)}, the batch {type_name(incoming)}{why}",
            _MAKERS.get(table, f"cast the batch's column to {type_name(table)}")
            + ("" if is_key else ", or give it another name"),
        )


_MAKERS = {
    VARIANT: "make variants of JSON texts with bl.variant(...), or with Spark 4's parse_json",
    BLOB: "make blobs with bl.blob(...) or bl.blob_reference(...)",
}


def _is_nested(path: str) -> bool:
    # Hudi 1.2.0 writes such a batch, and then fails on every older file of the table ("Nested types
    # with type changes ... cannot be read in vectorized mode").
    return any(mark in path for mark in ".[{")


def _words(field: pa.Field) -> str:
    return f"{'' if field.nullable else 'required '}{type_name(field.type)}"


def is_numeric(data_type: pa.DataType) -> bool:
    """Return whether columns of a stored type hold numbers."""
    return data_type in (*_INTEGERS, *_FLOATS) or pa.types.is_decimal128(data_type)


def wider_number(table: pa.DataType, incoming: pa.DataType) -> pa.DataType:
    """Return the type that holds every number of both; the table's own if no other one does."""
    for order in (_INTEGERS, _FLOATS):
        if table in order and incoming in order:
            return order[max(order.index(table), order.index(incoming))]
    if table == pa.int32() and incoming in _FLOATS:
        return pa.float64()  # Hudi combines int and float to float and rounds stored values.
    are_decimals = pa.types.is_decimal128(table) and pa.types.is_decimal128(incoming)
    return incoming if are_decimals and is_wider_decimal(incoming, table) else table


def is_wider_decimal(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Return whether a decimal type holds every value of another decimal type, and more."""
    whole: int = wide.precision - wide.scale
    holds_all: bool = wide.scale >= narrow.scale and whole >= narrow.precision - narrow.scale
    return holds_all and wide != narrow
