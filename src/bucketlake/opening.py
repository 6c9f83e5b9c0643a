"""Creates and opens tables; each function returns a :class:`~bucketlake.table.Table`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketlake.config.merge_entries import MergeSettings
from bucketlake.config.support import check_readable
from bucketlake.config.table_config import OFF
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.engine import arrow_schema
from bucketlake.errors import ConfigError, UnsupportedFeatureError, naming_table
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.setting import (
    INDEX_KINDS,
    TableIndex,
    require_given,
    resolve_index,
    without_state,
)
from bucketlake.model.arguments import (
    check_flags,
    check_kinds,
    check_optional_texts,
    check_texts,
    names_of,
    options_of,
    path_of,
)
from bucketlake.model.keys import (
    KeyGenerator,
    KeySpec,
    TimestampPartition,
    inferred_generator,
)
from bucketlake.model.names import Names, one_of
from bucketlake.model.table_type import LogFormat
from bucketlake.services.upkeep import check_upkeep
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.table import Table
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write.create import make_table, plan_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def create_table(
    path: str,
    *,
    schema: StructType | pa.Schema,
    record_key: Names,
    index: TableIndex | None = None,
    partition_by: Names = (),
    ordering: Names | None = None,
    table_type: str = "copy_on_write",
    name: str | None = None,
    hive_style: bool = False,
    url_encode: bool = False,
    timestamp_partition: TimestampPartition | None = None,
    metadata_table: bool = True,
    cdc: str | None = None,
    version: int = NEWEST_VERSION,
    upkeep: str = OFF,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Create an empty Hudi table.

    Parameters
    ----------
    path : str
        Folder of the table: a local path, or ``s3://``, ``s3a://``, ``gs://``, ``abfs://`` …
    schema : StructType or pa.Schema
        Columns of the records, including the partition columns. The length of a ``char`` or
        ``varchar`` is not checked by writes; a warning names such columns.
    record_key : str or sequence of str
        Columns that identify a record within its partition. A field inside a struct is named by
        its path: ``header.eid``; so are partition, ordering and hash fields.
    index : SimpleBucket, DynamicBucket, or another index kind, optional
        How keys find their file group; by default ``DynamicBucket()``, whose buckets are opened as
        the data grows.
    partition_by : str or sequence of str
        Partition columns, outermost first; empty for a table without partitions.
    ordering : str, sequence of str or None
        Ordering fields: the record with the greater value wins (event-time ordering). None: the
        later commit wins. A null counts as 0 in a column of numbers; in a column of another type,
        such as a timestamp, it is less than every value.
    table_type : {"copy_on_write", "merge_on_read"}
        Whether updates write new base files, or log files that readers merge.
    name : str, optional
        Table name; by default the last part of the path.
    hive_style : bool
        Name folders ``column=value``.
    url_encode : bool
        Encode special characters of partition values in folder names.
    timestamp_partition : TimestampPartition, optional
        How to format the times of the only partition column as text.
    metadata_table : bool
        Whether the table gets Hudi's metadata table: readers then need not list the storage, and
        each commit writes some more files. A ``RecordIndex`` and a ``DynamicBucket``, also the
        default one, need it.
    cdc : {"op_key_only", "data_before", "data_before_after"}, optional
        What the table keeps of each change for Hudi's query of change data, in files beside the
        base files: operation and key, also the row before it, or also the row after it.
        :meth:`Table.changes` does not need it.
    version : {6, 8, 9}
        Table version: 9 is read by Hudi 1.1 and newer, 8 by Hudi 1.0 too, 6 by Hudi 0.14 and 0.15
        too (``docs/how-to/who-reads-what.md`` has other engines). A ``DynamicBucket``, a
        ``PartitionBucket`` and a partitioned ``RecordIndex`` need version 9.
    upkeep : {"off", "auto"}
        Whether each write compacts, resizes, cleans and archives the table afterwards, if that is
        due: see :meth:`Table.set_upkeep`.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.

    Returns
    -------
    Table
        Without a lock, and with Parquet log blocks; :func:`open_table` takes other settings.

    Raises
    ------
    InputError
        If a named column is not in the schema, a column cannot be stored, or the folder contains
        other files.
    AlreadyExistsError
        If the folder already contains a table.
    IndexStateError
        If the folder contains another index setting, from a create that did not finish.

    Examples
    --------
    >>> import bucketlake as bl
    >>> trips = bl.create_table(
    ...     "memory://docs/trips", schema=pa.schema({"id": pa.string(), "fare": pa.float64()}),
    ...     record_key=["id"])
    >>> trips.index
    DynamicBucket(max_records=None, max_file_size=None, assigners=None)
    >>> trips.upsert(pa.table({"id": ["a", "b"], "fare": [1.0, 2.0]})).inserted
    2
    """
    with naming_table(shown_address(path_of(path))):
        return _create_table(
            path_of(path),
            schema,
            record_key,
            DynamicBucket() if index is None else index,
            partition_by=partition_by,
            ordering=ordering,
            table_type=table_type,
            name=name,
            hive_style=hive_style,
            url_encode=url_encode,
            timestamp_partition=timestamp_partition,
            metadata_table=metadata_table,
            cdc=cdc,
            version=version,
            upkeep=upkeep,
            storage_options=storage_options,
        )


