"""Rows between Spark and Arrow, by public means of PySpark 3.5 and 4 alike, for comparing them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


def frame_of(spark: SparkSession, rows: pa.Table, folder: Path) -> DataFrame:
    """Give Spark the rows of an Arrow table as a file, so that the frame is a plain file scan."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(rows, path, store_schema=False)
    return spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(path))


def rows_of(data: DataFrame | pa.Table) -> list[Row]:
    """Return rows as dictionaries, the same for Spark and Arrow but for the order of rows."""
    if isinstance(data, pa.Table):
        return data.to_pylist()
    return [row.asDict(recursive=True) for row in data.collect()]


def arrow_of(frame: DataFrame) -> pa.Table:
    """Return a frame as an Arrow table, times in the session's zone."""
    if hasattr(frame, "toArrow"):  # From PySpark 4 on.
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow())


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by what they show, so that none is lost or doubled unseen."""
    return sorted(rows, key=repr)


def files_of(root: Path) -> dict[str, bytes]:
    """Return all that lies below a folder, but for what is no part of the table.

    Left out are Hadoop's checksums and bucketlake's own folder.
    """
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not path.name.endswith(".crc")
        and ".hoodie/.bucket_index/ext" not in path.as_posix()
    }
