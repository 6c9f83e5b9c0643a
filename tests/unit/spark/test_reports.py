"""What tasks report comes out at the driver as what it was; data in Spark's errors do not."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from bucketlake import errors
from bucketlake.errors import (
    BucketLakeError,
    FormatError,
    InputError,
    NullElementWarning,
    StorageError,
)
from bucketlake.spark import reports
from bucketlake.spark.reports import REPORT_FIELD, Batches, collect, noting, reporting

SCHEMA = pa.schema([pa.field("n", pa.int64()), REPORT_FIELD])
REPORTS = [
    InputError("batch", "row 3 has no key", "give it one"),
    FormatError("us/a.parquet", "a footer", "nothing", 4),
    errors.IndexStateError("2 buckets", "3", "look"),
]


class Job:
    """A DataFrame as far as ``collect`` asks for one: a job that gives rows, or fails."""

    sparkSession = None  # noqa: N815 -- the name that PySpark has.

    def __init__(self, run: Callable[[], list[Row]]) -> None:
        self._run = run

    def collect(self) -> list[Row]:
        return self._run()


def of_rows(batches: Batches) -> DataFrame:
    rows = [Row(**row) for batch in batches for row in batch.to_pylist()]
    return cast(DataFrame, Job(lambda: rows))


def failing(text: str) -> DataFrame:
    def run() -> list[Row]:
        raise PySparkException(text)

    return cast(DataFrame, Job(run))


def raising(report: Exception) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        yield from batches
        raise report

    return task


def as_spark_tells(task: Callable[[Batches], Batches]) -> str:
    """Run a task in a worker, whose own mark is another one, and quote its traceback."""
    with pytest.MonkeyPatch.context() as worker:
        worker.setattr(reports, "NOTE", "the worker's own:")
        with pytest.raises(BucketLakeError) as raised:
            list(task(iter(())))
    notes: list[Any] = raised.value.__notes__
    return "\n".join(["Job aborted: Traceback (most recent call last):", *notes, "at Scheduler"])


@pytest.mark.parametrize("report", REPORTS, ids=lambda one: type(one).__name__)
def test_an_error_of_a_task_is_raised_as_what_it_is(report: BucketLakeError) -> None:
    with pytest.raises(type(report)) as raised:
        collect(of_rows(reporting(raising(report), SCHEMA)(iter(()))))
    assert raised.value.args == report.args
    with pytest.raises(type(report)) as raised:
        collect(failing(as_spark_tells(noting(raising(report)))))
    assert raised.value.args == report.args


def test_an_error_of_storage_is_raised_in_the_task_and_comes_back_from_sparks_text() -> None:
    text = as_spark_tells(reporting(raising(StorageError("a", "read", "503")), SCHEMA))
    with pytest.raises(StorageError, match="read a: 503"):
        collect(failing(text))


def test_warnings_come_back_as_warnings_and_rows_as_rows() -> None:
    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        import warnings

        warnings.warn(NullElementWarning("tags", "setting"), stacklevel=1)
        yield pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA)

    with pytest.warns(NullElementWarning, match="tags"):
        rows = collect(of_rows(reporting(task, SCHEMA)(iter(()))))
    assert [row.n for row in rows] == [1]


class Trap:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_data_that_spark_quotes_are_not_taken_for_a_report(tmp_path: Path) -> None:
    trap = base64.b64encode(pickle.dumps(Trap(tmp_path / "sprung"))).decode()
    note = as_spark_tells(noting(raising(StorageError("a", "read", "503")))).splitlines()[1]
    mark, _, body = note.partition(":")
    assert len(mark) > len("bucketlake-error-") + 16
    for value in (
        f"bucketlake-error:{trap}",
        f"bucketlake-error-{'0' * 32}:{trap}",
        f"bucketlake-error-{'0' * 32}:{body}",
    ):
        with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
            collect(failing(f"[CAST_INVALID_INPUT] The value '{value}' cannot be cast"))
    with pytest.raises((ValueError, UnicodeError)):
        collect(failing(f"{mark}:{trap}"))
    assert not (tmp_path / "sprung").exists()
