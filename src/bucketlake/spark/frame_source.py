"""A Spark DataFrame as the source of a write.

One job reads the records and packs them (``write/pack.py``); Spark keeps them until the plan of the
write is made. A second job sends each record to the task that owns its slot, which writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from bucketlake.flow.stage import Flow
from bucketlake.spark.flow import SparkEngine, SparkFlow, Work
from bucketlake.spark.pieces import chunks
from bucketlake.spark.reports import Batches
from bucketlake.spark.session_settings import row_settings
from bucketlake.spark.spark_schema import arrow_from_spark, nested_columns, schema_of
from bucketlake.spark.spool import Spool
from bucketlake.write.pack import PackedRecords, pack_records
from bucketlake.write.tag import Tagger


class SparkSource:
    """Records of a DataFrame.

    Parameters
    ----------
    df : DataFrame
        The records.
    spool : Spool
        Stores a copy of an input that may change between two evaluations.
    """

    def __init__(self, df: DataFrame, spool: Spool) -> None:
        self._given = df
        self._spool = spool
        self._stable: DataFrame | None = None
        self._kept: Flow | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return schema_of(self._given).names

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the DataFrame; raises InputError if a column's type is not supported."""
        return arrow_from_spark(schema_of(self._given))

    def is_empty(self) -> bool:
        """Return whether the DataFrame has no rows, by a small job."""
        return bool(self._given.isEmpty())

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._given = self._given.select(nested_columns(paths, self.names))

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records in a job, and let Spark keep them.

        A write that is tried again packs again; then the records of the first try are dropped.
        """
        self._drop()
        settings = row_settings(schema_of(self._given))
        self._kept = SparkFlow(self._rows(), _packing(tagger), settings).kept()
        engine = SparkEngine(self._given.sparkSession)
        return PackedRecords(self._kept, self.schema, engine.tasks_wanted)

    def close(self) -> None:
        """Drop the packed records, and the spooled copy, if there is one."""
        self._drop()
        self._spool.drop()

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _rows(self) -> DataFrame:
        if self._stable is None:
            self._stable = self._spool.stable(self._given)
        return self._stable


def _packing(tagger: Tagger) -> Work:
    def work(batches: Batches) -> Iterator[Any]:
        return pack_records(tagger, chunks(batches))

    return work
