"""Which merge-on-read tables ``make_more_tables.py`` writes: options and steps of each.

As in ``more_tables.py`` all are small: a handful of events, two buckets, and no metadata table,
compaction, cleaning or archival unless the table is about it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.golden.more_tables import (
    ARCHIVING,
    COMPLEX,
    HIVE_STYLE,
    IS_DELETED,
    KEY,
    KEYGEN,
    MERGE_MODE,
    METADATA,
    NESTED_KEYS,
    NON_PARTITIONED,
    ODD_REGIONS,
    ORDERING,
    PARTITION,
    URL_ENCODE,
    Maker,
    MoreTable,
    cycled,
    events,
    nested_keys_and_deletes,
    of_version,
    with_column,
)

MERGE_ON_READ = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
    "hoodie.datasource.compaction.async.enable": "false",
}
INDEX = "hoodie.index.type"
BLOCK_FORMAT = "hoodie.logfile.data.block.format"
PAYLOAD = "hoodie.datasource.write.payload.class"
PAYLOADS = "org.apache.hudi.common.model."
COMMIT_TIME = {ORDERING: "", MERGE_MODE: "COMMIT_TIME_ORDERING"}
NOT_PARTITIONED = {PARTITION: "", KEYGEN: NON_PARTITIONED}
CONSISTENT = {
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.min.num.buckets": "1",
    "hoodie.bucket.index.max.num.buckets": "8",
}
CLUSTERING = "org.apache.hudi.client.clustering."
RESIZING = {
    **CONSISTENT,
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.bucket.index.split.threshold": "0",  # Every bucket is large enough.
    "hoodie.clustering.updates.strategy": (
        f"{CLUSTERING}update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
    ),
    "hoodie.clustering.plan.strategy.class": (
        f"{CLUSTERING}plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
    ),
    # The default one gives every row the time of the resize.
    "hoodie.clustering.execution.strategy.class": (
        f"{CLUSTERING}run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    ),
}
RECORD_INDEX = {
    INDEX: "RECORD_LEVEL_INDEX",
    METADATA: "true",
    "hoodie.metadata.record.level.index.enable": "true",
}
NON_BLOCKING = {
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.conflict.resolution.strategy": (
        "org.apache.hudi.client.transaction.BucketIndexConcurrentFileWritesConflictResolutionStrategy"
    ),
}
LOG_COMPACTING = {
    "hoodie.log.compaction.enable": "true",
    "hoodie.log.compaction.inline": "true",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.compact.inline.max.delta.commits": "50",
}
NOT_READ = "__debezium_unavailable_value"
MOMENTS = tuple(dt.datetime(2024, 1, day, 12, 30, 0, 123_456) for day in (1, 2, 3))

# ---- rows ---------------------------------------------------------------------------------------


def flagged(rows: pa.Table, *flags: bool | None) -> pa.Table:
    """Add the flag that deletes, one value after the other."""
    return with_column(rows, IS_DELETED, pa.bool_(), cycled(list(flags), rows.num_rows))


def with_gaps(
    numbers: range, ts: int, quantities: list[int | None], notes: list[str | None]
) -> pa.Table:
    """Events with these quantities and notes, one after the other."""
    rows = events(numbers, ts=ts)
    columns = {"qty": (quantities, pa.int32()), "note": (notes, pa.string())}
    for name, (values, kind) in columns.items():
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, pa.array(cycled(values, rows.num_rows), kind))
    return rows


def ordered_by(kind: pa.DataType, *values: Any) -> pa.Table:
    """One row an event, whose column ``at`` is what orders."""
    return with_column(events(range(len(values)), ts=0), "at", kind, list(values))


# ---- steps --------------------------------------------------------------------------------------


def updates_and_deletes(maker: Maker) -> None:
    """Newer rows, older rows that lose, new keys, deletes by key, and a key that comes back."""
    maker.write(events(range(8), ts=5))
    maker.write(events(range(6, 11), ts=7))
    maker.write(events(range(3, 8), ts=2))
    maker.write(events(range(1, 4), ts=1), "delete")
    maker.write(events(range(3, 4), ts=9))


def deleted_by_flag(maker: Maker) -> None:
    """Deletes that are newer, older and of the same time, on base rows and on rows of logs."""
    maker.write(flagged(events(range(10), ts=5), False))
    maker.write(flagged(events(range(6, 12), ts=8), False, None))
    maker.write(flagged(events(range(4), ts=6), True))
    maker.write(flagged(events(range(4, 6), ts=4), True))
    maker.write(flagged(events(range(6, 7), ts=8), True))
    maker.write(flagged(events(range(7, 8), ts=7), True))
    # A key that was never there; one that comes back, and one that is too old to.
    maker.write(flagged(events(range(20, 21), ts=6), True))
    maker.write(flagged(events(range(1), ts=6), False))
    maker.write(flagged(events(range(1, 2), ts=5), False))


def deleted_by_flag_at_commit_time(maker: Maker) -> None:
    maker.write(flagged(events(range(8), ts=5), False))
    maker.write(flagged(events(range(4), ts=2), True))
    maker.write(flagged(events(range(2, 3), ts=1), False))
    maker.write(events(range(5, 6), ts=1), "delete")


def marked_rows(rows: pa.Table, *marks: str | None) -> pa.Table:
    return with_column(rows, "op", pa.string(), cycled(list(marks), rows.num_rows))


def deleted_by_marker(maker: Maker) -> None:
    maker.write(marked_rows(events(range(8), ts=5), "I", None))
    maker.write(marked_rows(events(range(3), ts=6), "D"))
    maker.write(marked_rows(events(range(3, 5), ts=4), "D", "I"))
    maker.write(marked_rows(events(range(5, 7), ts=7), "d", "U"))
    maker.write(marked_rows(events(range(1, 2), ts=8), "U"))


def late_row_after_delete(maker: Maker) -> None:
    """A row after a delete cancels it: of e0 and e1 the old base row is back."""
    maker.write(events(range(6), ts=10))
    maker.write(events(range(2, 4), ts=12))
    maker.write(events(range(5), ts=0), "delete")
    maker.write(events(range(2), ts=5))
    maker.write(events(range(2, 3), ts=11))
    maker.write(events(range(3, 4), ts=10))


def late_row_after_compacted_delete(maker: Maker) -> None:
    maker.write(events(range(6), ts=10))
    maker.write(events(range(5), ts=0), "delete")
    maker.write(events(range(2), ts=5))
    compact(maker)
    maker.write(events(range(1, 4), ts=5))
    maker.write(events(range(1), ts=11))


def compact(maker: Maker, operation: str = "run") -> None:
    """Compact, or schedule it; Hudi does nothing below five delta commits unless it is told to."""
    done = maker.call(
        f"run_compaction(op => '{operation}', path => '{{path}}', "
        "options => 'hoodie.compact.inline.max.delta.commits=1')"
    )
    assert done, "there was nothing to compact"


def two_ordering_fields(maker: Maker) -> None:
    """The second field decides where the first is equal."""
    maker.write(flagged(events(range(8), ts=5, qty=10), False))
    maker.write(flagged(events(range(4), ts=5, qty=20), False))
    maker.write(flagged(events(range(1, 6), ts=5, qty=15), False))
    maker.write(flagged(events(range(2, 3), ts=5, qty=30), True))
    maker.write(flagged(events(range(3, 4), ts=5, qty=1), True))
    maker.write(flagged(events(range(6, 7), ts=6, qty=0), True))
    maker.write(events(range(7, 8), ts=0), "delete")


def ordering_of(kind: pa.DataType, low: Any, middle: Any, high: Any) -> Callable[[Maker], None]:
    """Steps that order by a column of a type: rows and deletes older, equal and newer."""

    def steps(maker: Maker) -> None:
        maker.write(flagged(ordered_by(kind, *[middle] * 12), False))
        maker.write(flagged(ordered_by(kind, low, middle, high, low, middle, high), False))
        maker.write(flagged(ordered_by(kind, *[low] * 3, low, middle, high), True))
        rows = flagged(ordered_by(kind, *[low] * 6, low, middle, high), True)
        maker.write(rows.slice(6))
        maker.write(flagged(ordered_by(kind, *[low] * 7, low, middle), False).slice(7))
        maker.write(ordered_by(kind, *[low] * 10).slice(9), "delete")

    return steps


def ordered_by_date(maker: Maker) -> None:
    """Without deletes by flag, which Hudi 1.2.0 fails to write, or to read beside other fields."""
    low, middle, high = dt.date(1960, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29)
    maker.write(ordered_by(pa.date32(), *[middle] * 8))
    maker.write(ordered_by(pa.date32(), low, middle, high, low, middle, high))
    maker.write(ordered_by(pa.date32(), low), "delete")


def ordered_by_size_and_time(maker: Maker) -> None:
    sizes = (-0.5, 0.25, float("inf"))
    _ordered_by_two(maker, "size", pa.float64(), sizes, "at", pa.timestamp("us", "UTC"), MOMENTS)


def ordered_by_decimal_and_text(maker: Maker) -> None:
    amounts = tuple(Decimal(text) for text in ("-1.50", "0.01", "10.00"))
    texts = ("", "B", "a")
    _ordered_by_two(maker, "amount", pa.decimal128(9, 2), amounts, "text", pa.string(), texts)


def _ordered_by_two(
    maker: Maker,
    first: str,
    first_kind: pa.DataType,
    firsts: tuple[Any, ...],
    second: str,
    second_kind: pa.DataType,
    seconds: tuple[Any, ...],
) -> None:
    """The second field decides where the first is equal; deletes by flag and by key."""

    def rows(numbers: range, deleted: bool, *places: tuple[int, int]) -> pa.Table:
        chosen = cycled(list(places), len(numbers))
        given = with_column(
            events(numbers, ts=0), first, first_kind, [firsts[a] for a, _ in chosen]
        )
        given = with_column(given, second, second_kind, [seconds[b] for _, b in chosen])
        return flagged(given, deleted)

    maker.write(rows(range(10), False, (1, 1)))
    maker.write(rows(range(6), False, (1, 0), (1, 2), (0, 2), (2, 0)))
    maker.write(rows(range(4, 8), True, (1, 0), (1, 1), (2, 0), (0, 2)))
    maker.write(rows(range(8, 9), False, (0, 0)), "delete")


def zero_and_null_ordering(maker: Maker) -> None:
    """Deletes by flag at the value 0 of an int, which is also how a delete by key is told."""
    kind = pa.int32()
    maker.write(flagged(ordered_by(kind, 5, 5, 0, 0, -1, -1, 5), False))
    maker.write(flagged(ordered_by(kind, 0, -1, 0, -1, 0, -2, 0), True, True, True, True))
    maker.write(flagged(ordered_by(kind, 0, 7, -3), False))


def partial_updates(maker: Maker) -> None:
    """MERGE INTO writes blocks of a few columns; some lose, and whole rows and deletes follow."""
    maker.write(events(range(8), ts=10))
    _merge(maker, {"e0": (11, 111), "e1": (9, 222), "e2": (10, 333)}, "qty", "int")
    _merge(maker, {"e0": (12, "one"), "e2": (9, "late"), "e3": (12, "three")}, "note", "string")
    maker.write(events(range(3, 5), ts=11))
    _merge(maker, {"e4": (13, 444), "e5": (13, 555), "e6": (13, 666)}, "qty", "int")
    maker.write(events(range(6, 8), ts=12))
    maker.write(events(range(4, 6), ts=0), "delete")
    _merge(maker, {"e5": (9, "after delete")}, "note", "string")


def partial_updates_then_compacted(maker: Maker) -> None:
    partial_updates(maker)
    compact(maker)
    # Not of a deleted event: where no row is left, Hudi fails to read what an update of it wrote.
    _merge(maker, {"e0": (14, 1), "e1": (9, 5), "e6": (12, 6)}, "qty", "int")


def partial_updates_at_commit_time(maker: Maker) -> None:
    maker.write(events(range(8), ts=10))
    _merge(maker, {"e0": (11, 111), "e1": (9, 222), "e2": (10, 333)}, "qty", "int")
    _merge(maker, {"e0": (12, "one"), "e2": (9, "late"), "e3": (12, "three")}, "note", "string")
    maker.write(events(range(3, 4), ts=11), "delete")


def _merge(maker: Maker, rows: dict[str, tuple[int, Any]], column: str, kind: str) -> None:
    """Update one column and the ordering value of some events, by SQL."""
    values = ", ".join(
        f"('{key}', '{('eu', 'us')[int(key[1:]) % 2]}', {ts}L, CAST('{value}' AS {kind}))"
        for key, (ts, value) in rows.items()
    )
    maker.sql(
        "MERGE INTO {table} t USING "
        f"(SELECT * FROM VALUES {values} AS v(id, region, ts, value)) s "
        "ON t.id = s.id AND t.region = s.region "
        f"WHEN MATCHED THEN UPDATE SET {column} = s.value, ts = s.ts"
    )


def log_compacted(maker: Maker) -> None:
    """Logs compacted among themselves once they are several, and written on."""
    maker.write(events(range(8), ts=5))
    for n in range(3):
        maker.write(events(range(n, n + 4), ts=6 + n), options=LOG_COMPACTING)
    maker.write(events(range(2), ts=0), "delete", LOG_COMPACTING)
    maker.write(events(range(1, 3), ts=7), options=LOG_COMPACTING)
    maker.write(events(range(6, 10), ts=9))


def pending_compaction(maker: Maker) -> None:
    maker.write(events(range(8), ts=5))
    maker.write(events(range(6, 11), ts=6))
    compact(maker, "schedule")
    maker.write(events(range(4, 7), ts=7))
    maker.write(events(range(3), ts=0), "delete")


def compacted_twice(maker: Maker) -> None:
    updates_and_deletes(maker)
    compact(maker)
    maker.write(events(range(4, 7), ts=8))
    maker.write(events(range(3), ts=4))
    compact(maker)
    maker.write(events(range(5, 12), ts=9))


def many_delta_commits(maker: Maker) -> None:
    """Log files in use whose instants are in the archive; a compaction that came before some."""
    for n in range(9):
        maker.write(events(range(n, n + 3), ts=n))


def many_delta_commits_and_a_compaction(maker: Maker) -> None:
    for n in range(12):
        maker.write(events(range(n % 5, n % 5 + 3), ts=n))
        if n == 5:
            compact(maker)


def crash_left_behind(maker: Maker) -> None:
    maker.write(events(range(8), ts=1))
    maker.write(events(range(6, 10), ts=2))
    maker.fail_to_write(events(range(4, 30), ts=3))


def crash_rolled_back(maker: Maker) -> None:
    crash_left_behind(maker)
    maker.write(events(range(7, 10), ts=4))
    maker.write(events(range(2), ts=0), "delete")


def rolled_back_by_hand(maker: Maker) -> None:
    """The newest delta commit is taken back, with its files."""
    maker.write(events(range(8), ts=1))
    maker.write(events(range(6, 10), ts=2))
    maker.write(events(range(4, 30), ts=3))
    instant = maker.newest_commit()
    maker.sql(f"CALL rollback_to_instant(table => '{{table}}', instant_time => '{instant}')")
    maker.write(events(range(7, 12), ts=2))


def column_comes(maker: Maker) -> None:
    """Base files and older logs lack the column, newer logs have it."""
    maker.write(events(range(8), ts=1))
    maker.write(events(range(6, 10), ts=2))
    maker.write(_extra(events(range(4), ts=3)))
    maker.write(_extra(events(range(9, 12), ts=4)))


def column_comes_and_is_compacted(maker: Maker) -> None:
    column_comes(maker)
    compact(maker)
    maker.write(
        events(range(2, 6), ts=5),
        options={"hoodie.write.set.null.for.missing.columns": "true"},
    )


def _extra(rows: pa.Table) -> pa.Table:
    return with_column(rows, "extra", pa.string(), cycled(["x", None, "y"], rows.num_rows))


def columns_widen(maker: Maker) -> None:
    """An int becomes a long, a float a double: in logs over base files and logs of before."""
    maker.write(_measured(events(range(8), ts=1), pa.int32(), pa.float32()))
    maker.write(_measured(events(range(6, 10), ts=2), pa.int32(), pa.float32()))
    maker.write(_measured(events(range(3), ts=3), pa.int64(), pa.float64()))
    # Partition asia has the wide types from its first file on.
    maker.write(_measured(events(range(10, 14), ts=4, regions=("asia",)), pa.int64(), pa.float64()))


def columns_widen_and_are_compacted(maker: Maker) -> None:
    columns_widen(maker)
    compact(maker)
    maker.write(_measured(events(range(1, 5), ts=5), pa.int64(), pa.float64()))


def ordering_widens(maker: Maker) -> None:
    """The ordering field itself becomes a long. Hudi fails to read older deletes by flag then."""
    for numbers, at, kind, flag in (
        (range(8), 5, pa.int32(), False),
        (range(3), 6, pa.int32(), False),
        (range(2, 5), 4, pa.int64(), False),
        (range(4, 8), 6, pa.int64(), True),
        (range(2), 5, pa.int64(), True),
    ):
        rows = with_column(events(numbers, ts=0), "at", kind, [at] * len(numbers))
        maker.write(flagged(rows, flag))


def _measured(rows: pa.Table, count: pa.DataType, size: pa.DataType) -> pa.Table:
    counts = cycled([7, None, -1], rows.num_rows)
    sizes = cycled([0.1, -2.5, None], rows.num_rows)
    return with_column(with_column(rows, "n", count, counts), "size", size, sizes)


def odd_regions(maker: Maker) -> None:
    maker.write(events(range(20), ts=1, regions=ODD_REGIONS))
    maker.write(events(range(10, 25), ts=2, regions=ODD_REGIONS))
    maker.write(events(range(0, 10, 3), ts=3, regions=ODD_REGIONS), "delete")


def complex_keys(maker: Maker) -> None:
    """Second key field: a value, null and the empty string."""
    for numbers, ts, operation in (
        (range(9), 1, "upsert"),
        (range(6, 12), 2, "upsert"),
        (range(0, 9, 4), 0, "delete"),
    ):
        parts = [["p", None, ""][n % 3] for n in numbers]
        maker.write(with_column(events(numbers, ts=ts), "part", pa.string(), parts), operation)


def overwritten_partition(maker: Maker) -> None:
    updates_and_deletes(maker)
    maker.write(events(range(20, 24), ts=3, regions=("eu",)), "insert_overwrite")
    maker.write(events(range(22, 26), ts=4), "upsert")


def overwritten_table(maker: Maker) -> None:
    updates_and_deletes(maker)
    maker.write(events(range(20, 24), ts=3, regions=("asia", "eu")), "insert_overwrite_table")
    maker.write(events(range(20, 22), ts=4, regions=("asia", "eu")))


def deleted_partition(maker: Maker) -> None:
    """Partition us goes; eu goes and comes back with one row, and a log on it."""
    updates_and_deletes(maker)
    for region in ("us", "eu"):
        chosen = {"hoodie.datasource.write.partitions.to.delete": region}
        maker.write(events(range(0), ts=3), "delete_partition", chosen)
    maker.write(events(range(30, 31), ts=4, regions=("eu",)))
    maker.write(events(range(30, 33), ts=5, regions=("eu",)))


def upserts_and_late_ones(maker: Maker) -> None:
    maker.write(events(range(8), ts=5))
    maker.write(events(range(6, 12), ts=7))
    maker.write(events(range(4, 8), ts=6))
    maker.write(events(range(2), ts=0), "delete")


def gaps(maker: Maker) -> None:
    """Rows that lack values, some of them late, in base files and logs, and a delete."""
    maker.write(with_gaps(range(8), 5, [1, None, 3], ["first", None]))
    maker.write(with_gaps(range(4, 12), 7, [None, 20], [None, None, "second"]))
    maker.write(with_gaps(range(10), 4, [300, 400, None], ["late"]))
    maker.write(events(range(2), ts=0), "delete")
    maker.write(with_gaps(range(1, 10), 8, [None], [None, "newest", None, None]))


def gaps_then_compacted(maker: Maker) -> None:
    gaps(maker)
    compact(maker)
    maker.write(with_gaps(range(3, 14), 6, [7, None], ["after", None]))


def changes_not_read(maker: Maker) -> None:
    """Changes of PostgreSQL: a text stands where a long value was not read."""
    for ts, texts, kinds in [
        (5, ["first", None, NOT_READ], ["c"]),
        (7, [NOT_READ, NOT_READ, "second"], ["u", "u", "u", "d"]),
        (4, ["late"], ["u"]),
        (8, [NOT_READ, None], ["u"]),
    ]:
        rows = with_gaps(range(ts % 3, 10), ts, [ts, None], texts)
        rows = with_column(rows, "_event_lsn", pa.int64(), [ts] * rows.num_rows)
        kind = with_column(
            rows, "_change_operation_type", pa.string(), cycled(kinds, rows.num_rows)
        )
        maker.write(kind)


def logs_alone(maker: Maker) -> None:
    """File groups that begin with a log, and get a base file by compaction in one partition."""
    upserts_and_late_ones(maker)
    maker.write(events(range(1), ts=4))


def logs_alone_compacted(maker: Maker) -> None:
    logs_alone(maker)
    compact(maker)
    maker.write(events(range(3, 14), ts=6))


def captured_changes(maker: Maker) -> None:
    upserts_and_late_ones(maker)
    compact(maker)
    maker.write(events(range(5, 9), ts=8))


def bulk_inserted(maker: Maker) -> None:
    by_rows = {"hoodie.datasource.write.row.writer.enable": "true"}
    maker.write(events(range(8), ts=5), "bulk_insert", by_rows)
    maker.write(events(range(6, 11), ts=7))
    maker.write(events(range(2), ts=0), "delete")


def restored(maker: Maker) -> None:
    maker.write(events(range(8), ts=1))
    maker.write(events(range(6, 9), ts=2))
    maker.call("create_savepoint(path => '{path}', commit_time => '')")
    maker.write(events(range(4, 20), ts=3))
    (savepoint,) = maker.call("show_savepoints(path => '{path}')")
    instant = savepoint["savepoint_time"]
    maker.call(f"rollback_to_savepoint(path => '{{path}}', instant_time => '{instant}')")
    maker.write(events(range(5, 10), ts=2))


def clustered(maker: Maker) -> None:
    """Clustering merges base files and logs into new groups, and logs follow."""
    upserts_and_late_ones(maker)
    maker.call("run_clustering(path => '{path}', order => 'qty')")
    maker.write(events(range(5, 7), ts=8))


def resize_pending(maker: Maker) -> None:
    """A split of every bucket is planned, and writes since then go to old and new groups.

    Hudi reads copies of several writes in no order of theirs, so a delete meets no other copy.
    """
    updates_and_deletes(maker)
    resize(maker, "schedule")
    maker.write(events(range(6, 14), ts=10))
    maker.write(events(range(4, 6), ts=11), "delete")
    maker.write(events(range(8, 10), ts=12))


def resized(maker: Maker) -> None:
    """The same, and then the split is executed, and more is written."""
    resize_pending(maker)
    resize(maker, "execute")
    maker.write(events(range(9, 18), ts=13))


def resize(maker: Maker, op: str) -> None:
    """Plan or execute a resize; the procedure learns nothing of the index from the table."""
    told = {
        **RESIZING,
        INDEX: "BUCKET",
        METADATA: "false",
        "hoodie.datasource.write.recordkey.field": "id",
    }
    options = ",".join(f"{key}={value}" for key, value in told.items())
    maker.call(f"run_clustering(path => '{{path}}', op => '{op}', options => '{options}')")


def moved_partitions(maker: Maker) -> None:
    """Events move from one partition to the other, and some of them lose as they arrive."""
    maker.write(events(range(8), ts=5))
    maker.write(events(range(4), ts=7, regions=("us", "eu")))
    maker.write(events(range(4, 6), ts=3, regions=("us", "eu")))
    maker.write(events(range(7, 9), ts=6, regions=("asia",)))


NESTED = pa.schema(
    [
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.map_(pa.string(), pa.int64())),
        ("geo", pa.struct([("lat", pa.float64()), ("path", pa.list_(pa.int32()))])),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int32())]))),
        ("amount", pa.decimal128(18, 4)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("blob", pa.binary()),
    ]
)
NESTED_ROWS: tuple[dict[str, Any], ...] = (
    {
        "tags": ["a", None, ""],
        "attrs": [("x", 1), ("y", None)],
        "geo": {"lat": -0.0, "path": [1, None, 3]},
        "lines": [{"sku": "s", "n": 1}, None, {"sku": None, "n": None}],
        "amount": Decimal("-12345.6789"),
        "day": dt.date(1969, 12, 31),
        "at": dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        "wall": dt.datetime(1999, 12, 31, 23, 59, 59, 1),
        "blob": b"\x00\xff",
    },
    {"tags": [], "attrs": [], "geo": {"lat": None, "path": None}, "lines": [], "blob": b""},
    {},
    {"tags": [None], "geo": {"lat": 1.5, "path": []}, "lines": [None], "amount": Decimal("0.0001")},
)


def _nested(numbers: range, ts: int, null_elements: bool = False) -> pa.Table:
    chosen = NESTED_ROWS if null_elements else tuple(map(_without_null_elements, NESTED_ROWS))
    rows = events(numbers, ts=ts)
    values = pa.Table.from_pylist([chosen[(n + ts) % 4] for n in numbers], NESTED)
    for field, column in zip(NESTED, values.columns, strict=True):
        rows = rows.append_column(field, column)
    return rows


def _without_null_elements(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_null_elements(one) for one in value if one is not None]
    if isinstance(value, dict):
        return {key: _without_null_elements(one) for key, one in value.items()}
    return value


def nested_values(maker: Maker) -> None:
    maker.write(_nested(range(8), ts=4))
    maker.write(_nested(range(4, 12), ts=5))
    maker.write(_nested(range(6), ts=3))
    maker.write(_nested(range(10, 12), ts=0), "delete")


def nested_values_compacted(maker: Maker) -> None:
    nested_values(maker)
    compact(maker)
    maker.write(_nested(range(2, 7), ts=6))


def null_elements_in_logs(maker: Maker) -> None:
    """Blocks of Avro have room for null elements, Hudi's base files and Parquet blocks have not."""
    maker.write(_nested(range(8), ts=4))
    maker.write(_nested(range(4, 8), ts=5, null_elements=True))
    maker.write(_nested(range(6), ts=6, null_elements=True))


