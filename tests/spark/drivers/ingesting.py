"""Takes a landing zone, or a topic, into a table on a cluster: ingesting MASTER FOLDER [BROKERS].

With an address of Kafka, the files of the landing zone are put into its topic before, unless they
were: the topic is read by tasks, a batch for two files.

Of all runs of this program, the executor of the first task that publishes a data file dies.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import __version__

import bucketlake as bl
from bucketlake.intake import ingesting
from bucketlake.intake.topics import Topics
from examples.database.ingest_job import CONNECTORS
from tests.spark.drivers import common
from tests.spark.drivers.executors import own_executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER, FOLDER, *BROKERS = sys.argv[1:]
NOTES, TOPIC = f"{FOLDER}/notes", "rows"
SETTINGS = {"spark.cores.max": "2", "spark.locality.wait": "0s"}
LANDING = f"{FOLDER}/landing"


class KillingStorage(common.HookedStorage):
    """Kills the executor of the first task that published a data file; notes all others."""

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        is_data = path.endswith(".parquet") and ".hoodie" not in path
        if operation != "put_if_absent" or not done or not is_data:
            return
        executor = own_executor()
        if executor is not None:
            is_first = common.is_first(NOTES, "killed")
            common.note(NOTES, "kills" if is_first else "writes")
            if is_first:
                os.kill(executor, signal.SIGKILL)


def filled_topic(spark: SparkSession, brokers: str) -> dict[str, str]:
    """Return the source of a topic that has the rows of the landing zone in their order."""
    kafka = {"kafka.bootstrap.servers": brokers}
    if common.is_first(NOTES, "filled"):
        rows = spark.read.parquet(LANDING).coalesce(1).orderBy("ts", "id")
        messages = rows.selectExpr(
            "to_json(struct(id)) AS key", "to_json(struct(*)) AS value", f"'{TOPIC}' AS topic"
        )
        messages.write.format("kafka").options(**kafka).save()
    return {**kafka, "subscribe": TOPIC}


if __name__ == "__main__":
    if BROKERS:
        SETTINGS["spark.jars.packages"] = CONNECTORS[".".join(__version__.split(".")[:2])]
        ingesting.Topics = partial(Topics, bytes_here=0)  # Read by tasks.
    spark = common.session(MASTER, SETTINGS)
    source = filled_topic(spark, *BROKERS) if BROKERS else LANDING
    limit: dict[str, Any] = (
        {"max_rows": 2 * common.KEYS, "envelope": "row"} if BROKERS else {"max_files": 2}
    )
    common.use_storage(KillingStorage)
    done = bl.ingest(
        source, f"{FOLDER}/table", schema=common.SCHEMA, record_key="id", partition_by="part",
        ordering="ts", index=bl.SimpleBucket(common.BUCKETS), **limit,
    )  # fmt: skip
    common.report(batches=done.batches, rows=done.rows)
    spark.stop()
