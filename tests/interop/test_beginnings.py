"""Tables at their edges: empty, emptied, made by SQL, loaded in bulk; either begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.model import rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer, rows
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop


@pytest.fixture
def table(hudi: HudiPeer, tmp_path: Path) -> SharedTable:
    return SharedTable(hudi, tmp_path / "shared")


def take_turns(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(4, 14), 3, ("eu", "us", "asia")))
    table.assert_read_by_all()
    table.upsert(HUDI, rows(range(10, 18), 4, ("eu", "us", "asia")))
    table.assert_read_by_all()


def test_table_of_ours_without_rows_is_read_and_written_by_hudi(table: SharedTable) -> None:
    table.begin()
    table.assert_read_by_all()
    table.upsert(HUDI, rows(range(8), 1))
    assert table.ours.config().timeline_timezone == "UTC"
    take_turns(table)


def test_table_that_sql_made_gets_its_first_rows_from_us(hudi: HudiPeer, tmp_path: Path) -> None:
    table = SharedTable(hudi, tmp_path / "made", TableKind(hive_style=True))
    hudi.sql(
        "CREATE TABLE made (id STRING, ts BIGINT, v INT, note STRING, region STRING) USING hudi"
        " PARTITIONED BY (region) TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts')"
        f" LOCATION '{table.path}'"
    )
    assert table.ours.timeline() == []
    assert rows_of(table.ours.to_arrow(), table.kind.schema) == []
    table.upsert(BUCKETLAKE, rows(range(8), 1))
    take_turns(table)
    assert hudi.sql("SELECT count(*) AS n FROM made") == [{"n": len(table.model.rows)}]


@pytest.mark.parametrize("by_rows", ["true", "false"])
def test_table_that_hudi_loaded_in_bulk(table: SharedTable, by_rows: str) -> None:
    loaded = rows(range(12), 1)
    table.model.upsert(loaded)
    table.hudi_runs("bulk_insert", loaded, {"hoodie.datasource.write.row.writer.enable": by_rows})
    groups = table.file_groups()
    take_turns(table)
    assert groups <= table.file_groups()


def test_table_that_we_loaded_in_bulk(table: SharedTable) -> None:
    table.begin()
    loaded = rows(range(12), 1)
    table.model.upsert(loaded)
    table.ours.bulk_insert(table.kind.rows(loaded))
    groups = table.file_groups()
    take_turns(table)
    assert groups <= table.file_groups()


@pytest.mark.parametrize("writer", Writer)
def test_table_that_one_emptied_is_filled_again(table: SharedTable, writer: Writer) -> None:
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(8), 1))
    table.delete(writer, rows(range(8), 0))
    assert table.model.rows == {}
    table.assert_read_by_all()
    take_turns(table)


def test_partition_markers_in_parquet_are_kept(table: SharedTable) -> None:
    table.options["hoodie.partition.metafile.use.base.format"] = "true"
    table.upsert(HUDI, rows(range(8), 1))
    take_turns(table)
    table.upsert(BUCKETLAKE, rows(range(2), 9, ("africa",)))
    table.assert_read_by_all()
