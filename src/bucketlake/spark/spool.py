"""Spooling: storing a copy of an input that may give other rows when it is evaluated again.

A write evaluates its input twice, and retried tasks evaluate parts of it again. Rows that differ
between evaluations would be lost or doubled. So an input is first written to storage, unless its
plan has only file scans, projections and filters, without functions whose value may change.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import suppress

from pyspark.sql import DataFrame

from bucketlake.config.paths_of_table import SPOOL_FOLDER
from bucketlake.errors import StorageError
from bucketlake.flow.work import doing
from bucketlake.spark.address import spark_address
from bucketlake.spark.job_words import described_jobs
from bucketlake.spark.parquet_files import read_parquet
from bucketlake.spark.session_settings import changed_settings
from bucketlake.spark.void_types import stored_schema, with_voids, without_voids
from bucketlake.storage.base import Storage

_STABLE_NODES = frozenset(
    {"Relation", "LocalRelation", "Project", "Filter", "SubqueryAlias", "Range", "Union", "View"}
)
# Only file relations are stable. A query over a live source, such as JDBC, is a relation too, and a
# table of the catalog, which has a name, may list its partitions again at each evaluation.
_FILE_RELATION = re.compile(r"\bRelation \[.*\] (?:parquet|orc|avro|csv|json|text|xml)$")
_UNSTABLE = re.compile(
    r"\b(?:rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|"
    r"spark_partition_id|input_file_name|input_file_block_start|input_file_block_length|"
    r"current_timestamp|current_date|current_time|now|localtimestamp|unix_timestamp|"
    r"reflect|try_reflect|java_method)\("
    r"|\)#\d+"  # Only functions that run in Python print their id.
    r"|\.\.\. \d+ more (?:fields|characters)",  # The omitted part may have such a function.
    re.IGNORECASE,
)
_NODE = re.compile(r"[\s:+\-|]*!?([A-Za-z]+)")

_WHOLE_PLAN = {"spark.sql.debug.maxToStringFields": "100000"}

# Without these settings Spark 3 does not write dates before 1582, and does not write times before
# 1900 as INT96. Its dates are in the right calendar already.
_SPOOL_AS_IS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


class Spool:
    """The copy of a write's input, if the write needs a copy.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    root : str
        The table's path.
    """

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = spark_address(root).rstrip("/")
        self._folder: str | None = None

    def stable(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame that gives the same rows at every evaluation."""
        if is_repeatable(df):
            return df
        self._folder = f"{SPOOL_FOLDER}/{uuid.uuid4()}"
        path = f"{self._root}/{self._folder}"
        session = df.sparkSession
        with (
            changed_settings(session, _SPOOL_AS_IS),
            doing("keeping a copy, since they may change"),
            described_jobs(session),
        ):
            without_voids(df).write.parquet(path)
        copy = read_parquet(df.sparkSession, stored_schema(df.schema), [path])
        return with_voids(copy, df.schema)

    def drop(self) -> None:
        """Delete the copy."""
        if self._folder is not None:
            with suppress(StorageError):  # A leftover copy is not part of the table.
                self._storage.delete_folder(self._folder)
            self._folder = None


def is_repeatable(df: DataFrame) -> bool:
    """Return whether a DataFrame's plan gives the same rows each time; False if this is unknown.

    Functions in Java or Scala are treated as deterministic, as Spark does.
    """
    lines = list(_plan_lines(df))
    return bool(lines) and all(_is_stable(line) for line in lines)


def _is_stable(line: str) -> bool:
    node = _NODE.match(line)
    return (
        node is not None
        and node[1] in _STABLE_NODES
        and (node[1] != "Relation" or _FILE_RELATION.search(line) is not None)
        and _UNSTABLE.search(line) is None
    )


def _plan_lines(df: DataFrame) -> Iterator[str]:
    """Yield the lines of the analyzed plan from SQL's EXPLAIN.

    ``DataFrame.explain`` would print the plan to standard output, which the whole process shares.
    """
    session, view = df.sparkSession, f"bucketlake_{uuid.uuid4().hex}"
    df.createTempView(view)
    try:
        with changed_settings(session, _WHOLE_PLAN):
            explained: str = session.sql(f"EXPLAIN EXTENDED SELECT * FROM {view}").collect()[0][0]
    finally:
        session.catalog.dropTempView(view)
    plan = explained.partition("== Analyzed Logical Plan ==\n")[2]
    plan = plan.partition("\n== Optimized Logical Plan ==")[0]
    yield from plan.splitlines()[1:]  # The first line repeats the schema.
