"""Buckets of a hash ring that another program removed, without a ring for what comes next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import IndexStateError
from bucketlake.format.commit_metadata import CommitMetadata
from bucketlake.storage.memory import forget
from tests.broken_tables import complete_by_hand, later, newest

SCHEMA = pa.schema({"id": pa.string(), "day": pa.string(), "n": pa.int64()})
_NUMBERS = count()


def rows(day: str, numbers: range) -> pa.Table:
    return pa.table(
        {"id": [f"k{n}" for n in numbers], "day": [day] * len(numbers), "n": [*numbers]}, SCHEMA
    )


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(request: pytest.FixtureRequest) -> Iterator[bl.Table]:
    """A table whose partition ``a`` was deleted as Hudi does it: the ring still has its groups."""
    name = f"removed-{next(_NUMBERS)}"
    made = bl.create_table(
        f"memory://{name}", schema=SCHEMA, record_key="id", partition_by="day",
        index=bl.ConsistentBucket(2), table_type=request.param,
    )  # fmt: skip
    made.upsert(rows("a", range(20)))
    made.upsert(rows("b", range(20)))
    removed = defaultdict(list)
    for bucket in made.buckets():
        if bucket.partition_path == "a":
            removed["a"].append(bucket.file_id)
    commit = CommitMetadata(
        "DELETE_PARTITION", {}, {}, replaced_file_ids={"a": tuple(removed["a"])}
    )
    complete_by_hand(made, later(newest(made)), "replacecommit", commit)
    yield made
    forget(name)


def test_rows_do_not_vanish_in_removed_buckets(table: bl.Table) -> None:
    assert table.count() == 20
    with pytest.raises(IndexStateError, match=r"partition 'a'.*insert_overwrite"):
        table.upsert(rows("a", range(5)))
    assert table.upsert(rows("b", range(15, 25))).instant is not None
    assert table.delete(rows("a", range(2))).instant is None
    assert table.count() == 25


def test_an_overwrite_gives_the_partition_new_buckets(table: bl.Table) -> None:
    table.insert_overwrite(rows("a", range(5)))
    table.upsert(rows("a", range(3, 8)))
    assert table.count() == 28
    assert not table.doctor()
