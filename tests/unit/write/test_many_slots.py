"""Records of many small slots are read at once: each slot gets what it would get alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl

PARTITIONS = 30


def rows(count: int, *, shared: bool, version: int = 1) -> list[dict[str, Any]]:
    """Make rows of each partition, in descending order, with keys of its own or of them all."""
    return [
        {"id": f"{n if shared else n * PARTITIONS + p:05}", "p": f"p{p}", "v": version + n}
        for n in reversed(range(count))
        for p in range(PARTITIONS)
    ]


@pytest.mark.parametrize("index", [bl.SimpleBucket(1), bl.DynamicBucket()], ids=repr)
@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_slots_that_are_read_together_have_their_own_records_in_the_order_of_keys(
    tmp_path: Path, index: Any, shared: bool, is_repeated: bool
) -> None:
    older = rows(6, shared=shared, version=0) if is_repeated else []
    newest = rows(12, shared=shared)
    batch = pa.Table.from_pylist([*newest, *older])
    table = bl.create_table(
        tmp_path / "t",
        schema=batch.schema,
        record_key="id",
        partition_by="p",
        ordering="v",
        index=index,
    )
    table.upsert(batch)
    assert {*map(str, table.to_arrow().to_pylist())} == {*map(str, newest)}
    files = [*(tmp_path / "t").glob("p*/*.parquet")]
    assert len(files) == PARTITIONS
    numbers = set[str]()
    for file in files:
        stored = pq.read_table(file, partitioning=None)
        keys = stored["_hoodie_record_key"].to_pylist()
        assert keys == stored["id"].to_pylist() == sorted(keys)
        assert {*stored["p"].to_pylist()} == {file.parent.name}
        numbers.update(stored["_hoodie_commit_seqno"].to_pylist())
    assert len(numbers) == len(newest)
    table.upsert(pa.Table.from_pylist([{"id": newest[0]["id"], "p": newest[0]["p"], "v": 99}]))
    assert max(row["v"] for row in table.to_arrow().to_pylist()) == 99
    assert len(table.to_arrow()) == len(newest)
