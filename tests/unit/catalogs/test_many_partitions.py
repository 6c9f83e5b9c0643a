"""Calls of a sync at many partitions."""

from __future__ import annotations

from typing import Any

from benchmarks.workloads.catalog_sync import NamedPartitions
from tests.memory_catalog import MemoryCatalog


def test_a_table_of_150000_partitions_is_synced_by_few_calls() -> None:
    catalog, table = MemoryCatalog(batch=1000), NamedPartitions.of(150_000)
    assert table.sync(catalog).added == 150_000
    assert catalog.names.count("add_partitions") == 150
    assert (
        catalog.calls == 150 + 6
    )  # Entry: looked up, made, looked up, altered. Database: looked up, made.
    for paths, calls in (((), 1), ((next(iter(table.paths)), "day=new"), 4), (("day=new",), 3)):
        if paths:
            table.commit(paths)
        before = catalog.calls
        table.sync(catalog)
        assert catalog.calls - before == calls
    assert len(catalog.partitions["sales.orders"]) == 150_001


def test_the_timeline_is_searched_for_undone_commits_once_a_sync() -> None:
    class Counted(NamedPartitions):
        searched = 0

        def completed(self, *_: object) -> list[Any]:
            self.searched += 1
            return super().completed()

    catalog, table = MemoryCatalog(), Counted.of(3)
    table.sync(catalog)
    table.commit(["day=new"])
    table.searched = 0
    assert table.sync(catalog).added == 1
    assert table.searched == 1
