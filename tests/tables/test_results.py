"""Results say what is true: counts that are known, and the commit after which a read continues."""

from __future__ import annotations

import inspect
import pickle
from types import NoneType
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, MetadataTableWarning
from bucketlake.storage.memory import MemoryStorage, forget

SCHEMA = pa.schema({"id": pa.int64(), "at": pa.int64()})
BUCKETS = [bl.SimpleBucket(2), bl.PartitionBucket({"a": 2}, 2), bl.ConsistentBucket(2)]
INDEXED = [bl.RecordIndex(), bl.RecordIndex(partitioned=False), bl.DynamicBucket()]


def rows(*ids: int, at: int = 0) -> pa.Table:
    return pa.table({"id": ids, "at": [at] * len(ids)}, schema=SCHEMA)


def made(index: Any, table_type: str = "merge_on_read", ordering: str | None = "at") -> bl.Table:
    storage = MemoryStorage.fresh()
    STORAGES.append(storage)
    return bl.create_table(
        storage.root,
        schema=SCHEMA,
        record_key="id",
        ordering=ordering,
        index=index,
        table_type=table_type,
    )


STORAGES: list[MemoryStorage] = []  # A storage lives as long as its handle.


def counts(result: bl.WriteResult) -> tuple[int | None, int | None, int | None]:
    return result.inserted, result.updated, result.deleted


@pytest.mark.parametrize("index", BUCKETS, ids=repr)
def test_log_file_of_a_bucket_does_not_tell_inserts_from_updates(index: Any) -> None:
    table = made(index)
    assert counts(table.upsert(rows(*range(6)))) == (6, 0, 0)
    result = table.upsert(rows(*range(4, 10), at=1))
    assert counts(result) == (None, None, 0)
    assert result.written == 6
    assert "inserted      unknown" in str(result)
    assert "written       6" in str(result)
    deleted = table.delete(pa.table({"id": [0, 77]}))
    assert counts(deleted) == (0, 0, None)


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("index", INDEXED, ids=repr)
def test_record_index_tells_inserts_from_updates(index: Any, table_type: str) -> None:
    table = made(index, table_type)
    assert counts(table.upsert(rows(*range(6)))) == (6, 0, 0)
    for at in (1, 2):
        result = table.upsert(rows(*range(4 * at, 4 * at + 6), at=at))
        assert (*counts(result), result.written) == (4, 2, 0, 6)
    assert counts(table.delete(pa.table({"id": [0, 77]}))) == (0, 0, 1)


@pytest.mark.parametrize("index", [*BUCKETS, *INDEXED], ids=repr)
def test_merge_counts_each_record(index: Any) -> None:
    table = made(index, "copy_on_write")
    table.upsert(rows(*range(6), at=5))
    result = table.upsert(rows(4, 5, 6, at=1))
    assert (*counts(result), result.written) == (1, 0, 0, 1), "two records lose"


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_loop_that_reads_since_its_last_write_sees_each_change_of_others_once(
    table_type: str,
) -> None:
    table = made(bl.SimpleBucket(2), table_type)
    seen = table.upsert(rows(0))
    found = []
    for step in range(1, 4):
        table.upsert(rows(10 * step, 10 * step + 1, at=step))  # Another writer.
        changes = table.to_arrow(since=seen)
        found += changes["id"].to_pylist()
        seen = table.upsert(rows(step, at=step))
        assert table.to_arrow(since=seen).num_rows == 0
    assert sorted(found) == [10, 11, 20, 21, 30, 31]


def test_result_ends_a_range_and_names_a_time_to_travel_to() -> None:
    table = made(bl.SimpleBucket(2))
    first, second, third = (table.upsert(rows(n)) for n in range(3))
    assert second.completed_at is not None
    assert table.to_arrow(since=first, until=second)["id"].to_pylist() == [1]
    assert table.to_arrow(since=first, until=third)["id"].to_pylist() == [1, 2]
    assert sorted(table.to_arrow(as_of=second)["id"].to_pylist()) == [0, 1]


def test_completion_time_of_a_result_is_that_of_the_timeline() -> None:
    table = made(bl.DynamicBucket())
    results = [table.upsert(rows(1)), table.delete(rows(1)), table.insert_overwrite(rows(2))]
    known = {entry.requested_at: entry.completed_at for entry in table.timeline()}
    for result in results:
        assert result.instant is not None
        assert result.completed_at == known[result.instant]


def test_result_without_a_commit_is_no_time() -> None:
    table = made(bl.SimpleBucket(2))
    nothing = table.upsert(rows())
    with pytest.raises(ConfigError, match=r"since = WriteResult.*committed nothing"):
        table.to_arrow(since=nothing)


def test_index_of_a_handle_is_that_of_the_table_after_a_rescale() -> None:
    table = made(bl.SimpleBucket(2))
    table.upsert(rows(*range(6)))
    other = pickle.loads(pickle.dumps(table))
    assert isinstance(table.rescale({".*": 4}, dry_run=True).instant, NoneType)
    assert table.index == bl.SimpleBucket(2)
    table.rescale({".*": 4})
    assert table.index == other.index == bl.PartitionBucket({".*": 4}, 2)
    table.upsert(rows(*range(6, 12)))
    assert {bucket.bucket_id for bucket in table.buckets()} == {0, 1, 2, 3}


def test_index_of_a_handle_is_that_of_the_table_after_conversions_and_a_restore() -> None:
    table = made(bl.SimpleBucket(2))
    table.upsert(rows(*range(6)))
    before = table.savepoint()
    table.convert(bl.SimpleBucket(2, max_file_size=1 << 20))
    assert table.index == bl.SimpleBucket(2, max_file_size=1 << 20)
    table.convert(bl.DynamicBucket(max_records=9))
    assert table.index == bl.DynamicBucket(max_records=9)
    with pytest.warns(MetadataTableWarning, match="record_index"):
        table.restore(before)
    assert table.index == bl.SimpleBucket(2)


def test_index_of_a_handle_stays_after_a_resize_which_changes_rings_alone() -> None:
    table = made(bl.ConsistentBucket(2))
    table.upsert(rows(*range(60)))
    assert table.resize(max_file_size=1).instants
    assert table.index == bl.ConsistentBucket(2)
    assert len(table.buckets()) > 2


def test_each_verb_acts_unless_a_dry_run_is_asked_for() -> None:
    defaults = {
        name: parameter.default
        for name, verb in inspect.getmembers(bl.Table, inspect.isfunction)
        for parameter in inspect.signature(verb).parameters.values()
        if parameter.name == "dry_run" and not name.startswith("_")
    }
    assert set(defaults.values()) == {False}
    assert len(defaults) == 11


def test_facts_of_the_metadata_table_print_as_a_small_table() -> None:
    table = bl.create_table(
        "memory://results-facts", schema=pa.schema({"id": pa.string()}), record_key="id"
    )
    facts = table.metadata_table()
    forget("results-facts")
    assert "  name  " in str(facts)
    assert "  files  " in str(facts)
    assert facts._repr_html_().startswith("<table>")
