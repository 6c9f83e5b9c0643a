"""The options with which Hudi's Spark SQL keeps the keys of a table unique.

Hudi's SQL does not look keys up for ``INSERT INTO``, whose default operation is ``insert``: into a
copy-on-write table, a stored key is written a second time. On a merge-on-read table, ``MERGE INTO``
writes only the columns that it names, unless partial updates are off.
"""

from __future__ import annotations

SAFE_SQL = {
    "hoodie.spark.sql.insert.into.operation": "upsert",
    "hoodie.spark.sql.merge.into.partial.updates": "false",
}
"""Options of a Hudi session; they change nothing in a job that writes DataFrames."""
