"""Reports of tasks to the driver: errors and warnings with their class and facts.

A task returns an error as a row if a retry cannot help, so that Spark does not run the task again.
It raises storage errors, so that Spark retries the task. From the last failure Spark passes only
the text to the driver, so the error is encoded in a note in that text. Warnings are returned as
rows.

A task also returns a row that tells its requests to storage, if the application counts them.

The text may quote data. So a note starts with a mark that only this process knows, and its content
is JSON: a class of ``errors.py`` and its facts.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from bucketlake import errors
from bucketlake.errors import (
    BucketLakeError,
    ConfigError,
    NullElementWarning,
    StorageError,
    with_memory_told,
)
from bucketlake.flow.call import count, current_call, is_watched, keeping_requests, work_in_words
from bucketlake.spark.worker_python import context_of, explained
from bucketlake.spark.workers import begin_task, end_task

REPORT_FIELD = pa.field("report", pa.string())
"""An error or warning in a separate row; null in all other rows."""

Batches = Iterator[pa.RecordBatch]
BatchFunction = Callable[[Batches], Batches]

NOTE = f"bucketlake-error-{secrets.token_hex(16)}:"
"""Begins the note of an error in Spark's text of a failed task."""

_NOTED = re.compile(NOTE + "([A-Za-z0-9+/=]+)")


def reporting(function: BatchFunction, schema: pa.Schema, *, raises: bool = False) -> BatchFunction:
    """Let a task return errors and warnings in rows of ``schema``, which has ``REPORT_FIELD``.

    With ``raises``, an error fails the task, as it must where other tasks would go on with the
    rows that the task has yielded before; only warnings are rows.
    """
    noted, is_counted = noting(function), is_watched()

    def run(batches: Batches) -> Batches:
        with ExitStack() as stack:
            requests = stack.enter_context(keeping_requests()) if is_counted else []
            yield from told(batches)
            if requests:
                counts = [secrets.token_hex(8), Counter(requests)]
                yield pa.RecordBatch.from_pylist([{REPORT_FIELD.name: json.dumps(counts)}], schema)

    def told(batches: Batches) -> Batches:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", NullElementWarning)
            try:
                yield from noted(batches)
            except StorageError:
                raise
            except BucketLakeError as error:
                if raises:
                    raise
                yield _row(error, schema)
        for warning in caught:
            assert isinstance(warning.message, NullElementWarning), warning
            yield _row(warning.message, schema)

    return run


def noting(function: BatchFunction) -> BatchFunction:
    """Add a note with class and facts to errors of a task, for Spark's text of the failure."""
    note = NOTE  # The driver's mark; a worker would create its own.

    def run(batches: Batches) -> Batches:
        begin_task()
        try:
            yield from function(batches)
        except (BucketLakeError, MemoryError) as error:
            told = with_memory_told(error)
            told.add_note(note + _to_text(told))
            raise told from error.__cause__
        end_task()

    return run


def collect(df: DataFrame) -> list[Row]:
    """Run a job of reporting tasks; raise their errors and warnings, return the other rows."""
    rows = collect_noted(df)
    texts = sorted({row.report for row in rows if row.report})
    _count(text for text in texts if text.startswith("["))  # The others are in base64.
    for report in [_from_text(text) for text in texts if not text.startswith("[")]:
        if isinstance(report, BucketLakeError):
            raise report
        assert isinstance(report, Warning), report
        warnings.warn(report, stacklevel=2)
    return [row for row in rows if row.report is None]


def _count(texts: Iterable[str]) -> None:
    """Count the requests of tasks, those of a task once."""
    call = current_call()
    known = set() if call is None else call.told
    for text in {*texts} - known:
        for operation, number in json.loads(text)[1].items():
            count("storage.requests", number, operation=operation)
        known.add(text)


def collect_noted(df: DataFrame) -> list[Row]:
    """Run a job of tasks that note their errors; raise these errors, return the rows."""
    with raising_noted(df.sparkSession):
        return df.collect()


@contextmanager
def raising_noted(session: SparkSession) -> Iterator[None]:
    """Describe the jobs of a block; raise the errors that their tasks note."""
    try:
        with described_jobs(session):
            yield
    except Exception as error:  # Spark's errors, and errors of the JVM.
        noted = _NOTED.search(str(error))
        report = explained(error, session) if noted is None else _from_text(noted[1])
        if report is None:
            raise
        # Spark's text helps only where the workers are to be set up in another way.
        raise report from (error if isinstance(report, ConfigError) else None)


def _row(report: Exception, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{REPORT_FIELD.name: _to_text(report)}], schema)


def _to_text(report: Exception) -> str:
    facts = json.dumps([type(report).__name__, *report.args], default=str)
    return base64.b64encode(facts.encode()).decode()


def _from_text(text: str) -> Exception:
    name, *facts = json.loads(base64.b64decode(text))
    report: Exception = getattr(errors, name)(*facts)
    return report


# ---- Descriptions of Spark's jobs, so that its UI says which table, instant and step a job is of -

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
