"""Starting Spark's Python workers while the driver still prepares the first write of a session.

The first task in Python starts a daemon, which forks a worker for each core, and each worker then
imports what its task needs. PySpark 3.5 also imports pandas in the driver for the first such job.
Meanwhile the driver has work of its own: it opens the table, has Spark explain the input, and plans
the first job. A small job on another thread lets both happen at once.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from weakref import WeakSet

from pyspark.sql import SparkSession

from bucketlake.spark.reports import Batches, noting

_ROWS = 1024  # In as many partitions as the session has cores: each core gets a task with rows.

_lock = threading.Lock()
_warmed: WeakSet[SparkSession] = WeakSet()


def start_workers(spark: SparkSession) -> None:
    """Start the Python workers of a session, on a thread; later calls for it do nothing."""
    with _lock:
        if spark in _warmed:
            return
        _warmed.add(spark)
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
