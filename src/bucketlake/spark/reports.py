"""Reports of tasks to the driver: errors and warnings with their class and facts.

A task returns an error as a row if a retry cannot help, so that Spark does not run the task again.
It raises storage errors, so that Spark retries the task. From the last failure Spark passes only
the text to the driver, so the error is encoded in a note in that text. Warnings are returned as
rows.

The text may quote data. So a note starts with a mark that only this process knows, and its content
is JSON: a class of ``errors.py`` and its facts.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from bucketlake import errors
from bucketlake.errors import BucketLakeError, ConfigError, NullElementWarning, StorageError
from bucketlake.spark.job_words import described_jobs
from bucketlake.spark.worker_python import explained
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
    noted = noting(function)

    def run(batches: Batches) -> Batches:
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
        except BucketLakeError as error:
            error.add_note(note + _to_text(error))
            raise
        end_task()

    return run


def collect(df: DataFrame) -> list[Row]:
    """Run a job of reporting tasks; raise their errors and warnings, return the other rows."""
    rows = collect_noted(df)
    reports = [_from_text(text) for text in sorted({row.report for row in rows if row.report})]
    for report in reports:
        if isinstance(report, BucketLakeError):
            raise report
        assert isinstance(report, Warning), report
        warnings.warn(report, stacklevel=2)
    return [row for row in rows if row.report is None]


def collect_noted(df: DataFrame) -> list[Row]:
    """Run a job of tasks that note their errors; raise these errors, return the rows."""
    try:
        with described_jobs(df.sparkSession):
            rows: list[Row] = df.collect()
    except Exception as error:  # Spark's errors, and errors of the JVM.
        noted = _NOTED.search(str(error))
        report = explained(error, df) if noted is None else _from_text(noted[1])
        if report is None:
            raise
        # Spark's text helps only where the workers are to be set up in another way.
        raise report from (error if isinstance(report, ConfigError) else None)
    return rows


def _row(report: Exception, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{REPORT_FIELD.name: _to_text(report)}], schema)


def _to_text(report: Exception) -> str:
    facts = json.dumps([type(report).__name__, *report.args], default=str)
    return base64.b64encode(facts.encode()).decode()


def _from_text(text: str) -> Exception:
    name, *facts = json.loads(base64.b64decode(text))
    report: Exception = getattr(errors, name)(*facts)
    return report
