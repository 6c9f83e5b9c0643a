"""Hudi goes on with a table of bucketlake's, as with one of its own, and bucketlake after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import UnsupportedFeatureError
from tests.interop.model import commits_of, in_order, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import (
    BUCKETLAKE,
    HUDI,
    WITHOUT_METADATA,
    SharedTable,
    Writer,
    rows,
)
from tests.interop.table_kind import BUCKETS

pytestmark = pytest.mark.interop


@pytest.fixture
def table(hudi: HudiPeer, tmp_path: Path) -> SharedTable:
    """A table that bucketlake begins."""
    shared = SharedTable(hudi, tmp_path / "shared")
    shared.begin()
    return shared


def test_hudi_writes_into_the_file_groups_that_are_there(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    table.upsert(BUCKETLAKE, rows(range(10, 30), 3))
    groups = table.file_groups()
    assert len(groups) == 2 * BUCKETS
    table.upsert(HUDI, rows(range(5, 40), 2))
    table.delete(HUDI, rows(range(12, 20), 9))
    assert table.file_groups() == groups
    table.assert_read_by_all()
    table.upsert(BUCKETLAKE, rows(range(35, 50), 4))
    new = rows(range(50, 55), 5)  # A key that is there Hudi's insert would store a second time.
    table.model.upsert(new)
    table.hudi_runs("insert", new)
    assert table.file_groups() == groups
    table.assert_read_by_all()


def test_a_position_is_found_before_commits_of_hudi_that_lack_it(table: SharedTable) -> None:
    first, nothing = table.kind.rows(rows(range(24), 1)), table.kind.rows([])
    table.model.upsert(rows(range(24), 1))
    table.ours.upsert(first, position=bl.Position("topic", {"0": 7}))
    table.ours.upsert(nothing, position=bl.Position("topic", {"0": 9}, first={"0": 8}))
    table.upsert(HUDI, rows(range(5, 40), 2))
    table.upsert(HUDI, rows(range(5, 10), 3))
    assert table.ours.upsert(first, position=bl.Position("topic", {"0": 9})).skipped
    table.upsert(BUCKETLAKE, rows(range(35, 50), 4))
    found = table.ours.position("topic")
    assert found is not None
    assert dict(found.last) == {"0": 9}
    table.assert_read_by_all()


def test_partitions_replaced_by_one_are_replaced_for_the_other(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1, ("eu", "us", "asia")))
    for overwriting, upserting in ((HUDI, BUCKETLAKE), (BUCKETLAKE, HUDI)):
        table.overwrite(overwriting, rows(range(1, 9), 0, ("us",)))
        table.assert_read_by_all()
        table.upsert(upserting, rows(range(5, 12), 1, ("us", "eu")))
        table.assert_read_by_all()
    table.delete_partitions(HUDI, ["eu"])
    table.delete_partitions(BUCKETLAKE, ["us"])
    table.assert_read_by_all()
    table.upsert(BUCKETLAKE, rows(range(4), 0, ("eu",)))
    table.upsert(HUDI, rows(range(2, 6), 0, ("us", "eu")))
    table.assert_read_by_all()
    for overwriting, upserting in ((HUDI, BUCKETLAKE), (BUCKETLAKE, HUDI)):
        table.overwrite(overwriting, rows(range(40, 44), 0, ("us",)), whole_table=True)
        table.upsert(upserting, rows(range(42, 46), 0, ("us", "eu")))
        table.assert_read_by_all()


def test_statements_of_spark_sql_change_a_table_of_ours(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(12), 1))
    groups, sql = table.file_groups(), table.hudi.sql
    sql(f"CREATE TABLE ours USING hudi LOCATION '{table.path}'")
    settings = table.kind.bucket_options() | WITHOUT_METADATA
    for key, value in settings.items():
        sql(f"SET {key}={value}")
    sql("UPDATE ours SET v = v + 100, ts = 2 WHERE id = 'k3'")
    sql("DELETE FROM ours WHERE id = 'k4'")
    sql(
        "MERGE INTO ours t USING (SELECT * FROM VALUES ('k5', 'us', 7L, 55, 'new'),"
        " ('k12', 'eu', 7L, 12, NULL) AS s(id, region, ts, v, note)) AS s"
        " ON t.id = s.id AND t.region = s.region"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    updated, inserted, merged = rows(range(3, 4), 1), rows(range(12, 13), 7), rows(range(5, 6), 7)
    table.model.upsert([updated[0] | {"ts": 2, "v": 103}, merged[0] | {"v": 55, "note": "new"}])
    table.model.upsert([inserted[0] | {"note": None}])
    table.model.delete(rows(range(4, 5), 0))
    assert table.file_groups() == groups
    table.assert_read_by_all()
    table.upsert(BUCKETLAKE, rows(range(3, 15), 3))
    table.assert_read_by_all()
    assert sql("SELECT count(*) AS n FROM ours") == [{"n": len(table.model.rows)}]


def test_column_that_sql_added_is_ours_too(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(8), 1))
    table.hudi.sql(f"CREATE TABLE altered USING hudi LOCATION '{table.path}'")
    table.hudi.sql("SET hoodie.metadata.enable=false")
    table.hudi.sql("ALTER TABLE altered ADD COLUMNS (extra STRING)")
    table.kind = replace(
        table.kind, schema=table.kind.schema.append(pa.field("extra", pa.string()))
    )
    table.model.rows = {key: row | {"extra": None} for key, row in table.model.rows.items()}
    table.assert_read_by_all()
    for n, writer in enumerate(Writer):
        table.upsert(writer, [row | {"extra": f"x{n}"} for row in rows(range(n, 9 + n), 2 + n)])
        table.assert_read_by_all()


def test_table_whose_columns_were_renamed_on_read_is_refused(table: SharedTable) -> None:
    """Files keep the old name, and a later write of Hudi's hands the history of names on."""
    table.upsert(BUCKETLAKE, rows(range(8), 1))
    before = commits_of(table.ours)[-1].requested_at
    sql = table.hudi.sql
    sql(f"CREATE TABLE renamed USING hudi LOCATION '{table.path}'")
    settings = {
        "hoodie.schema.on.read.enable": "true",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
    }
    for key, value in (settings | WITHOUT_METADATA).items():
        sql(f"SET {key}={value}")
    sql("ALTER TABLE renamed RENAME COLUMN note TO remark")
    with pytest.raises(UnsupportedFeatureError, match="schema evolution on read"):
        table.ours.to_arrow()
    schema = table.kind.schema
    names = ["remark" if name == "note" else name for name in schema.names]
    table.hudi.write(
        table.path,
        table.kind.rows(rows(range(4), 2)).rename_columns(names),
        table.options | settings,
    )
    with pytest.raises(UnsupportedFeatureError, match="schema evolution on read"):
        table.ours.upsert(table.kind.rows(rows(range(4), 3)).rename_columns(names))
    held = in_order(table.model.rows.values(), schema)
    assert rows_of(table.ours.to_arrow(as_of=before), schema) == held
