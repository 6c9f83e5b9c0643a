"""Starting Spark's Python workers while the driver prepares its first write.

The first Python task starts a daemon, which forks a worker for each core, and each worker imports
the modules of its task. PySpark 3.5 also imports pandas in the driver for the first such job.
Meanwhile the driver opens the table, lets Spark explain the input, and plans the first job. A small
job on another thread does both at the same time.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.reports import Batches, noting

_NOTHING = pa.schema([pa.field("id", pa.int64())])
_ROWS = 1024  # Enough rows for a task on each core of the session.

_first = threading.Lock()
"""Acquired by the first write of this process, and never released."""


def start_workers(spark: SparkSession) -> None:
    """Start the Python workers of a session, on a thread; later calls do nothing.

    Workers belong to the application, not to the session: a stream uses a session per batch.
    """
    if _first.acquire(blocking=False):
        threading.Thread(target=_run, args=(spark,), name="bucketlake-warm-up", daemon=True).start()


def _run(spark: SparkSession) -> None:
    with suppress(Exception):  # The write does not need this job; its own jobs report errors.
        map_in_arrow(spark.range(_ROWS), noting(_import_modules), _NOTHING).collect()


def _import_modules(batches: Batches) -> Batches:
    """Import the modules that the tasks of a write import; return no rows."""
    import bucketlake.spark.frame_source
    import bucketlake.write.group_writer
    import bucketlake.write.record_index.by_shard  # noqa: F401

    for _ in batches:
        pass
    yield from ()
