"""Settings of a Spark session that bucketlake changes during one step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"

PIECE_SETTINGS = {
    # A task gets 32 MiB of pieces (``spark/pieces.py``) at once, instead of all.
    _BATCH_ROWS: "64",
    # With another limit Spark 4 adds up all buffers of a batch again for each row, which takes
    # more than half of the time that rows need on their way to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # The plan sets the number of tasks, and nothing is joined: replanning after the shuffle would
    # change nothing, and costs a job and another plan.
    "spark.sql.adaptive.enabled": "false",
}
"""For jobs that read pieces only."""

_BINARY = re.compile(r"\bbinary\b(?!:)")  # The type, and no field of that name.
_ROW_SETTINGS = {**PIECE_SETTINGS, _BATCH_ROWS: "1024"}


def row_settings(schema: StructType) -> dict[str, str]:
    """Return the settings for a job that reads records; binary values may be large."""
    return PIECE_SETTINGS if _BINARY.search(schema.simpleString()) else _ROW_SETTINGS


_lock = Lock()
_changed: dict[tuple[int, str], tuple[int, str | None]] = {}
"""By session and key: the number of steps that changed it, and the value before the first."""


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings while the body runs, and restore the earlier values afterwards.

    Threads that share the session see the change. Of overlapping steps the last one to begin sets
    the value, so results must not depend on it, and the last one to end restores it.
    """
    with _lock:
        for key, value in settings.items():
            count, before = _changed.get((id(spark), key), (0, spark.conf.get(key, None)))
            spark.conf.set(key, value)
            _changed[id(spark), key] = count + 1, before
    try:
        yield
    finally:
        with _lock:
            for key in settings:
                _restore(spark, key)


def _restore(spark: SparkSession, key: str) -> None:
    count, before = _changed.pop((id(spark), key))
    if count > 1:
        _changed[id(spark), key] = count - 1, before
    elif before is None:
        spark.conf.unset(key)
    else:
        spark.conf.set(key, before)
