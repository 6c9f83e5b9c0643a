"""The schema of a table after a write, and whether the records of the write fit it."""

from __future__ import annotations

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import InputError
from bucketlake.format.avro.schema import avro_from_arrow
from bucketlake.merge.records import marker_field
from bucketlake.model.schema import evolve, normalise_schema, with_flag_of, without_flag
from bucketlake.model.schema_merge import SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.write.source import RecordSource, require_columns
from bucketlake.write.target import Target


def schema_after(
    target: Target, operation: Operation, source: RecordSource, merge: SchemaMerge
) -> pa.Schema:
    """Return the table's schema after the write; raise InputError if the batch does not fit."""
    root, config = target.storage.root, target.config
    spec = config.key_spec
    require_columns(source, spec.record_key_fields, root, "record key")
    require_columns(source, spec.partition_fields, root, "partition")
    if operation is Operation.DELETE:
        source.keep(list(dict.fromkeys((*spec.record_key_fields, *spec.partition_fields))))
        _require_key_types(target, source)
        return target.snapshot.schema
    require_columns(source, config.ordering_fields, root, "ordering")
    where = f"write to {root}"
    incoming = normalise_schema(source.schema, where)
    if target.marker is not None:
        marker_field(incoming, target.marker[0])  # Raises an error for a type without this rule.
    current = target.snapshot.schema_or_none
    if current is None:
        return without_flag(incoming)
    evolved = evolve(current, with_flag_of(current, incoming), where=where, merge=merge)
    _require_same_keys(current, evolved, config, where)
    return evolved


def _require_key_types(target: Target, source: RecordSource) -> None:
    """Raise InputError for keys of another type: a cast could make them keys of other records."""
    where = f"delete from {target.storage.root}"
    held = pa.schema([target.snapshot.schema.field(name) for name in source.names])
    # A column with only nulls has no type; null keys raise their own error later.
    given = [held.field(f.name) if pa.types.is_null(f.type) else f for f in source.schema]
    # Wider integers are taken: a delete changes no type.
    evolved = evolve(held, pa.schema(given), where=where, merge=SchemaMerge.of(True))
    _require_same_keys(held, evolved, target.config, where)


def _require_same_keys(
    current: pa.Schema, evolved: pa.Schema, config: TableConfig, where: str
) -> None:
    """Raise InputError for a wider type that would change the key text of stored records."""
    for name in (*config.key_spec.record_key_fields, *config.key_spec.partition_fields):
        held, wider = current.field(name).type, evolved.field(name).type
        integers = pa.types.is_integer(held) and pa.types.is_integer(wider)
        if held != wider and not integers:
            raise InputError(
                f"{where}, column {name}",
                f"it is part of the key, has type {held} in the table, and cannot become {wider}",
                f"cast the column to {held}",
            )


def schema_text(target: Target, schema: pa.Schema) -> str:
    """Return the table's own text if nothing changed: Avro has types that Arrow does not have."""
    known = target.snapshot.schema_text
    if known is not None and schema == target.snapshot.schema:
        return known
    return avro_from_arrow(schema, target.config.name)
