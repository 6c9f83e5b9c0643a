"""Calls of a sync at many partitions."""

from __future__ import annotations

from benchmarks.workloads.catalog_sync import NamedPartitions
from tests.memory_catalog import MemoryCatalog


def test_a_table_of_150000_partitions_is_synced_by_few_calls() -> None:
    catalog, table = MemoryCatalog(batch=1000), NamedPartitions.of(150_000)
    assert table.sync(catalog).added == 150_000
    assert catalog.names.count("add_partitions") == 150
    assert catalog.calls == 150 + 6  # Database: found, made. Entry: found, made, found, altered.
    for paths, calls in (((), 2), ((next(iter(table.paths)), "day=new"), 5), (("day=new",), 4)):
        if paths:
            table.commit(paths)
        before = catalog.calls
        table.sync(catalog)
        assert catalog.calls - before == calls
    assert len(catalog.partitions["sales.orders"]) == 150_001