def amazon_changes(maker: Maker) -> None:
    """Changes as the migration service of Amazon tells them: the column Op, and the later wins."""
    maker.write(_with_op(events(range(8), ts=5), "I"))
    maker.write(_with_op(events(range(4), ts=3), "D", "U"))
    maker.write(_with_op(events(range(2, 3), ts=1), "I"))


def _with_op(rows: pa.Table, *marks: str) -> pa.Table:
    return with_column(rows, "Op", pa.string(), cycled(list(marks), rows.num_rows))


def _mor(name: str, options: dict[str, str], steps: Callable[[Maker], None]) -> MoreTable:
    return MoreTable(name, {**MERGE_ON_READ, **options}, steps, name in WITH_HISTORY)


WITH_HISTORY = (
    "mor_updates_and_deletes",
    "mor_log_compacted",
    "mor_pending_compaction",
    "mor_compacted_twice",
    "mor_insert_overwrite",
    "mor_v6_compacted",
    "mor_gaps_compacted",
)
ORDERED = {ORDERING: "at"}
MOR_TABLES = (
    _mor("mor_nested_keys", NESTED_KEYS, nested_keys_and_deletes),
    _mor("mor_updates_and_deletes", {}, updates_and_deletes),
    _mor("mor_parquet_logs", {BLOCK_FORMAT: "parquet"}, updates_and_deletes),
    _mor("mor_commit_time", COMMIT_TIME, updates_and_deletes),
    _mor("mor_commit_time_flags", COMMIT_TIME, deleted_by_flag_at_commit_time),
    _mor("mor_deleted_by_flag", {}, deleted_by_flag),
    _mor(
        "mor_delete_marker",
        {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"},
        deleted_by_marker,
    ),
    _mor("mor_late_row_after_delete", {}, late_row_after_delete),
    _mor("mor_late_row_after_compacted_delete", {}, late_row_after_compacted_delete),
    _mor("mor_two_ordering_fields", {ORDERING: "ts,qty"}, two_ordering_fields),
    _mor("mor_ordered_by_int", ORDERED, ordering_of(pa.int32(), -1, 5, 7)),
    _mor("mor_ordered_by_int_zero", ORDERED, zero_and_null_ordering),
    _mor("mor_ordered_by_double", ORDERED, ordering_of(pa.float64(), -1.5, 0.5, float("inf"))),
    _mor("mor_ordered_by_float", ORDERED, ordering_of(pa.float32(), -0.0, 0.0, float("nan"))),
    _mor("mor_ordered_by_string", ORDERED, ordering_of(pa.string(), "", "ä", "日本")),
    _mor("mor_ordered_by_date", ORDERED, ordered_by_date),
    _mor("mor_ordered_by_size_and_time", {ORDERING: "size,at"}, ordered_by_size_and_time),
    _mor("mor_ordered_by_decimal_and_text", {ORDERING: "amount,text"}, ordered_by_decimal_and_text),
    _mor(
        "mor_ordered_by_timestamp",
        ORDERED,
        ordering_of(pa.timestamp("us", "UTC"), *MOMENTS),
    ),
    _mor(
        "mor_ordered_by_timestamp_ntz",
        ORDERED,
        ordering_of(pa.timestamp("us"), *MOMENTS),
    ),
    _mor(
        "mor_ordered_by_decimal",
        ORDERED,
        ordering_of(pa.decimal128(20, 5), Decimal("-1.5"), Decimal("0.00001"), Decimal("99999.5")),
    ),
    _mor("mor_ordered_by_boolean", ORDERED, ordering_of(pa.bool_(), False, False, True)),
    _mor("mor_partial_updates", {}, partial_updates),
    _mor("mor_partial_updates_compacted", {}, partial_updates_then_compacted),
    _mor("mor_partial_updates_commit_time", COMMIT_TIME, partial_updates_at_commit_time),
    _mor("mor_log_compacted", {}, log_compacted),
    _mor("mor_pending_compaction", {}, pending_compaction),
    _mor("mor_compacted_twice", {}, compacted_twice),
    _mor("mor_archived", ARCHIVING, many_delta_commits),
    _mor("mor_archived_compacted", ARCHIVING, many_delta_commits_and_a_compaction),
    _mor("mor_pending_delta_commit", {}, crash_left_behind),
    _mor("mor_rolled_back", {}, crash_rolled_back),
    _mor("mor_rolled_back_by_hand", {}, rolled_back_by_hand),
    _mor("mor_v6_rolled_back", of_version(6), crash_rolled_back),
    _mor("mor_v6_compacted", of_version(6), compacted_twice),
    _mor("mor_v6_deleted_by_flag", of_version(6), deleted_by_flag),
    _mor("mor_v8", of_version(8), updates_and_deletes),
    _mor("mor_v8_rolled_back", of_version(8), crash_rolled_back),
    _mor("mor_v8_compacted", of_version(8), compacted_twice),
    _mor("mor_new_column", {}, column_comes),
    _mor("mor_new_column_compacted", {}, column_comes_and_is_compacted),
    _mor("mor_wider_columns", {}, columns_widen),
    _mor("mor_wider_columns_compacted", {}, columns_widen_and_are_compacted),
    _mor("mor_wider_ordering", ORDERED, ordering_widens),
    _mor("mor_nonpartitioned", NOT_PARTITIONED, updates_and_deletes),
    _mor("mor_hive_encoded", {HIVE_STYLE: "true", URL_ENCODE: "true"}, odd_regions),
    _mor("mor_complex_key", {KEY: "id,part", KEYGEN: COMPLEX}, complex_keys),
    _mor("mor_insert_overwrite", {}, overwritten_partition),
    _mor("mor_insert_overwrite_table", {}, overwritten_table),
    _mor("mor_delete_partition", {}, deleted_partition),
    _mor("mor_non_blocking", NON_BLOCKING, logs_alone),
    _mor("mor_non_blocking_compacted", NON_BLOCKING, logs_alone_compacted),
    _mor("mor_cdc", {"hoodie.table.cdc.enabled": "true"}, captured_changes),
    _mor("mor_bulk_insert", {}, bulk_inserted),
    _mor("mor_restored", {}, restored),
    _mor("mor_bloom", {INDEX: "BLOOM"}, updates_and_deletes),
    _mor("mor_simple_index", {INDEX: "SIMPLE"}, updates_and_deletes),
    _mor("mor_clustered", {INDEX: "SIMPLE"}, clustered),
    _mor(
        "mor_global_simple",
        {INDEX: "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true"},
        moved_partitions,
    ),
    _mor("mor_consistent_hashing", CONSISTENT, updates_and_deletes),
    _mor("mor_resize_pending", RESIZING, resize_pending),
    _mor("mor_resized", RESIZING, resized),
    _mor("mor_record_index", RECORD_INDEX, updates_and_deletes),
    _mor("mor_nested", {}, nested_values),
    _mor("mor_null_elements", {}, null_elements_in_logs),
    _mor("mor_nested_compacted", {}, nested_values_compacted),
    _mor("mor_nested_parquet_logs", {BLOCK_FORMAT: "parquet"}, nested_values),
    _mor("mor_amazon_changes", {PAYLOAD: f"{PAYLOADS}AWSDmsAvroPayload"}, amazon_changes),
    _mor(
        "mor_partial_update_mode",
        {PAYLOAD: f"{PAYLOADS}PartialUpdateAvroPayload"},
        upserts_and_late_ones,
    ),
    _mor(
        "mor_overwrite_non_defaults",
        {PAYLOAD: f"{PAYLOADS}OverwriteNonDefaultsWithLatestAvroPayload"},
        upserts_and_late_ones,
    ),
    _mor("mor_gaps", {PAYLOAD: f"{PAYLOADS}PartialUpdateAvroPayload"}, gaps),
    _mor(
        "mor_gaps_compacted", {PAYLOAD: f"{PAYLOADS}PartialUpdateAvroPayload"}, gaps_then_compacted
    ),
    _mor(
        "mor_gaps_commit_time",
        {PAYLOAD: f"{PAYLOADS}OverwriteNonDefaultsWithLatestAvroPayload"},
        gaps,
    ),
    _mor(
        "mor_not_read",
        {PAYLOAD: f"{PAYLOADS}debezium.PostgresDebeziumAvroPayload", ORDERING: "_event_lsn"},
        changes_not_read,
    ),
    _mor(
        "mor_v8_partial_update_payload",
        {**of_version(8), PAYLOAD: f"{PAYLOADS}PartialUpdateAvroPayload"},
        upserts_and_late_ones,
    ),
)
