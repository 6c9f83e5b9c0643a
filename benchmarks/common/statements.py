"""The statements that change a table of orders, in the SQL that every system has."""

from __future__ import annotations

from benchmarks.common.rows import KEY, ORDERING, PARTITION, REGIONS

UPDATED, DELETED = REGIONS[0], REGIONS[2]
UPDATED_FROM, DELETED_FROM = 4, 6
"""Orders of a region with at least so many pieces are updated, or deleted."""

_NEWER = f"s.{ORDERING} >= t.{ORDERING}"


def merge(table: str, source: str) -> str:
    """Change what is stored, delete orders of one piece, insert what is new."""
    return f"""
        MERGE INTO {table} AS t USING {source} AS s
        ON t.{PARTITION} = s.{PARTITION} AND t.{KEY} = s.{KEY}
        WHEN MATCHED AND {_NEWER} AND s.quantity = 1 THEN DELETE
        WHEN MATCHED AND {_NEWER} THEN UPDATE SET
            quantity = t.quantity + s.quantity, status = s.status, {ORDERING} = s.{ORDERING}
        WHEN NOT MATCHED THEN INSERT *"""


def update(table: str) -> str:
    """Change some rows of one partition."""
    return (
        f"UPDATE {table} SET quantity = quantity + 1 "
        f"WHERE {PARTITION} = '{UPDATED}' AND quantity >= {UPDATED_FROM}"
    )


def delete(table: str) -> str:
    """Delete some rows of another partition."""
    return f"DELETE FROM {table} WHERE {PARTITION} = '{DELETED}' AND quantity >= {DELETED_FROM}"
