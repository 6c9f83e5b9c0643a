"""A table of an older release of Hudi, which ``make_more_tables.py`` writes into folder ``older``.

Hudi 1.0.2 writes table version 8, and records of the metadata table whose schema lacks fields that
Hudi 1.2.0 added. The table has statistics of columns and a global record-level index, and its
metadata table was compacted.
"""

from __future__ import annotations

from tests.golden.more_tables import METADATA, Maker, MoreTable, events

VERSION = "1.0.2"

OPTIONS = {
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


def _commits(make: Maker) -> None:
    """Write more commits than a compaction of the metadata table takes, and a delete."""
    for ts in range(1, 4):
        make.write(events(range(3 * ts, 3 * ts + 8), ts, ("eu",)))
    make.write(events(range(4, 6), 9, ("eu",)), "delete")


OLDER_TABLES = (
    MoreTable(
        "mor_of_1_0_2",
        OPTIONS | {"hoodie.datasource.write.table.type": "MERGE_ON_READ"},
        _commits,
        version=VERSION,
    ),
)
