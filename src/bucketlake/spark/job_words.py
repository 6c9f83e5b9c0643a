"""Descriptions of Spark's jobs, so that its UI says which table, instant and step a job is of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from bucketlake.flow.work import work_in_words
from bucketlake.spark.worker_python import context_of

_DESCRIPTION = "spark.job.description"


@contextmanager
def described_jobs(spark: SparkSession) -> Iterator[None]:
    """Let the jobs of the body say what this thread is doing; a tag says it on Spark Connect."""
    text = work_in_words()
    context = context_of(spark)
    if not text:
        yield
    elif context is None:
        tag = text.replace(",", ";")  # A tag must have no comma.
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
    else:
        before = context.getLocalProperty(_DESCRIPTION)
        context.setLocalProperty(_DESCRIPTION, text)
        try:
            yield
        finally:
            context.setLocalProperty(_DESCRIPTION, before)
