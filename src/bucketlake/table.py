"""The table handle: an address and options; each verb calls one room.

``create_table`` and ``open_table`` give a :class:`Table`. It can be pickled and holds no session,
lock or cache: every call looks at storage anew. Spark is imported only by the verbs that are
handed a DataFrame or return one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bucketlake.config.layout import HOODIE_FOLDER, METADATA_TABLE_FOLDER, PROPERTIES_FILE
from bucketlake.config.support import check_readable
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import AlreadyExistsError, ConfigError, InputError, UnsupportedFeatureError
from bucketlake.format.avro_schema import avro_from_arrow
from bucketlake.index.settings import resolve_index, store_index
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.keys import KeyGenerator, KeySpec, TimestampPartition
from bucketlake.model.partition_path import check_partitioning
from bucketlake.model.result import WriteResult
from bucketlake.model.schema import normalise_schema
from bucketlake.model.table_type import MergeMode, Operation, TableType
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.buckets import Bucket, RecordLocation, list_buckets, locate_key
from bucketlake.read.plan import plan_read
from bucketlake.read.pruning import PruningReport
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import create_timeline, load_timeline
from bucketlake.timeline.instant import Instant
from bucketlake.timeline.table_properties import (
    create_table_properties,
    read_table_config,
    update_table_properties,
)
from bucketlake.write.arrow_source import ArrowSource
from bucketlake.write.ingest import delete_partitions, open_target, write_records
from bucketlake.write.source import RecordSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def create_table(
    path: str,
    *,
    schema: StructType | pa.Schema,
    record_key: Sequence[str],
    index: SimpleBucket,
    partition_by: Sequence[str] = (),
    ordering: str | Sequence[str] | None = None,
    table_type: str = "copy_on_write",
    name: str | None = None,
    hive_style: bool = False,
    url_encode: bool = False,
    timestamp_partition: TimestampPartition | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Make an empty Hudi table (table version 9).

    Parameters
    ----------
    path : str
        Folder of the table: a local path, or ``s3://``, ``s3a://``, ``gs://``, ``abfs://`` …
    schema : StructType or pa.Schema
        Columns of the records, partition columns among them.
    record_key : sequence of str
        Columns that identify a record within its partition.
    index : SimpleBucket
        How keys find their file group.
    partition_by : sequence of str
        Partition columns, outermost first; none makes a table without partitions.
    ordering : str, sequence of str or None
        Columns whose greater value wins (event-time ordering); None lets the later commit win.
    table_type : {"copy_on_write"}
        How the table takes updates.
    name : str, optional
        Table name; by default the last part of the path.
    hive_style : bool
        Name folders ``column=value``.
    url_encode : bool
        Encode special characters of partition values in folder names.
    timestamp_partition : TimestampPartition, optional
        Turn the one partition column from a time into text.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        If the schema lacks a named column or holds one that cannot be stored, or the folder holds
        files of something else.
    AlreadyExistsError
        If there is a table already.

    Examples
    --------
    >>> import bucketlake as bl
    >>> trips = bl.create_table(
    ...     "memory://docs/trips", schema=pa.schema({"id": pa.string(), "fare": pa.float64()}),
    ...     record_key=["id"], index=bl.SimpleBucket(4))
    >>> trips.upsert(pa.table({"id": ["a", "b"], "fare": [1.0, 2.0]})).inserted
    2
    """
    storage = open_storage(path, storage_options)
    stored = normalise_schema(_arrow_schema(schema), f"schema of {path}")
    ordering_fields = (ordering,) if isinstance(ordering, str) else tuple(ordering or ())
    spec = _key_spec(
        tuple(record_key), tuple(partition_by), hive_style, url_encode, timestamp_partition
    )
    _require_named_columns(path, stored, spec, ordering_fields)
    check_partitioning(spec)
    index.check_hash_fields(spec.record_key_fields)
    table_name = name or _name_from_path(path)
    config = TableConfig(
        name=table_name,
        table_type=_table_type(table_type),
        key_spec=spec,
        merge_mode=MergeMode.EVENT_TIME if ordering_fields else MergeMode.COMMIT_TIME,
        ordering_fields=ordering_fields,
        create_schema=avro_from_arrow(stored, table_name),
    )
    if storage.stat(PROPERTIES_FILE) is not None:
        raise AlreadyExistsError(path, "create table", "a Hudi table is there; use open_table")
    _require_room(storage, path)
    store_index(storage, index)
    create_timeline(storage, config)
    create_table_properties(storage, config)
    return Table(path, index, dict(storage_options or {}))


