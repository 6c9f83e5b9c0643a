"""Pruning by statistics of the metadata table: what reads skip, and when they do not use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.config import table_keys as keys
from bucketlake.errors import MetadataTableError
from bucketlake.read.pruning import by_statistics
from bucketlake.read.pruning.prune import PruningReport
from bucketlake.storage.location import open_storage
from bucketlake.table import handle_of
from tests.inside import opened
from tests.meanwhile import LOOKS, meanwhile
from tests.spies import forbid, spy
from tests.storages import set_properties

SCHEMA = pa.schema(
    {"id": pa.string(), "p": pa.string(), "n": pa.int64(), "tags": pa.list_(pa.int32())}
)
COW, MOR = "copy_on_write", "merge_on_read"


def rows(numbers: range, p: str, *, n: int | None = None) -> pa.Table:
    made = [{"id": f"k{i}", "p": p, "n": i if n is None else n, "tags": [i]} for i in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


def make(path: str, table_type: str = COW, *, metadata_table: bool = True) -> bl.Table:
    """Make a table whose partitions a, b and c have n from 0, 100 and 200 on, in two buckets."""
    table = bl.create_table(
        path, schema=SCHEMA, record_key=["id"], partition_by=["p"], index=bl.SimpleBucket(2),
        table_type=table_type, metadata_table=metadata_table,
    )  # fmt: skip
    for place, p in enumerate("abc"):
        table.upsert(rows(range(100 * place, 100 * place + 20), p))
    return table


@pytest.fixture(params=[COW, MOR])
def table(request: pytest.FixtureRequest, new_path: Callable[[], str]) -> bl.Table:
    return make(new_path(), request.param)


def ids(table: bl.Table, where: str, **options: Any) -> list[str]:
    found: list[str] = table.to_arrow(where=where, **options)["id"].to_pylist()
    return sorted(found)


def facts(report: PruningReport) -> tuple[int, int, str | None]:
    return report.file_groups_kept, report.statistics_skipped, report.statistics_reason


def test_report_tells_what_statistics_skipped(table: bl.Table) -> None:
    assert facts(table.explain("n >= 200")) == (2, 4, None)
    assert facts(table.explain("n = 1000")) == (0, 6, None)
    all_left = "every file group that is left may hold matching rows"
    assert facts(table.explain("n >= 0")) == (6, 0, all_left)
    assert ids(table, "n >= 218") == ["k218", "k219"]


def test_report_tells_why_statistics_skipped_nothing(
    table: bl.Table, new_path: Callable[[], str]
) -> None:
    other = "no condition on a column that can have statistics"
    assert table.explain("size(tags) > 1").statistics_reason == other
    assert table.explain("tags IS NULL").statistics_reason == other
    assert table.explain().statistics_reason == "there is no condition"
    assert table.explain("p = 'x'").statistics_reason == "no file group is left"
    plain = make(new_path(), metadata_table=False)
    assert plain.explain("n >= 200").statistics_reason == "the table has no statistics"
    assert plain.explain("n >= 200").file_groups_kept == 6


def test_update_in_a_log_file_keeps_its_slice(new_path: Callable[[], str]) -> None:
    table = make(new_path(), MOR)
    table.upsert(rows(range(5), "a", n=500))
    # The base file has only smaller values, and its rows with these keys do not count any more.
    assert ids(table, "n = 500") == [f"k{i}" for i in range(5)]
    assert ids(table, "n < 5") == []
    assert table.explain("n = 500").file_groups_kept <= 2
    table.delete(rows(range(5), "a").select(["id", "p"]))
    assert ids(table, "n = 500") == []
    # The log files of deletes bring no values.
    assert table.explain("n > 1000").file_groups_kept == 0


def test_partitions_are_skipped_by_their_own_statistics(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    spy(
        monkeypatch,
        by_statistics,
        "find_column_stats",
        lambda _, __, files: asked.extend(file.partition_path for file in files),
    )
    assert ids(table, "n = 105") == ["k105"]
    assert set(asked) == {"b"}


def test_earlier_states_do_not_use_statistics_of_partitions(table: bl.Table) -> None:
    before = table.timeline()[-1].requested_at
    table.insert_overwrite(rows(range(300, 310), "a"))
    assert table.explain("n < 20").file_groups_kept == 0
    assert ids(table, "n < 3", as_of=before) == ["k0", "k1", "k2"]
    assert ids(table, "n < 3") == []


def test_incremental_reads_are_pruned_by_their_commits(table: bl.Table) -> None:
    commits = [i for i in table.timeline() if i.action.writes_data]
    table.upsert(rows(range(100, 105), "b", n=7))
    second = commits[1]
    found = ids(table, "n >= 100", since=commits[0].completed_at, until=second.completed_at)
    assert found == [f"k{i}" for i in range(100, 120)]
    assert ids(table, "n = 7", since=commits[-1].completed_at) == [f"k{i}" for i in range(100, 105)]
    table.insert_overwrite(rows(range(300, 310), "b"))
    again = ids(table, "n >= 100", since=commits[0].completed_at, until=second.completed_at)
    assert again == found


def test_column_that_older_files_lack_is_null_there(table: bl.Table) -> None:
    table.rebuild_metadata_table()
    wider = rows(range(400, 405), "a").append_column("more", pa.array([1, 2, 3, 4, None]))
    table.upsert(wider, merge_schema=True)
    assert len(ids(table, "more IS NULL")) == 61
    assert ids(table, "more = 3") == ["k402"]
    table.rebuild_metadata_table()  # The index knows the columns of its first build.
    assert len(ids(table, "more IS NULL")) == 61
    storage = open_storage(table.path)
    storage.delete(".hoodie/.index_defs/index.json")
    table.rebuild_metadata_table()
    assert len(ids(table, "more IS NULL")) == 61
    assert table.explain("more = 3").file_groups_kept == 2
    table.upsert(wider, merge_schema=True)
    assert len(ids(table, "more IS NULL")) == 61
    assert ids(table, "more = 3") == ["k402"]


def test_widened_column_is_pruned_by_bounds_of_both_types(new_path: Callable[[], str]) -> None:
    schema = pa.schema({"id": pa.string(), "n": pa.int32(), "f": pa.float32()})
    table = bl.create_table(
        new_path(), schema=schema, record_key=["id"], index=bl.SimpleBucket(1),
        table_type=MOR, metadata_table=True,
    )  # fmt: skip
    first = pa.table(
        {"id": ["a"], "n": pa.array([1], pa.int32()), "f": pa.array([0.1], pa.float32())}
    )
    table.upsert(first)
    wider = pa.table({"id": ["b"], "n": [2**40], "f": [0.25]})
    table.upsert(wider, merge_schema=True)
    assert ids(table, "n = 1") == ["a"]
    assert ids(table, f"n = {2**40}") == ["b"]
    assert ids(table, "f = 0.1D") == ["a"]  # Readers keep the digits of a float.
    assert table.explain("n < 0").file_groups_kept == 0
    assert table.explain("f > 1D").file_groups_kept == 0


def test_statistics_that_were_turned_off_meanwhile_are_not_used(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {keys.METADATA_PARTITIONS: "column_stats,files"}

    def turn_off() -> None:
        set_properties(open_storage(table.path), lists)

    meanwhile(monkeypatch, turn_off, LOOKS, "metadata/partition_stats")
    report = table.explain("n >= 200")
    assert facts(report) == (6, 0, "the statistics were turned off")


def test_damaged_statistics_are_an_error(table: bl.Table) -> None:
    storage = open_storage(table.path)
    for stored in [*storage.list(".hoodie/metadata/column_stats")]:
        storage.delete(stored.path)
    with pytest.raises(MetadataTableError, match="column_stats has no file groups"):
        table.to_arrow(where="n > 100 AND n < 300")
    table.drop_metadata_table()
    assert len(ids(table, "n > 100 AND n < 300")) == 39


def test_statistics_of_partitions_that_include_a_later_commit_are_not_used(
    table: bl.Table,
) -> None:
    pinned = handle_of(table).snapshot().metadata_table
    table.insert_overwrite(rows(range(300, 310), "a"))
    newest = handle_of(table).snapshot().metadata_table
    stale = replace(newest, data_timeline=pinned.data_timeline)
    # The later commit is in a log file, which the reader ignores.
    assert by_statistics._is_of_pinned_state(stale)
    assert compact_metadata(opened(table), delta_commits=1) is not None
    newest = handle_of(table).snapshot().metadata_table
    stale = replace(newest, data_timeline=pinned.data_timeline)
    assert not by_statistics._is_of_pinned_state(stale)
    assert by_statistics._is_of_pinned_state(newest)


def test_writes_do_not_use_statistics(table: bl.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, by_statistics, "find_column_stats", "find_partition_stats")
    table.upsert(rows(range(3), "a", n=1))
    table.delete(rows(range(3), "a").select(["id", "p"]))
    with pytest.raises(AssertionError):
        table.to_arrow(where="n = 1")
