"""Writes a round while one attempt of a task sleeps and comes late: usage: late MASTER FOLDER MODE.

``commit``: the sleeper is overtaken by its speculative copy, and wakes after the commit.
``rollback``: another task fails for good, and the sleeper wakes after the rollback.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bucketlake.errors import StorageError
from tests.spark.drivers import common

MASTER, FOLDER, MODE = sys.argv[1:]
NOTES = f"{FOLDER}/notes"
SLOW_HOST = "127.0.0.2"
SETTINGS = {
    # A killed attempt goes on in Python, as one does whose executor lost touch with the driver.
    "spark.python.task.killTimeout": "300s",
    "spark.cores.max": "2",
    # Tasks are spread over both workers from the start.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "0s",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.interval": "100ms",
    # Only the sleeper is overtaken: a copy of another task that is killed in its turn would keep
    # its core for as long as the kill timeout.
    "spark.speculation.minTaskRuntime": "5s",
}


def sleep(notes: str) -> None:
    """Sleep until the write has returned to its caller, and a little longer."""
    common.note(notes, "sleeps")
    common.wait_for_note(notes, "returned")
    time.sleep(1)
    common.note(notes, "wakes")


class OvertakenStorage(common.HookedStorage):
    """The first attempt of a task on one host sleeps before its marker."""

    notes = NOTES

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        is_marker = operation == "put_if_absent" and common.is_marker_list(path)
        if is_marker and not done and common.attempt_number() == 0 and common.host() == SLOW_HOST:
            if common.is_first(self.notes, "slept"):
                sleep(self.notes)
        elif is_marker and done and Path(self.notes, "slept").exists():
            common.note(self.notes, "marked")


class RolledBackStorage(common.HookedStorage):
    """One file comes late, and meanwhile another one cannot be written at all."""

    notes = NOTES

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        if operation != "put_if_absent" or not path.endswith(".parquet") or done:
            return
        if path.startswith("a/") and common.is_first(self.notes, "slept"):
            sleep(self.notes)
            common.note(self.notes, "puts")
        if path.startswith("b/"):
            common.wait_for_note(self.notes, "sleeps")
            raise StorageError(path, operation, "no space left on device")


if __name__ == "__main__":
    Path(NOTES).mkdir(parents=True)
    spark = common.session(MASTER, SETTINGS | (SPECULATION if MODE == "commit" else {}))
    table = common.make_table(f"{FOLDER}/table")
    frames = [common.frame_of_round(spark, n, Path(FOLDER)) for n in (1, 2)]
    for frame in frames:
        frame.count()  # The executors are there, and their Python is warm.
    common.use_storage(OvertakenStorage if MODE == "commit" else RolledBackStorage)
    first = common.try_upsert(table, frames[0])
    common.note(NOTES, "returned")
    rows_before = common.table_rows(table.path)
    common.wait_for_note(NOTES, "wakes")
    common.wait_until_quiet(table.path)  # The sleeper does what it still has to do.
    rows_after = common.table_rows(table.path)
    left_before = common.left_over(table.path)
    common.use_storage(common.LocalStorage)
    second = common.try_upsert(table, frames[1])
    common.report(
        first=first,
        rows_before=rows_before,
        rows_after=rows_after,
        left_before=left_before,
        second=second,
        rows=common.table_rows(table.path),
        left=common.left_over(table.path),
        notes=sorted(path.name for path in Path(NOTES).iterdir()),
    )
    spark.stop()
