"""The entries of map arrays; Arrow's list functions do not accept maps."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def map_entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of all maps of an array, map by map.

    Entries outside a slice or of a null map are omitted, as ``flatten`` does for lists.

    Examples
    --------
    >>> maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int8()))
    >>> [entries.to_pylist() for entries in map_entries(maps.slice(1))]
    [['b'], [2]]
    """
    maps = array.drop_null() if array.null_count else array
    first, end = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    return maps.keys.slice(first, end - first), maps.items.slice(first, end - first)


def map_lengths(array: pa.MapArray) -> pa.Int32Array:
    """Count the entries of each map of an array; null for a null map."""
    offsets = array.offsets
    lengths = pc.subtract(offsets.slice(1), offsets.slice(0, len(array)))
    return pc.if_else(array.is_valid(), lengths, pa.scalar(None, pa.int32()))
