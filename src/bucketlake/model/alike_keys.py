"""Different keys of several columns that have the same text.

Hudi escapes nothing in a key of several columns, so that (``x,b:y``, ``z``) and (``x``, ``y,b:z``)
are both ``a:x,b:y,b:z``. A null and the text ``__null__`` are spelled alike, too, and so are an
empty text and ``__empty__``. One of two such records would replace the other. Only texts with a
field's name between ``,`` and ``:``, and these two words, can be such keys; all other batches pay
for one search in the bytes of their key columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.arrays import mask_of, one_array, spans_of
from bucketlake.model.field_path import column_of
from bucketlake.model.keys import EMPTY_TEXT, NULL_TEXT

_WORDS = (NULL_TEXT, EMPTY_TEXT)


def require_distinct_texts(
    columns: pa.Table, keys: pa.Array, fields: Sequence[str], where: str
) -> None:
    """Raise InputError if two different keys of a batch have the same text.

    Parameters
    ----------
    columns : pyarrow.Table
        The record key columns in the types of the table.
    keys : pyarrow.Array
        The text of each row's key.
    fields : sequence of str
        The record key fields, in the order of the key.
    where : str
        The table, for messages.

    Raises
    ------
    InputError
        If there are such keys; the error shows both.
    """
    values = [one_array(column_of(columns, name, "record key")) for name in fields]
    names = [f",{name}:" for name in fields[1:]]
    suspects = [held for held in values if _may_hold(held, [*names, *_WORDS])]
    if not suspects:
        return
    found = np.zeros(len(keys), np.bool_)
    for held in suspects:
        for name in names:
            found |= mask_of(pc.match_substring(held, name))
        found |= mask_of(pc.is_in(held, pa.array(_WORDS)))
    if not found.any():
        return
    chosen = pc.is_in(keys, keys.filter(pa.array(found)))
    numbered = [f"{number}" for number in range(len(fields))]
    held_rows = [keys.filter(chosen), *(held.filter(chosen) for held in values)]
    rows = pa.table(held_rows, ["key", *numbered])
    sources = rows.group_by(["key", *numbered]).aggregate([])
    counted = pc.value_counts(sources["key"].combine_chunks())
    alike = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
    if len(alike):
        key = pc.min(alike).as_py()
        held = sources.filter(pc.equal(sources["key"], key)).select(numbered).to_pylist()
        one, other = sorted(_shown(fields, row) for row in held)[:2]
        raise InputError(
            f"{where}, record key {', '.join(fields)}",
            f"two different keys have the same text: ({one}) and ({other}) are both {key!r}, and "
            "one record would replace the other",
            "correct the values, or use a key of one column",
        )


def refuse_repeat(columns: pa.Table, keys: pa.Array, where: str) -> NoReturn:
    """Raise InputError for rows of which two have one key; the error shows both."""
    counted = pc.value_counts(keys)
    repeated = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
    key = pc.min(repeated)
    rows = columns.filter(pc.equal(keys, key)).slice(0, 2).to_pylist()
    raise InputError(
        where,
        f"two rows of the source have the key {key.as_py()!r}: {rows[0]} and {rows[1]}",
        "give the source one row a key",
    )


def _may_hold(values: pa.Array, texts: Sequence[str]) -> bool:
    """Return whether the bytes of a column of strings hold one of the texts, maybe across rows."""
    if not pa.types.is_string(values.type):
        return False
    octets, offsets = spans_of(values)
    data = octets[offsets[0] : offsets[-1]].tobytes()
    # One byte is found much faster than several, and most keys hold neither "," nor "_".
    return any(text[:1].encode() in data and text.encode() in data for text in texts)


def _shown(fields: Sequence[str], row: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(fields, row.values(), strict=True))
