"""Null elements of arrays: legal here, and a trap for a table that stock Hudi also writes.

Real Hudi 1.2.0, at its defaults, writes arrays in a layout without room for null elements. It fails
on a batch that holds one, and also when it merely rewrites a base file of ours that holds one,
until its writers set ``parquet.avro.write-old-list-structure=false``. bucketlake's layout has the
room, so such data are stored as they are; :class:`NullElementWarning` tells of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import pyarrow as pa

from bucketlake.errors import NullElementWarning
from bucketlake.model.column_type import is_list
from bucketlake.model.map_entries import map_entries


def columns_with_null_elements(data: pa.Table | pa.RecordBatch) -> list[str]:
    """Name the columns in which an array has a null element, nested ones by their path.

    Examples
    --------
    >>> columns_with_null_elements(pa.table({"a": [[1, None]], "b": [[1]], "c": [None]}))
    ['a']
    """
    paths = dict.fromkeys(
        path
        for name, column in zip(data.schema.names, data.columns, strict=True)
        if _may_hold_arrays(column.type)
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
        for path in _paths(chunk, name)
    )
    return list(paths)


def warn_of_null_elements(columns: Iterable[str], where: str) -> None:
    """Warn that columns hold null elements; nothing happens where there is none."""
    for column in columns:
        warnings.warn(
            f"{where}: an array in column {column} has a null element; to let Hudi's own writers "
            "rewrite it, set parquet.avro.write-old-list-structure=false for them",
            NullElementWarning,
            stacklevel=2,
        )


def _may_hold_arrays(data_type: pa.DataType) -> bool:
    children = [data_type.field(i).type for i in range(data_type.num_fields)]
    return is_list(data_type) or any(_may_hold_arrays(child) for child in children)


def _paths(array: pa.Array, path: str) -> Iterator[str]:
    if is_list(array.type):
        elements = array.flatten()
        if elements.null_count:
            yield path
        yield from _paths(elements, f"{path}[]")
    elif pa.types.is_map(array.type):
        yield from _paths(map_entries(array)[1], f"{path}{{}}")
    elif pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten(), strict=True):
            yield from _paths(child, f"{path}.{field.name}")
