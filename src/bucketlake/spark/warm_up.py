"""Starting Spark's Python workers while the driver still prepares its first write.

The first task in Python starts a daemon, which forks a worker for each core, and each worker then
imports what its task needs. PySpark 3.5 also imports pandas in the driver for the first such job.
Meanwhile the driver has work of its own: it opens the table, has Spark explain the input, and plans
the first job. A small job on another thread lets both happen at once.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from pyspark.sql import SparkSession

from bucketlake.spark.reports import Batches, noting

_ROWS = 1024  # In as many partitions as the session has cores: each core gets a task with rows.

_first = threading.Lock()
"""Taken by the first write of this process, and never given back."""


def start_workers(spark: SparkSession) -> None:
    """Start the Python workers of a session, on a thread; later calls do nothing.

    Workers belong to the application, not to the session: a stream has a session for each batch.
    """
    if _first.acquire(blocking=False):
        threading.Thread(target=_run, args=(spark,), name="bucketlake-warm-up", daemon=True).start()


def _run(spark: SparkSession) -> None:
    with suppress(Exception):  # The write does not need this job, and its own report errors.
        spark.range(_ROWS).mapInArrow(noting(_import_modules), "id long").collect()


def _import_modules(batches: Batches) -> Batches:
    """Import what the tasks of a write import; return no rows."""
    import bucketlake.spark.source
    import bucketlake.write.group_writer  # noqa: F401

    for _ in batches:
        pass
    yield from ()
