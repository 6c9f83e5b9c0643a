"""Creates tables, empty or with first rows; ``opening.py`` opens those that are there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketlake.config.merge_entries import DeleteMarker, MergeSettings
from bucketlake.config.table_config import OFF, TableConfig, check_keep_deletes
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.engine import arrow_schema, input_of, session_of, source_of
from bucketlake.errors import BucketLakeError, ConfigError, naming_table
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.setting import TableIndex
from bucketlake.model.arguments import (
    check_flags,
    check_kinds,
    check_optional_texts,
    check_texts,
    names_of,
    options_of,
    path_of,
)
from bucketlake.model.keys import KeyGenerator, KeySpec, TimestampPartition, inferred_generator
from bucketlake.model.names import Names
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.model.words_of_others import in_our_words
from bucketlake.services.upkeep import check_upkeep
from bucketlake.storage.base import Storage
from bucketlake.storage.location import shown_address
from bucketlake.table import Table, handle_of
from bucketlake.write.create import (
    NewTable,
    make_table,
    new_config,
    plan_table,
    require_marker,
    require_place,
)
from bucketlake.write.unwritten import remove_empty_folder
from bucketlake.writing import count_first_records, unmade_on_failure, write_first

if TYPE_CHECKING:
    from bucketlake.engine import Records, SchemaLike


@in_our_words
def create_table(
    path: str,
    data: Records | None = None,
    *,
    schema: SchemaLike | None = None,
    record_key: Names,
    index: TableIndex | None = None,
    partition_by: Names = (),
    ordering: Names | Mapping[str, str] | None = None,
    delete_marker: DeleteMarker | None = None,
    table_type: str = "copy_on_write",
    name: str | None = None,
    hive_style: bool = False,
    url_encode: bool = False,
    timestamp_partition: TimestampPartition | None = None,
    metadata_table: bool = True,
    cdc: str | None = None,
    version: int = NEWEST_VERSION,
    upkeep: str = OFF,
    keep_deletes: str | None = None,
    sync: str | Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Create a Hudi table: an empty one, or with first rows.

    Parameters
    ----------
    path : str
        Folder of the table: a local path, or ``s3://``, ``s3a://``, ``gs://``, ``abfs://`` …
    data : DataFrame, pa.Table, ArrowData or InputFiles, optional
        First rows, as :meth:`Table.upsert` takes them: they are checked before the table exists,
        and written by one commit. None: the table is empty.
    schema : StructType, pa.Schema, str, DataFrame or other rows, optional
        Columns of the records, including the partition columns; by default those of ``data``. A
        text is DDL: ``"id string, price decimal(10,2)"``. Of a DataFrame, a table or files only the
        columns are taken, and no row is written. Hudi's meta columns and a pandas index are
        dropped, and so is the column ``_hoodie_is_deleted`` of rows. The length of a ``char`` or
        ``varchar`` is not checked by writes; a warning names such columns.
    record_key : str or sequence of str
        Columns that identify a record within its partition. A field inside a struct is named by
        its path: ``header.eid``; so are partition, ordering and hash fields.
    index : SimpleBucket, DynamicBucket, or another index kind, optional
        How keys find their file group; by default ``DynamicBucket()``, whose buckets are opened as
        the data grows.
    partition_by : str or sequence of str
        Partition columns, outermost first; empty for a table without partitions.
    ordering : str, sequence of str, dict of str to str or None
        Ordering fields: the record with the greater value wins (event-time ordering). None: the
        later commit wins. A null counts as 0 in a column of numbers; in a column of another type,
        such as a timestamp, it is less than every value. A dict gives columns orderings of their
        own, for partial rows that come in any order: ``{"city": "address_at", "street":
        "address_at", "*": "updated_at"}``; ``"*"`` is the ordering of the rows and of all other
        columns (``docs/how-to/partial-rows.md``).
    delete_marker : (str, str), optional
        A column and the text in it that makes a row of a write delete its key, such as
        ``("op", "D")``; of a boolean column ``("gone", "true")``. The column is one of the schema,
        perhaps in a struct. Version 9 stores a marker; Hudi's writers obey it. None: only a column
        ``_hoodie_is_deleted`` deletes.
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
    keep_deletes : str, optional
        How long deletes with an ordering value are remembered, such as ``"7 days"``, the default
        with ``ordering``: a row with a smaller ordering value that comes later stays out. ``"0"``:
        not at all. Only bucketlake's writers do so.
    sync : str or dict of str to str, optional
        Catalog in which each write registers the table afterwards, see :func:`sync`:
        ``"thrift://host:9083"``, or ``{"catalog": …, "name": "sales.orders"}``, perhaps with
        Hudi's options of catalogs. A catalog that fails never fails a write.
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
    >>> rides = pa.table({"id": ["a", "b"], "op": ["I", "I"]})
    >>> bl.create_table("memory://docs/rides", rides, record_key="id",
    ...                 delete_marker=("op", "D")).count()
    2
    """
    with naming_table(shown_address(path_of(path))):
        options = options_of(storage_options, "storage_options")
        index = DynamicBucket() if index is None else index
        table = Table(path, index, options)
        check_texts(table_type=table_type)
        check_upkeep("upkeep", upkeep)
        check_optional_texts(name=name, cdc=cdc, keep_deletes=keep_deletes)
        if keep_deletes is not None:
            check_keep_deletes(keep_deletes, has_ordering=ordering is not None)
        check_flags(hive_style=hive_style, url_encode=url_encode, metadata_table=metadata_table)
        spec = _key_spec(record_key, partition_by, timestamp_partition)
        spec = replace(spec, hive_style=hive_style, url_encode=url_encode)
        config = new_config(
            spec,
            _merging(ordering, delete_marker),
            table_type=table_type,
            name=name,
            cdc=cdc,
            version=version,
        )
        entry = None if sync is None else _registration(sync)
        config = replace(config, upkeep=upkeep, keep_deletes=keep_deletes, sync=entry)
        rows = None if data is None else input_of(data, f"write to {table.path}")
        return _create(table, schema if schema is not None else rows, rows, config, metadata_table)


