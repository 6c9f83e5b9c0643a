"""``sql``: runs statements that change tables of bucketlake.

``write/sql_statement.py`` parses a statement. This module finds its tables, and calls the methods
of :class:`Table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bucketlake.engine import active_session
from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError
from bucketlake.model.arguments import check_session, check_texts
from bucketlake.model.names import did_you_mean, quoted
from bucketlake.model.result import WriteResult
from bucketlake.opening import open_table
from bucketlake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bucketlake.catalogs.catalog import Catalog
    from bucketlake.write.sql_statement import InsertText, MergeText, TableName

_CATALOG = "bucketlake"


def sql(
    spark: SparkSession | None,
    statement: str,
    *,
    tables: Mapping[str, Any] | None = None,
    catalog: str | Catalog | None = None,
) -> WriteResult:
    """Run ``MERGE INTO``, ``UPDATE``, ``DELETE FROM`` or ``INSERT INTO`` on a table.

    Parameters
    ----------
    spark : SparkSession or None
        The session; None for the active session, or this process without one.
    statement : str
        The statement, in Spark's SQL. A table is bucketlake.`/path/of/it` or `/path/of/it` in
        backquotes, or a name in ``tables``. The source of a merge can also be a view or table of
        the session, or a subquery, which the session runs, as it runs the query of an insert.
        Columns that an insert does not name are null.
    tables : dict of str, optional
        Tables and sources by the names that the statement has for them: a :class:`Table` or its
        path, and for sources also what :meth:`Table.merge` takes.
    catalog : str or Catalog, optional
        Where names of two parts, ``database.table``, are known, see :func:`sync`; without it those
        of sources belong to the session.

    Returns
    -------
    WriteResult
        As of :meth:`Merge.execute`, :meth:`Table.update`, :meth:`Table.delete` and
        :meth:`Table.insert`, which run it.

    Raises
    ------
    CatalogError
        If the catalog cannot be reached, or does not know a name.
    InputError
        If the statement is wrong, or a table or column does not exist.
    UnsupportedFeatureError
        If it is another statement, such as ``SELECT``: the error names the call for it; or only
        Spark can run it, and there is no session. The other errors are those of the methods.

    Examples
    --------
    >>> import bucketlake as bl
    >>> import pyarrow as pa
    >>> orders = bl.create_table(
    ...     "memory://docs/sql", schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
    ...     record_key=["id"], index=bl.SimpleBucket(2))
    >>> orders.upsert(pa.table({"id": ["a", "b"], "n": [1, 5]})).inserted
    2
    >>> bl.sql(None, "UPDATE bucketlake.`memory://docs/sql` SET n = n + 1 WHERE n > 3").updated
    1
    >>> bl.sql(None, "INSERT INTO bucketlake.`memory://docs/sql` (n, id) VALUES (7, 'd')").inserted
    1
    >>> bl.sql(None, '''
    ...     MERGE INTO orders t USING news s ON t.id = s.id
    ...     WHEN MATCHED AND s.n = 0 THEN DELETE
    ...     WHEN NOT MATCHED THEN INSERT *
    ... ''', tables={"orders": orders, "news": pa.table({"id": ["a", "c"], "n": [0, 2]})}).deleted
    1
    """
    check_session(spark)
    check_texts(statement=statement)
    named = _checked(tables)
    # Here, because the SQL parser is slow to import.
    from bucketlake.where.sides import bare, without_side
    from bucketlake.write.sql_statement import InsertText, MergeText, parse_statement

    found = parse_statement(statement)
    if catalog is not None:
        named = _with_places(named, [found.table, getattr(found, "source", None)], catalog)
    table = _target(found.table, named)
    if isinstance(found, MergeText):
        return _merged(table, found, spark, named)
    if isinstance(found, InsertText):
        return _inserted(table, found, spark or active_session())
    alias, schema = found.alias, table.schema()
    where = None if found.where is None else without_side(found.where, alias, schema)
    if found.values is not None:
        values = {
            bare(name, alias, schema): without_side(text, alias, schema)
            for name, text in found.values.items()
        }
        return table.update(values, where=where, spark=spark)
    return table.delete(where="true" if where is None else where, spark=spark)


def _inserted(table: Table, found: InsertText, session: SparkSession | None) -> WriteResult:
    from bucketlake.write.inserted_values import inserted_columns, values_of

    schema = table.schema()
    names = inserted_columns(found, schema)
    if session is not None:
        from bucketlake.spark.read import query_rows

        return table.insert(query_rows(session, found.query, names, schema))
    if found.values is None:
        _needed(session, "a query", "INSERT INTO")
    return table.insert(values_of(found, names, schema))


def _merged(
    table: Table, found: MergeText, spark: SparkSession | None, named: Mapping[str, Any]
) -> WriteResult:
    session = spark or active_session()
    merge = found.merge
    source = _source(found.source, session, named)
    made = table.merge(
        source, merge.on, alias=merge.alias, source_alias=merge.source_alias, spark=session
    )
    return replace(made, statement=merge).execute()


def _checked(tables: Mapping[str, Any] | None) -> dict[str, Any]:
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise ConfigError("tables", tables, "give a dict of names and tables")
    check_texts(tables=next((name for name in tables if not isinstance(name, str)), ""))
    return {name.lower(): held for name, held in tables.items()}


def _target(name: TableName, named: Mapping[str, Any]) -> Table:
    held, text = _given(name, named), ".".join(name)
    if isinstance(held, Table):
        return held
    problem = f"there is no table of this name{did_you_mean(text, named)}"
    if held is not None:
        kind = type(held).__name__
        problem = f"it is a {kind}, and only a table of bucketlake can be changed"
    raise InputError(f"table {text}", problem, _HOW_TO_NAME)


def _with_places(
    named: Mapping[str, Any], names: Iterable[object], catalog: str | Catalog
) -> dict[str, Any]:
    """Return what names stand for, with the folders that a catalog has for those of two parts."""
    from bucketlake.catalogs.table_sync import open_catalog, place_of_name

    opened = open_catalog(catalog)
    tables = [name for name in names if isinstance(name, tuple) and len(name) == 2]
    texts = [".".join(name) for name in tables if _path(name) is None]
    asked = [text for text in texts if text.lower() not in named]
    return {**named, **{text.lower(): place_of_name(text, opened) for text in asked}}


_HOW_TO_NAME = (
    "write bucketlake.`/path/of/the/table`, pass tables={'name': table}, or write database.table "
    "and pass catalog="
)


def _given(name: TableName, named: Mapping[str, Any]) -> Any:
    """Return what a name stands for, paths as opened tables; None if it is not known."""
    held = named.get(".".join(name).lower())
    held = _path(name) if held is None else held
    return open_table(held) if isinstance(held, str) else held


def _path(name: TableName) -> str | None:
    """Return the path that a name is; None for other names."""
    if len(name) == 2 and name[0].lower() == _CATALOG:
        return name[1]
    return name[0] if len(name) == 1 and "/" in name[0] else None


def _source(source: TableName | str, session: SparkSession | None, named: Mapping[str, Any]) -> Any:
    if isinstance(source, str):
        return _needed(session, "a subquery").sql(source)
    held = _given(source, named)
    if held is None:
        text = ".".join(source)
        what = f"the view or table {text!r}{did_you_mean(text, named)}"
        return _needed(session, what).table(quoted(source))
    if isinstance(held, Table):
        return held.to_arrow() if session is None else held.read(session)
    return held


def _needed(session: SparkSession | None, what: str, where: str = "USING") -> SparkSession:
    if session is None:
        instead = "call table.insert(rows)"
        if where == "USING":
            instead = "pass the source by tables={'name': rows}"
        raise UnsupportedFeatureError(
            f"{what} as a source without Spark", where, f"start a SparkSession first, or {instead}"
        )
    return session
