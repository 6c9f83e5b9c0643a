"""Messages of Maxwell, Canal and AWS DMS: read by their documentation, tried with its samples.

They have no schemas, so the caller declares the columns. An update shows the old values of what it
changed; where the key or the partition is among them, the old row is deleted, at the same position.

- Maxwell: ``data``, ``old``, ``type``; place in the binary log, and ``xoffset`` in a transaction.
- Canal: lists ``data`` and ``old``, ``type``; ``es``, the offset in Kafka, the place in the list.
- AWS DMS: ``data``, ``before-image``, ``metadata``; time of the commit, number in the transaction.

Where these tell no position, the offset in Kafka orders, and a row of a first load loses against
any change.

AWS DMS also writes files (:func:`rows_of_dms_files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cdc.change_rows import (
    Bools,
    ChangeAt,
    ChangedRows,
    Envelope,
    Payloads,
    because,
    differ,
    with_old_rows,
)
from bucketlake.cdc.log_position import Numbers, hexadecimal, place_numbers
from bucketlake.cdc.message_settings import MessageSettings
from bucketlake.cdc.values import Field, converted
from bucketlake.errors import InputError
from bucketlake.model.arrays import mask_of, one_array

_WRITTEN = ("insert", "update", "load", "bootstrap-insert", "delete")
_LOADED = ("load", "bootstrap-insert")
_NO_KEY = "the update may change its key; name the key: give the table, or record_key=..."
_TIME = Field("time", pa.string(), pa.timestamp("us"), "instant")
_METADATA = pa.struct(
    [
        ("operation", pa.string()),
        ("record-type", pa.string()),
        ("timestamp", pa.string()),
        ("commit-timestamp", pa.string()),
        ("transaction-record-id", pa.int64()),
    ]
)


def _row_type(fields: tuple[Field, ...]) -> pa.DataType:
    return pa.struct([(field.name, field.raw) for field in fields])


def _ones(count: int) -> tuple[Numbers, int]:
    return np.ones(count, np.uint64), 1


def _maxwell(
    payloads: Payloads, fields: tuple[Field, ...], reading: MessageSettings
) -> ChangedRows:
    row = _row_type(fields)
    more = [("type", pa.string()), ("position", pa.string()), ("xoffset", pa.int64())]
    found = payloads.read(pa.schema([("data", row), ("old", row), *more]))
    kinds, count = one_array(found["type"]), len(payloads)
    parts = pc.extract_regex(one_array(found["position"]), r"\.(?P<file>\d+):(?P<place>\d+)$")
    file, place = (place_numbers(parts.field(name)) for name in ("file", "place"))
    within = place_numbers(one_array(found["xoffset"]))
    texts = hexadecimal((file, 4), (place, 8), (within, 4), _ones(count))
    places = pc.if_else(parts.is_valid(), texts, pa.scalar(None, pa.string()))
    others = mask_of(pc.match_substring_regex(kinds, r"^(table|database)-|^bootstrap-(st|com)"))
    both = (one_array(found["data"]), one_array(found["old"]))
    return _changes(kinds, others, both, np.arange(count), places, reading)


def _canal(payloads: Payloads, fields: tuple[Field, ...], reading: MessageSettings) -> ChangedRows:
    rows = pa.list_(_row_type(fields))
    more = [("type", pa.string()), ("es", pa.int64()), ("isDdl", pa.bool_())]
    found = payloads.read(pa.schema([("data", rows), ("old", rows), *more]))
    data, old = one_array(found["data"]), one_array(found["old"])
    at = pc.list_parent_indices(data).to_numpy().astype(np.int64)
    counts, olds = (pc.fill_null(pc.list_value_length(x), 0).to_numpy() for x in (data, old))
    within = np.arange(len(at)) - (np.cumsum(counts) - counts)[at]
    first = np.cumsum(olds) - olds
    if data.flatten().null_count or ((olds > 0) & (olds != counts)).any():
        raise ValueError("data has a null for a row, or old has another number of rows")
    shown = olds[at] == counts[at]
    before = one_array(old.flatten()).take(pa.array(first[at] + within, mask=~shown))
    times, offsets = (
        place_numbers(one_array(column))[at]
        for column in (found["es"], payloads.messages["offset"])
    )
    places = hexadecimal((times, 8), (offsets, 8), (within.astype(np.uint64), 4), _ones(len(at)))
    both = (one_array(data.flatten()), before)
    return _changes(one_array(found["type"]), mask_of(found["isDdl"]), both, at, places, reading)


def _dms(payloads: Payloads, fields: tuple[Field, ...], reading: MessageSettings) -> ChangedRows:
    row = _row_type(fields)
    found = payloads.read(
        pa.schema([("data", row), ("before-image", row), ("metadata", _METADATA)])
    )
    facts, count = one_array(found["metadata"]), len(payloads)
    texts = pc.coalesce(facts.field("commit-timestamp"), facts.field("timestamp"))
    times = converted(texts, _TIME).cast(pa.int64())
    within = place_numbers(facts.field("transaction-record-id"))
    offsets = place_numbers(one_array(payloads.messages["offset"]))
    held = hexadecimal((place_numbers(times), 8), (within, 8), (offsets, 8), _ones(count))
    places = pc.if_else(times.is_valid(), held, pa.scalar(None, pa.string()))
    others = mask_of(pc.equal(facts.field("record-type"), "control"))
    both = (one_array(found["data"]), one_array(found["before-image"]))
    return _changes(facts.field("operation"), others, both, np.arange(count), places, reading)


def _changes(
    kinds: pa.Array,
    others: Bools,
    both: tuple[pa.StructArray, pa.StructArray],
    at: ChangeAt,
    places: pa.Array,
    reading: MessageSettings,
) -> ChangedRows:
    """Return the changes of messages.

    Parameters
    ----------
    kinds, others
        Of each message: what it tells, and whether it is none of a row.
    both
        Of each row: it, and the old values of what was changed.
    at, places
        Of each row: its message, and its position.
    reading : MessageSettings
        How messages are read.
    """
    rows, old = both
    words = pc.utf8_lower(kinds)
    truncates = mask_of(pc.match_substring(words, "truncate"))
    known = mask_of(pc.is_in(words, pa.array(_WRITTEN))) & ~others
    bad = [] if reading.on_truncate == "ignore" else because(truncates, "the table was truncated")
    for message in np.flatnonzero(~(known | truncates | others)):
        bad.append((int(message), f"the operation {kinds[int(message)].as_py()!r} is unknown"))
    valid = mask_of(rows.is_valid())
    has_row = np.zeros(len(kinds), np.bool_)
    has_row[at[valid]] = True
    bad += because(known & ~has_row, "the change has no row")
    shown = mask_of(old.is_valid()) & mask_of(pc.equal(words, "update"))[at]
    loaded = pa.array(mask_of(pc.is_in(words, pa.array(_LOADED)))[at])
    names = {field.name: field for field in rows.type}
    by = [name for name in (*reading.key, *reading.partition_by) if name in names]
    if not by:
        bad += [(int(message), _NO_KEY) for message in np.unique(at[shown])]
        valid &= ~shown
    parts = [pc.coalesce(old.field(name), rows.field(name)) for name in names]
    before = pa.StructArray.from_arrays(parts, fields=[*names.values()])
    deleted = mask_of(pc.equal(words, "delete"))[at]
    none = np.zeros(len(at), np.bool_)
    found = ChangedRows(rows, at, deleted, pc.if_else(loaded, "0", places), none, bad)
    left = np.flatnonzero(shown & valid & differ(before, rows, by))
    kept = np.append(known[at] & valid, np.ones(len(left), np.bool_))
    return with_old_rows(found, before, left).taken(np.flatnonzero(kept), ())


# ---- Files of AWS DMS: rows of a full load, and changes with ``Op`` I, U or D --------------------
#
# While a full load runs, DMS collects changes. They have the time of their commit, and a loaded row
# has the time when it was copied, which may be later than that of a change that it lacks.

_OP = "Op"
DMS_MARKER = (_OP, "D")
"""What makes a row in a file of AWS DMS a delete."""


def is_full_load(path: str) -> bool:
    """Return whether a file of AWS DMS is of a full load, by its name.

    >>> is_full_load("s3://landing/shop/orders/LOAD00000001.csv"), is_full_load("20261102-0801.csv")
    (True, False)
    """
    return PurePosixPath(path.rpartition("//")[2]).name.startswith("LOAD")


def rows_of_dms_files(rows: pa.Table, ordering: Sequence[str], *, are_loaded: bool) -> pa.Table:
    """Return rows with the column ``Op``; loaded ones without ordering values, so that they lose.

    Raises
    ------
    InputError
        If an operation is unknown.
    """
    count, names = len(rows), {*rows.column_names}
    if _OP not in names:
        rows = rows.append_column(_OP, pa.nulls(count, pa.string()))
    operations = one_array(rows[_OP]).cast(pa.string())
    known = pc.is_in(operations, pa.array(["I", "U", "D", None]))
    for operation in operations.filter(pc.invert(known))[:1].to_pylist():
        step = "correct the file; changes of AWS DMS have I, U or D"
        raise InputError(f"column {_OP}", f"the operation {operation!r} is unknown", step)
    loaded = pa.repeat(True, count) if are_loaded else operations.is_null()
    for name in names.intersection(ordering):
        values = pc.if_else(loaded, pa.scalar(None, rows[name].type), rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _first_row(held: dict[str, Any]) -> Any:
    rows = held.get("data")
    return rows[0] if isinstance(rows, list) and rows else None


PROGRAMS: dict[str, Envelope] = {
    "maxwell": Envelope(lambda _: None, _maxwell, lambda held: held.get("data"), has_keys=False),
    "canal": Envelope(lambda _: None, _canal, _first_row, has_keys=False),
    "dms": Envelope(lambda _: None, _dms, lambda held: held.get("data"), has_keys=False),
}
"""The envelopes, by the name of the program."""
