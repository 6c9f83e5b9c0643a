"""Writes rounds while executors are killed: usage: killed_executor MASTER FOLDER MOMENT SEED KIND.

MOMENT is where the executor of a task is killed, once: ``marked`` after a marker was written,
``published`` after a data file was, ``entries`` after a log file of the record index was; or
``any``: in each round one, after a random while. KIND is the index of the table.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from tests.spark.drivers import common
from tests.spark.drivers.executors import executors_of, own_executor

MASTER, FOLDER, MOMENT, SEED, KIND = sys.argv[1:]
NOTES = f"{FOLDER}/notes"
ROUNDS = [1, 2, 3]
SETTINGS = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.locality.wait": "0s",
}


class KillingStorage(common.HookedStorage):
    """Kills the executor of the first task that comes to the wanted moment."""

    notes, moment = NOTES, MOMENT

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        moment = "entries" if "/record_index/" in path else "published"
        moment = "marked" if common.is_marker_list(path) else moment
        wanted = done and operation == "put_if_absent" and moment == self.moment
        executor = own_executor() if wanted else None
        if executor is not None and common.is_first(self.notes, "killed"):
            common.note(self.notes, "kills")
            os.kill(executor, signal.SIGKILL)


def kill_one_soon(application: str, chance: random.Random) -> threading.Timer:
    def kill() -> None:
        for pid in sorted(executors_of(application))[:1]:
            common.note(NOTES, "kills")
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(chance.uniform(0, 4), kill)
    timer.start()
    return timer


if __name__ == "__main__":
    Path(NOTES).mkdir(parents=True)
    spark = common.session(MASTER, SETTINGS)
    table = common.make_table(f"{FOLDER}/table", KIND)
    frames = [common.frame_of_round(spark, number, Path(FOLDER)) for number in ROUNDS]
    frames[0].count()
    chance = random.Random(int(SEED))
    results = []
    common.use_storage(KillingStorage)
    for frame in frames:
        timer = None
        if MOMENT == "any":
            timer = kill_one_soon(spark.sparkContext.applicationId, chance)
        results.append(common.try_upsert(table, frame))
        if timer is not None:
            timer.join()
        time.sleep(1)
        results[-1]["rows"] = common.table_rows(table.path)
    common.use_storage(common.LocalStorage)
    last = common.try_upsert(table, common.frame_of_round(spark, ROUNDS[-1] + 1, Path(FOLDER)))
    common.report(
        results=results,
        last=last,
        rows=common.table_rows(table.path),
        left=common.left_over(table.path),
        notes=sorted(path.name for path in Path(NOTES).iterdir()),
    )
    spark.stop()
