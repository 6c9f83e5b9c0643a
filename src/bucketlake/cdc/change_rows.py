"""What an envelope makes of messages: their changes of rows; what all envelopes need for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cdc.json_messages import payload_columns
from bucketlake.cdc.message_settings import MessageSettings
from bucketlake.cdc.values import Field
from bucketlake.model.arrays import mask_of, one_array

ChangeAt: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """What some messages of one schema say.

    Attributes
    ----------
    rows : pa.Array
        The row of each change, as a struct of raw values.
    at : ndarray of int64
        The message of each change; messages that are no changes of rows are left out.
    deleted : ndarray of bool
        Whether the change deletes its row.
    places : pa.Array
        Position of each change; null if the message tells none.
    partial : ndarray of bool
        Whether the change may lack values that it did not change.
    bad : sequence of (int, str)
        Messages that are no changes, and why.
    """

    rows: pa.StructArray
    at: ChangeAt
    deleted: Bools
    places: pa.Array
    partial: Bools
    bad: Sequence[tuple[int, str]] = ()

    def taken(self, kept: ChangeAt, bad: Sequence[tuple[int, str]]) -> ChangedRows:
        """Return some of the changes, with more messages that are bad."""
        places, at = pa.array(kept), self.at[kept]
        rest = (self.deleted[kept], self.places.take(places), self.partial[kept])
        return ChangedRows(self.rows.take(places), at, *rest, [*self.bad, *bad])


@dataclass(frozen=True, slots=True)
class Envelope:
    """The form of messages.

    Attributes
    ----------
    fields : callable
        Takes the fields of a message's schema; returns those of the row, or None if the message is
        none of a row.
    read : callable
        Takes the reader of payloads, the fields of a row and the settings; returns the changes.
    sample : callable
        Takes a message as Python parses it; returns its row, or None.
    deletes_by_null : bool
        Whether a message without a value deletes the row of its key.
    has_keys : bool
        Whether the key of a message is that of its row.
    """

    fields: Callable[[Sequence[Field]], Sequence[Field] | None]
    read: Callable[[Payloads, tuple[Field, ...], MessageSettings], ChangedRows]
    sample: Callable[[dict[str, Any]], Any]
    deletes_by_null: bool = False
    has_keys: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """Messages of one schema, to be read with the raw types that an envelope wants.

    Attributes
    ----------
    read : callable
        Takes rows of the group and a raw schema; returns the columns.
    texts : pa.Array or None
        The payloads in JSON; None for Avro.
    messages : pa.Table
        The messages themselves.
    """

    read: Callable[[pa.Schema], pa.Table]
    texts: pa.Array | None
    messages: pa.Table

    def __len__(self) -> int:
        return int(self.messages.num_rows)

    def take(self, at: ChangeAt) -> Payloads:
        """Return some of the messages."""
        assert self.texts is not None, "messages of Avro are read at once"
        texts = self.texts.take(pa.array(at))
        return Payloads(partial(payload_columns, texts), texts, self.messages.take(pa.array(at)))


def struct_of(found: pa.Table, fields: Sequence[Field]) -> pa.StructArray:
    """Return columns as rows with the raw types of fields."""
    parts = [one_array(found[field.name]) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=[pa.field(f.name, f.raw) for f in fields])


def differ(before: pa.StructArray, after: pa.StructArray, names: Sequence[str]) -> Bools:
    """Return which rows differ in one of some columns; none whose row before is not known."""
    flags = np.zeros(len(after), np.bool_)
    for name in names:
        old, new = before.field(name), after.field(name)
        same = mask_of(pc.equal(old, new)) | mask_of(pc.and_(old.is_null(), new.is_null()))
        flags |= ~same
    return flags & mask_of(before.is_valid())


def with_old_rows(changes: ChangedRows, old: pa.StructArray, left: ChangeAt) -> ChangedRows:
    """Delete the rows before some changes, which left them: their key or partition is another."""
    both, more = np.append(np.arange(len(changes.at)), left), len(left)
    return ChangedRows(
        pa.concat_arrays([changes.rows, old.take(pa.array(left))]),
        changes.at[both],
        np.append(changes.deleted, np.ones(more, np.bool_)),
        changes.places.take(pa.array(both)),
        np.append(changes.partial, np.zeros(more, np.bool_)),
        changes.bad,
    )


def joined_changes(parts: Sequence[ChangedRows], halves: Sequence[ChangeAt]) -> ChangedRows:
    """Return changes of several parts of a group as those of the group."""
    return ChangedRows(
        pa.concat_arrays([part.rows for part in parts]),
        np.concatenate([own[part.at] for part, own in zip(parts, halves, strict=True)]),
        np.concatenate([part.deleted for part in parts]),
        pa.concat_arrays([part.places for part in parts]),
        np.concatenate([part.partial for part in parts]),
        [
            (int(own[at]), reason)
            for part, own in zip(parts, halves, strict=True)
            for at, reason in part.bad
        ],
    )


def because(flags: Bools, reason: str) -> list[tuple[int, str]]:
    """Return the messages of some flags as bad ones with a reason."""
    return [(int(at), reason) for at in np.flatnonzero(flags)]
