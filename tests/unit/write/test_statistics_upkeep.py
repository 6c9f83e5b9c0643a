"""Every action of a table maintains the statistics in its metadata table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.format.metadata_record.column_stats import ColumnStats, decode_column_stats
from bucketlake.metadata.file_statistics import column_stats_of, statistics_of_file
from bucketlake.metadata.merged_statistics import merge_layers, unite_statistics
from bucketlake.metadata.slice_reader import read_all
from bucketlake.metadata.statistics import indexed_columns
from bucketlake.metadata.table import MetadataTable, open_metadata_table
from bucketlake.model.file_slice import DataFile
from bucketlake.read.snapshot import load_snapshot
from bucketlake.write import commit
from tests.unit.write.test_completion import COW, MOR, RINGS, rows
from tests.unit.write.test_metadata_upkeep import WAYS, make, opened, stored

PARTITIONS = ("column_stats", "files", "partition_stats")


def make_indexed(path: str, table_type: str, *, later: bool = False) -> bl.Table:
    table = make(path, table_type, metadata_table=not later)
    assert table.rebuild_metadata_table(PARTITIONS) == PARTITIONS
    return table


def metadata_of(table: bl.Table) -> MetadataTable:
    storage, config = opened(table)
    assert config.metadata_partitions == PARTITIONS
    return open_metadata_table(storage, config, load_snapshot(storage, config).timeline)


def records_of(table: bl.Table, partition: str) -> ColumnStats:
    """Return all statistics of a partition of the metadata table, a record for each key."""
    found = []
    for entries in read_all(metadata_of(table), partition):
        if len(entries.keys):
            _, stats = decode_column_stats(entries.values, entries.where)
            codes = entries.keys.dictionary_encode().indices.to_numpy().astype(np.int64)
            found.append(merge_layers(codes, stats, entries.where)[1])
    return ColumnStats.concat(found)


def live_files(table: bl.Table) -> list[DataFile]:
    storage, config = opened(table)
    slices = load_snapshot(storage, config).all_slices()
    return [file for file_slice in slices for file in file_slice.files]


def facts_of(stats: ColumnStats) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return name, column, bounds and counts of each row."""
    bounds = []
    for wrapped in (stats.minima, stats.maxima):
        values: list[Any] = [None] * len(stats)
        for held, part in wrapped.parts.values():
            for row, value in zip(held.tolist(), part.to_pylist(), strict=True):
                values[row] = value
        bounds.append(values)
    counts = (stats.value_counts, stats.null_counts, stats.stored_bytes)
    columns = [*bounds, *(column.to_pylist() for column in counts)]
    keys = zip(stats.names.to_pylist(), stats.columns.to_pylist(), strict=True)
    return dict(zip(keys, zip(*columns, strict=True), strict=True))


def rank(value: Any) -> tuple[bool, Any]:
    """Return the sort key of a value: NaN is greater than every number."""
    return (value != value, 0 if value != value else value)


def require_statistics(table: bl.Table) -> None:
    """Each live file has its statistics, no deleted file has any, and partitions hold their files'.

    A clean that happened before the statistics were built left none.
    """
    storage, _ = opened(table)
    columns = indexed_columns(storage, opened(table)[1], table.schema())
    assert columns is not None
    found = facts_of(records_of(table, "column_stats"))
    files = live_files(table)
    by_partition: dict[str, list[ColumnStats]] = {}
    for file in files:
        name = file.name.to_file_name()
        stats = column_stats_of([(name, statistics_of_file(storage, file.path, columns))])
        by_partition.setdefault(file.partition_path, []).append(stats)
        for key, facts in facts_of(stats).items():
            assert repr(found[key]) == repr(facts), key  # NaN is not equal to itself.
    names = {path.rpartition("/")[2] for path in stored(table)}
    assert {name for name, _ in found} <= names
    of_partitions = facts_of(records_of(table, "partition_stats"))
    for path, held in by_partition.items():
        stats = ColumnStats.concat(held)
        codes = stats.columns.dictionary_encode()
        places = codes.indices.to_numpy().astype(np.int64)
        united = unite_statistics(stats, places, len(codes.dictionary), "files")
        for (_, column), (low, high, count, nulls, _) in facts_of(united).items():
            wider = of_partitions[path, column]
            assert low is None or rank(wider[0]) <= rank(low), (path, column)
            assert high is None or rank(wider[1]) >= rank(high), (path, column)
            assert wider[2] >= count
            assert wider[3] >= nulls


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
    bounds = facts_of(records_of(table, "partition_stats"))
    assert bounds["a", "v"][:2] == (0 if table_type == RINGS else bounds["a", "v"][0], 50)
    table.insert_overwrite(rows(7, "a"))
    bounds = facts_of(records_of(table, "partition_stats"))
    assert bounds["a", "v"][:2] == (7, 7)
    assert bounds["b", "v"][1] == 50
    table.upsert(rows(3, "a"))
    assert facts_of(records_of(table, "partition_stats"))["a", "v"][:2] == (3, 7)
    require_statistics(table)


def test_commit_that_only_deletes_leaves_the_statistics_of_partitions_alone(
    new_path: Callable[[], str],
) -> None:
    # Hudi cannot unite the value type of a log file without rows with another value type.
    table = make_indexed(new_path(), MOR)
    before = facts_of(records_of(table, "partition_stats"))
    table.delete(rows(1).slice(0, 3).select(["id", "day"]))
    assert facts_of(records_of(table, "partition_stats")) == before
    require_statistics(table)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_commit_of_a_writer_that_opened_the_table_before_the_build_has_statistics(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    table = make(new_path(), table_type, metadata_table=False)
    take = commit.last_turn

    def build_first(storage: Any) -> object:
        monkeypatch.setattr(commit, "last_turn", take)
        table.rebuild_metadata_table(PARTITIONS)
        return take(storage)

    monkeypatch.setattr(commit, "last_turn", build_first)
    table.upsert(rows(2))
    require_statistics(table)


def test_commit_with_copies_of_log_files_gives_them_statistics_although_the_tasks_did_not(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), RINGS, metadata_table=False)
    assert table.resize(max_file_size=1, merge_threshold=0.0, schedule_only=True).scheduled
    take = commit.last_turn

    def build_first(storage: Any) -> object:
        monkeypatch.setattr(commit, "last_turn", take)
        table.rebuild_metadata_table(PARTITIONS)
        return take(storage)

    monkeypatch.setattr(commit, "last_turn", build_first)
    table.upsert(rows(2))
    table.resize(max_file_size=1, merge_threshold=0.0, max_groups=1)
    require_statistics(table)


def test_columns_that_a_table_gets_later_have_no_statistics(new_path: Callable[[], str]) -> None:
    table = make_indexed(new_path(), COW)
    wider = rows(5).append_column("more", pa.array(range(12), pa.int64()))
    table.upsert(wider)
    require_statistics(table)
    columns = {column for _, column in facts_of(records_of(table, "column_stats"))}
    assert "more" not in columns
