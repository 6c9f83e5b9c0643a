"""Statistics of columns: written by either, used by the other to skip files."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake.model.column_type import TIMESTAMP
from bucketlake.where.arrow_filter import truth_of
from bucketlake.where.parser import parse_where
from tests.choices import DEEP
from tests.interop.model import Row, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, WITH_METADATA, SharedTable
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("price", pa.float64()),
        ("amount", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", TIMESTAMP),
        ("flag", pa.bool_()),
        ("note", pa.string()),
    ]
)
REGIONS = ("eu", "us", "asia")
SKIPPING = {**WITH_METADATA, "hoodie.enable.data.skipping": "true"}
# Hudi merges the log files of the metadata table into base files with each write.
EAGER = {**WITH_METADATA, "hoodie.metadata.compact.max.delta.commits": "1"}
CONDITIONS = [
    "n > 200",
    "n IN (1, 101, 207)",
    "n IS NULL",
    "price > 1e6",
    "price = 50.5",
    "amount >= 207.25",
    "day = DATE '2024-01-08'",
    "at >= TIMESTAMP '2024-06-01 00:00:00Z'",
    "flag = false AND n > 100",
    "note LIKE 'at 2%' OR id = 'k105'",
]


def rows(numbers: range, ts: int) -> list[Row]:
    """Make rows whose values grow with their numbers; numbers of a region are near each other."""
    return [
        {
            "id": f"k{n}",
            "region": REGIONS[n // 100],
            "ts": ts,
            "n": None if n % 100 == 9 else n,
            "price": math.nan if n == 103 else n / 2,
            "amount": Decimal(n) + Decimal("0.25"),
            "day": date(2024, 1, 1) + timedelta(days=n % 100),
            "at": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=n),
            "flag": n % 2 == 0,
            "note": f"at {ts}",
        }
        for n in numbers
    ]


def batch(start: int, stop: int, ts: int) -> list[Row]:
    return [row for first in (0, 100, 200) for row in rows(range(first + start, first + stop), ts)]


def assert_filtered_alike(table: SharedTable, hudi: HudiPeer, *, nan_by_hudi: bool) -> None:
    """Compare filtered reads with a filter of all rows.

    Hudi's statistics of a column with a NaN are wrong, and Hudi loses rows by them.
    """
    whole = table.ours.to_arrow()
    assert whole.num_rows > 20
    for where in CONDITIONS:
        predicate = parse_where(where, SCHEMA, time_zone="UTC")
        matching = rows_of(whole.filter(truth_of(predicate, whole)), SCHEMA)
        assert repr(rows_of(table.ours.to_arrow(where=where), SCHEMA)) == repr(matching), where
        if not (nan_by_hudi and "price" in where):
            found = rows_of(hudi.read(table.path, SKIPPING, where=where), SCHEMA)
            assert repr(found) == repr(matching), where


@pytest.mark.parametrize("merge_on_read", [False, True] if DEEP else [True])  # A minute each.
def test_hudi_skips_files_by_our_statistics_and_merges_them(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    kind = TableKind(schema=SCHEMA, merge_on_read=merge_on_read)
    table = SharedTable(hudi, tmp_path / "shared", kind)
    table.begin()
    table.ours.rebuild_metadata_table(["files", "column_stats", "partition_stats"])
    table.upsert(BUCKETLAKE, batch(0, 10, 1))
    table.upsert(BUCKETLAKE, batch(5, 12, 2))
    table.delete(BUCKETLAKE, batch(0, 2, 0))
    assert_filtered_alike(table, hudi, nan_by_hudi=False)
    assert table.ours.explain("n > 200").statistics_skipped > 0
    assert table.ours.explain("price > 1e6").file_groups_kept == 1  # The group of the NaN.
    table.upsert(HUDI, batch(3, 6, 3), EAGER)
    table.upsert(HUDI, batch(11, 14, 4), EAGER)
    assert_filtered_alike(table, hudi, nan_by_hudi=True)
    table.overwrite(BUCKETLAKE, rows(range(150, 155), 5))
    table.upsert(BUCKETLAKE, batch(20, 22, 6))
    assert_filtered_alike(table, hudi, nan_by_hudi=True)
    partitions = table.ours.config().metadata_partitions
    assert {"files", "column_stats", "partition_stats"} <= {*partitions}


@pytest.mark.parametrize("merge_on_read", [False, True] if DEEP else [False])  # A minute each.
def test_we_skip_files_by_statistics_of_hudi_and_maintain_them(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    kind = TableKind(schema=SCHEMA, merge_on_read=merge_on_read)
    table = SharedTable(hudi, tmp_path / "shared", kind)
    table.upsert(HUDI, batch(0, 10, 1), WITH_METADATA)
    table.upsert(HUDI, batch(5, 12, 2), WITH_METADATA)
    assert_filtered_alike(table, hudi, nan_by_hudi=True)
    assert table.ours.explain("n > 200").statistics_skipped > 0
    table.upsert(BUCKETLAKE, batch(11, 14, 3))
    table.delete(BUCKETLAKE, batch(0, 2, 0))
    assert_filtered_alike(table, hudi, nan_by_hudi=True)
    table.upsert(HUDI, batch(3, 6, 4), EAGER)
    assert_filtered_alike(table, hudi, nan_by_hudi=True)
    assert table.ours.explain("n > 200").statistics_skipped > 0
