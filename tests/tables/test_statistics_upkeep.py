"""Every action of a table maintains the statistics in its metadata table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.metadata.metadata_table import MetadataTable, open_metadata_table
from bucketlake.read.snapshot import load_snapshot
from bucketlake.timeline.open_table import opened_table
from tests.meanwhile import meanwhile
from tests.metadata_truth import Facts, facts_of, require_true_statistics, statistics_in
from tests.tables.test_metadata_upkeep import WAYS, make, opened
from tests.unit.actions.test_completion import COW, MOR, RINGS, rows

PARTITIONS = ("column_stats", "files", "partition_stats")


def make_indexed(path: str, table_type: str, *, later: bool = False) -> bl.Table:
    table = make(path, table_type, metadata_table=not later)
    assert table.rebuild_metadata_table(PARTITIONS) == PARTITIONS
    return table


def metadata_of(table: bl.Table) -> MetadataTable:
    storage, config = opened(table)
    assert config.metadata_partitions == PARTITIONS
    return open_metadata_table(
        opened_table(storage, config), load_snapshot(opened_table(storage, config)).timeline
    )


def bounds_of_partitions(table: bl.Table) -> Facts:
    return facts_of(statistics_in(metadata_of(table), "partition_stats"))


def require_statistics(table: bl.Table) -> None:
    require_true_statistics(opened(table)[0])


@pytest.mark.parametrize("later", [False, True], ids=["from the beginning", "later"])
@pytest.mark.parametrize(("table_type", "run"), WAYS)
def test_after_every_operation_each_file_has_its_statistics(
    new_path: Callable[[], str], table_type: str, run: Callable[[bl.Table], Any], later: bool
) -> None:
    table = make_indexed(new_path(), table_type, later=later)
    run(table)
    require_statistics(table)
    table.upsert(rows(7, "abc"))
    require_statistics(table)
    table.rebuild_metadata_table()
    require_statistics(table)


@pytest.mark.parametrize("table_type", [COW, MOR, RINGS])
def test_overwritten_partition_has_tight_bounds(
    new_path: Callable[[], str], table_type: str
) -> None:
    table = make_indexed(new_path(), table_type)
    table.upsert(rows(50))
    bounds = bounds_of_partitions(table)
    assert bounds["a", "v"][:2] == (0 if table_type == RINGS else bounds["a", "v"][0], 50)
    table.insert_overwrite(rows(7, "a"))
    bounds = bounds_of_partitions(table)
    assert bounds["a", "v"][:2] == (7, 7)
    assert bounds["b", "v"][1] == 50
    table.upsert(rows(3, "a"))
    assert bounds_of_partitions(table)["a", "v"][:2] == (3, 7)
    require_statistics(table)


def test_commit_that_only_deletes_leaves_the_statistics_of_partitions_alone(
    new_path: Callable[[], str],
) -> None:
    # Hudi cannot unite the value type of a log file without rows with another value type.
    table = make_indexed(new_path(), MOR)
    before = bounds_of_partitions(table)
    table.delete(rows(1).slice(0, 3).select(["id", "day"]))
    assert bounds_of_partitions(table) == before
    require_statistics(table)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_commit_of_a_writer_that_opened_the_table_before_the_build_has_statistics(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    table = make(new_path(), table_type, metadata_table=False)
    meanwhile(monkeypatch, lambda: table.rebuild_metadata_table(PARTITIONS))
    table.upsert(rows(2))
    require_statistics(table)


def test_commit_with_copies_of_log_files_gives_them_statistics_although_the_tasks_did_not(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), RINGS, metadata_table=False)
    assert table.resize(max_file_size=1, merge_threshold=0.0, schedule_only=True).scheduled
    meanwhile(monkeypatch, lambda: table.rebuild_metadata_table(PARTITIONS))
    table.upsert(rows(2))
    table.resize(max_file_size=1, merge_threshold=0.0, max_groups=1)
    require_statistics(table)


def test_columns_that_a_table_gets_later_have_no_statistics(new_path: Callable[[], str]) -> None:
    table = make_indexed(new_path(), COW)
    wider = rows(5).append_column("more", pa.array(range(12), pa.int64()))
    table.upsert(wider, merge_schema="add_columns")
    require_statistics(table)
    columns = {column for _, column in facts_of(statistics_in(metadata_of(table), "column_stats"))}
    assert "more" not in columns
