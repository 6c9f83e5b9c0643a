"""Change data as a DataFrame: Python tasks compare the stored versions of file groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.model.field_path import steps_of
from bucketlake.model.names import quoted
from bucketlake.read.change_reader import AFTER, BEFORE, ChangeReader, ChangesToRead
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import column_facts, in_tasks
from bucketlake.spark.read import refusing
from bucketlake.spark.reports import Batches, BatchFunction, noting

# Beside the columns of an image, so not names that one of them may have.
_CHANGE, _MATCHES, _IS_THERE = "__change", "__matches", "__is_there"


def frame_of_changes(spark: SparkSession, planned: ChangesToRead, where: str | None) -> DataFrame:
    """Return the changes of a plan.

    Parameters
    ----------
    spark : SparkSession
        The session.
    planned : ChangesToRead
        The plan; with a condition, its images have all columns of the table.
    where : str or None
        Spark keeps the changes whose row before or after matches.
    """
    reader, plans = planned.reader, planned.plans
    work = in_tasks(spark, plans, [plan.size_bytes for plan in plans])
    frame = map_in_arrow(work, _reading(reader), reader.schema)
    if where is None:
        return frame
    return _with_images(_matching(frame, where), planned.columns, reader.stored.names)


def _reading(reader: ChangeReader) -> BatchFunction:
    def read(batches: Batches) -> Batches:
        for batch in batches:
            for plan in column_facts(batch.column("facts")):
                for chunk in reader.read(plan):
                    yield from chunk.to_batches()

    return noting(read)


def _matching(frame: DataFrame, where: str) -> DataFrame:
    """Return the changes whose row before or after matches; the condition names its columns."""
    frame = frame.select(F.struct("*").alias(_CHANGE), F.lit(False).alias(_MATCHES))
    for image in (BEFORE, AFTER):
        held = F.col(f"{_CHANGE}.{image}")
        with refusing(f"where {where!r}", "correct the condition"):
            found = F.coalesce(F.expr(where).cast("boolean"), F.lit(False))
            matches = F.col(_MATCHES) | (F.col(_IS_THERE) & found)
            frame = frame.select(
                _CHANGE, _MATCHES, held.isNotNull().alias(_IS_THERE), f"{_CHANGE}.{image}.*"
            ).select(_CHANGE, matches.alias(_MATCHES))
    return frame.where(_MATCHES).select(f"{_CHANGE}.*")


def _with_images(frame: DataFrame, columns: Sequence[str], names: Collection[str]) -> DataFrame:
    """Return changes with some columns of the images."""
    steps = {path: quoted(steps_of(path, names)) for path in columns}
    for image in (BEFORE, AFTER):
        fields = [F.col(f"{image}.{place}").alias(path) for path, place in steps.items()]
        held = F.when(F.col(image).isNotNull(), F.struct(*fields))
        frame = frame.withColumn(image, held)
    return frame