def _create_table(
    path: str,
    schema: StructType | pa.Schema,
    record_key: Names,
    index: TableIndex,
    *,
    partition_by: Names,
    ordering: Names | None,
    table_type: str,
    name: str | None,
    hive_style: bool,
    url_encode: bool,
    timestamp_partition: TimestampPartition | None,
    metadata_table: bool,
    cdc: str | None,
    version: int,
    upkeep: str,
    storage_options: Mapping[str, str] | None,
) -> Table:
    options = options_of(storage_options, "storage_options")
    check_kinds(INDEX_KINDS, index=index)
    check_texts(table_type=table_type)
    check_upkeep("upkeep", upkeep)
    check_optional_texts(name=name, cdc=cdc)
    check_flags(hive_style=hive_style, url_encode=url_encode, metadata_table=metadata_table)
    if timestamp_partition is not None:
        check_kinds((TimestampPartition,), timestamp_partition=timestamp_partition)
    keys, partitions = names_of(record_key, "record_key"), names_of(partition_by, "partition_by")
    ordering_fields = () if ordering is None else names_of(ordering, "ordering")
    storage = open_storage(path, options)
    inferred = inferred_generator(keys, partitions)
    spec = KeySpec(
        keys,
        partitions,
        KeyGenerator.TIMESTAMP if timestamp_partition is not None else inferred,
        hive_style=hive_style,
        url_encode=url_encode,
        timestamp=timestamp_partition,
    )
    planned = plan_table(
        storage.root,
        arrow_schema(schema),
        spec,
        MergeSettings(ordering_fields),
        index,
        table_type=table_type,
        name=name,
        metadata_table=metadata_table,
        cdc=cdc,
        version=version,
        upkeep=upkeep,
    )
    make_table(storage, planned)
    return Table(path, index, options)