def _registration(given: str | Mapping[str, str]) -> str:
    from bucketlake.catalogs.table_sync import Registration  # Few tables have one.

    return Registration.of(given).text


def _key_spec(
    record_key: Names, partition_by: Names, timestamp: TimestampPartition | None
) -> KeySpec:
    if timestamp is not None:
        check_kinds((TimestampPartition,), timestamp_partition=timestamp)
    keys, partitions = names_of(record_key, "record_key"), names_of(partition_by, "partition_by")
    inferred = inferred_generator(keys, partitions)
    generator = inferred if timestamp is None else KeyGenerator.TIMESTAMP
    return KeySpec(keys, partitions, generator, timestamp=timestamp)


def _merging(ordering: Names | Mapping[str, str] | None, delete_marker: object) -> MergeSettings:
    marker = None if delete_marker is None else marker_of(delete_marker)
    if not isinstance(ordering, Mapping):
        fields = () if ordering is None else names_of(ordering, "ordering")
        return MergeSettings(fields, marker=marker)
    check_texts(**{f"a column of {own!r} in ordering": own for own in ordering.values()})
    check_texts(**{f"{name!r} in ordering": name for name in ordering})
    if "*" not in ordering:
        wanted = "name the ordering of all other columns, too: {..., '*': 'updated_at'}"
        raise ConfigError("ordering", ordering, wanted)
    of_rows = ordering["*"]
    groups = {name: own for name, own in ordering.items() if name != "*" and own != of_rows}
    return MergeSettings((of_rows,), marker=marker, ordering_groups=groups)


def _create(
    table: Table,
    schema: SchemaLike | None,
    rows: Records | None,
    config: TableConfig,
    metadata_table: bool,
) -> Table:
    handle = handle_of(table)
    storage, index = handle.storage, handle.index
    if schema is None:
        wanted = "give it, or the first rows: create_table(path, rows, …) (bucketlake create)"
        raise ConfigError("schema", None, wanted)
    columns = arrow_schema(schema, f"create table {table.path}")
    assert index is not None, "create_table has chosen one"
    planned = plan_table(storage.root, columns, config, index, metadata_table=metadata_table)
    if config.custom_marker is not None:
        require_marker(storage.root, planned.schema, config.custom_marker)
    if rows is None:
        make_table(storage, planned)
    else:
        _make_with_rows(table, storage, planned, rows)
    return table


def _make_with_rows(table: Table, storage: Storage, planned: NewTable, rows: Records) -> None:
    """Check the rows for a table in memory, then make the table and write them."""
    require_place(storage)
    source = source_of(rows, storage, table.path, lambda: planned.schema)
    try:
        with closing(source):
            none = SchemaMerge()
            work = Operation.UPSERT
            _, counted = count_first_records(storage.root, planned, source, work, none)
            make_table(storage, planned)
            in_spark = not isinstance(rows, pa.Table)
            with unmade_on_failure(storage, table.lock, tasks_may_run=in_spark):
                write_first(handle_of(table), source, counted, session_of(rows))
    except BucketLakeError:
        remove_empty_folder(storage)  # In which the rows were spooled.
        raise


def marker_of(given: object) -> DeleteMarker:
    """Return a delete marker; raise ConfigError if it is none."""
    allowed = "give a column and the text in it that deletes, such as ('op', 'D')"
    parts = tuple(given) if isinstance(given, tuple | list) else ()
    if len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise ConfigError("delete_marker", given, f"{allowed}, or ('gone', 'true')")
    column, text = parts
    check_texts(**{"column of delete_marker": column, "text of delete_marker": text})
    return column, text
