"""Creating an empty table: checking its parameters and writing its files.

``hoodie.properties`` is written last. Without this file there is no table, so a table is never
incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import MergeSettings, require_storable
from bucketlake.config.paths_of_table import INDEX_DEFINITIONS_FILE, PROPERTIES_FILE
from bucketlake.config.recorded_entries import recorded_entries
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import OFF, TableConfig
from bucketlake.config.table_version import (
    NEWEST_VERSION,
    TableVersion,
    check_version,
    table_version,
)
from bucketlake.errors import AlreadyExistsError, ConfigError, InputError
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import (
    INDEXED_KINDS,
    IndexedKind,
    TableIndex,
    require_given,
    require_known_index,
    resolve_index,
    store_index,
)
from bucketlake.merge.incoming import marker_field
from bucketlake.metadata.creation import (
    create_metadata_table,
    initial_instant,
    initialise_partition,
    usual_file_groups,
    usual_partitions,
)
from bucketlake.metadata.file_entries import entries_of_table
from bucketlake.metadata.record_index.definition_file import update_index_definitions
from bucketlake.metadata.record_index.shards import GLOBAL_LIMITS, IndexShards
from bucketlake.metadata.slices.log_files import GroupEntries
from bucketlake.metadata.statistics.measured_columns import usual_columns
from bucketlake.model.batch_columns import table_columns
from bucketlake.model.column_type import TIMESTAMP_NTZ, type_name
from bucketlake.model.field_path import field_at, why_missing
from bucketlake.model.file_name import FileId
from bucketlake.model.keys import KeySpec, check_generator
from bucketlake.model.names import one_of
from bucketlake.model.partition_path import check_partitioning
from bucketlake.model.schema import normalise_schema, require_types
from bucketlake.model.table_type import ChangeLogMode, TableType
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import create_timeline, load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.surroundings import surroundings
from bucketlake.timeline.table_properties import create_table_properties, read_table_config
from bucketlake.write.unwritten import (
    claimed,
    remove_empty_folder,
    remove_unwritten,
    require_room,
)


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that can be made; its parameters are checked.

    Attributes
    ----------
    config : TableConfig
        Its properties, without a metadata table.
    schema : pa.Schema
        Columns of the records, as stored.
    index : TableIndex
        The index of the table.
    metadata_table : bool
        Whether the table gets a metadata table.
    """

    config: TableConfig
    schema: pa.Schema
    index: TableIndex
    metadata_table: bool


def plan_table(
    path: str,
    schema: pa.Schema,
    key_spec: KeySpec,
    merging: MergeSettings,
    index: TableIndex,
    *,
    table_type: str,
    name: str | None,
    metadata_table: bool = True,
    cdc: str | None = None,
    version: int = NEWEST_VERSION,
    upkeep: str = OFF,
) -> NewTable:
    """Check the parameters of a table; nothing is written.

    Parameters
    ----------
    path : str
        The table's folder, for its name and for messages.
    schema : pyarrow.Schema
        Columns of the records.
    key_spec : KeySpec
        How keys and partition paths are made.
    merging : MergeSettings
        Which record of a key wins, and which records are deletes.
    index : TableIndex
        The index of the table.
    table_type : str
        ``copy_on_write`` or ``merge_on_read``.
    name : str or None
        Name of the table; None takes the last part of the path.
    metadata_table : bool
        Whether the table gets a metadata table.
    cdc : str or None
        What the table keeps of each change, as in ``create_table``; None for nothing.
    version : int
        Table version.
    upkeep : {"off", "auto"}
        Whether writers run the services of the table when they are due.

    Raises
    ------
    InputError, ConfigError, UnsupportedFeatureError
        As ``create_table``.
    """
    named = {*key_spec.record_key_fields, *key_spec.partition_fields, *merging.ordering_fields}
    names = table_columns(schema, named)
    schema = pa.schema([field for field in schema if field.name in names])
    stored = normalise_schema(schema, f"schema of {path}")
    require_types(stored, f"schema of {path}")
    check_version(version)
    require_known_types(table_version(version), stored, f"schema of {path}")
    _require_named_columns(path, stored, key_spec, merging.ordering_fields)
    if merging.marker is not None:
        marker_field(stored, merging.marker[0])  # Raises an error for a type without this rule.
    check_generator(key_spec)
    check_partitioning(key_spec)
    require_storable(table_version(version), merging)
    require_known_index(index, version, f"the new table {path}")
    _require_nameable_shards(key_spec, index)
    index.check_hash_fields(key_spec.record_key_fields)
    table_name = name or _name_from_path(path)
    cdc_mode = None if cdc is None else _cdc_mode(cdc)
    rules, layout = table_version(version), table_version(version).layout
    config = TableConfig(
        name=table_name,
        table_type=_table_type(table_type),
        key_spec=key_spec,
        merge_mode=merging.mode,
        ordering_fields=merging.ordering_fields,
        version=version,
        initial_version=version if rules.has_names_of_hudi_1 else None,
        layout_version=layout.number,
        archive_folder=layout.archive_folder,
        legacy_payload_class=merging.payload_class,
        partial_update_mode=merging.partial_update_mode,
        unavailable_value=merging.unavailable_value,
        delete_field=merging.marker and merging.marker[0],
        delete_marker=merging.marker and merging.marker[1],
        cdc_enabled=cdc is not None,
        cdc_mode=cdc_mode,
        create_schema=avro_from_arrow(stored, table_name),
        upkeep=upkeep,
    )
    check_writable(TableConfig.from_properties(config.to_properties()), path)
    if isinstance(index, INDEXED_KINDS) and not metadata_table:
        raise ConfigError(
            "metadata_table",
            False,
            f"a {type(index).__name__} needs the metadata table; give True, or an index of "
            "computed buckets such as SimpleBucket(4)",
        )
    return NewTable(config, stored, index, metadata_table)