def open_table(
    path: str,
    index: TableIndex | None = None,
    storage_options: Mapping[str, str] | None = None,
    log_format: str = "parquet",
    lock: TableLock = NO_LOCK,
) -> Table:
    """Open a Hudi table that bucketlake or another program created.

    Parameters
    ----------
    path : str
        Folder of the table.
    index : SimpleBucket, DynamicBucket, or another index kind, optional
        Needed only to *write* to a table of Hudi, which stores no bucket setting.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.
    log_format : {"parquet", "avro"}
        Format of the records in new log files of a merge-on-read table. Every reader supports
        both; Avro is Hudi's default, Parquet is smaller and faster.
    lock : FileSystemLock, StorageLock or InProcessLock, optional
        The lock that Hudi's writers use on this table; needed only if they write at the same time.

    Returns
    -------
    Table

    Raises
    ------
    TableNotFoundError
        If there is no Hudi table; the error names what was found.
    UnsupportedFeatureError
        If the table cannot be read; the error names the feature.
    IndexStateError
        If the table stores another index setting.

    Examples
    --------
    >>> import bucketlake as bl
    >>> schema = pa.schema({"id": pa.string()})
    >>> made = create_table(
    ...     "memory://docs/opened", schema=schema, record_key=["id"], index=bl.SimpleBucket(4))
    >>> open_table("memory://docs/opened").index
    SimpleBucket(count=4, hash_fields=None, max_file_size=None)
    """
    with naming_table(shown_address(path_of(path))):
        return _open_table(path_of(path), index, storage_options, log_format, lock)


def _open_table(
    path: str,
    index: TableIndex | None,
    storage_options: Mapping[str, str] | None,
    log_format: str,
    lock: TableLock,
) -> Table:
    check_texts(log_format=log_format)
    formats = {kind.value: kind for kind in LogFormat}
    if log_format not in formats:
        raise ConfigError("log_format", log_format, one_of(log_format, formats))
    options = options_of(storage_options, "storage_options")
    # The handle checks path, index and lock.
    path = Table(path, index, options, formats[log_format], lock).path
    storage = open_storage(path, options)
    config = read_table_config(storage)
    check_readable(config, path)
    try:
        found = resolve_index(storage, load_timeline(opened_table(storage, config)), index)
    except UnsupportedFeatureError:
        if index is not None:
            raise
        found = None  # A read does not need the rules.
    require_given(storage, index, found)
    given = None if found is None else without_state(found)
    return Table(path, given, options, formats[log_format], lock)


def convert(
    path: str,
    index: TableIndex,
    *,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    lock: TableLock = NO_LOCK,
) -> Table:
    """Change the index of an existing table, and open the table.

    A table of any index, also one that Hudi wrote, can be put under a :class:`DynamicBucket`
    without rewriting a data file. Otherwise only ``max_file_size`` can change: from one file group
    per bucket to several, and back. See :meth:`Table.convert`, which can also show the changes
    without making them.

    Parameters
    ----------
    path : str
        Folder of the table.
    index : DynamicBucket, SimpleBucket or PartitionBucket
        A ``DynamicBucket``, or the table's own index with another ``max_file_size``.
    spark : SparkSession, optional
        Session that reads keys or rewrites rows; by default the active session, or this process
        without one.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.
    lock : FileSystemLock, StorageLock or InProcessLock, optional
        The lock that Hudi's writers use on this table.

    Returns
    -------
    Table

    Raises
    ------
    ConfigError
        If the index is no ``DynamicBucket`` and differs from the table's in more than its
        ``max_file_size``.
    IndexStateError
        If a resize is pending, or a key is stored twice in a partition.
    CommitConflictError
        If other writers caused a conflict in every attempt.

    Examples
    --------
    >>> import bucketlake as bl
    >>> made = create_table(
    ...     "memory://docs/converted", schema=pa.schema({"id": pa.string()}), record_key=["id"],
    ...     index=bl.SimpleBucket(4))
    >>> convert("memory://docs/converted", bl.SimpleBucket(4, max_file_size=64 << 20)).index
    SimpleBucket(count=4, hash_fields=None, max_file_size=67108864)
    >>> made.upsert(pa.table({"id": ["a", "b"]})).inserted
    2
    >>> convert("memory://docs/converted", bl.DynamicBucket(max_records=1_000_000)).index
    DynamicBucket(max_records=1000000, max_file_size=None, assigners=None)
    """
    with naming_table(shown_address(path_of(path))):
        check_kinds(INDEX_KINDS, index=index)
    unconverted = open_table(path, storage_options=storage_options, lock=lock)
    unconverted.convert(index, spark=spark, dry_run=False)
    return open_table(path, index, storage_options, lock=lock)
