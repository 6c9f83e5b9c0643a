"""The schema of a table after a write, and whether the records of the write fit it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.merge.incoming import marker_field
from bucketlake.model.batch_columns import table_columns
from bucketlake.model.evolution import evolve, typed_schema
from bucketlake.model.field_path import fields_at, known_field, roots_of
from bucketlake.model.schema import normalise_schema, with_flag_of, without_flag
from bucketlake.model.schema_merge import SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.write.pack import RecordSource
from bucketlake.write.required_columns import require_columns, require_fields
from bucketlake.write.target import Target


def schema_after(
    target: Target,
    operation: Operation,
    source: RecordSource,
    merge: SchemaMerge,
    *,
    may_lack: bool = False,
) -> pa.Schema:
    """Return the table's schema after the write; raise InputError if the batch does not fit.

    ``may_lack`` says whether the batch may lack columns, because their stored values stay.
    """
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
    current = target.snapshot.schema_or_none
    own = table_columns(source.schema, () if current is None else current.names)
    if len({*source.names}) == len(source.names) > len(own):  # Names that repeat are refused below.
        source.keep(own)
    where = f"write to {root}"
    incoming = normalise_schema(source.schema, where)
    if target.marker is not None:
        marker_field(incoming, target.marker[0])  # Raises an error for a type without this rule.
    require_fields(incoming, (*_key_columns(config), *config.ordering_fields), root)
    if current is None:
        return typed_schema(without_flag(incoming), where)
    batch = with_flag_of(current, incoming)
    keys = _key_columns(config)
    return evolve(current, batch, where=where, merge=merge, keys=keys, may_lack=may_lack)


def _require_key_types(target: Target, given: pa.Schema, paths: Sequence[str]) -> None:
    """Raise InputError for keys of another type: a cast could make them keys of other records."""
    where = f"delete from {target.storage.root}"
    for field in fields_at(given, paths):
        held = known_field(target.snapshot.schema, field.name)
        # Wider integers are taken: a delete changes no type. The leaf's name stands for its path,
        # because inside a struct no type may change.
        leaf = field.name.rpartition(".")[2]
        pair = (pa.schema([each.with_name(leaf)]) for each in (held, field))
        evolve(*pair, where=where, merge=SchemaMerge(widen_types=True), keys=(leaf,))


def _key_columns(config: TableConfig) -> tuple[str, ...]:
    return (*config.key_spec.record_key_fields, *config.key_spec.partition_fields)


def schema_text(target: Target, schema: pa.Schema) -> str:
    """Return the table's own text if nothing changed: Avro has types that Arrow does not have."""
    known = target.snapshot.schema_text
    if known is not None and schema == target.snapshot.schema:
        return known
    return avro_from_arrow(schema, target.config.name)
