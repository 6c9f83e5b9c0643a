"""What an operation of storage is asked for: it follows the batch, and never the table."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.model.table_type import Operation
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.read_plan import plan_slices
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.faulty_storage import FaultyStorage

BUCKETS = 8
BUCKET_INDEX = bl.SimpleBucket(BUCKETS)


def rows(partitions: int, keys: int) -> pa.Table:
    pairs = [(f"p{i}", f"k{j}") for i in range(partitions) for j in range(keys)]
    return pa.table({"p": [p for p, _ in pairs], "id": [k for _, k in pairs]})


def table_of(
    name: str,
    partitions: int,
    index: bl.SimpleBucket | bl.RecordIndex = BUCKET_INDEX,
    *,
    metadata_table: bool = True,
) -> FaultyStorage:
    forget(name)
    table = bl.create_table(
        f"memory://{name}",
        schema=rows(1, 1).schema,
        record_key=["id"],
        partition_by=["p"],
        index=index,
        metadata_table=metadata_table,
    )
    table.upsert(rows(partitions, 64))
    return FaultyStorage(MemoryStorage(name))


def upsert_one(storage: FaultyStorage) -> bl.WriteResult:
    target = open_target(table_at(storage), None)
    return write_records(target, Operation.UPSERT, ArrowSource(rows(1, 1), threads=1))


@pytest.mark.parametrize("metadata_table", [True, False])
def test_upsert_of_one_record_reads_and_writes_one_file_however_large_the_table_is(
    metadata_table: bool,
) -> None:
    small = table_of("cost-small", 2, metadata_table=metadata_table)
    large = table_of("cost-large", 40, metadata_table=metadata_table)
    assert upsert_one(small).file_groups == upsert_one(large).file_groups == 1
    assert small.operations == large.operations


def test_upsert_under_a_record_index_reads_one_shard_however_large_the_table_is() -> None:
    tables = [table_of(f"cost-index-{n}", n, bl.RecordIndex()) for n in (2, 40)]
    for storage in tables:
        assert upsert_one(storage).file_groups == 1
    assert tables[0].operations == tables[1].operations
    asked = [step.path for step in tables[1].trace if "record_index/" in step.path]
    assert asked
    assert all("record-index-p0-" in path for path in asked)


@pytest.mark.parametrize("metadata_table", [True, False])
def test_upsert_never_looks_at_a_partition_that_it_does_not_touch(metadata_table: bool) -> None:
    storage = table_of("cost-untouched", 3, metadata_table=metadata_table)
    upsert_one(storage)
    asked = storage.replay()
    assert "p0" in asked
    assert "p1/" not in asked
    assert "p2/" not in asked


# What an upsert of one file group asks of storage. Each is one request to an object store, but the
# removal of a folder, which lists it first. docs/how-to/object-stores.md says what they are for.
UPSERT = {
    "read": 8,
    "list": 8,
    "list_folders": 1,
    "stat": 4,
    "put_if_absent": 9,
    "delete": 1,
    "delete_folder": 1,
}

# The same with a metadata table, at the second commit after its creation: later ones read up to ten
# log files more, and the tenth compacts them.
UPSERT_WITH_METADATA_TABLE = UPSERT | {
    "read": 16,
    "list": 13,
    "stat": 6,
    "put": 4,
    "put_if_absent": 12,
}


@pytest.mark.parametrize(
    ("metadata_table", "expected"), [(False, UPSERT), (True, UPSERT_WITH_METADATA_TABLE)]
)
def test_upsert_of_one_bucket_of_two_hundred_asks_for_what_it_needs_and_no_more(
    metadata_table: bool, expected: dict[str, int]
) -> None:
    storage = table_of("cost-requests", 25, metadata_table=metadata_table)
    upsert_one(storage)
    asked = Counter(step.operation for step in storage.trace)
    assert asked == expected, storage.replay()


@pytest.mark.parametrize("metadata_table", [False, True])
def test_read_of_all_asks_once_for_each_file_and_each_folder(metadata_table: bool) -> None:
    partitions = 25
    table_of("cost-read", partitions, metadata_table=metadata_table)
    storage = FaultyStorage(MemoryStorage("cost-read"))
    snapshot = load_snapshot(table_at(storage))
    plan = plan_slices(snapshot, snapshot.all_slices())
    assert read_arrow(storage, plan).num_rows == partitions * 64
    asked = Counter(step.operation for step in storage.trace)
    files = sum(1 for _ in storage.inner.list("")) - len(list(storage.inner.list(".hoodie")))
    assert files == partitions * (BUCKETS + 1)  # And the marker of the partition.
    of_list = 5 if metadata_table else 0  # Properties, a base file and two log files; properties.
    assert asked["read"] <= partitions * BUCKETS + 4 + of_list, storage.replay()
    folders = 0 if metadata_table else partitions
    assert asked["list"] + asked["list_folders"] == folders + 4, storage.replay()
    assert asked["stat"] == 0, storage.replay()