def open_table(
    path: str,
    index: SimpleBucket | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Open a Hudi table, whoever made it.

    Parameters
    ----------
    path : str
        Folder of the table.
    index : SimpleBucket, optional
        Needed to *write* to a table of Hudi's that stores no bucket setting; never to read.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.

    Returns
    -------
    Table

    Raises
    ------
    TableNotFoundError
        If there is no Hudi table, saying what is there.
    UnsupportedFeatureError
        If the table cannot be read, naming the feature.
    IndexStateError
        If the table stores another index setting.

    Examples
    --------
    >>> schema = pa.schema({"id": pa.string()})
    >>> made = create_table(
    ...     "memory://docs/opened", schema=schema, record_key=["id"], index=SimpleBucket(4))
    >>> open_table("memory://docs/opened").index
    SimpleBucket(count=4, hash_fields=None)
    """
    storage = open_storage(path, storage_options)
    check_readable(read_table_config(storage), path)
    return Table(path, resolve_index(storage, index), dict(storage_options or {}))


@dataclass(frozen=True, slots=True)
class Table:
    """A Hudi table: where it lies, and how to reach it.

    Made by :func:`create_table` or :func:`open_table`.

    Attributes
    ----------
    path : str
        Folder of the table, as it was given.
    index : SimpleBucket or None
        How keys find their file group; None where it is not known, and so not written to.
    storage_options : mapping of str to str
        As handed in. They are not shown when the table is printed.
    """

    path: str
    index: SimpleBucket | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    # Writes.

    def upsert(self, data: DataFrame | pa.Table) -> WriteResult:
        """Insert new records, update known ones.

        Parameters
        ----------
        data : DataFrame or pa.Table
            Records, with all columns of the table; further ones are added to it. Of several with
            one key the greatest ordering value stays; of equal ones the later row of an Arrow
            table, or one that its contents decide on in a DataFrame, which has no order. Against
            a stored record the incoming one stays unless its ordering value is less. A record
            whose ``_hoodie_is_deleted`` is true deletes its key.

        Returns
        -------
        WriteResult
            Without an instant where ``data`` has no rows.

        Raises
        ------
        InputError
            If a key is missing, a column is missing, or a type does not fit.
        ConfigError
            If the table stores no bucket setting and was opened without ``index``.
        UnsupportedFeatureError
            If the table has a feature that a writer must know and bucketlake does not.
        IndexStateError
            If the files of the table contradict the index.
        CommitConflictError
            If another writer changed the same buckets meanwhile; retry.
        CommitOutcomeUnknownError
            If storage failed at the decisive step; look at the timeline before any retry.

        Examples
        --------
        >>> orders = create_table(
        ...     "memory://docs/orders", schema=pa.schema({"id": pa.string(), "at": pa.int64()}),
        ...     record_key=["id"], ordering="at", index=SimpleBucket(2))
        >>> orders.upsert(pa.table({"id": ["a", "b"], "at": [5, 5]})).inserted
        2
        >>> orders.upsert(pa.table({"id": ["a", "b"], "at": [7, 3]})).updated
        1
        """
        return self._write(Operation.UPSERT, data)

    def insert(self, data: DataFrame | pa.Table) -> WriteResult:
        """Write records as :meth:`upsert` does: a bucket index keeps keys unique (RFC-29).

        Only the operation in the commit's metadata differs.

        Parameters
        ----------
        data : DataFrame or pa.Table
            As for :meth:`upsert`, and with its errors.

        Returns
        -------
        WriteResult
        """
        return self._write(Operation.INSERT, data)

    def bulk_insert(self, data: DataFrame | pa.Table) -> WriteResult:
        """Write records into partitions that hold none yet.

        Parameters
        ----------
        data : DataFrame or pa.Table
            As for :meth:`upsert`. Of several records with one key one stays.

        Returns
        -------
        WriteResult

        Raises
        ------
        InputError
            If one of the partitions holds records; further as :meth:`upsert`.
        """
        return self._write(Operation.BULK_INSERT, data)

    def insert_overwrite(
        self, data: DataFrame | pa.Table, *, whole_table: bool = False
    ) -> WriteResult:
        """Replace the partitions that the records fall into, or the whole table.

        Parameters
        ----------
        data : DataFrame or pa.Table
            As for :meth:`upsert`, and with its errors.
        whole_table : bool
            Whether partitions without a record in ``data`` are emptied, too.

        Returns
        -------
        WriteResult
            ``file_groups`` counts those written and those replaced.
        """
        operation = Operation.INSERT_OVERWRITE_TABLE if whole_table else Operation.INSERT_OVERWRITE
        return self._write(operation, data)

    def delete(self, keys: DataFrame | pa.Table) -> WriteResult:
        """Delete records by key.

        Parameters
        ----------
        keys : DataFrame or pa.Table
            Record key and partition columns; others are not looked at. Keys that the table does
            not hold are passed over. No ordering value is compared: whatever is stored goes.

        Returns
        -------
        WriteResult

        Raises
        ------
        InputError
            If a key or partition column is missing; further as :meth:`upsert`.

        Examples
        --------
        >>> names = create_table(
        ...     "memory://docs/names", schema=pa.schema({"id": pa.string()}),
        ...     record_key=["id"], index=SimpleBucket(2))
        >>> names.upsert(pa.table({"id": ["a", "b"]})).inserted
        2
        >>> names.delete(pa.table({"id": ["b", "c"]})).deleted
        1
        """
        return self._write(Operation.DELETE, keys)

    def delete_partitions(self, partitions: Sequence[str]) -> WriteResult:
        """Delete whole partitions.

        Parameters
        ----------
        partitions : sequence of str
            Partition paths, as :meth:`buckets` shows them.

        Returns
        -------
        WriteResult
            ``file_groups`` counts the file groups that went; rows are not counted.

        Raises
        ------
        InputError
            If one of the partitions holds no records.
        """
        storage, config = self._open()
        return delete_partitions(open_target(storage, config, self.index), partitions)

    # Reads.

    def read(
        self,
        spark: SparkSession | None = None,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: str | None = None,
    ) -> DataFrame:
        """Return the table as a DataFrame.

        Parameters
        ----------
        spark : SparkSession, optional
            The session; by default the active one.
        where : str, optional
            SQL condition. Partitions and buckets that cannot match are not read; a ``.filter()``
            on the result is right too, but prunes no buckets.
        columns : sequence of str, optional
            Columns to return; meta columns only by name.
        as_of : str, optional
            Time travel: ``yyyyMMddHHmmss[SSS]``, ``yyyy-MM-dd`` or ``yyyy-MM-dd HH:mm:ss[.SSS]``,
            on the clock of the table's timeline. Right as long as no cleaner took the files.

        Returns
        -------
        DataFrame

        Raises
        ------
        InputError
            If the table has no such column, or ``where`` is no condition.
        UnsupportedFeatureError
            If a file group has log files.
        """
        from bucketlake.spark.read import active_session, has_usual_settings, read_files

        session = active_session(spark)
        plan = plan_read(
            self._snapshot(as_of),
            self.index,
            where=where,
            columns=columns,
            time_zone=session.conf.get("spark.sql.session.timeZone"),
            usual_settings=where is None or has_usual_settings(session),
        )
        return read_files(session, self.path, plan, where=where, columns=columns)

    def to_arrow(
        self,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: str | None = None,
    ) -> pa.Table:
        """Return the table as an Arrow table, without Spark.

        Parameters
        ----------
        where : str, optional
            SQL condition, of comparisons of a column with literals (``IN``, ``BETWEEN``, ``LIKE``
            and ``IS NULL`` among them), ``AND``, ``OR`` and ``NOT``. Another one is refused, for
            only Spark can answer it.
        columns : sequence of str, optional
            Columns to return; meta columns only by name.
        as_of : str, optional
            Time travel, as in :meth:`read`.

        Returns
        -------
        pa.Table

        Raises
        ------
        InputError
            If the table has no such column, or ``where`` is no condition.
        UnsupportedFeatureError
            If ``where`` needs Spark, or a file group has log files.

        Examples
        --------
        >>> fares = create_table(
        ...     "memory://docs/fares", schema=pa.schema({"id": pa.string(), "fare": pa.int64()}),
        ...     record_key=["id"], index=SimpleBucket(4))
        >>> fares.upsert(pa.table({"id": ["a", "b"], "fare": [3, 9]})).inserted
        2
        >>> fares.to_arrow(where="id = 'b'", columns=["fare"]).to_pylist()
        [{'fare': 9}]
        """
        snapshot = self._snapshot(as_of)
        plan = plan_read(snapshot, self.index, where=where, columns=columns)
        return read_arrow(snapshot.storage, plan, where=where, columns=columns)

    def explain(self, where: str | None = None) -> PruningReport:
        """Tell which partitions and buckets a read with this condition would look at, and why.

        Parameters
        ----------
        where : str, optional
            SQL condition, as in :meth:`read`.

        Returns
        -------
        PruningReport
        """
        return plan_read(self._snapshot(None), self.index, where=where).report

    def locate(
        self, key: str | Mapping[str, Any], partition: str | None = None
    ) -> list[RecordLocation]:
        """Find where a record lies.

        Parameters
        ----------
        key : str or mapping
            The record key as stored, or its columns' values.
        partition : str, optional
            Partition path to look in; by default all.

        Returns
        -------
        list of RecordLocation
            One entry for each partition that holds the key; empty where none does.
        """
        return locate_key(self._snapshot(None), self.index, key, partition)

    def buckets(self) -> list[Bucket]:
        """Return the live file groups with their sizes, by partition and bucket.

        Returns
        -------
        list of Bucket
        """
        return list_buckets(self._snapshot(None))

    def timeline(self) -> list[Instant]:
        """Return the instants of the active timeline, oldest first.

        Returns
        -------
        list of Instant
            Pending ones among them; archived ones are not.
        """
        storage, config = self._open()
        return list(load_timeline(storage, config).instants)

    def schema(self) -> pa.Schema:
        """Return the table's columns, without meta columns."""
        return self._snapshot(None).schema

    def config(self) -> TableConfig:
        """Return the table's properties."""
        return self._open()[1]

    # Upkeep.

    def drop_metadata_table(self) -> None:
        """Take Hudi's metadata table off, so that bucketlake can write.

        A commit that skips an existing metadata table is invisible to its readers, so the table is
        taken off the list in ``hoodie.properties`` first and its files go after. The next write of
        Hudi builds it anew.
        """
        storage, _ = self._open()
        update_table_properties(
            storage,
            remove=[
                "hoodie.table.metadata.partitions",
                "hoodie.table.metadata.partitions.inflight",
            ],
        )
        storage.delete_folder(METADATA_TABLE_FOLDER)

    def _open(self) -> tuple[Storage, TableConfig]:
        storage = open_storage(self.path, self.storage_options)
        config = read_table_config(storage)
        check_readable(config, self.path)
        return storage, config

    def _snapshot(self, as_of: str | None) -> Snapshot:
        storage, config = self._open()
        return load_snapshot(storage, config, as_of=as_of)

    def _write(self, operation: Operation, data: DataFrame | pa.Table) -> WriteResult:
        storage, config = self._open()
        source = self._source(data, storage)
        try:
            return write_records(open_target(storage, config, self.index), operation, source)
        finally:
            source.close()

    def _source(self, data: DataFrame | pa.Table, storage: Storage) -> RecordSource:
        if isinstance(data, pa.Table):
            return ArrowSource(data)
        if hasattr(data, "mapInArrow"):
            from bucketlake.spark.source import SparkSource
            from bucketlake.spark.spool import Spool

            return SparkSource(data, Spool(storage, self.path))
        raise InputError(
            f"write to {self.path}",
            f"{type(data).__name__} is no data that can be written",
            "hand in a Spark DataFrame or a pyarrow.Table",
        )


def _arrow_schema(schema: StructType | pa.Schema) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    from bucketlake.spark.schema import arrow_from_spark

    return arrow_from_spark(schema)


def _key_spec(
    record_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    hive_style: bool,
    url_encode: bool,
    timestamp: TimestampPartition | None,
) -> KeySpec:
    if timestamp is not None:
        generator = KeyGenerator.TIMESTAMP
    elif not partition_by:
        generator = KeyGenerator.NON_PARTITION
    elif len(record_key) > 1 or len(partition_by) > 1:
        generator = KeyGenerator.COMPLEX
    else:
        generator = KeyGenerator.SIMPLE
    return KeySpec(
        record_key,
        partition_by,
        generator,
        hive_style=hive_style,
        url_encode=url_encode,
        timestamp=timestamp,
    )


def _require_named_columns(
    path: str, schema: pa.Schema, spec: KeySpec, ordering: Iterable[str]
) -> None:
    roles = {
        "record_key": spec.record_key_fields,
        "partition_by": spec.partition_fields,
        "ordering": tuple(ordering),
    }
    if not spec.record_key_fields:
        raise ConfigError("record_key", (), "name at least one column")
    for role, names in roles.items():
        for column in names:
            if column not in schema.names:
                raise InputError(
                    f"create table {path}",
                    f"{role} names column {column!r}, which the schema lacks; it has "
                    f"{schema.names}",
                    "name a column of the schema",
                )


def _require_room(storage: Storage, path: str) -> None:
    """Refuse a folder with somebody's files: readers would take them for the table's."""
    objects = (stored.path for stored in storage.list(""))
    foreign = next((held for held in objects if not held.startswith(f"{HOODIE_FOLDER}/")), None)
    if foreign is not None:
        raise InputError(
            f"create table {path}",
            f"the folder holds {foreign}, which is no part of a Hudi table",
            "choose an empty folder",
        )


def _table_type(text: str) -> TableType:
    known = {t.value.lower(): t for t in TableType}
    if text.lower() not in known:
        raise ConfigError("table_type", text, f"one of {', '.join(known)}")
    if known[text.lower()] is TableType.MERGE_ON_READ:
        raise UnsupportedFeatureError(
            "writing merge-on-read tables", "create_table", "use table_type='copy_on_write'"
        )
    return known[text.lower()]


def _name_from_path(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", path.rstrip("/").rpartition("/")[2]) or "table"
