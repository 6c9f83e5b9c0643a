"""debezium: messages of a topic become a batch that a write takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

import pyarrow as pa

from bucketlake.cdc.batch import read_messages
from bucketlake.cdc.envelope import ENVELOPES, PLACE_COLUMN
from bucketlake.cdc.message_settings import PLACEHOLDER, MessageSettings
from bucketlake.engine import are_files, arrow_schema, input_of
from bucketlake.errors import BucketLakeError, ConfigError, InputError
from bucketlake.model.arguments import check_kinds, check_optional_texts, check_texts, names_of
from bucketlake.model.names import did_you_mean
from bucketlake.model.schema import IS_DELETED, UNAVAILABLE
from bucketlake.table import Table
from bucketlake.timeline.instant import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bucketlake.engine import Records, SchemaLike
    from bucketlake.scan import Scan


_COMMITS_BACK = 20  # So far back is the row of an old key looked for.


def debezium(
    data: Records,
    schema: SchemaLike | Table | None = None,
    *,
    table: Table | None = None,
    envelope: str = "debezium",
    registry: str | None = None,
    framing: Literal["confluent", "apicurio"] = "confluent",
    unavailable: Literal["keep", "fail"] = "keep",
    placeholder: str = PLACEHOLDER,
    on_truncate: Literal["fail", "ignore", "delete"] = "fail",
    record_key: str | Sequence[str] | None = None,
) -> Any:
    """Turn the messages of a topic into a batch: rows, deletes, and positions in the log.

    Parameters
    ----------
    data : DataFrame or pa.Table
        Rows as Kafka gives them: ``value``, and where they are known ``key``, ``topic``,
        ``partition``, ``offset``, ``timestamp``, ``headers``. All are messages of one table; those
        that are no changes of rows, such as heartbeats, are passed over.
    schema : str, pa.Schema, StructType or Table, optional
        Types of the columns, needed for messages without schemas; the unit of a timestamp of Arrow
        is that of its numbers in the messages. Columns that schemas of messages have besides are
        added. By default messages tell the types; the newest schema in the batch has precedence.
    table : Table, optional
        The table that takes the batch; give it as ``schema`` or here. Its columns are used, and
        stored rows, where the key of a row changed and a message lacks a value of it.
    envelope : str
        ``"debezium"``: before, after, source and op. ``"unwrapped"``: rows of
        ``ExtractNewRecordState`` with ``__op`` or ``__deleted``. ``"row"``: rows alone; a message
        without a value deletes the row of its key, and offsets order the changes of a key.
        ``"maxwell"``, ``"canal"``, ``"dms"``: messages of these programs, in JSON.
    registry : str, optional
        Address of the registry whose Avro schemas the messages are written with, such as
        ``http://registry:8081``. By default messages are JSON. The id of a schema is in a header
        of Apicurio, or in front of the message.
    framing : {"confluent", "apicurio"}
        Whether an id in front of a message has 4 or 8 bytes.
    unavailable : {"keep", "fail"}
        What becomes of a row of Postgres without a large value that did not change: the stored
        value stays, or it is an error.
    placeholder : str
        What stands in place of such a value, as ``unavailable.value.placeholder`` of the connector.
    on_truncate : {"fail", "ignore", "delete"}
        What a truncated table is: an error, nothing, or a delete of all rows before it, for which
        ``table`` must be known. For messages in JSON.
    record_key : str or sequence of str, optional
        Columns of the key, by default those of ``table``. Messages of Maxwell, Canal and AWS DMS do
        not tell them, and an update that changes the key deletes the old row.

    Returns
    -------
    DataFrame or pa.Table
        The columns of the table, ``_hoodie_is_deleted`` and ``_position``. A table for it has
        ``ordering="_position"``. Tombstones that follow a delete are passed over.

    Raises
    ------
    InputError
        If a message cannot be read, with its topic, partition, offset and reason, or if the types
        of the columns are not known. A DataFrame is read later, by the write.

    Examples
    --------
    >>> import bucketlake as bl
    >>> import pyarrow as pa
    >>> text = ('{"op": "c", "after": {"id": 1, "city": "Rome"}, '
    ...         '"source": {"connector": "postgresql", "lsn": 4711}}')
    >>> topic = pa.table({"key": ['{"id": 1}'], "value": [text]})
    >>> batch = bl.debezium(topic, schema="id bigint, city string")
    >>> batch.column_names
    ['id', 'city', '_unavailable', '_hoodie_is_deleted', '_position']
    >>> homes = bl.create_table("memory://docs/followed", schema=batch.schema, record_key="id",
    ...                         ordering="_position")
    >>> homes.upsert(batch).inserted
    1

    Notes
    -----
    ``docs/how-to/follow-a-database.md`` has the types, and what Debezium does not send.
    """
    reading = reading_of(
        schema,
        table=table,
        envelope=envelope,
        registry=registry,
        framing=framing,
        unavailable=unavailable,
        placeholder=placeholder,
        on_truncate=on_truncate,
        record_key=record_key,
    )
    known = schema if isinstance(schema, Table) else table
    stored = None if known is None else StoredRows(known)
    rows = input_of(data, "messages of a topic")
    if are_files(rows):
        raise InputError("messages of a topic", "they are files", "read them first")
    if isinstance(rows, pa.Table):
        return read_messages(rows, reading, stored).required()
    from bucketlake.spark.debezium import batch_of

    return batch_of(cast("DataFrame", rows), reading, stored)


@dataclass(frozen=True)
class StoredRows:
    """The stored rows of a table, of keys that are gone the last ones."""

    table: Table

    def __call__(self, keys: pa.Table) -> pa.Table:
        """Return the rows of some keys."""
        found = [self.table.scan(keys=keys).to_arrow()]
        done = [entry for entry in self.table.timeline() if entry.state is State.COMPLETED]
        for entry in reversed(done[-_COMMITS_BACK:]):
            if found[-1].num_rows == keys.num_rows:
                break
            try:
                found.append(self.table.scan(keys=keys, as_of=entry).to_arrow())
            except BucketLakeError:  # Its files are cleaned.
                break
        return pa.concat_tables(found, promote_options="default")

    def before(self, place: str) -> Scan:
        """Return a scan of the keys of all rows whose changes are before a position."""
        spec = self.table.config().key_spec
        names = [*dict.fromkeys((*spec.record_key_fields, *spec.partition_fields))]
        return self.table.scan(where=f"{PLACE_COLUMN} < '{place}'", columns=names)


def _partition_outside_key(table: Table) -> tuple[str, ...]:
    """Return columns of partitions, not of the key, where an index does not find a key itself."""
    spec = table.config().key_spec
    if table.index is not None and table.index.has_global_keys:
        return ()
    return tuple(name for name in spec.partition_fields if name not in spec.record_key_fields)


class MessageOptions(TypedDict, total=False):
    """The options of :func:`debezium`, for functions that hand them on."""

    table: Table | None
    envelope: str
    registry: str | None
    framing: str
    unavailable: str
    placeholder: str
    on_truncate: str
    record_key: str | Sequence[str] | None


_CHOICES = {
    "envelope": (*ENVELOPES,),
    "framing": ("confluent", "apicurio"),
    "unavailable": ("keep", "fail"),
    "on_truncate": ("fail", "ignore", "delete"),
}
"""What the options allow; the first one is the default."""


def reading_of(
    schema: SchemaLike | Table | None = None, **options: Unpack[MessageOptions]
) -> MessageSettings:
    """Return the settings of :func:`debezium`; ConfigError if one has none of its values."""
    placeholder, registry = options.get("placeholder", PLACEHOLDER), options.get("registry")
    chosen = {name: options.get(name, known[0]) for name, known in _CHOICES.items()}
    check_texts(placeholder=placeholder, **chosen)
    check_optional_texts(registry=registry)
    for name, known in _CHOICES.items():
        value = str(chosen[name])
        if value not in known:
            wanted = f"give one of {', '.join(known)}{did_you_mean(value, known)}"
            raise ConfigError(name, value, wanted)
    table = schema if isinstance(schema, Table) else options.get("table")
    check_kinds((Table, type(None)), table=table)
    held = None if table is None else table.schema()
    given = held if schema is None or isinstance(schema, Table) else arrow_schema(schema)
    columns = None
    if given is not None:
        added = (IS_DELETED, PLACE_COLUMN, UNAVAILABLE)
        columns = pa.schema([field for field in given if field.name not in added])
    return MessageSettings(
        envelope=str(chosen["envelope"]),
        columns=columns,
        keeps_unavailable=chosen["unavailable"] == "keep",
        placeholder=placeholder,
        tracks=UNAVAILABLE in (() if held is None else held.names),
        registry=registry,
        wide=chosen["framing"] == "apicurio",
        partition_by=() if table is None else _partition_outside_key(table),
        on_truncate=str(chosen["on_truncate"]),
        key=_key_of(table, options.get("record_key")),
    )


def _key_of(table: Table | None, given: str | Sequence[str] | None) -> tuple[str, ...]:
    if given is not None:
        return names_of(given, "record_key")
    return () if table is None else table.config().key_spec.record_key_fields
