"""Creating an empty table: checking its parameters and writing its files.

``hoodie.properties`` is written last. Without this file there is no table, so a table is never
incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from bucketlake.config.layout import HOODIE_FOLDER, PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import AlreadyExistsError, ConfigError, InputError
from bucketlake.format.avro.schema import avro_from_arrow
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.settings import (
    INDEXED_KINDS,
    IndexedKind,
    TableIndex,
    require_given,
    resolve_index,
    store_index,
)
from bucketlake.metadata.creation import (
    USUAL_PARTITIONS,
    create_metadata_table,
    initial_instant,
    initialise_partition,
    usual_file_groups,
)
from bucketlake.metadata.file_entries import entries_of_table
from bucketlake.metadata.index_definitions import update_index_definitions
from bucketlake.metadata.index_shards import GLOBAL_LIMITS, IndexShards
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.statistics import usual_columns
from bucketlake.model.batch_columns import table_columns
from bucketlake.model.column_type import type_name
from bucketlake.model.file_name import FileId
from bucketlake.model.keys import KeySpec
from bucketlake.model.partition_path import check_partitioning
from bucketlake.model.schema import normalise_schema, require_types
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import create_timeline, load_timeline
from bucketlake.timeline.clock import table_clock
from bucketlake.timeline.table_properties import create_table_properties


def make_table(
    storage: Storage,
    schema: pa.Schema,
    key_spec: KeySpec,
    ordering_fields: tuple[str, ...],
    index: TableIndex,
    *,
    table_type: str,
    name: str | None,
    metadata_table: bool = True,
) -> None:
    """Create an empty table of version 9 at the root of a storage.

    Parameters
    ----------
    storage : Storage
        Its root is the table's folder.
    schema : pyarrow.Schema
        Columns of the records.
    key_spec : KeySpec
        How keys and partition paths are made.
    ordering_fields : tuple of str
        Columns for event-time ordering; empty for commit-time ordering.
    index : TableIndex
        The index of the table.
    table_type : str
        ``copy_on_write`` or ``merge_on_read``.
    name : str or None
        Name of the table; None takes the last part of the path.
    metadata_table : bool
        Whether the table gets a metadata table.

    Raises
    ------
    InputError, ConfigError, UnsupportedFeatureError, AlreadyExistsError
        As ``create_table``.
    IndexStateError
        If the folder holds another index setting, from a table whose creation did not finish.
    """
    path = storage.root
    named = {*key_spec.record_key_fields, *key_spec.partition_fields, *ordering_fields}
    names = table_columns(schema, named)
    schema = pa.schema([field for field in schema if field.name in names])
    stored = normalise_schema(schema, f"schema of {path}")
    require_types(stored, f"schema of {path}")
    _require_named_columns(path, stored, key_spec, ordering_fields)
    check_partitioning(key_spec)
    index.check_hash_fields(key_spec.record_key_fields)
    table_name = name or _name_from_path(path)
    config = TableConfig(
        name=table_name,
        table_type=_table_type(table_type),
        key_spec=key_spec,
        merge_mode=MergeMode.EVENT_TIME if ordering_fields else MergeMode.COMMIT_TIME,
        ordering_fields=ordering_fields,
        create_schema=avro_from_arrow(stored, table_name),
    )
    if isinstance(index, INDEXED_KINDS) and not metadata_table:
        raise ConfigError(
            "metadata_table",
            False,
            f"a {type(index).__name__} needs the metadata table; give True, or an index of "
            "computed buckets such as SimpleBucket(4)",
        )
    if storage.stat(PROPERTIES_FILE) is not None:
        raise AlreadyExistsError(path, "create table", "a Hudi table exists; use open_table")
    _require_room(storage, path)
    store_index(storage, index)
    create_timeline(storage, config)
    if metadata_table:
        record_index = index if isinstance(index, INDEXED_KINDS) else None
        config = _with_metadata_table(storage, config, stored, record_index)
    # An unfinished creation may have left rules.
    require_given(storage, index, resolve_index(storage, load_timeline(storage, config), index))
    create_table_properties(storage, config)


def _with_metadata_table(
    storage: Storage, config: TableConfig, schema: pa.Schema, record_index: IndexedKind | None
) -> TableConfig:
    """Make the metadata table of a table without records; return the properties with it."""
    create_metadata_table(storage, config)
    clock = table_clock(storage.root, config.timeline_timezone)
    at = clock.next_instant(load_timeline(storage, config))
    partitions = [*USUAL_PARTITIONS]
    definitions = [IndexDefinition.of_column_stats(usual_columns(schema))]
    if record_index is not None:
        partitions.append(MetadataPartition.RECORD_INDEX)
        is_partitioned = record_index.partitioned
        definitions.append(IndexDefinition.of_record_index(is_partitioned=is_partitioned))
    for number, partition in enumerate(partitions):
        groups = _groups(partition, record_index)
        initialise_partition(
            storage, config, partition, groups, instant=initial_instant(number), completed_at=at
        )
    update_index_definitions(storage, config, definitions)
    return replace(config, metadata_partitions=tuple(sorted(partitions)))


def _groups(
    partition: MetadataPartition, record_index: IndexedKind | None
) -> dict[FileId, GroupEntries]:
    """Return the file groups of a partition, with the entries of a table without records."""
    if partition is MetadataPartition.RECORD_INDEX:
        assert record_index is not None, "the table has the index"
        # A partitioned index gets its shards with the first records of each data partition.
        count = None if record_index.partitioned else GLOBAL_LIMITS.shard_count(0)
        shards = IndexShards(count)
        return {shard.file_id: GroupEntries() for shard in shards.shards()}
    groups = dict.fromkeys(usual_file_groups(partition), GroupEntries())
    if partition is MetadataPartition.FILES:
        (group,) = groups
        groups[group] = entries_of_table({})
    return groups


def _require_named_columns(
    path: str, schema: pa.Schema, spec: KeySpec, ordering: Iterable[str]
) -> None:
    """Raise an error for columns that cannot be keys, partitions or ordering fields."""
    roles = {
        "record_key": spec.record_key_fields,
        "partition_by": spec.partition_fields,
        "ordering": tuple(ordering),
    }
    if not spec.record_key_fields:
        raise ConfigError("record_key", (), "name at least one column")
    for role, names in roles.items():
        if len({*names}) < len(names):
            raise ConfigError(role, names, "name each column once")
        for column in names:
            if column not in schema.names:
                raise InputError(
                    f"create table {path}",
                    f"{role} names column {column!r}, which the schema does not have; it has "
                    f"{schema.names}",
                    "name a column of the schema",
                )
            held = schema.field(column).type
            if pa.types.is_nested(held):
                raise InputError(
                    f"create table {path}, column {column}",
                    f"{role} names it, but its type {type_name(held)} has no order, and no text "
                    "for keys and folders",
                    "name a column of strings, numbers, dates or timestamps",
                )


def _require_room(storage: Storage, path: str) -> None:
    """Raise InputError if the folder has other files, which readers would treat as data files."""
    objects = (stored.path for stored in storage.list(""))
    foreign = next((held for held in objects if not held.startswith(f"{HOODIE_FOLDER}/")), None)
    if foreign is not None:
        raise InputError(
            f"create table {path}",
            f"the folder holds {foreign}, which is not part of a Hudi table",
            "choose an empty folder",
        )


def _table_type(text: str) -> TableType:
    known = {t.value.lower(): t for t in TableType}
    if text.lower() not in known:
        raise ConfigError("table_type", text, f"one of {', '.join(known)}")
    return known[text.lower()]


def _name_from_path(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", path.rstrip("/").rpartition("/")[2]) or "table"
