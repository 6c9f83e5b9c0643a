"""The rows of files as a DataFrame, for a merge: tasks read the pieces of ``bl.files``."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from bucketlake.model.cast import cast_table
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import facts_of, in_tasks
from bucketlake.spark.reports import Batches, noting
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.merge_rows import source_schema


def frame_of_files(session: SparkSession, files: FileSource) -> DataFrame:
    """Return the rows of files, without meta columns of Hudi."""
    reader, pieces = files.reading()
    schema = source_schema(reader.schema)

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for piece in facts_of(batch.column("facts")):
                for rows in reader.read(piece):
                    yield from cast_table(rows.select(schema.names), schema).to_batches()

    work = in_tasks(session, pieces, [piece.size_bytes for piece in pieces])
    return map_in_arrow(work, noting(read), schema)
