"""Which columns of a batch, or of a given schema, are columns of a table.

Two kinds are not: Hudi's meta columns, which each write makes anew, and the index of a pandas data
frame. A level of the index is written only if the table has a column of its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

import pyarrow as pa

from bucketlake.model.schema import META_NAMES, OPERATION

_UNNAMED_LEVEL = re.compile(r"__index_level_\d+__")


def table_columns(given: pa.Schema, known: Collection[str]) -> list[str]:
    """Return the names of the given columns that are columns of a table, in their order.

    Parameters
    ----------
    given : pyarrow.Schema
        Columns of a batch or of a new table, perhaps with the metadata of pandas.
    known : collection of str
        Columns of the table; for a new table those of its keys, partitions and ordering.

    Examples
    --------
    >>> fields = ["_hoodie_commit_time", "id", "__index_level_0__"]
    >>> table_columns(pa.schema([(name, pa.string()) for name in fields]), ["id"])
    ['id']
    """
    levels = _named_levels(given)
    return [
        name
        for name in given.names
        if name not in META_NAMES
        and name != OPERATION
        and (name in known or not (name in levels or _UNNAMED_LEVEL.fullmatch(name)))
    ]


def _named_levels(given: pa.Schema) -> set[str]:
    """Return the columns that pandas made of its index, from the metadata that it leaves."""
    text = (given.metadata or {}).get(b"pandas")
    try:
        levels = json.loads(text)["index_columns"] if text else []
        return {level for level in levels if isinstance(level, str)}  # A range is no column.
    except (ValueError, TypeError, KeyError):  # Not from pandas, whatever its key says.
        return set()
