"""Tables of older releases of Hudi, which ``make_more_tables.py`` writes into folder ``older``.

Hudi 1.0.2 writes table version 8, and records of the metadata table whose schema lacks fields that
Hudi 1.2.0 added. Its table has statistics of columns and a global record-level index, and its
metadata table was compacted.

Hudi 0.15.0 writes table version 6. Its tables have archives of all kinds of instants that it
archives: commits, delta commits, replace commits, compactions, cleans and rollbacks.
"""

from __future__ import annotations

from tests.golden.more_tables import METADATA, Maker, MoreTable, events

OPTIONS_1_0_2 = {
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.index.type": "RECORD_INDEX",
    METADATA: "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "1",
    "hoodie.metadata.record.index.max.filegroup.count": "1",
    "hoodie.metadata.index.column.stats.file.group.count": "1",
    "hoodie.metadata.index.column.stats.column.list": "ts",
    "hoodie.metadata.compact.max.delta.commits": "2",
    "hoodie.compact.inline": "false",
}
OPTIONS_0_15_0 = {
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline": "false",
}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}


def _commits(make: Maker) -> None:
    """Write more commits than a compaction of the metadata table takes, and a delete."""
    for ts in range(1, 4):
        make.write(events(range(3 * ts, 3 * ts + 8), ts, ("eu",)))
    make.write(events(range(4, 6), 9, ("eu",)), "delete")


def _archived_commits(make: Maker) -> None:
    """Write commits that replace and fail among others; three failures are too few to archive."""
    for ts in range(1, 4):
        make.write(events(range(3 * ts, 3 * ts + 8), ts))
    make.write(events(range(10), 4), "insert_overwrite")
    for ts in range(5, 9):
        make.fail_to_write(events(range(30, 34), ts))
        make.write(events(range(3 * ts, 3 * ts + 8), ts))
    for ts in range(9, 12):
        make.write(events(range(3 * ts, 3 * ts + 8), ts))


def _archived_delta_commits(make: Maker) -> None:
    for ts in range(1, 4):
        make.write(events(range(3 * ts, 3 * ts + 8), ts))
    for ts in range(4, 10):
        make.write(events(range(3 * ts, 3 * ts + 8), ts), options=COMPACTING)


OLDER_TABLES = (
    MoreTable(
        "mor_of_1_0_2",
        OPTIONS_1_0_2 | {"hoodie.datasource.write.table.type": "MERGE_ON_READ"},
        _commits,
        version="1.0.2",
    ),
    MoreTable("cow_of_0_15_0", OPTIONS_0_15_0, _archived_commits, version="0.15.0"),
    MoreTable(
        "mor_of_0_15_0",
        OPTIONS_0_15_0 | {"hoodie.datasource.write.table.type": "MERGE_ON_READ"},
        _archived_delta_commits,
        version="0.15.0",
    ),
)
