"""The schema of a table after a write, and whether the records of the write fit it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import InputError
from bucketlake.format.avro.schema import avro_from_arrow
from bucketlake.merge.records import marker_field
from bucketlake.model.field_path import fields_at, known_field, roots_of
from bucketlake.model.schema import evolve, normalise_schema, with_flag_of, without_flag
from bucketlake.model.schema_merge import SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.write.source import RecordSource, require_columns, require_fields
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
        paths = list(dict.fromkeys((*spec.record_key_fields, *spec.partition_fields)))
        source.keep(roots_of(paths, source.names))
        require_fields(source.schema, paths, root)
        source.keep(paths)
        _require_key_types(target, source.schema, paths)
        return target.snapshot.schema
    require_columns(source, config.ordering_fields, root, "ordering")
    where = f"write to {root}"
    incoming = normalise_schema(source.schema, where)
    if target.marker is not None:
        marker_field(incoming, target.marker[0])  # Raises an error for a type without this rule.
    fields = (*spec.record_key_fields, *spec.partition_fields, *config.ordering_fields)
    require_fields(incoming, fields, root)
    current = target.snapshot.schema_or_none
    if current is None:
        return without_flag(incoming)
    evolved = evolve(current, with_flag_of(current, incoming), where=where, merge=merge)
    _require_same_keys(current, evolved, config, where)
    return evolved


def _require_key_types(target: Target, given: pa.Schema, paths: Sequence[str]) -> None:
    """Raise InputError for keys of another type: a cast could make them keys of other records."""
    where = f"delete from {target.storage.root}"
    for field in fields_at(given, paths):
        held = known_field(target.snapshot.schema, field.name)
        # A column with only nulls has no type; null keys raise their own error later.
        if not pa.types.is_null(field.type):
            # Wider integers are taken: a delete changes no type. The leaf's name stands for its
            # path, because inside a struct no type may change.
            leaf = field.name.rpartition(".")[2]
            pair = (pa.schema([each.with_name(leaf)]) for each in (held, field))
            evolved = evolve(*pair, where=where, merge=SchemaMerge.of(True))
            _require_same_key(field.name, held.type, evolved.field(leaf).type, where)


def _require_same_keys(
    current: pa.Schema, evolved: pa.Schema, config: TableConfig, where: str
) -> None:
    """Raise InputError for a wider type that would change the key text of stored records."""
    for name in (*config.key_spec.record_key_fields, *config.key_spec.partition_fields):
        held, wider = known_field(current, name), known_field(evolved, name)
        _require_same_key(name, held.type, wider.type, where)


def _require_same_key(name: str, held: pa.DataType, wider: pa.DataType, where: str) -> None:
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
