"""The batch of a topic: which schemas its messages have, which columns follow, how each is read.

A call looks at all messages twice. First :func:`schemas_in` finds their schemas, which are few.
:func:`plan_of` makes of them the columns of the batch and a small picklable value, with which
tasks then read their messages.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cdc.avro_messages import fetched, schema_ids
from bucketlake.cdc.envelope import (
    NO_ROWS,
    PLACE_COLUMN,
    Decoded,
    bad_rows,
    batch_schema,
    decode,
    fields_of_schema,
    last_truncate,
    messages_of,
    output_schema,
)
from bucketlake.cdc.json_messages import any_has, json_groups
from bucketlake.cdc.message_settings import MessageSettings
from bucketlake.cdc.moved import (
    LOST,
    Stored,
    moved_and_lacking,
    related,
    rows_completed,
    with_completed,
)
from bucketlake.model.arrays import one_array
from bucketlake.model.schema import IS_DELETED, NONE_LACKS, SOME_LACK, UNAVAILABLE, normalise_schema

SEEN = pa.schema(
    [
        ("schema", pa.string()),
        ("newest", pa.int64()),
        ("lacks", pa.bool_()),
        ("tracks", pa.bool_()),
        ("moves", pa.bool_()),
        ("truncated", pa.string()),
    ]
)
"""A schema in JSON, the time or place of its last message; whether rows lack values, or can, or
lack some that are in the row of another key; the position of the last truncate."""

_OF_POSTGRES = (b'"connector":"postgresql"', b'lsn":')


@dataclass(frozen=True)
class BatchPlan:
    """How the messages of a topic become a batch.

    Attributes
    ----------
    reading : MessageSettings
        The settings.
    columns : pa.Schema
        Columns of the rows.
    lacks : bool
        Whether a row of the batch may lack a value that its message does not show.
    truncated : str
        Position of the last truncate; the rows before it are deleted. Empty if there is none.
    made : mapping
        Rows whose key changed, with the values of the row of the old key; see :mod:`.moved`.
    """

    reading: MessageSettings
    columns: pa.Schema
    lacks: bool
    truncated: str = ""
    made: Mapping[tuple[bytes, str], dict[str, Any]] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batch."""
        return output_schema(self.columns, self.reading.tracks)

    @property
    def told(self) -> dict[bytes, bytes]:
        """What the column of lacking values tells a write."""
        lacking = SOME_LACK if self.lacks else NONE_LACKS
        return lacking if self.reading.tracks else {}

    def decode(self, messages: pa.Table) -> Decoded:
        """Return the batch of some messages, as Kafka gives them."""
        held = messages_of(messages)
        found = self._without_truncated(decode(held, self.reading, self.columns))
        if not self.reading.tracks:
            return found
        found, lost = with_completed(found, held, self.reading, self.made)
        if not lost:
            return found
        bad = bad_rows(held, [(at, LOST) for at in lost])
        return Decoded(found.rows, found.at, pa.concat_tables([found.bad, bad]))

    def _without_truncated(self, found: Decoded) -> Decoded:
        """Delete the rows before the last truncate, at its position."""
        if not self.truncated:
            return found
        rows = found.rows
        gone = pc.less(rows[PLACE_COLUMN], self.truncated)
        for name, value in ((IS_DELETED, True), (PLACE_COLUMN, self.truncated)):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.field(name), pc.if_else(gone, value, rows[name]))
        return replace(found, rows=rows)

    def deletes(self, keys: pa.Table) -> pa.Table:
        """Return deletes of stored rows at the position of the last truncate."""
        told: dict[str, Any] = {IS_DELETED: True, PLACE_COLUMN: self.truncated}
        columns = [
            keys[part.name].cast(part.type)
            if keys.schema.get_field_index(part.name) >= 0
            else pa.repeat(pa.scalar(told.get(part.name), part.type), len(keys))
            for part in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def completing(self, messages: pa.Table, stored: Stored | None) -> BatchPlan:
        """Return the plan with the rows that the messages of :mod:`.moved` complete."""
        made = rows_completed(messages_of(messages), self.reading, self.columns, stored)
        return replace(self, made=made)


def read_messages(data: pa.Table, reading: MessageSettings, stored: Stored | None) -> Decoded:
    """Return the batch of messages in a table; its column of lacking values says if none lacks.

    Raises
    ------
    InputError
        If the columns of the batch are not known.
    """
    seen = schemas_in(data, reading).to_pylist()
    plan = plan_of(seen, reading)
    if plan.reading.tracks and any(each["moves"] for each in seen):
        plan = plan.completing(related(messages_of(data), reading), stored)
    found = plan.decode(data)
    if plan.truncated and stored is not None:
        gone = plan.deletes(stored.before(plan.truncated).to_arrow())
        at = np.append(found.at, np.full(len(gone), -1))  # They are of no message.
        found = replace(found, rows=pa.concat_tables([found.rows, gone]), at=at)
    schema = found.rows.schema
    if UNAVAILABLE in schema.names:  # The rows tell better than bytes of messages.
        lacks = found.rows[UNAVAILABLE].null_count < len(found.rows)
        plan = replace(plan, lacks=lacks)
    fields = [f.with_metadata(plan.told) if f.name == UNAVAILABLE else f for f in schema]
    return replace(found, rows=found.rows.cast(pa.schema(fields)))


def schemas_in(data: pa.Table, reading: MessageSettings) -> pa.Table:
    """Return the schemas of some messages, a row for each, with the columns of :data:`SEEN`."""
    messages = messages_of(data)
    values = one_array(messages["value"])
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    order, moves = _order(data), moved_and_lacking(messages, reading)
    if reading.registry is not None:
        return _ids_in(messages, reading)
    found = []
    for group in json_groups(values if len(rows) == len(values) else values.drop_null(), rows):
        lacks = any_has(group.payloads, reading.traces)
        tracks = lacks or any_has(group.payloads, _OF_POSTGRES)
        text = "" if group.schema is None else json.dumps(group.schema, sort_keys=True)
        newest = int(order[group.rows].max()) if len(group.rows) else 0
        facts = {"lacks": lacks, "tracks": tracks, "moves": bool(moves[group.rows].any())}
        truncated = last_truncate(group.payloads) if reading.on_truncate == "delete" else None
        found.append({"schema": text, "newest": newest, "truncated": truncated, **facts})
    return pa.Table.from_pylist(found, SEEN)


def _ids_in(messages: pa.Table, reading: MessageSettings) -> pa.Table:
    """Return the ids of Avro schemas of messages, those of keys and values."""
    lacks = any_has(one_array(messages["value"]), reading.traces)
    facts = {"lacks": lacks, "moves": bool(moved_and_lacking(messages, reading).any())}
    found = []
    for column in ("value", "key"):
        valid = one_array(messages[column]).is_valid().to_numpy(zero_copy_only=False)
        tracks = any_has(one_array(messages[column]), (b"postgresql",))
        ids, starts = schema_ids(messages, column, reading.wide)
        for number in np.unique(ids[valid & (ids >= 0)]).tolist():
            in_header = bool((starts[ids == number] == 0).all())
            text = json.dumps([number, in_header, column])
            found.append({"schema": text, "newest": number, "tracks": tracks, **facts})
    return pa.Table.from_pylist(found, SEEN)


def _order(data: pa.Table) -> Any:
    """Return numbers that grow with the messages: their times if known, else their offsets."""
    held = {"timestamp", "offset"}.intersection(data.column_names)
    for name in ("timestamp", "offset"):
        if name in held:
            column = one_array(data[name])
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("us", column.type.tz))
            return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.arange(data.num_rows)