def make_table(storage: Storage, table: NewTable) -> None:
    """Create an empty table at the root of a storage.

    Raises
    ------
    AlreadyExistsError
        If there is a table.
    InputError
        If the folder has other files.
    IndexStateError
        If the folder holds another index setting, from a table whose creation did not finish.
    LockError
        If another process creates a table there, and does not end.
    """
    _require_place(storage)
    with claimed(storage):
        _require_place(storage)
        _make(storage, table)


def _require_place(storage: Storage) -> None:
    """Raise an error if there is a table, or something else; a claim would leave folders."""
    if storage.stat(PROPERTIES_FILE) is not None:
        raise AlreadyExistsError(
            storage.root,
            "create table",
            "a Hudi table is there already; look at it with open_table(path) (bucketlake show), or "
            "choose another path",
        )
    _require_outside(storage)
    require_room(storage)


def _require_outside(storage: Storage) -> None:
    """Raise InputError if the path is a file, or lies inside a table."""
    problem = surroundings(storage).problem
    if problem is not None:
        raise InputError(
            f"create table {storage.root}", problem, "choose a folder outside of tables"
        )


def make_table_anew(
    storage: Storage, table: NewTable, held: TableConfig | None, lock: TableLock = NO_LOCK
) -> None:
    """Create an empty table, in place of a table without commits or of none; as `make_table`.

    Parameters
    ----------
    storage, table
        As for :func:`make_table`.
    held : TableConfig or None
        Properties of the table to replace; None if there is none. If another process has made a
        table meanwhile, AlreadyExistsError is raised.
    lock : TableLock
        The lock that Hudi's writers share.
    """
    if held is None and storage.stat(PROPERTIES_FILE) is None:
        _require_outside(storage)
        require_room(storage)
    with claimed(storage):
        if storage.stat(PROPERTIES_FILE) is not None and not _is_same(storage, held):
            raise AlreadyExistsError(
                storage.root, "create table", "another process made a table meanwhile"
            )
        remove_unwritten(storage, lock=lock)
        _make(storage, table)


def _is_same(storage: Storage, held: TableConfig | None) -> bool:
    now = read_table_config(storage)
    return held is not None and recorded_entries(now) == recorded_entries(held)


def unmake_table(storage: Storage, lock: TableLock, *, tasks_may_run: bool) -> None:
    """Remove a table whose first write failed, unless somebody else has written to it.

    See :func:`~bucketlake.write.unwritten.remove_unwritten`.
    """
    with suppress(AlreadyExistsError), claimed(storage):
        remove_unwritten(storage, lock=lock, tasks_may_run=tasks_may_run)
    remove_empty_folder(storage)


