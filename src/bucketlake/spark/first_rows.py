"""The first rows of a DataFrame, in the driver: tasks send them as Arrow streams."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.pieces import chunks, pack
from bucketlake.spark.reports import Batches, collect_noted, noting
from bucketlake.spark.spark_schema import arrow_from_spark, schema_of

_PIECES = pa.schema([pa.field("piece", pa.binary())])


def first_rows(df: DataFrame, rows_max: int) -> pa.Table:
    """Return up to so many rows of a DataFrame."""

    def send(batches: Batches) -> Batches:
        for chunk in chunks(batches):
            _, pieces = pack(chunk, np.zeros(chunk.num_rows, np.int32))
            yield pa.RecordBatch.from_arrays([pieces], schema=_PIECES)

    empty = arrow_from_spark(schema_of(df)).empty_table()
    rows = collect_noted(map_in_arrow(df.limit(rows_max), noting(send), _PIECES))
    sent = [pa.ipc.open_stream(bytes(row.piece)).read_all() for row in rows]
    return pa.concat_tables(sent) if sent else empty
