"""Takes a landing zone into a table on a cluster: usage: ingesting MASTER FOLDER.

Of all runs of this program, the executor of the first task that publishes a data file dies.
"""

from __future__ import annotations

import os
import signal
import sys

import bucketlake as bl
from tests.spark.drivers import common
from tests.spark.drivers.executors import own_executor

MASTER, FOLDER = sys.argv[1:]
NOTES = f"{FOLDER}/notes"
SETTINGS = {"spark.cores.max": "2", "spark.locality.wait": "0s"}


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


if __name__ == "__main__":
    spark = common.session(MASTER, SETTINGS)
    common.use_storage(KillingStorage)
    done = bl.ingest(
        f"{FOLDER}/landing", f"{FOLDER}/table", max_files=2,
        record_key="id", partition_by="part", ordering="ts", index=bl.SimpleBucket(common.BUCKETS),
    )  # fmt: skip
    common.report(batches=done.batches, rows=done.rows)
    spark.stop()
