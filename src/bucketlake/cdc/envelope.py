"""From messages to a batch: the rows after each change, which are deletes, and their positions.

:func:`decode` is the whole way for some messages of one table, with Arrow alone. A message that
cannot be read is a bad row with its reason, never an error. An :class:`Envelope` is the one part
that differs between programs that send changes: where in a message the row is, and what happened to
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cdc import log_position
from bucketlake.cdc.avro_messages import avro_groups
from bucketlake.cdc.change_rows import (
    Bools,
    ChangeAt,
    ChangedRows,
    Envelope,
    Payloads,
    because,
    differ,
    joined_changes,
    struct_of,
    with_old_rows,
)
from bucketlake.cdc.json_messages import MessageGroup, json_groups, payload_columns, rows_with
from bucketlake.cdc.message_schema import avro_field, connect_field, declared_field, written_out
from bucketlake.cdc.message_settings import MessageSettings
from bucketlake.cdc.programs import PROGRAMS
from bucketlake.cdc.values import Field, converted
from bucketlake.errors import BucketLakeError, InputError
from bucketlake.flow.threads import HERE
from bucketlake.merge.column_rules import sources_of
from bucketlake.model.arrays import mask_of, one_array
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import is_list
from bucketlake.model.evolution import evolve
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.schema import (
    IS_DELETED,
    UNAVAILABLE,
    UNAVAILABLE_TYPE,
    normalise_schema,
)

PLACE_COLUMN = "_position"
OLD_KEY = "__debezium.oldkey"

MESSAGE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        (
            "headers",
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    ]
)
"""The columns of messages; all but ``value`` may be missing in what a caller gives."""

BAD_ROWS = pa.schema([pa.field("reason", pa.string()), *MESSAGE])
"""The columns of messages that cannot be read."""

_ADDED = (IS_DELETED, PLACE_COLUMN, UNAVAILABLE)
_PARTS = 1 << 14  # Messages that a thread reads at once.
_BRANCHES = 8  # Into so many parts are messages divided of which one cannot be read.
_SAMPLE = 100
OFFSET_DIGITS = 16  # Of a position that is an offset; those in logs are longer, or "0".
_PLAIN_TOPICS = "^__debezium-heartbeat"
_TRANSACTIONS = r"\.transaction$"  # A table may have this name.
_ALL = SchemaMerge.of(True)
NO_ROWS = "no message is one of a row, which would tell the columns"


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The batch of some messages.

    Attributes
    ----------
    rows : pa.Table
        Columns of the table, ``_hoodie_is_deleted`` and ``_position``, in the order of messages.
    at : ndarray of int64
        The message of each row.
    bad : pa.Table
        Messages that cannot be read, with the columns of :data:`BAD_ROWS`.
    """

    rows: pa.Table
    at: ChangeAt
    bad: pa.Table

    def required(self) -> pa.Table:
        """Return the rows; raise InputError for the first message that cannot be read."""
        for row in self.bad.slice(0, 1).to_pylist():
            told = (f"{name} {row[name]}" for name in ("topic", "partition", "offset"))
            raise InputError(
                f"messages of a topic, {', '.join(told)}",
                f"{row['reason']} (value {row['value']!r})",
                "correct or leave out the message",
            )
        return self.rows


# ---- The envelopes -------------------------------------------------------------------------------


def _debezium_fields(fields: Sequence[Field]) -> Sequence[Field] | None:
    named = {field.name: field for field in fields}
    row = named.get("after") or named.get("before")
    return row.parts if row is not None and "op" in named else None


