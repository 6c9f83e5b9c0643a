"""Creating an empty table: checking its parameters and writing its files.

``hoodie.properties`` is written last. Without this file there is no table, so a table is never
incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import DeleteMarker, MergeSettings, require_storable
from bucketlake.config.paths_of_table import INDEX_DEFINITIONS_FILE, PROPERTIES_FILE
from bucketlake.config.recorded_entries import recorded_entries
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import (
    NEWEST_VERSION,
    check_version,
    table_version,
)
from bucketlake.errors import AlreadyExistsError, ConfigError, InputError
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import (
    TableIndex,
    found_index,
    require_given,
    require_known_index,
    store_index,
    with_rule_of_new_table,
)
from bucketlake.merge.incoming import marker_field
from bucketlake.metadata.creation import (
    create_metadata_table,
    initial_instant,
    initialise_partitions,
    usual_file_groups,
    usual_partitions,
)
from bucketlake.metadata.file_listing import entries_of_table
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.record_index.definition_file import update_index_definitions
from bucketlake.metadata.record_index.shards import GLOBAL_LIMITS, IndexShards
from bucketlake.metadata.statistics.of_file import usual_columns
from bucketlake.model.column_type import BLOB, type_name
from bucketlake.model.field_path import field_at, roots_of, why_missing
from bucketlake.model.file_name import FileId
from bucketlake.model.keys import KeySpec, check_generator
from bucketlake.model.names import one_of
from bucketlake.model.partition_path import check_partitioning
from bucketlake.model.schema import normalise_schema, require_types
from bucketlake.model.table_type import ChangeLogMode, TableType
from bucketlake.model.variant import VARIANT
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import create_timeline, load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import (
    create_properties,
    read_table_config,
    surroundings,
)
from bucketlake.write.batch_schema import require_known_types, table_columns
from bucketlake.write.row_merging import groups_of_table
from bucketlake.write.unwritten import claimed, remove_empty_folder, remove_unwritten, require_room

_Member = TypeVar("_Member", bound=Enum)


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


def new_config(
    key_spec: KeySpec,
    merging: MergeSettings,
    *,
    table_type: str = "copy_on_write",
    name: str | None = None,
    cdc: str | None = None,
    version: int = NEWEST_VERSION,
) -> TableConfig:
    """Return the properties of a table, still without its columns; the parameters are checked.

    Those that need no check with others (its upkeep, remembered deletes, catalog) have defaults.

    Parameters
    ----------
    key_spec : KeySpec
        How keys and partition paths are made.
    merging : MergeSettings
        Which record of a key wins, and which records are deletes.
    table_type, name, cdc, version
        As in ``create_table``.

    Raises
    ------
    ConfigError, UnsupportedFeatureError
        As ``create_table``.
    """
    check_version(version)
    rules = table_version(version)
    check_generator(key_spec)
    check_partitioning(key_spec)
    require_storable(rules, merging)
    return TableConfig(
        name=name or "",
        table_type=_member(TableType, table_type, "table_type"),
        key_spec=key_spec,
        merge_mode=merging.mode,
        ordering_fields=merging.ordering_fields,
        ordering_groups=merging.ordering_groups,
        version=version,
        initial_version=version if rules.has_names_of_hudi_1 else None,
        layout_version=rules.layout.number,
        archive_folder=rules.layout.archive_folder,
        legacy_payload_class=merging.payload_class,
        partial_update_mode=merging.partial_update_mode,
        unavailable_value=merging.unavailable_value,
        delete_field=merging.marker and merging.marker[0],
        delete_marker=merging.marker and merging.marker[1],
        cdc_enabled=cdc is not None,
        cdc_mode=None if cdc is None else _member(ChangeLogMode, cdc, "cdc"),
    )


def plan_table(
    path: str,
    schema: pa.Schema,
    config: TableConfig,
    index: TableIndex,
    *,
    metadata_table: bool = True,
) -> NewTable:
    """Check the columns and the index of a table; nothing is written.

    Parameters
    ----------
    path : str
        The table's folder, for its name and for messages.
    schema : pyarrow.Schema
        Columns of the records.
    config : TableConfig
        Its properties, of :func:`new_config`.
    index : TableIndex
        The index of the table.
    metadata_table : bool
        Whether the table gets a metadata table.

    Raises
    ------
    InputError, ConfigError, UnsupportedFeatureError
        As ``create_table``.
    """
    spec, rules = config.key_spec, config.rules
    named = {*spec.record_key_fields, *spec.partition_fields, *config.ordering_fields}
    names = table_columns(schema, named)
    schema = pa.schema([field for field in schema if field.name in names])
    stored = normalise_schema(schema, f"schema of {path}")
    require_types(stored, f"schema of {path}")
    require_known_types(rules, stored, f"schema of {path}")
    _require_named_columns(path, stored, spec, config.ordering_fields)
    if config.delete_field is not None:
        marker_field(stored, config.delete_field)  # Raises an error for a type without this rule.
    groups_of_table(config, index, stored, f"create table {path}")
    require_known_index(index, config.version, f"the new table {path}")
    _require_nameable_shards(spec, index)
    index.check_hash_fields(spec.record_key_fields)
    with_rule_of_new_table(index, config.layout, f"the new table {path}")
    name = config.name or _name_from_path(path)
    config = replace(config, name=name, create_schema=avro_from_arrow(stored, name))
    check_writable(TableConfig.from_properties(config.to_properties()), path)
    if index.finds_keys and not metadata_table:
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
    require_place(storage)
    with claimed(storage):
        require_place(storage)
        _make(storage, table)


def require_place(storage: Storage) -> None:
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
    index = with_rule_of_new_table(table.index, config.layout, storage.root)
    store_index(storage, index)
    opened = opened_table(storage, config)
    create_timeline(opened)
    if table.metadata_table:
        config = _with_metadata_table(opened, table.schema, table.index)
    # An unfinished creation may have left rules.
    require_given(storage, index, found_index(storage, load_timeline(opened), index))
    create_properties(storage, config.to_properties())


def _with_metadata_table(table: OpenTable, schema: pa.Schema, index: TableIndex) -> TableConfig:
    """Make the metadata table of a table without records; return the properties with it."""
    create_metadata_table(table)
    at = table.clock.next_instant(load_timeline(table))
    rules = table.config.rules
    partitions = usual_partitions(rules)
    definitions = []
    if rules.builds_statistics:
        columns = usual_columns(schema, has_value_types=rules.has_value_types)
        definitions.append(IndexDefinition.of_column_stats(columns, rules.statistics_version))
    if index.partitioned is not None:
        partitions.append(MetadataPartition.RECORD_INDEX)
        definitions.append(IndexDefinition.of_record_index(is_partitioned=index.partitioned))
    for number, partition in enumerate(partitions, rules.layout.first_build):
        groups = _groups(partition, index)
        initialise_partitions(
            table, {partition: groups}, instant=initial_instant(number), completed_at=at
        )
    extra = dict(table.config.extra)
    if definitions:
        update_index_definitions(table, definitions)
        extra[keys.INDEX_DEFINITIONS_PATH] = INDEX_DEFINITIONS_FILE
    return replace(table.config, metadata_partitions=tuple(sorted(partitions)), extra=extra)


def _groups(partition: MetadataPartition, index: TableIndex) -> dict[FileId, GroupEntries]:
    """Return the file groups of a partition, with the entries of a table without records."""
    if partition is MetadataPartition.RECORD_INDEX:
        assert index.finds_keys, "the table has the index"
        # A partitioned index gets its shards with the first records of each data partition.
        count = None if index.partitioned else GLOBAL_LIMITS.shard_count(0)
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
            root = schema.field(roots_of([column], schema.names)[0])
            if root.type in (BLOB, VARIANT):
                raise InputError(
                    f"create table {path}, column {column}",
                    f"{role} cannot be in a {type_name(root.type)}, which is one value",
                    "name another column, or store the value in a column of its own",
                )
            if pa.types.is_nested(held):
                raise InputError(
                    f"create table {path}, column {column}",
                    f"{role} names it, but its type {type_name(held)} has no order, and no text "
                    "for keys and folders",
                    "name a column of strings, numbers, dates or timestamps"
                    + _fields_of(column, held),
                )


def require_marker(path: str, schema: pa.Schema, marker: DeleteMarker) -> None:
    """Raise an error for a delete marker that no row of a schema can have: it would delete nothing.

    Parameters
    ----------
    path : str
        The table's folder, for messages.
    schema : pyarrow.Schema
        Columns of the records.
    marker : (column, text)
        The marker. Boolean and whole values are compared by their texts.
    """
    column, text = marker
    field = marker_field(schema, column)
    if field is None:
        raise InputError(
            f"create table {path}",
            f"delete_marker names column {column!r}, but the schema {why_missing(schema, column)}",
            "name a column of the schema, or a field of a struct as meta.op",
        )
    try:
        is_value = pa.scalar(text).cast(field.type).cast(pa.string()).as_py() == text
    except pa.ArrowException:
        is_value = False
    if not is_value:
        allowed = f"no value of column {column} ({type_name(field.type)}) has this text"
        if pa.types.is_boolean(field.type):
            allowed += "; give 'true' or 'false'"
        raise ConfigError("delete_marker", marker, allowed)


def _require_nameable_shards(spec: KeySpec, index: TableIndex) -> None:
    """Raise ConfigError if no partition could have shards of the record-level index."""
    nested = [field for field in spec.partition_fields if "." in field]
    if spec.hive_style and nested and index.partitioned:
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


def _member(kind: type[_Member], text: str, option: str) -> _Member:
    known = {each.value.lower(): each for each in kind}
    if text.lower() not in known:
        raise ConfigError(option, text, one_of(text, known))
    return known[text.lower()]


def _name_from_path(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", path.rstrip("/").rpartition("/")[2]) or "table"
