"""Writes one round while storage fails once, in a task: usage: retries MASTER FOLDER KIND.

This is done for each fault, on a table of its own below ``FOLDER``. The fault says where storage
fails: ``marker`` before a marker is written, ``file`` before a data file is, ``published`` after
one was. With KIND ``record``, files are the log files of the record index.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketlake.errors import StorageError
from tests.spark.drivers import common

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER, FOLDER, KIND = sys.argv[1:]
FAULTS = ("marker", "file", "published")


class FailsOnce(common.HookedStorage):
    """Fails at the first operation of the wanted kind, wherever it happens."""

    notes: str
    fault: str
    is_indexed: bool

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        kind = None
        if operation == "put_if_absent" and common.is_marker_list(path):
            kind = None if done else "marker"
        elif operation == "put_if_absent":
            is_file = "/record_index/" in path if self.is_indexed else path.endswith(".parquet")
            kind = ("published" if done else "file") if is_file else None
        if kind == self.fault and common.is_first(self.notes, "failed"):
            common.note(self.notes, "fails")
            raise StorageError(path, operation, "the line went dead")


def failing_once(notes: str, fault: str) -> type[FailsOnce]:
    """Return a class that goes to tasks with its notes and its fault."""
    return type(
        "FailsOnceThere",
        (FailsOnce,),
        {"notes": notes, "fault": fault, "is_indexed": KIND == "record"},
    )


def write(spark: SparkSession, fault: str) -> dict[str, Any]:
    folder = Path(FOLDER, fault)
    notes = f"{folder}/notes"
    Path(notes).mkdir(parents=True)
    common.use_storage(common.LocalStorage)
    table = common.make_table(f"{folder}/table", KIND)
    common.use_storage(failing_once(notes, fault))
    first = common.try_upsert(table, common.frame_of_round(spark, 1, folder))
    after_first = common.table_rows(table.path)
    second = common.try_upsert(table, common.frame_of_round(spark, 2, folder))
    return {
        "first": first,
        "after_first": after_first,
        "second": second,
        "rows": common.table_rows(table.path),
        "left": common.left_over(table.path),
        "failures": len(common.notes_of(notes, "fails")),
    }


if __name__ == "__main__":
    spark = common.session(MASTER)
    common.report(**{fault: write(spark, fault) for fault in FAULTS})
    spark.stop()
