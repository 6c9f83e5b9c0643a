"""The job: follow a table of a database, from Kafka to a lake table, until it is told to stop.

usage: ingest_job.py BROKERS TOPIC TABLE

It may be killed at any moment and started again: how far it is stands in the commits of the table.
It prints a line of JSON for each batch. ``bucketlake ingest`` does the same from a command line.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from pyspark import __version__ as pyspark_version
from pyspark.sql import SparkSession

import bucketlake as bl

# The one jar that is needed. The newest one that fits is not always that of Spark's own version.
CONNECTORS = {
    "3.5": "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",
    "4.3": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
}
QUIET = Path(__file__).parent.parent / "flights" / "log4j2.properties"


def start_spark() -> SparkSession:
    """Start Spark on this machine, with its Kafka connector."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Nothing else needs to reach it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Its workers use this environment.
    options = f"-Dlog4j2.configurationFile={QUIET} -XX:TieredStopAtLevel=1"
    return (
        SparkSession.builder.master("local[2]")
        .appName("follow a database")
        .config("spark.jars.packages", CONNECTORS[".".join(pyspark_version.split(".")[:2])])
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", options)
        .getOrCreate()
    )


def main() -> None:
    """Follow one topic."""
    brokers, topic, table = sys.argv[1:]
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("bucketlake").setLevel(logging.INFO)
    start_spark()
    bl.ingest(
        {"kafka.bootstrap.servers": brokers, "subscribe": topic},
        table,
        every=0.2,
        metrics=f"{table}.metrics.jsonl",
        table_type="merge_on_read",
        upkeep="auto",
    )


if __name__ == "__main__":
    main()
