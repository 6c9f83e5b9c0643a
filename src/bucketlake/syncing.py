"""sync: a table becomes known to a catalog, and stays so."""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.catalogs.catalog import Catalog
from bucketlake.catalogs.settings import settings_from_options
from bucketlake.catalogs.table_sync import SyncResult, sync_table
from bucketlake.model.arguments import check_flags, check_kinds, check_texts, options_of
from bucketlake.table import Table, handle_of


def sync(
    table: Table,
    catalog: str | Catalog,
    name: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    replace: bool = False,
    dry_run: bool = False,
) -> SyncResult:
    """Register a table in a catalog, or bring its entry up to date.

    Columns, partitions and properties of the entry are those of Hudi's own sync, so each reader of
    Hudi tables finds it. Only differences are sent; where no commit followed the last sync, nothing
    is. A sync that was killed is completed by the next one.

    Parameters
    ----------
    table : Table
    catalog : str or Catalog
        ``thrift://host:9083`` for a Hive Metastore (several with commas), ``glue`` or
        ``glue://region`` for AWS Glue, or an object with the methods of ``Catalog``.
    name : str, optional
        ``database.table`` or ``table``; by default the table's own name in ``default``.
    options : mapping of str to str, optional
        Hudi's options of catalogs, such as ``hoodie.datasource.hive_sync.support_timestamp``.
    replace : bool
        Whether an entry of that name that belongs to another folder, has other partition keys, or
        has columns of other types, is replaced. It is an error otherwise, or for columns a change
        that the catalog may refuse.
    dry_run : bool
        Whether only to return what would be done.

    Raises
    ------
    CatalogError
        If the catalog cannot be reached, refuses a call, or has another table of that name, or the
        table with other partition keys.
    ConfigError
        For an unknown catalog or option, or a name that has not one or two parts.
    InputError
        If a partition path does not fit the rule that makes its values, a column has a type that no
        catalog has, or the table has no schema yet.

    Examples
    --------
    >>> bl.sync(table, "thrift://metastore:9083", "sales.orders")  # doctest: +SKIP
    """
    check_kinds((Table,), table=table)
    check_flags(replace=replace, dry_run=dry_run)
    handle = handle_of(table)
    given = options_of(options, "options")
    if name is not None:
        check_texts(name=name)
    settings = settings_from_options(given, name or "")
    with handle.at_work("sync"):
        snapshot = handle.snapshot()
        return sync_table(snapshot, catalog, settings, replaces=replace, dry_run=dry_run)