def _make(storage: Storage, table: NewTable) -> None:
    config = table.config
    store_index(storage, table.index)
    opened = opened_table(storage, config)
    create_timeline(opened)
    if table.metadata_table:
        record_index = table.index if isinstance(table.index, INDEXED_KINDS) else None
        config = _with_metadata_table(opened, table.schema, record_index)
    # An unfinished creation may have left rules.
    index = table.index
    require_given(storage, index, resolve_index(storage, load_timeline(opened), index))
    create_table_properties(storage, config)


def _with_metadata_table(
    table: OpenTable, schema: pa.Schema, record_index: IndexedKind | None
) -> TableConfig:
    """Make the metadata table of a table without records; return the properties with it."""
    create_metadata_table(table)
    at = table.clock.next_instant(load_timeline(table))
    rules = table.config.rules
    partitions = usual_partitions(rules)
    definitions = []
    if rules.builds_statistics:
        columns = usual_columns(schema, has_value_types=rules.has_value_types)
        definitions.append(IndexDefinition.of_column_stats(columns, rules.statistics_version))
    if record_index is not None:
        partitions.append(MetadataPartition.RECORD_INDEX)
        is_partitioned = record_index.partitioned
        definitions.append(IndexDefinition.of_record_index(is_partitioned=is_partitioned))
    for number, partition in enumerate(partitions, rules.layout.first_build):
        groups = _groups(partition, record_index)
        initialise_partition(
            table, partition, groups, instant=initial_instant(number), completed_at=at
        )
    extra = dict(table.config.extra)
    if definitions:
        update_index_definitions(table, definitions)
        extra[keys.INDEX_DEFINITIONS_PATH] = INDEX_DEFINITIONS_FILE
    return replace(table.config, metadata_partitions=tuple(sorted(partitions)), extra=extra)


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
            field = field_at(schema, column)
            if field is None:
                raise InputError(
                    f"create table {path}",
                    f"{role} names column {column!r}, but the schema {why_missing(schema, column)}",
                    "name a column of the schema, or a field of a struct as header.id",
                )
            held = field.type
            if pa.types.is_nested(held):
                raise InputError(
                    f"create table {path}, column {column}",
                    f"{role} names it, but its type {type_name(held)} has no order, and no text "
                    "for keys and folders",
                    "name a column of strings, numbers, dates or timestamps"
                    + _fields_of(column, held),
                )


def require_known_types(rules: TableVersion, schema: pa.Schema, where: str) -> None:
    """Raise InputError for a column of a type that Hudi's writers of a version do not know."""
    if rules.has_local_timestamps:
        return
    for field in schema:
        if field.type == TIMESTAMP_NTZ:
            raise InputError(
                f"{where}, column {field.name}",
                f"{rules.releases} cannot write a timestamp without a time zone, "
                f"so table version {rules.number} does not hold it",
                f"give the column a time zone, or choose version {NEWEST_VERSION}",
            )


def _require_nameable_shards(spec: KeySpec, index: TableIndex) -> None:
    """Raise ConfigError if no partition could have shards of the record-level index."""
    nested = [field for field in spec.partition_fields if "." in field]
    if spec.hive_style and nested and isinstance(index, INDEXED_KINDS) and index.partitioned:
        raise ConfigError(
            "hive_style",
            True,
            f"it puts {nested[0]!r} into the name of each folder, and a partitioned record-level "
            "index cannot name log files of a partition with a dot; give False, or another index "
            "such as SimpleBucket(4)",
        )


def _fields_of(path: str, held: pa.DataType) -> str:
    if not pa.types.is_struct(held):
        return ""
    return f", or a field of it: {', '.join(f'{path}.{field.name}' for field in held)}"


def _table_type(text: str) -> TableType:
    known = {t.value.lower(): t for t in TableType}
    if text.lower() not in known:
        raise ConfigError("table_type", text, one_of(text, known))
    return known[text.lower()]


def _cdc_mode(text: str) -> ChangeLogMode:
    known = {mode.value.lower(): mode for mode in ChangeLogMode}
    if text.lower() not in known:
        raise ConfigError("cdc", text, one_of(text, known))
    return known[text.lower()]


def _name_from_path(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", path.rstrip("/").rpartition("/")[2]) or "table"
