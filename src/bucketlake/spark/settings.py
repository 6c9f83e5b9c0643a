"""Settings of a Spark session that bucketlake changes for the time of one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give settings other values, and put back afterwards what was there.

    Threads that share the session see the change, so only settings without influence on what
    others of them write or read are changed this way.
    """
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, held in before.items():
            if held is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, held)
