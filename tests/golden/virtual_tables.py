"""Which tables without meta columns ``make_more_tables.py`` writes: options and steps of each.

As in ``more_tables.py`` and ``mor_tables.py`` all are small, with two buckets and no metadata
table. Hudi calls the keys of such tables virtual.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping

import pyarrow as pa

from tests.golden.mor_tables import (
    BLOCK_FORMAT,
    COMMIT_TIME,
    INDEX,
    MERGE_ON_READ,
    NOT_PARTITIONED,
    compacted_twice,
    complex_keys,
    deleted_by_flag,
    log_compacted,
    updates_and_deletes,
)
from tests.golden.more_tables import (
    COMPLEX,
    KEY,
    KEYGEN,
    ORDERING,
    Maker,
    MoreTable,
    bulk_inserted,
    deletes,
    events,
    of_version,
    with_column,
)

VIRTUAL = {"hoodie.populate.meta.fields": "false"}
BARE_KEYS = {
    KEYGEN: COMPLEX,
    "hoodie.write.complex.keygen.new.encoding": "true",
    "hoodie.write.complex.keygen.validation.enable": "false",
}
FIRST_DAY = dt.date(2024, 2, 27)


def days_as_keys(maker: Maker) -> None:
    """A newer row, a delete by key of a base row, and a delete by key of a row of a log."""
    for numbers, ts, operation in (
        (range(8), 5, "upsert"),
        (range(4, 7), 6, "upsert"),
        (range(2, 5), 0, "delete"),
    ):
        days = [FIRST_DAY + dt.timedelta(days=n) for n in numbers]
        maker.write(with_column(events(numbers, ts=ts), "day", pa.date32(), days), operation)


def bulk_inserted_and_deleted(maker: Maker) -> None:
    bulk_inserted(maker)
    maker.write(events(range(2, 4), ts=3), "delete")


def _cow(name: str, options: Mapping[str, str], steps: Callable[[Maker], None]) -> MoreTable:
    return MoreTable(f"virtual_cow{name}", {**VIRTUAL, **options}, steps)


def _mor(
    name: str,
    options: Mapping[str, str],
    steps: Callable[[Maker], None],
    has_history: bool = False,
) -> MoreTable:
    return MoreTable(
        f"virtual_mor{name}", {**MERGE_ON_READ, **VIRTUAL, **options}, steps, has_history
    )


VIRTUAL_TABLES = (
    _cow("", {}, updates_and_deletes),
    _cow("_v6", of_version(6), updates_and_deletes),
    _cow("_v8", of_version(8), updates_and_deletes),
    _cow("_bulk_insert", {}, bulk_inserted_and_deleted),
    _cow("_two_keys", {KEY: "id,part", KEYGEN: COMPLEX}, complex_keys),
    _cow("_complex_key", {KEYGEN: COMPLEX}, deletes),
    _mor("", {}, compacted_twice, has_history=True),
    _mor("_v6", of_version(6), compacted_twice, has_history=True),
    _mor("_v8", of_version(8), compacted_twice, has_history=True),
    _mor("_logs", {}, updates_and_deletes),
    _mor("_v6_logs", of_version(6), updates_and_deletes),
    _mor("_v8_logs", of_version(8), updates_and_deletes),
    _mor("_parquet_logs", {BLOCK_FORMAT: "parquet"}, updates_and_deletes),
    _mor("_positions", {INDEX: "SIMPLE"}, compacted_twice),
    _mor("_deleted_by_flag", {}, deleted_by_flag),
    _mor("_commit_time", COMMIT_TIME, updates_and_deletes),
    _mor("_two_keys", {KEY: "id,part", KEYGEN: COMPLEX}, complex_keys),
    _mor("_nonpartitioned", NOT_PARTITIONED, updates_and_deletes),
    _mor("_log_compacted", {}, log_compacted),
    _mor("_bulk_insert", {}, bulk_inserted_and_deleted),
    _mor("_bare_keys", {**of_version(8), **BARE_KEYS}, updates_and_deletes),
    _mor("_complex_key", {KEYGEN: COMPLEX}, updates_and_deletes),
    _mor("_date_key", {KEY: "day", ORDERING: "ts"}, days_as_keys),
)