def _debezium(
    payloads: Payloads, fields: tuple[Field, ...], reading: MessageSettings
) -> ChangedRows:
    """Read Debezium's envelope: ``before``, ``after``, ``source``, ``op``."""
    raw = pa.struct([(field.name, field.raw) for field in fields])
    rest = [("op", pa.string()), ("source", log_position.SOURCE)]
    by = [field.name for field in fields if field.name in reading.partition_by]
    images = ["before", "after"]
    if payloads.texts is not None:  # One of two images of a row is read.
        gone = rows_with(payloads.texts, b'"op":"d"')
        if gone.any() and not gone.all():
            halves = [np.flatnonzero(~gone), np.flatnonzero(gone)]
            both = [_debezium(payloads.take(at), fields, reading) for at in halves]
            return joined_changes(both, halves)
        if not by:
            images = images[:1] if gone.all() else images[1:]
    others = [("ddl", pa.string()), ("status", pa.string()), ("databaseName", pa.string())]
    found = payloads.read(pa.schema([*((name, raw) for name in images), *rest, *others]))
    operations = one_array(found["op"])
    deleted = mask_of(pc.equal(operations, "d"))
    if len(images) == 1 and (deleted != (images[0] == "before")).any():  # Blanks, a column op.
        found = payloads.read(pa.schema([("before", raw), ("after", raw), *rest, *others]))
        images = ["before", "after"]
    rows = _image(found, images, deleted)
    known = mask_of(pc.is_in(operations, pa.array(["r", "c", "u", "d"])))
    truncates = mask_of(pc.equal(operations, "t"))
    told = mask_of(pc.or_kleene(pc.is_valid(found["ddl"]), pc.is_valid(found["status"])))
    told_by_plan = reading.on_truncate == "delete" and payloads.texts is not None
    is_taken = told_by_plan or reading.on_truncate == "ignore"
    bad = [] if is_taken else because(truncates, "the table was truncated")
    none = ~(known | truncates | told | mask_of(pc.equal(operations, "m")))
    for at in np.flatnonzero(none):
        bad.append((int(at), _unknown(operations[int(at)].as_py())))
    source = one_array(found["source"])
    places = log_position.positions(source, operations)
    lost = mask_of(pc.match_substring_regex(places, "^0+1$")) | mask_of(places.is_null())
    snapshot = mask_of(pc.equal(operations, "r"))
    unread = log_position.unread_sequences(source, places)
    bad += because(known & unread, _UNREAD)
    bad += because(known & lost & ~snapshot, "the change has no position in the log of its source")
    valid = mask_of(rows.is_valid())
    bad += because(known & ~lost & ~valid, "the change has no row")
    places = pc.fill_null(places, "0")  # Less than the place of any change.
    updates = mask_of(pc.equal(operations, "u"))
    partial = (updates | moved(payloads.messages)) & ~deleted
    refused = _of_another_index(payloads.messages, rows, deleted)
    bad += because(refused, _BY_INDEX)
    kept = np.flatnonzero(known & (~lost | snapshot) & valid & ~refused & ~unread)
    at = pa.array(kept)
    changes = ChangedRows(rows.take(at), kept, deleted[kept], places.take(at), partial[kept], bad)
    return changes if not by else _with_old_partitions(changes, found["before"], updates, by)


def _with_old_partitions(
    changes: ChangedRows, before: pa.ChunkedArray, updates: Bools, by: Sequence[str]
) -> ChangedRows:
    """Delete rows of updates from their old partitions; refuse changes that do not show these."""
    rows, at = changes.rows, changes.at
    old, updated = one_array(before).take(pa.array(at)), updates[at]
    unknown = (_lacks(rows, by) & changes.deleted) | (updated & mask_of(old.is_null()))
    left = np.flatnonzero(updated & ~unknown & differ(old, rows, by))
    found, kept = with_old_rows(changes, old, left), np.append(~unknown, np.ones(len(left), bool))
    bad = [(int(at[place]), _NO_PARTITION) for place in np.flatnonzero(unknown)]
    return found.taken(np.flatnonzero(kept), bad)


_UNREAD = (
    "source.sequence is no array of two numbers in text, so the change has no place between others"
)
_NO_PLACE = (
    "the row tells no place in the log of its source, and other rows do; add the same fields, such "
    "as source.lsn and source.sequence, to all rows (add.fields), or read topics without the "
    "transform"
)
_BY_INDEX = (
    "the delete has an empty key, but other values: the table has REPLICA IDENTITY USING INDEX on "
    "other columns, and Debezium does not send its keys; set it to DEFAULT or FULL"
)
_NO_PARTITION = (
    "the change does not show the row before it, so its partition is not known; set REPLICA "
    "IDENTITY FULL, partition by columns of the key, or use RecordIndex(partitioned=False)"
)
_EMPTY_KEY = r'":(0|"")[,}]'


