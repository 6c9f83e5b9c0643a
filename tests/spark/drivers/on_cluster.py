"""Loads, upserts and deletes on a cluster with speculation: usage: on_cluster MASTER FOLDER KIND.

In two steps the executor of a task dies after the task published a data file. In a third step a
task sleeps before it publishes, until the write has returned or Spark has killed the task. KIND is
the index of the table.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq

import bucketlake as bl
from tests.spark.drivers import common
from tests.spark.drivers.executors import own_executor

MASTER, FOLDER, KIND = sys.argv[1:]
NOTES = f"{FOLDER}/notes"
STEPS = [("upsert", 0), ("upsert", 1), ("delete", 1), ("upsert", 2), ("delete", 2)]
KILLED_IN = [("upsert", 1), ("delete", 2)]
SLOW_IN = ("upsert", 2)
SETTINGS = {
    "spark.cores.max": "2",
    "spark.locality.wait": "0s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.interval": "100ms",
}


class KillingStorage(common.HookedStorage):
    """Kills the executor of the first task that published a data file."""

    notes, once = NOTES, ""

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        if operation != "put_if_absent" or not done or not path.endswith(".parquet"):
            return
        executor = own_executor()
        if executor is not None and common.is_first(self.notes, self.once):
            common.note(self.notes, "kills")
            os.kill(executor, signal.SIGKILL)


class SlowStorage(common.HookedStorage):
    """The first attempt of a task sleeps before it publishes a data file; its copies do not."""

    notes, once = NOTES, ""

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        if operation != "put_if_absent" or done or not path.endswith(".parquet"):
            return
        if common.attempt_number() == 0 and common.is_first(self.notes, self.once):
            common.note(self.notes, "sleeps")
            common.wait_for_note(self.notes, "returned")
        elif common.attempt_number():
            common.note(self.notes, "copies")


def storage_of(step: tuple[str, int]) -> type[common.LocalStorage]:
    """Return the storage for a step: a class whose accident happens once."""
    once = {"once": f"accident-{step[0]}-{step[1]}"}
    if step in KILLED_IN:
        return type("KillingOnce", (KillingStorage,), once)
    return type("SlowOnce", (SlowStorage,), once) if step == SLOW_IN else common.LocalStorage


if __name__ == "__main__":
    Path(NOTES).mkdir(parents=True)
    spark = common.session(MASTER, SETTINGS)
    table = bl.create_table(
        f"{FOLDER}/table",
        schema=common.SCHEMA,
        record_key=["id"],
        partition_by=["part"],
        ordering="ts",
        index=common.INDEXES[KIND],
    )
    done = []
    for operation, number in STEPS:
        batch = Path(FOLDER, f"{operation}-{number}.parquet")
        rows = common.rows_of_round(number)
        pq.write_table(rows if operation == "upsert" else common.deleted_in(rows), batch)
        frame = spark.read.parquet(str(batch))
        common.use_storage(storage_of((operation, number)))
        result = getattr(table, operation)(frame)
        common.note(NOTES, "returned" if (operation, number) == SLOW_IN else "wrote")
        common.use_storage(common.LocalStorage)
        done.append(
            {
                "step": [operation, number],
                "changed": [result.inserted, result.updated, result.deleted],
                "rows": common.table_rows(table.path),
                "spark": sorted(row.id for row in table.read(spark, columns=["id"]).collect()),
            }
        )
    common.report(
        done=done,
        left=common.left_over(table.path),
        doctor=[str(finding) for finding in table.doctor(check_keys=True, check_files=True)],
        notes=sorted(path.name for path in Path(NOTES).iterdir()),
    )
    spark.stop()
