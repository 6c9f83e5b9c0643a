"""The rows of a query of the session, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.model.names import quoted
from bucketlake.model.schema import META_NAMES
from bucketlake.spark.read import refusing
from bucketlake.spark.spark_schema import spark_from_arrow
from bucketlake.write.inserted_values import require_as_many


def rows_of_query(
    session: SparkSession, query: str, names: Sequence[str], schema: pa.Schema
) -> DataFrame:
    """Return the rows of a query, whose columns are some of a table in any order.

    Raises
    ------
    InputError
        If Spark refuses the query, or it has another number of columns.
    """
    with refusing("INSERT of the statement", "correct the query"):
        found = session.sql(query)
        require_as_many(len(found.columns), names)
    rows = found.toDF(*names)
    columns = [
        F.col(quoted([field.name]))
        if field.name in names
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in spark_from_arrow(schema)
        if field.name not in META_NAMES
    ]
    return rows.select(columns)
