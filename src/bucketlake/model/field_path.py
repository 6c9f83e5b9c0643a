"""Field paths: a column, or a field inside struct columns, such as ``header.eid``.

Key, partition, ordering and hash fields, and the columns of a condition, are paths. A dot always
leads into a struct, as in Hudi: Avro allows no dot in the name of a column, so no table has such a
column. Only a batch can have a column with the name ``header.eid``; it holds the values of that
path. A null struct has null fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.names import closest_name

ArrowColumn: TypeAlias = pa.Array | pa.ChunkedArray

_Columns = TypeVar("_Columns", pa.Table, pa.RecordBatch)


def steps_of(path: str, names: Collection[str]) -> list[str]:
    """Return the column of a path, and the names of the fields to descend into.

    Examples
    --------
    >>> steps_of("header.eid", ["header", "v"]), steps_of("header.eid", ["header.eid"])
    (['header', 'eid'], ['header.eid'])
    """
    return [path] if path in names else path.split(".")


def roots_of(paths: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the top-level columns that hold some paths, each once.

    Examples
    --------
    >>> roots_of(["header.eid", "v", "header.day"], ["header", "v"])
    ['header', 'v']
    """
    held = frozenset(names)
    return list(dict.fromkeys(steps_of(path, held)[0] for path in paths))


def field_at(schema: pa.Schema, path: str) -> pa.Field | None:
    """Return the field at a path, with the path as its name; None if there is none.

    The field is nullable if it, or a struct that holds it, is nullable.

    Examples
    --------
    >>> field_at(pa.schema([("header", pa.struct([("eid", pa.int64())]))]), "header.eid")
    pyarrow.Field<header.eid: int64>
    """
    root, *steps = _steps(schema, path)
    index = schema.get_field_index(root)
    if index < 0:
        return None
    field, nullable = schema.field(index), schema.field(index).nullable
    for step in steps:
        at = field.type.get_field_index(step) if pa.types.is_struct(field.type) else -1
        if at < 0:
            return None
        field = field.type.field(at)
        nullable = nullable or field.nullable
    return field.with_name(path).with_nullable(nullable)


def known_field(schema: pa.Schema, path: str) -> pa.Field:
    """Return the field at a path that was checked before."""
    field = field_at(schema, path)
    assert field is not None, (path, schema)
    return field


def fields_at(schema: pa.Schema, paths: Iterable[str]) -> pa.Schema:
    """Return the schema of :func:`columns_at`, for paths that were checked before."""
    return pa.schema([known_field(schema, path) for path in paths])


def column_of(columns: pa.Table | pa.RecordBatch, path: str, role: str) -> ArrowColumn:
    """Return the values at a path; ``role`` is for the error.

    Raises
    ------
    InputError
        If there is no such column or field.

    Examples
    --------
    >>> table = pa.table({"header": [{"eid": 1}, None]})
    >>> column_of(table, "header.eid", "record key").to_pylist()
    [1, None]
    """
    schema = columns.schema
    if field_at(schema, path) is None:
        where = f"{role} column {path!r}"
        raise InputError(where, f"the data {why_missing(schema, path)}", _EACH_ONCE)
    root, *steps = _steps(schema, path)
    column = columns.column(schema.get_field_index(root))
    return pc.struct_field(column, steps) if steps else column


def columns_at(columns: _Columns, paths: Sequence[str], role: str = "key") -> _Columns:
    """Return the values at some paths as columns; the name of each column is its path.

    Raises
    ------
    InputError
        If there is no such column or field.

    Examples
    --------
    >>> columns_at(pa.table({"header": [{"eid": 1}], "v": [2]}), ["header.eid"]).to_pydict()
    {'header.eid': [1]}
    """
    arrays = [column_of(columns, path, role) for path in paths]
    return type(columns).from_arrays(arrays, schema=fields_at(columns.schema, paths))


