"""Opens tables, and puts them under another index; ``writing.py`` makes new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bucketlake.config.support import check_readable
from bucketlake.errors import ConfigError, UnsupportedFeatureError, naming_table
from bucketlake.index.setting import (
    INDEX_KINDS,
    TableIndex,
    require_given,
    resolve_index,
    without_state,
)
from bucketlake.model.arguments import check_kinds, check_texts, options_of, path_of
from bucketlake.model.names import one_of
from bucketlake.model.table_type import LogFormat
from bucketlake.model.words_of_others import in_our_words
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.table import Table
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bucketlake.catalogs.catalog import Catalog


@in_our_words
def open_table(
    path: str,
    index: TableIndex | None = None,
    storage_options: Mapping[str, str] | None = None,
    log_format: str = "parquet",
    lock: TableLock = NO_LOCK,
    catalog: str | Catalog | None = None,
) -> Table:
    """Open a Hudi table that bucketlake or another program created.

    Parameters
    ----------
    path : str
        Folder of the table; with ``catalog`` its name, ``database.table``.
    index : SimpleBucket, DynamicBucket, or another index kind, optional
        Needed only to *write* to a table of Hudi, which stores no bucket setting.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.
    log_format : {"parquet", "avro"}
        Format of the records in new log files of a merge-on-read table. Every reader supports
        both; Avro is Hudi's default, Parquet is smaller and faster.
    lock : FileSystemLock, StorageLock or InProcessLock, optional
        The lock that Hudi's writers use on this table; needed only if they write at the same time.
    catalog : str or Catalog, optional
        Where the name is known: ``thrift://host:9083``, ``glue``, see :func:`sync`.

    Returns
    -------
    Table

    Raises
    ------
    CatalogError
        If the catalog cannot be reached, or does not know the name.
    ConfigError
        If an argument is wrong, or the package of a catalog is not installed.
    TableNotFoundError
        If there is no Hudi table; the error names what was found.
    UnsupportedFeatureError
        If the table cannot be read; the error names the feature.
    IndexStateError
        If the table stores another index setting.

    Examples
    --------
    >>> import bucketlake as bl
    >>> import pyarrow as pa
    >>> schema = pa.schema({"id": pa.string()})
    >>> made = bl.create_table(
    ...     "memory://docs/opened", schema=schema, record_key=["id"], index=bl.SimpleBucket(4))
    >>> open_table("memory://docs/opened").index
    SimpleBucket(count=4, hash_fields=None, max_file_size=None)
    """
    path = path_of_name(path, catalog)
    with naming_table(shown_address(path_of(path))):
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
            opened = opened_table(storage, config)
            found = resolve_index(opened, load_timeline(opened), index)
        except UnsupportedFeatureError:
            if index is not None:
                raise
            found = None  # A read does not need the rules.
        require_given(storage, index, found)
        given = None if found is None else without_state(found)
        return Table(path, given, options, formats[log_format], lock)


def path_of_name(path: str, catalog: str | Catalog | None) -> str:
    """Return the folder of the table that a catalog knows by a name; without a catalog the path."""
    if catalog is None:
        return path
    from bucketlake.catalogs.table_sync import place_of_name  # Few tables are opened so.

    return place_of_name(path, catalog)


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
    >>> import pyarrow as pa
    >>> made = bl.create_table(
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