def _of_another_index(messages: pa.Table, rows: pa.StructArray, deleted: Bools) -> Bools:
    """Return which deletes have an empty key, a null, and a value: images by another index."""
    if not deleted.any():
        return deleted
    flags = deleted & mask_of(pc.match_substring_regex(messages["key"], _EMPTY_KEY))
    for at in np.flatnonzero(flags):  # Few rows have such keys.
        key = json.loads(one_array(messages["key"])[int(at)].as_py())
        key = key.get("payload", key)
        row = rows[int(at)].as_py() or {}
        others = [value for name, value in row.items() if name not in key]
        has_value = any(value not in (None, 0, "") for value in others)
        flags[at] = not any(key.values()) and None in others and has_value
    return flags


def _lacks(rows: pa.StructArray, names: Sequence[str]) -> Bools:
    """Return which rows have no value, or an empty text, in one of some columns."""
    flags = np.zeros(len(rows), np.bool_)
    for name in names:
        values = rows.field(name)
        flags |= mask_of(values.is_null())
        if pa.types.is_string(values.type):
            flags |= mask_of(pc.equal(values, ""))
    return flags


def last_truncate(payloads: pa.Array) -> str | None:
    """Return the position of the last truncate in messages in JSON; None if there is none."""
    own = payloads.filter(pc.match_substring_regex(payloads, r'"op"\s*:\s*"t"'))
    schema = pa.schema([("op", pa.string()), ("source", log_position.SOURCE)])

    def last(_: ChangeAt, texts: pa.Array) -> str | None:
        found = payload_columns(texts, schema)
        operations = one_array(found["op"])
        places = log_position.positions(one_array(found["source"]), operations)
        place: str | None = pc.max(places.filter(pc.equal(operations, "t"))).as_py()
        return place

    return max(filter(None, _divided(last, np.arange(len(own)), own, [])), default=None)


def _image(found: pa.Table, images: Sequence[str], deleted: Bools) -> pa.StructArray:
    rows = [one_array(found[name]) for name in images]
    if len(rows) == 1:
        return rows[0]
    before, after = rows
    places = np.where(deleted, 0, len(before)) + np.arange(len(before))
    return pa.concat_arrays([before, after]).take(pa.array(places))


def _unknown(operation: str | None) -> str:
    if operation is None:
        return (
            "the message has no op, as Debezium's envelope has; of rows without an envelope read "
            "with envelope='row'"
        )
    return f"the operation {operation!r} is unknown; known are r, c, u, d, t and m"


def _row_fields(fields: Sequence[Field]) -> Sequence[Field] | None:
    return [field for field in fields if not field.name.startswith("__")]


def _row(payloads: Payloads, fields: tuple[Field, ...], _reading: MessageSettings) -> ChangedRows:
    """Read rows without an envelope, ordered by their offset; a message without value deletes."""
    raw = [(field.name, field.raw) for field in fields]
    found = payloads.read(pa.schema([*raw, ("__deleted", pa.string())]))
    marks = one_array(found["__deleted"])
    deleted = mask_of(pc.equal(marks, "true"))
    bad = _unknown_marks(marks)
    at = np.setdiff1d(np.arange(len(payloads)), [message for message, _ in bad])
    rows, flags = struct_of(found, fields).take(pa.array(at)), deleted[at]
    return ChangedRows(rows, at, flags, pa.nulls(len(at), pa.string()), ~flags, bad)


def _unknown_marks(marks: pa.Array) -> list[tuple[int, str]]:
    """Return the rows whose mark of deletes is neither true nor false as bad ones."""
    known = mask_of(pc.or_kleene(marks.is_null(), pc.is_in(marks, pa.array(["true", "false"]))))
    rows = np.flatnonzero(~known)
    return [(int(at), f"__deleted is {marks[int(at)]}, not true or false") for at in rows]


