"""Tables that Hudi 1.2.0 damaged by statements of its SQL, for the folder ``damaged``.

Nothing but Hudi wrote them, and no statement failed.
"""

from __future__ import annotations

from tests.golden.more_tables import MERGE_MODE, ORDERING, Maker, MoreTable, events

_MERGE_ON_READ = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
}


def _merge_of_some_columns(make: Maker) -> None:
    """Update a row and insert another by a MERGE that sets some columns."""
    make.write(events(range(6), 1))
    make.sql(
        "MERGE INTO {table} t USING (SELECT 'e0' id, 'eu' region, 2L ts, 7 qty, 'new' note "
        "UNION ALL SELECT 'e20', 'eu', 2L, 7, 'new') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET qty = s.qty, ts = s.ts WHEN NOT MATCHED THEN INSERT *"
    )


def _update_of_a_group_without_base_file(make: Maker) -> None:
    """Update a row whose file group has a log file and no base file."""
    make.write(events(range(6), 1))
    make.sql("UPDATE {table} SET qty = 700 WHERE id = 'e1'")


DAMAGED_TABLES = (
    # Hudi's reader takes the bytes of one column for another, and its JVM may crash.
    MoreTable("damaged_by_merge", _MERGE_ON_READ, _merge_of_some_columns, is_readable=False),
    MoreTable(
        "damaged_by_update",
        {
            **_MERGE_ON_READ,
            ORDERING: "",
            MERGE_MODE: "COMMIT_TIME_ORDERING",
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
            "hoodie.bucket.index.min.num.buckets": "2",
            "hoodie.bucket.index.max.num.buckets": "2",
        },
        _update_of_a_group_without_base_file,
    ),
)
