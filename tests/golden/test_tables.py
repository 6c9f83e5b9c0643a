"""Tables that real Hudi wrote give exactly the rows that real Hudi reads from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import UnsupportedFeatureError
from tests.golden.rows import plain_rows

TABLES = Path(__file__).parent / "tables"

NAMES = sorted(p.name.removesuffix(".tar.gz") for p in TABLES.rglob("cow_*.tar.gz"))
REFUSED = {
    "cow_dropped_partition_columns": "partition columns",
    "cow_without_meta_fields": "without meta columns",
}
WITH_LOGS = sorted(p.name.removesuffix(".tar.gz") for p in TABLES.glob("mor_*.tar.gz"))

# Hudi's Spark reader takes partition values from folder names: it turns an empty value into null,
# the value k=v into v, and an integer into text. The files hold what was written.
PARTITION_COLUMN_FROM_FOLDERS = {
    "cow_hive_encoded": "region",
    "cow_plain_partitions": "region",
    "cow_timestamp_partitions": "at_ms",
}


def expected_rows(name: str) -> pa.Table:
    (path,) = TABLES.rglob(f"{name}.expected.parquet")
    return pq.read_table(path)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in REFUSED])
def test_copy_on_write_table_of_hudi_gives_hudis_own_rows(
    golden_table: Callable[[str], Path], name: str
) -> None:
    expected = expected_rows(name)
    got = bl.open_table(str(golden_table(name))).to_arrow()
    columns = [c for c in expected.column_names if c != PARTITION_COLUMN_FROM_FOLDERS.get(name)]
    assert plain_rows(got, columns) == plain_rows(expected, columns)
    assert got.num_rows > 0
    assert set(got.column_names) == set(expected.column_names)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_table_that_cannot_be_read_rightly_is_refused_by_its_feature(
    golden_table: Callable[[str], Path], name: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=REFUSED[name]):
        bl.open_table(str(golden_table(name)))


@pytest.mark.parametrize("name", WITH_LOGS)
def test_table_with_log_files_is_refused_by_name(
    golden_table: Callable[[str], Path], name: str
) -> None:
    table = bl.open_table(str(golden_table(name)))
    with pytest.raises(UnsupportedFeatureError, match="log files"):
        table.to_arrow()


def test_golden_tables_are_all_there() -> None:
    assert len(NAMES) >= 30
    assert len(WITH_LOGS) == 7
