"""The job: keep a table of flights fresh from a stream, with Spark and bucketlake.

usage: stream_job.py TABLE FEED CHECKPOINT

It takes one file of the feed after the other, and ends when there are no more. It may be killed at
any moment and started again: each batch comes into the table exactly once. It prints a line of JSON
for each batch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import bucketlake as bl

JVM_OPTIONS = (
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    " -XX:TieredStopAtLevel=1"  # Compile fast: this job ends before thorough compiling pays.
)


def start_spark() -> SparkSession:
    """Start Spark on this machine. bucketlake needs no jar and no setting of its own."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Nothing else needs to reach it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Its workers use this environment.
    return (
        SparkSession.builder.master("local[2]")  # Two threads of this process are the cluster.
        .appName("bucketlake flights demo")
        .config("spark.sql.session.timeZone", "UTC")  # The feed's timestamps are in UTC.
        .config("spark.sql.shuffle.partitions", 2)  # As many as there are threads.
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .getOrCreate()
    )


def keep_fresh(spark: SparkSession, table: bl.Table, feed: str, checkpoint: str) -> None:
    """Upsert the files of the feed, one batch each, until there are no more."""
    upsert = table.upsert_batch(query_name="flights")

    def upsert_and_tell(changes: DataFrame, number: int) -> None:
        started = time.perf_counter()
        result = upsert(changes, number)
        facts = {
            "batch": number,
            "inserted": result.inserted,
            "updated": result.updated,
            "deleted": result.deleted,
            "file_groups": result.file_groups,
            "seconds": time.perf_counter() - started,
            "was_written_before": result.instant is None,
        }
        print(json.dumps(facts), flush=True)

    changes = (
        spark.readStream.schema(spark.read.parquet(feed).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(feed)
    )
    query = (
        changes.writeStream.foreachBatch(upsert_and_tell)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    path, feed_folder, checkpoint_folder = sys.argv[1:]
    keep_fresh(start_spark(), bl.open_table(path), feed_folder, checkpoint_folder)
