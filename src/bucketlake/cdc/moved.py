"""Rows whose key changed and that lack a value: it is in the row of the old key.

A database sends such a change as a delete of the old key and an insert of the new one, which may
come in other batches. The insert lacks values that did not change. They are taken from the changes
of the old key in the batch, or from its stored row. Such rows are few; they are handled one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cdc.change_rows import Bools
from bucketlake.cdc.envelope import OLD_KEY, PLACE_COLUMN, Decoded, decode, deletes_of, moved
from bucketlake.cdc.json_messages import json_groups
from bucketlake.cdc.message_settings import MessageSettings
from bucketlake.model.arrays import one_array
from bucketlake.model.schema import IS_DELETED, UNAVAILABLE


class Stored(Protocol):
    """The stored rows of the table that takes a batch."""

    def __call__(self, keys: pa.Table) -> pa.Table:
        """Return the rows of some keys."""
        ...

    def before(self, place: str) -> Any:
        """Return a scan of the keys of all rows whose changes are before a position."""
        ...


_Row: TypeAlias = dict[str, Any]

LOST = (
    "its key changed, and it lacks a value that is in the row of the old key; that row is neither "
    "in the batch nor stored (give the table: bl.debezium(df, table))"
)


def moved_and_lacking(messages: pa.Table, reading: MessageSettings) -> Bools:
    """Return which messages have a row whose key changed and that may lack a value."""
    flags = moved(messages)
    at = np.flatnonzero(flags)
    values = one_array(messages["value"]).take(pa.array(at)).fill_null(b"")
    for text, row in zip(values.to_pylist(), at, strict=True):
        flags[row] = any(trace in text for trace in reading.traces)
    return flags


def old_keys(messages: pa.Table) -> list[bytes]:
    """Return the old key of each message, as its header has it."""
    lists = one_array(messages["headers"]).to_pylist()
    return [{each["key"]: each["value"] for each in headers}[OLD_KEY] for headers in lists]


def with_keys(messages: pa.Table, keys: list[bytes]) -> Bools:
    """Return which messages have one of some keys."""
    values = one_array(messages["key"])
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    found = np.zeros(len(values), np.bool_)
    for group in json_groups(values.take(pa.array(rows)), rows):
        held = pc.is_in(group.payloads, pa.array(keys, pa.binary()))
        found[group.rows] = held.to_numpy(zero_copy_only=False)
    return found


def related(messages: pa.Table, reading: MessageSettings) -> pa.Table:
    """Return the messages of rows that lack a value of another key, and those of these keys."""
    flags = moved_and_lacking(messages, reading)
    keys = old_keys(messages.filter(pa.array(flags)))
    while True:  # The old key may itself be the new one of another change.
        more = flags | with_keys(messages, keys)
        if (more == flags).all():
            return messages.filter(pa.array(flags))
        flags = more
        keys = old_keys(messages.filter(pa.array(flags & moved(messages))))


def rows_completed(
    messages: pa.Table, reading: MessageSettings, columns: pa.Schema, stored: Stored | None
) -> dict[tuple[bytes, str], _Row]:
    """Return rows whose key changed with the values that they lacked, by key and position.

    Parameters
    ----------
    messages : pa.Table
        The messages of such rows, and all others of their old keys.
    reading, columns
        As for :func:`decode`.
    stored : callable or None
        Reads stored rows; None if there is no table yet.
    """
    found = decode(messages, reading, columns)
    rows, keys = found.rows.to_pylist(maps_as_pydicts="strict"), one_array(messages["key"])
    flags = moved_and_lacking(messages, reading)
    wanted = messages.filter(pa.array(flags))
    olds, names = _old_key_rows(wanted, reading, columns)
    if not names:  # The old keys cannot be read.
        return {}
    at = {int(message): place for place, message in enumerate(np.flatnonzero(flags))}
    history: dict[Any, list[_Row]] = defaultdict(list)
    if stored is not None:
        kept = stored(olds.select(names)).to_pylist(maps_as_pydicts="strict")
        for row in kept:
            history[tuple(row[name] for name in names)].append(row)
    old = [tuple(row[name] for name in names) for row in olds.to_pylist()]
    for row in rows:
        if not row[IS_DELETED]:
            history[tuple(row[name] for name in names)].append(row)
    made = {}
    for place in sorted(range(len(rows)), key=lambda place: str(rows[place][PLACE_COLUMN])):
        row, message = rows[place], int(found.at[place])
        if message in at and row[UNAVAILABLE]:
            _complete(row, history[old[at[message]]])
            made[keys[message].as_py(), row[PLACE_COLUMN]] = row
    return made


def _old_key_rows(
    messages: pa.Table, reading: MessageSettings, columns: pa.Schema
) -> tuple[pa.Table, list[str]]:
    """Return the old keys as columns of the table, and the names of these columns."""
    texts = []
    for key, old in zip(one_array(messages["key"]).to_pylist(), old_keys(messages), strict=True):
        head, mark, _ = key.partition(b'"payload":')
        texts.append(head + mark + old + b"}" if mark else old)
    place = messages.column_names.index("key")
    held = messages.set_column(place, "key", pa.array(texts, pa.binary()))
    bad: list[tuple[int, str]] = []
    found = [*deletes_of(np.arange(len(held)), held, reading, columns, bad)]
    if not found:
        return held, []
    order = np.argsort(np.concatenate([at for at, _ in found]))
    rows = pa.concat_tables([rows for _, rows in found]).take(pa.array(order))
    names = [n for n in columns.names if rows[n].null_count < len(rows)]
    return rows, [] if bad else names


def _complete(row: _Row, history: list[_Row]) -> None:
    """Give a row the values that it lacks, of the latest change of its old key that has them."""
    lacking: dict[str, str] = row[UNAVAILABLE]
    for name in [*lacking]:
        best = ""
        for held in history:
            source = str((held.get(UNAVAILABLE) or {}).get(name, held[PLACE_COLUMN]))
            if best < source < str(row[PLACE_COLUMN]):
                best, row[name] = source, held[name]
        if best:
            del lacking[name]


def with_completed(
    found: Decoded,
    messages: pa.Table,
    reading: MessageSettings,
    made: Mapping[tuple[bytes, str], _Row],
) -> tuple[Decoded, list[int]]:
    """Put completed rows in place of those that lack values.

    Returns
    -------
    Decoded
        The rows, without those whose values were not found.
    list of int
        The messages of those.
    """
    flags = moved_and_lacking(messages, reading)[found.at]
    flags &= one_array(found.rows[UNAVAILABLE]).is_valid().to_numpy(zero_copy_only=False)
    flags &= ~one_array(found.rows[IS_DELETED]).to_numpy(zero_copy_only=False)  # By a truncate.
    if not flags.any():
        return found, []
    places = np.flatnonzero(flags)
    keys, positions = one_array(messages["key"]), one_array(found.rows[PLACE_COLUMN])
    rows = [made.get((keys[int(found.at[p])].as_py(), positions[int(p)].as_py())) for p in places]
    whole = np.array([row is not None and not row[UNAVAILABLE] for row in rows])
    new = [{**row, UNAVAILABLE: None} for row in rows if row is not None and not row[UNAVAILABLE]]
    source = np.arange(len(found.rows))
    source[places[whole]] = len(source) + np.arange(len(new))
    kept = np.ones(len(source), np.bool_)
    kept[places[~whole]] = False
    every = pa.concat_tables([found.rows, pa.Table.from_pylist(new, found.rows.schema)])
    taken = every.combine_chunks().take(pa.array(source[kept]))
    return Decoded(taken, found.at[kept], found.bad), found.at[places[~whole]].tolist()
