"""Null elements of arrays: allowed here, but a problem for a table that Hudi also writes.

By default Hudi 1.2.0 writes arrays in a layout that cannot hold null elements. It fails on a batch
with a null element, and also when it rewrites a base file of bucketlake with one, until its writers
set ``parquet.avro.write-old-list-structure=false``. bucketlake's layout can hold them, so such data
are stored, with a :class:`NullElementWarning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import pyarrow as pa

from bucketlake.errors import NullElementWarning
from bucketlake.model.column_type import is_list
from bucketlake.model.map_entries import map_entries


def columns_with_null_elements(data: pa.Table | pa.RecordBatch) -> list[str]:
    """Return the columns with a null element in an array; nested columns by their path.

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
    """Warn about columns with null elements, if there are any."""
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