def spelled(schema: pa.Schema, path: str) -> str | None:
    """Return the schema's spelling of a path, whose names ignore case; None if there is none.

    Examples
    --------
    >>> spelled(pa.schema([("header", pa.struct([("eid", pa.int64())]))]), "Header.EID")
    'header.eid'
    """
    return spellings(schema, [path])[path]


def table_column(schema: pa.Schema, path: str, where: str) -> str:
    """Return the path of a column of a table, as :func:`spelled` does; raise InputError if none."""
    found = spelled(schema, path)
    if found is None:
        step = "name a column of the table"
        raise InputError(where, f"the table {why_missing(schema, path)}", step)
    return found


def spellings(schema: pa.Schema, paths: Iterable[str]) -> dict[str, str | None]:
    """Return what :func:`spelled` returns for each of many paths, by path."""
    names: dict[str, str] = {}  # The columns by their names in small letters, once one is needed.

    def spelling(path: str) -> str | None:
        root, *steps = _steps(schema, path)
        if schema.get_field_index(root) < 0:
            names.update({} if names else {name.lower(): name for name in schema.names[::-1]})
            root = names.get(root.lower(), "")
        if schema.get_field_index(root) < 0:
            return None
        found, held = [root], schema.field(root).type
        for step in steps:
            field = _inner(held, step)
            if field is None:
                return None
            found.append(field.name)
            held = field.type
        return ".".join(found)

    return {path: spelling(path) for path in paths}


def spelled_paths(schema: pa.Schema, paths: Iterable[str]) -> list[str]:
    """Return each of some paths once, as the schema spells it; one that it lacks as it is."""
    return [found or path for path, found in spellings(schema, paths).items()]


def _inner(held: pa.DataType, step: str) -> pa.Field | None:
    """Return the field of a struct whose name is alike but for case."""
    if not pa.types.is_struct(held):
        return None
    if (at := held.get_field_index(step)) >= 0:
        return held.field(at)
    return next((field for field in held if field.name.lower() == step.lower()), None)


def _steps(schema: pa.Schema, path: str) -> list[str]:
    """Return :func:`steps_of` a path, in a time that does not grow with the number of columns."""
    return [path] if schema.get_all_field_indices(path) else path.split(".")


def why_missing(schema: pa.Schema, path: str) -> str:
    """Return why :func:`field_at` finds nothing: the end of a sentence about the data.

    Examples
    --------
    >>> why_missing(pa.schema([("header", pa.struct([("eid", pa.int64())]))]), "header.eld")
    "has no field 'eld' in column 'header'; its fields are 'eid'; did you mean 'header.eid'?"
    >>> why_missing(pa.schema([("header", pa.string())]), "header.eid")
    "has column 'header' as string, not as a struct with a field 'eid'"
    """
    root, *steps = steps_of(path, schema.names)
    found = schema.names.count(root)
    if found > 1:
        return f"has several {f'columns {root!r}' if steps else 'such columns'}"
    if found == 0:
        absent = f"column {root!r}" if steps else "such column"
        return f"has no {absent}; its columns are {_listed(schema.names, root, '')}"
    held, parent = schema.field(root).type, root
    for step in steps:
        if not pa.types.is_struct(held):
            return f"has column {parent!r} as {held}, not as a struct with a field {step!r}"
        names = [held.field(i).name for i in range(held.num_fields)]
        if names.count(step) != 1:
            return (
                f"has {'several fields' if step in names else 'no field'} {step!r} in column "
                f"{parent!r}; its fields are {_listed(names, step, f'{parent}.')}"
            )
        held, parent = held.field(step).type, f"{parent}.{step}"
    raise AssertionError(f"{path} is not missing")


_EACH_ONCE = "give the data the table's columns, each once"


def _listed(names: Sequence[str], wanted: str, prefix: str) -> str:
    meant = closest_name(wanted, [name for name in names if name != wanted])
    hint = "" if meant is None else f"; did you mean {prefix + meant!r}?"
    return ", ".join(map(repr, names)) + hint