def _unwrapped(
    payloads: Payloads, fields: tuple[Field, ...], _reading: MessageSettings
) -> ChangedRows:
    """Read rows with what ``ExtractNewRecordState`` adds to them, deletes rewritten as rows."""
    own = {field.name for field in log_position.SOURCE}
    told = {f"{start}{name}": name for name in own for start in ("__source_", "__")}
    types = {name: log_position.SOURCE.field(source).type for name, source in told.items()}
    raw = [(field.name, field.raw) for field in fields]
    more = [*types.items(), ("__deleted", pa.string()), ("__op", pa.string())]
    found = payloads.read(pa.schema([*raw, *more]))
    operations, marks = one_array(found["__op"]), one_array(found["__deleted"])
    deleted = mask_of(pc.equal(marks, "true")) | mask_of(pc.equal(operations, "d"))
    columns = []
    for field in log_position.SOURCE:
        long, short = (one_array(found[f"{start}{field.name}"]) for start in ("__source_", "__"))
        columns.append(pc.coalesce(long, short))
    source = pa.StructArray.from_arrays(columns, fields=list(log_position.SOURCE))
    places = log_position.positions(_with_connector(source), operations)
    has_mark = mask_of(pc.or_(pc.is_valid(operations), pc.is_valid(marks)))
    topics = payloads.messages["topic"]
    is_other = ~has_mark & mask_of(pc.match_substring_regex(topics, _TRANSACTIONS))
    bad = because(
        ~has_mark & ~is_other, "the row has neither __op nor __deleted; read it with envelope='row'"
    )
    bad += because(log_position.unread_sequences(source, places), _UNREAD)
    bad += _unknown_marks(marks)
    known = mask_of(pc.is_in(operations, pa.array([*"rcud"]))) | mask_of(operations.is_null())
    for row in np.flatnonzero(~known):
        bad.append((int(row), f"the operation {operations[int(row)].as_py()!r} changes no row"))
    at = np.setdiff1d(np.flatnonzero(~is_other), [message for message, _ in bad])
    rows = struct_of(found, fields).take(pa.array(at))
    whole = mask_of(pc.is_in(operations, pa.array(["c", "r"]))) & ~moved(payloads.messages)
    return ChangedRows(
        rows, at, deleted[at], places.take(pa.array(at)), ~(whole | deleted)[at], bad
    )


def moved(messages: pa.Table) -> Bools:
    """Return which messages have a row whose key changed, by the header with the old one."""
    headers = one_array(messages["headers"])
    is_old = pc.equal(headers.flatten().field("key"), OLD_KEY)
    flags = np.zeros(len(headers), np.bool_)
    flags[pc.list_parent_indices(headers).filter(pc.fill_null(is_old, False)).to_numpy()] = True
    return flags


def _with_connector(source: pa.StructArray) -> pa.StructArray:
    """Tell the connector by the fields that it alone sends."""
    held = {field.name: source.field(field.name) for field in log_position.SOURCE}
    kinds = pc.case_when(
        pa.StructArray.from_arrays(
            [pc.is_valid(held[name]) for name in ("lsn", "file", "commit_lsn", "scn")],
            names=["a", "b", "c", "d"],
        ),
        *(pa.scalar(kind) for kind in ("postgresql", "mysql", "sqlserver", "oracle")),
    )
    held["connector"] = pc.coalesce(held["connector"], kinds)
    return pa.StructArray.from_arrays([*held.values()], fields=list(log_position.SOURCE))


ENVELOPES: dict[str, Envelope] = {
    "debezium": Envelope(
        _debezium_fields, _debezium, lambda held: held.get("after") or held.get("before")
    ),
    "unwrapped": Envelope(_row_fields, _unwrapped, lambda held: held),
    "row": Envelope(_row_fields, _row, lambda held: held, deletes_by_null=True),
    **PROGRAMS,
}


# ---- From messages to a batch --------------------------------------------------------------------


def messages_of(data: pa.Table) -> pa.Table:
    """Return messages with the columns of :data:`MESSAGE`.

    Raises
    ------
    InputError
        If there is no column of values, or one has another type.
    """
    where = "messages of a topic"
    if "value" not in (names := {*data.column_names}):
        step = "give rows of Kafka: df of spark.read.format('kafka')"
        raise InputError(where, f"there is no column 'value', but {data.column_names}", step)
    columns = []
    for field in MESSAGE:
        if field.name not in names:
            columns.append(pa.nulls(len(data), field.type))
            continue
        try:
            columns.append(one_array(data[field.name]).cast(field.type))
        except pa.ArrowException as error:
            problem = f"the column {field.name!r} is {data.schema.field(field.name).type}: {error}"
            raise InputError(where, problem, f"give it as {field.type}") from error
    return pa.Table.from_arrays(columns, schema=MESSAGE)


