"""Writes that change nothing make no commit, and results say which records were late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl

_SCHEMA = pa.schema({"id": pa.string(), "p": pa.string(), "v": pa.int64()})
_KINDS = [
    bl.SimpleBucket(1),
    bl.SimpleBucket(1, max_file_size=1 << 20),
    bl.ConsistentBucket(2),
    bl.ExtendibleBucket(2),
    bl.DynamicBucket(),
    bl.RecordIndex(),
    bl.RecordIndex(partitioned=False),
]


def _rows(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip("ipv", row, strict=True)) for row in rows]
    ).rename_columns(["id", "p", "v"])


def _table(path: str, index: Any, table_type: str = "copy_on_write") -> bl.Table:
    return bl.create_table(
        path,
        schema=_SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="v",
        index=index,
        table_type=table_type,
    )


@pytest.mark.parametrize("index", _KINDS, ids=repr)
def test_write_that_changes_nothing_makes_no_commit(
    new_path: Callable[[], str], index: Any
) -> None:
    table = _table(new_path(), index)
    table.upsert(_rows(("a", "x", 5), ("b", "x", 5)))
    before = table.timeline()
    for partition in ("x", "new"):
        assert table.delete(_rows(("zz", partition, 0))).instant is None
    late = table.upsert(_rows(("a", "x", 1), ("b", "x", 2)))
    assert (late.instant, late.written, late.ignored) == (None, 0, 2)
    assert table.timeline() == before
    some = table.upsert(_rows(("a", "x", 1), ("b", "x", 7), ("c", "x", 1)))
    assert (some.inserted, some.updated, some.ignored) == (1, 1, 1)
    assert table.delete(_rows(("a", "x", 0), ("zz", "x", 0))).deleted == 1
    assert [finding for finding in table.doctor(check_keys=True) if finding.is_error] == []


@pytest.mark.parametrize("index", _KINDS, ids=repr)
def test_delete_of_unknown_keys_from_an_empty_merge_on_read_table_makes_no_commit(
    new_path: Callable[[], str], index: Any
) -> None:
    table = _table(new_path(), index, "merge_on_read")
    assert table.delete(_rows(("zz", "x", 0))).instant is None
    assert table.timeline() == []


@pytest.mark.parametrize("index", [bl.DynamicBucket(), bl.RecordIndex()], ids=repr)
def test_delete_of_unknown_keys_under_an_index_of_keys_makes_no_commit_in_merge_on_read(
    new_path: Callable[[], str], index: Any
) -> None:
    table = _table(new_path(), index, "merge_on_read")
    assert table.upsert(_rows(("a", "x", 5))).ignored == 0
    assert table.delete(_rows(("zz", "x", 0))).instant is None
    assert table.upsert(_rows(("a", "x", 1))).ignored is None  # A log file is not compared.


def test_late_record_of_a_global_index_that_would_move_counts_as_ignored(
    new_path: Callable[[], str],
) -> None:
    table = _table(new_path(), bl.RecordIndex(partitioned=False))
    table.upsert(_rows(("a", "x", 5)))
    late = table.upsert(_rows(("a", "y", 1)))
    assert (late.instant, late.ignored) == (None, 1)


def test_repeated_batch_of_a_stream_is_skipped(new_path: Callable[[], str]) -> None:
    write = _table(new_path(), bl.SimpleBucket(1)).upsert_batch("q")
    assert not write(_rows(("a", "x", 5)), 0).skipped
    repeated = write(_rows(("a", "x", 5)), 0)
    assert (repeated.instant, repeated.skipped) == (None, True)
