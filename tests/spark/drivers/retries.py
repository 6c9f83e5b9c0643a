"""Writes one round while storage fails once, in a task: usage: retries MASTER FOLDER FAULT.

FAULT says where storage fails: ``marker`` before a marker is written, ``file`` before a data file
is, ``published`` after one was.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bucketlake.errors import StorageError
from tests.spark.drivers import common

MASTER, FOLDER, FAULT = sys.argv[1:]
NOTES = f"{FOLDER}/notes"


class FailsOnce(common.HookedStorage):
    """Fails at the first operation of the wanted kind, wherever it happens."""

    notes, fault = NOTES, FAULT

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        kind = {
            ("put", False): "marker" if "/.temp/" in path else None,
            ("put_if_absent", False): "file" if path.endswith(".parquet") else None,
            ("put_if_absent", True): "published" if path.endswith(".parquet") else None,
        }.get((operation, done))
        if kind == self.fault and common.is_first(self.notes, "failed"):
            common.note(self.notes, "fails")
            raise StorageError(path, operation, "the line went dead")


if __name__ == "__main__":
    Path(NOTES).mkdir(parents=True)
    spark = common.session(MASTER)
    table = common.make_table(f"{FOLDER}/table")
    common.use_storage(FailsOnce)
    first = common.try_upsert(table, common.frame_of_round(spark, 1, Path(FOLDER)))
    after_first = common.table_rows(table.path)
    second = common.try_upsert(table, common.frame_of_round(spark, 2, Path(FOLDER)))
    common.report(
        first=first,
        after_first=after_first,
        second=second,
        rows=common.table_rows(table.path),
        left=common.left_over(table.path),
        failures=len(common.notes_of(NOTES, "fails")),
    )
    spark.stop()
