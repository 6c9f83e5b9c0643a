"""Hours of a table in seconds: what is kept for commits and for an hour levels off."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

import bucketlake as bl
from bucketlake.flow.threads import HERE
from bucketlake.model.table_type import Operation
from bucketlake.services.upkeep import kept_up
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.instant import system_now_ms
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target

EVERY_MS, HOUR_MS, HOURS = 120_000, 3_600_000, 4
ARCHIVE = ".hoodie/timeline/history/"


def test_the_files_of_a_table_follow_the_commits_of_an_hour_and_not_its_age() -> None:
    """Each commit remembers a delete; a write keeps the table up."""
    now_ms = system_now_ms() + HOUR_MS
    storage = MemoryStorage.fresh(lambda: now_ms)
    index = bl.SimpleBucket(1)
    bl.create_table(
        storage.root, schema="id string, ts bigint", record_key="id", ordering="ts", index=index,
        table_type="merge_on_read", upkeep="auto", metadata_table=False,
    )  # fmt: skip

    def opened() -> OpenTable:
        return table_at(storage, now_ms=lambda: now_ms)

    counts = []
    for number in range(1, HOURS * HOUR_MS // EVERY_MS + 1):
        now_ms += EVERY_MS
        keys, deleted = [f"k{number % 7}", f"k{number % 5 + 7}"], [False, True]
        rows = pa.table({"id": keys, "ts": [number] * 2, "_hoodie_is_deleted": deleted})
        source = ArrowSource(rows, threads=1)
        result = write_records(open_target(opened(), index), Operation.UPSERT, source)
        kept_up(result, opened, index, HERE)
        if number % (HOUR_MS // EVERY_MS) == 0:
            paths = [held.path for held in storage.list("") if not held.path.startswith(ARCHIVE)]
            counts.append(Counter(path.rpartition("/")[0] for path in paths))
    assert counts[1].total() > 50
    for later in counts[2:]:
        grown = {name: (counts[1][name], count) for name, count in later.items()}
        assert all(count <= 1.5 * before + 3 for before, count in grown.values()), grown
        assert later.total() <= 1.1 * counts[1].total(), grown