def fields_of_schema(schema: dict[str, Any], reading: MessageSettings) -> tuple[Field, ...] | None:
    """Return the columns of a row, of the schema of its message; None if it is of no row.

    Raises
    ------
    ValueError
        If it is no schema, or rows cannot have such columns.
    """
    try:
        if reading.registry is None:
            parts = [connect_field(part) for part in schema.get("fields", ())]
        else:
            parts = [*avro_field(written_out(schema)).parts]
        fields = ENVELOPES[reading.envelope].fields(parts)
        if fields is not None:
            taken = [field.name for field in fields if field.name in _ADDED]
            if taken:
                raise ValueError(f"it has the column {taken[0]!r}, which is added to each batch")
            normalise_schema(pa.schema([(field.name, field.stored) for field in fields]), "schema")
    except (AttributeError, LookupError, TypeError, ValueError, InputError) as error:
        raise ValueError(f"the schema cannot be read: {error}") from error
    return None if fields is None else (*fields,)


def batch_schema(
    rows: Sequence[pa.Schema], reading: MessageSettings, refused: str = ""
) -> pa.Schema:
    """Return the columns of a batch, without those that are added.

    Parameters
    ----------
    rows : sequence of pa.Schema
        Columns of the rows of each schema in the batch, the newest first.
    reading : MessageSettings
        How messages are read.
    refused : str
        Why a schema tells no columns; empty if none was refused.

    Raises
    ------
    InputError
        If no message has a schema, and the caller declares none.
    """
    declared = () if reading.columns is None else [normalise_schema(reading.columns, "schema")]
    found: pa.Schema | None = None
    for schema in (*declared, *rows):
        try:
            found = schema if found is None else evolve(found, schema, merge=_ALL, may_lack=True)
        except InputError:  # Its messages become bad rows, with this reason.
            continue
    if found is None:
        raise InputError(
            "messages of a topic",
            refused or "no message has a schema, which tells the columns",
            "give them: schema='id bigint, ...' (--set schema=...), or a table that has them",
        )
    return found


def output_schema(columns: pa.Schema, tracks: bool) -> pa.Schema:
    """Return the schema of a batch; ``tracks``: rows name the columns that they lack."""
    lacking = [pa.field(UNAVAILABLE, UNAVAILABLE_TYPE)] if tracks else []
    return pa.schema([*columns, *lacking, (IS_DELETED, pa.bool_()), (PLACE_COLUMN, pa.string())])


def decode(messages: pa.Table, reading: MessageSettings, columns: pa.Schema) -> Decoded:
    """Return the batch of messages, which have the columns of :data:`MESSAGE`.

    Parameters
    ----------
    messages : pa.Table
        The messages.
    reading : MessageSettings
        How they are read.
    columns : pa.Schema
        Columns of the rows, see :func:`batch_schema`.
    """
    starts = range(0, max(1, messages.num_rows), _PARTS)
    slices = [messages.slice(start, _PARTS) for start in starts]
    parts = HERE.each(lambda part: [_decode(part, reading, columns)], slices)
    rows, bad = ([getattr(part, name) for part in parts] for name in ("rows", "bad"))
    at = np.concatenate([part.at + start for part, start in zip(parts, starts, strict=True)])
    return Decoded(pa.concat_tables(rows).combine_chunks(), at, pa.concat_tables(bad))


_Found: TypeAlias = "tuple[ChangeAt, pa.Table]"
_Read = TypeVar("_Read")


def _decode(messages: pa.Table, reading: MessageSettings, columns: pa.Schema) -> Decoded:
    envelope = ENVELOPES[reading.envelope]
    bad: list[tuple[int, str]] = []
    found: list[_Found] = []
    no_key = _no_key(one_array(messages["key"])) & envelope.has_keys
    no_value = mask_of(one_array(messages["value"]).is_null())
    plain = mask_of(pc.match_substring_regex(messages["topic"], _PLAIN_TOPICS))
    rows = np.flatnonzero(~no_value & ~plain)
    others = messages.drop_columns(["value"])
    for group, fields in _groups(messages, "value", rows, reading, bad):
        found += _changes_of(group, fields, others, reading, columns, bad)
    if envelope.deletes_by_null:
        keys = np.flatnonzero(no_value & ~no_key & ~plain)
        found += deletes_of(keys, messages, reading, columns, bad)
    at = np.concatenate([at for at, _ in found]) if found else np.empty(0, np.int64)
    schema = output_schema(columns, reading.tracks)
    parts = [rows for _, rows in found]
    batch = pa.concat_tables(parts) if parts else schema.empty_table()
    bad += [(int(at[row]), _NO_KEY) for row in np.flatnonzero(no_key[at])]
    by_offset = mask_of(pc.equal(pc.binary_length(batch[PLACE_COLUMN]), OFFSET_DIGITS))
    mixed = by_offset & (not by_offset.all())
    bad += [(int(at[row]), _NO_PLACE) for row in np.flatnonzero(mixed)]
    kept = np.flatnonzero(~no_key[at] & ~mixed)
    order = kept[np.argsort(at[kept], kind="stable")]
    if not np.array_equal(order, np.arange(len(at))):
        batch = batch.take(pa.array(order))
    return Decoded(batch, at[order], bad_rows(messages, bad))


