"""Tables that real Hudi wrote give exactly the rows that real Hudi reads from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import UnsupportedFeatureError
from tests.golden.objects import objects_of_table
from tests.golden.rows import plain_rows
from tests.storages import memory_of

TABLES = Path(__file__).parent / "tables"

NAMES = sorted(p.name.removesuffix(".tar.gz") for p in TABLES.rglob("cow_*.tar.gz"))
REFUSED = {
    "mor_v8_partial_update_payload": r"custom merging \(.*PartialUpdateAvroPayload\)",
}
UNRANGED = {
    "cow_without_meta_fields",
}
HISTORIES = sorted(p.name.removesuffix(".history.parquet") for p in TABLES.rglob("mor_*.history.*"))
WITH_LOGS = sorted(p.name.removesuffix(".tar.gz") for p in TABLES.rglob("mor_*.tar.gz"))

# Hudi's Spark reader takes partition values from folder names: it turns an empty value into null,
# the value k=v into v, and an integer into text. The files hold what was written.
PARTITION_COLUMN_FROM_FOLDERS = {
    "cow_hive_encoded": "region",
    "cow_plain_partitions": "region",
    "cow_timestamp_partitions": "at_ms",
    "mor_hive_encoded": "region",
}


def expected_rows(name: str) -> pa.Table:
    (path,) = TABLES.rglob(f"{name}.expected.parquet")
    return pq.read_table(path)


@pytest.mark.parametrize("name", [n for n in NAMES + WITH_LOGS if n not in REFUSED])
def test_table_of_hudi_gives_hudis_own_rows(name: str) -> None:
    expected = expected_rows(name)
    storage = memory_of(objects_of_table(name))
    table = bl.open_table(storage.root)
    got = table.to_arrow()
    columns = [c for c in expected.column_names if c != PARTITION_COLUMN_FROM_FOLDERS.get(name)]
    assert plain_rows(got, columns) == plain_rows(expected, columns)
    assert got.num_rows > 0
    assert set(got.column_names) == set(expected.column_names)
    if name not in UNRANGED:  # A range of all times holds every row.
        every = table.to_arrow(since="00000000000000")
        assert plain_rows(every, columns) == plain_rows(got, columns)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_table_that_cannot_be_read_rightly_is_refused_by_its_feature(
    golden_table: Callable[[str], Path], name: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=REFUSED[name]):
        bl.open_table(str(golden_table(name)))


@pytest.mark.parametrize("name", HISTORIES)
def test_time_travel_to_each_commit_gives_hudis_own_rows(
    golden_table: Callable[[str], Path], name: str
) -> None:
    (path,) = TABLES.rglob(f"{name}.history.parquet")
    history = pq.read_table(path)
    columns = [c for c in history.column_names if c != "as_of"]
    table = bl.open_table(str(golden_table(name)))
    instants = pc.unique(history["as_of"]).to_pylist()
    assert len(instants) > 3
    for instant in instants:
        expected = history.filter(pc.field("as_of") == instant)
        assert plain_rows(table.to_arrow(as_of=instant), columns) == plain_rows(expected, columns)


def test_golden_tables_are_all_there() -> None:
    assert len(NAMES) >= 30
    assert len(WITH_LOGS) == 89
    assert len(HISTORIES) == 7
