"""Tables of an older release of Hudi that ``make_more_tables.py`` writes into the folder ``older``.

Hudi 1.0.2 writes table version 8, and records of the metadata table whose schema lacks fields that
Hudi 1.2.0 added. Both tables have statistics of columns and a global record-level index, and their
metadata table was compacted twice.
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
    "hoodie.metadata.compact.max.delta.commits": "3",
    "hoodie.compact.inline": "false",
}


def _commits(make: Maker) -> None:
    """Write more commits than two compactions of the metadata table take, and a delete."""
    for ts in range(1, 6):
        make.write(events(range(3 * ts, 3 * ts + 8), ts))
    make.write(events(range(4, 6), 9), "delete")


OLDER_TABLES = (
    MoreTable("cow_of_1_0_2", OPTIONS, _commits, version=VERSION),
    MoreTable(
        "mor_of_1_0_2",
        OPTIONS | {"hoodie.datasource.write.table.type": "MERGE_ON_READ"},
        _commits,
        version=VERSION,
    ),
)