def plan_of(seen: Iterable[Mapping[str, Any]], reading: MessageSettings) -> BatchPlan:
    """Return how a batch is read, by the schemas that :func:`schemas_in` found.

    Raises
    ------
    InputError
        If no message has a schema and the caller declares none, or a column cannot be stored.
    """
    rows, lacks, tracks, refused = [], False, reading.tracks, ""
    seen = [*seen]
    if reading.registry is not None:
        named = [(each, json.loads(each["schema"])) for each in seen]
        ids = {number: in_header for _, (number, in_header, _) in named}
        reading = replace(reading, avro=fetched(reading.registry, ids, reading.wide))
        seen = [
            {**each, "schema": "" if held is None else json.dumps(held)}
            for each, (number, _, part) in named
            if part == "value"
            for held in [reading.avro.get(number)]
        ]
    for each in sorted(seen, key=lambda each: (-each["newest"], each["schema"])):
        lacks, tracks = lacks or each["lacks"], tracks or each["tracks"]
        if each["schema"]:
            schema = json.loads(each["schema"])
            try:
                fields = fields_of_schema(schema, reading)
            except ValueError as error:  # Its messages become bad rows.
                fields, refused = None, refused or str(error)
            if fields is not None:
                rows.append(pa.schema([(field.name, field.stored) for field in fields]))
                if reading.registry is None:
                    _warn_of_defaults(schema)
    if not rows and all(each["schema"] for each in seen):
        refused = refused or NO_ROWS
    known = [normalise_schema(row, "messages of a topic") for row in rows]
    reading = replace(reading, tracks=tracks and reading.keeps_unavailable)
    truncated = max((each.get("truncated") or "" for each in seen), default="")
    return BatchPlan(reading, batch_schema(known, reading, refused), lacks, truncated)


def _warn_of_defaults(schema: Mapping[str, Any]) -> None:
    """Warn of columns whose nulls the JSON converter has replaced by their defaults."""
    parts = {part.get("field"): part for part in schema.get("fields", ())}
    row = parts.get("after") or schema
    given = [
        part["field"]
        for part in row.get("fields", ())
        if part.get("optional") and part.get("default") is not None
    ]
    if given:
        warnings.warn(
            f"columns {', '.join(given)} have a default, which Kafka Connect may have put in place "
            "of a null; set value.converter.replace.null.with.default=false in the connector",
            stacklevel=4,
        )