_NO_KEY = (
    "the message has no key: the table has no primary key, or its key or name changed before the "
    "connector read the change"
)


def _no_key(keys: pa.Array) -> Bools:
    nulls = pc.match_substring_regex(keys, r'^(null|\{"schema":null,"payload":null\})?$')
    return mask_of(pc.fill_null(nulls, True))


def bad_rows(messages: pa.Table, bad: list[tuple[int, str]]) -> pa.Table:
    """Return messages with the reason why each cannot be read, of several the first one."""
    bad = sorted(dict(reversed(bad)).items())
    held = messages.select(BAD_ROWS.names[1:]).take(pa.array([at for at, _ in bad], pa.int64()))
    reasons = pa.array([reason for _, reason in bad], pa.string())
    return pa.Table.from_arrays([reasons, *held.columns], schema=BAD_ROWS)


def _groups(
    messages: pa.Table,
    column: str,
    rows: ChangeAt,
    reading: MessageSettings,
    bad: list[tuple[int, str]],
) -> Iterator[tuple[MessageGroup, tuple[Field, ...] | None]]:
    """Yield messages by their schemas, with the columns that the schema tells."""
    if reading.registry is not None:
        groups = avro_groups(messages, column, rows, reading.avro, reading.wide)
    else:
        values = one_array(messages[column])
        groups = json_groups(
            values if len(rows) == len(values) else values.take(pa.array(rows)), rows
        )
    for group in groups:
        if group.schema is None:
            yield group, None
            continue
        try:
            fields = fields_of_schema(group.schema, reading)
        except ValueError as error:
            bad += [(int(at), str(error)) for at in group.rows]
            continue
        if fields is not None:
            yield group, fields


def _changes_of(
    group: MessageGroup,
    fields: tuple[Field, ...] | None,
    messages: pa.Table,
    reading: MessageSettings,
    columns: pa.Schema,
    bad: list[tuple[int, str]],
) -> Iterator[_Found]:
    """Yield the rows of a group of messages; divide it where some of them cannot be read."""
    envelope = ENVELOPES[reading.envelope]

    def read(rows: ChangeAt, texts: Any) -> _Found:
        held = messages.take(pa.array(rows))
        in_json = texts if isinstance(texts, pa.Array) else None
        payloads = Payloads(partial(group.columns, texts), in_json, held)
        own = fields if fields is not None else _declared(texts, envelope, reading)
        changes = envelope.read(payloads, own, reading)
        batch = _batch(changes, own, held, reading, columns)
        bad.extend((int(rows[at]), reason) for at, reason in changes.bad)
        return rows[changes.at], batch

    yield from _divided(read, group.rows, group.payloads, bad)


