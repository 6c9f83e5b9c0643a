"""Writes rounds through the location cache of two executors: usage: cached MASTER FOLDER.

Rounds 1 to 3 are written, the cache is deleted, and rounds 4 and 5 are written. Only this process
has the variable that names the folder of the cache.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bucketlake as bl
from bucketlake.metadata.location_cache import cache as cache_module
from bucketlake.metadata.location_cache.cache import CachedLookup, LocationCache
from tests.spark.drivers import common

MASTER, FOLDER = sys.argv[1:]
NOTES, CACHE = f"{FOLDER}/notes", Path(FOLDER) / "cache"
SETTINGS = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.locality.wait": "0s",
}


class NotingCache(LocationCache):
    """Leaves a note of each lookup, with the host of the task."""

    __slots__ = ()
    notes = NOTES

    def find(self, *arguments: Any) -> CachedLookup:
        common.note(self.notes, "found")
        return LocationCache.find(self, *arguments)


if __name__ == "__main__":
    Path(NOTES).mkdir(parents=True)
    os.environ[cache_module.FOLDER] = str(CACHE)
    cache_module.LocationCache = NotingCache  # type: ignore[misc]
    spark = common.session(MASTER, SETTINGS)
    table = bl.create_table(
        f"{FOLDER}/table", schema=common.SCHEMA, record_key=["id"], partition_by=["part"],
        ordering="ts", index=bl.DynamicBucket(max_records=30, assigners=2),
    )  # fmt: skip
    results = []
    for number in range(1, 6):
        if number == 4:
            shutil.rmtree(CACHE)
        frame = common.frame_of_round(spark, number, Path(FOLDER))
        results.append(asdict(table.upsert(frame)))
    common.report(
        results=results,
        rows=common.table_rows(table.path),
        notes=sorted(path.name for path in Path(NOTES).iterdir()),
    )
    spark.stop()