def _divided(
    read: Callable[[ChangeAt, Any], _Read],
    rows: ChangeAt,
    texts: Any,
    bad: list[tuple[int, str]],
) -> Iterator[_Read]:
    """Yield what is read of messages; those that cannot be read go to the bad ones."""
    try:
        yield read(rows, texts)
    except (ValueError, RecursionError, OverflowError, pa.ArrowException, BucketLakeError) as error:
        if len(rows) == 1:
            bad.append((int(rows[0]), f"it cannot be read: {error}"))
            return
        size = -(-len(rows) // _BRANCHES)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            yield from _divided(read, rows[part], texts[part], bad)


def _declared(texts: Any, envelope: Envelope, reading: MessageSettings) -> tuple[Field, ...]:
    """Return the columns of messages without a schema, by the types that the caller declares."""
    if reading.registry is not None:
        raise ValueError("the message names no schema that the registry has")
    if reading.columns is None:
        raise ValueError("the message has no schema; declare the columns with schema=")
    held = [json.loads(text) for text in texts.slice(0, _SAMPLE).to_pylist()]
    rows = [row for each in held if isinstance(each, dict) and (row := envelope.sample(each))]
    rows = [row for row in rows if isinstance(row, dict)]
    return tuple(
        declared_field(field.name, field.type, [row.get(field.name) for row in rows])
        for field in reading.columns
    )


def _batch(
    changes: ChangedRows,
    fields: Sequence[Field],
    messages: pa.Table,
    reading: MessageSettings,
    columns: pa.Schema,
) -> pa.Table:
    """Return the rows of changes, with the types of the batch."""
    held = {field.name: converted(changes.rows.field(field.name), field) for field in fields}
    kept = [field for field in columns if field.name in held]
    own = pa.table([held[field.name] for field in kept], names=[field.name for field in kept])
    cast = cast_table(own, pa.schema(kept), where="messages", exact=True, may_widen=True)
    count = len(changes.at)
    named = {field.name: one_array(cast[field.name]) for field in kept}
    lacking: dict[str, Bools] = {}
    if reading.tracks or not reading.keeps_unavailable:
        lacking = _lacking(named, changes.partial, reading)
    every = [named.get(field.name, pa.nulls(count, field.type)) for field in columns]
    if reading.tracks:
        none = [pa.array(np.full(len(flags), ""), mask=~flags) for flags in lacking.values()]
        every.append(sources_of([*lacking], none) if none else pa.nulls(count, UNAVAILABLE_TYPE))
    offsets = one_array(messages["offset"]).take(pa.array(changes.at))
    places = changes.places
    if places.null_count:
        if pc.any(pc.and_(places.is_null(), offsets.is_null())).as_py():
            raise ValueError("the message tells no position, and has no offset to order it by")
        places = pc.coalesce(places, log_position.of_offsets(offsets))
    flags = pa.array(changes.deleted)
    schema = output_schema(columns, reading.tracks)
    return pa.Table.from_arrays([*every, flags, places], schema=schema)


def _lacking(
    named: dict[str, pa.Array], partial: Bools, reading: MessageSettings
) -> dict[str, Bools]:
    """Return by column which rows lack a value, and make these values null.

    Raises
    ------
    ValueError
        If one does, and rows must have all values; also for a null array of a type whose
        placeholder is null.
    """
    found = {}
    for name, values in named.items():
        flags = reading.lacking(values)
        if flags is not None:
            flags &= partial
        elif not reading.keeps_unavailable and is_list(values.type):
            flags = partial & mask_of(values.is_null())
        if flags is None or not flags.any():
            continue
        if not reading.keeps_unavailable:
            raise ValueError(f"the row lacks the value of {name}, which did not change")
        found[name] = flags
        named[name] = pc.if_else(pa.array(flags), pa.scalar(None, values.type), values)
    return found


def deletes_of(
    rows: ChangeAt,
    messages: pa.Table,
    reading: MessageSettings,
    columns: pa.Schema,
    bad: list[tuple[int, str]],
) -> Iterator[_Found]:
    """Yield deletes of keys, of messages without a value."""
    for group, fields in _groups(messages, "key", rows, replace(reading, envelope="row"), bad):
        read = partial(_keys_of, group, fields, messages, reading, columns)
        yield from _divided(read, group.rows, group.payloads, bad)


def _keys_of(
    group: MessageGroup,
    fields: tuple[Field, ...] | None,
    messages: pa.Table,
    reading: MessageSettings,
    columns: pa.Schema,
    rows: ChangeAt,
    data: Any,
) -> _Found:
    """Return deletes of keys, of one part of a group of keys."""
    if fields is None:
        every = _declared(data, ENVELOPES["row"], reading)
        held = [json.loads(text) for text in data.to_pylist()]
        names = {name for key in held if isinstance(key, dict) for name in key}
        fields = tuple(field for field in every if field.name in names)
    raw = pa.schema([(field.name, field.raw) for field in fields])
    found = group.columns(data, raw)
    at, flags = np.arange(len(rows)), np.ones(len(rows), np.bool_)
    none = pa.nulls(len(rows), pa.string())
    changes = ChangedRows(struct_of(found, fields), at, flags, none, ~flags)
    return rows, _batch(changes, fields, messages.take(pa.array(rows)), reading, columns)
