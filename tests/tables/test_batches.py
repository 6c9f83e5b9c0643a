"""Batches of a stream are committed once, whatever comes in between."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from itertools import count

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.tombstone_list import BATCHES
from bucketlake.errors import FormatError, InputError
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.index.bucket_hash import assign_buckets
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at
from tests.meanwhile import meanwhile

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
_NUMBERS = count()


@pytest.fixture
def table() -> Iterator[bl.Table]:
    name = f"batches-{next(_NUMBERS)}"
    yield bl.create_table(
        f"memory://{name}", schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(2)
    )
    forget(name)


def batch(v: int) -> pa.Table:
    return pa.table({"id": ["a", f"b{v}"], "v": [v, v]}, schema=SCHEMA)


def commits(table: bl.Table) -> list[dict[str, int] | None]:
    storage = MemoryStorage(table.path.removeprefix("memory://"))
    timeline = load_timeline(table_at(storage))
    said = [timeline.read_commit(storage, one).extra for one in timeline.completed_commits()]
    return [
        {name: one["batch"] for name, one in json.loads(extra[BATCHES]).items()}
        if BATCHES in extra
        else None
        for extra in said
    ]


def test_a_batch_that_is_repeated_is_passed_over(table: bl.Table) -> None:
    upsert = table.upsert_batch(query_name="orders")
    assert upsert(batch(0), 0).inserted == 2
    again = upsert(batch(7), 0)
    assert (again.instant, again.inserted) == (None, 0)
    assert upsert(batch(1), 1).instant is not None
    assert sorted(table.to_arrow()["v"].to_pylist()) == [0, 1, 1]
    assert commits(table) == [{"orders": 0}, {"orders": 1}]


def test_other_writes_and_queries_carry_it_on(table: bl.Table) -> None:
    orders, clicks = table.upsert_batch("orders"), table.upsert_batch("clicks")
    orders(batch(0), 4)
    clicks(batch(1), 9)
    table.upsert(batch(2))
    table.delete(pa.table({"id": ["b2"]}))
    table.rescale({"x": 3}, dry_run=False)
    table.insert_overwrite(batch(3))
    assert commits(table)[-1] == {"clicks": 9, "orders": 4}
    assert orders(batch(5), 4).instant is None
    assert clicks(batch(5), 9).instant is None
    assert clicks(batch(5), 11).instant is not None


def test_an_earlier_batch_is_refused_and_nothing_is_written(table: bl.Table) -> None:
    upsert = table.upsert_batch("orders")
    upsert(batch(0), 5)
    with pytest.raises(InputError, match=r"batch 4 of query 'orders'.*batch 5 was committed"):
        upsert(batch(1), 4)
    assert len(commits(table)) == 1


def test_a_batch_that_was_rolled_back_is_written_again(table: bl.Table) -> None:
    upsert = table.upsert_batch("orders")
    upsert(batch(0), 0)
    instant = upsert(batch(1), 1).instant
    assert instant is not None
    table.rollback(instant)
    assert upsert(batch(1), 1).instant is not None


def test_a_batch_that_was_rolled_back_below_other_commits_is_written_again(
    table: bl.Table,
) -> None:
    upsert = table.upsert_batch("orders")
    upsert(batch(0), 0)
    instant = upsert(pa.table({"id": ["x"], "v": [1]}, schema=SCHEMA), 1).instant
    assert instant is not None
    buckets = assign_buckets(["x", *"pqrstu"], 2)
    other = "xpqrstu"[buckets.tolist().index(1 - buckets[0])]
    table.upsert(pa.table({"id": [other], "v": [2]}, schema=SCHEMA))
    table.rollback(instant)
    assert upsert(batch(0), 0).instant is None
    assert upsert(pa.table({"id": ["x"], "v": [1]}, schema=SCHEMA), 1).instant is not None
    assert "x" in table.to_arrow()["id"].to_pylist()
    table.upsert(batch(2))
    assert commits(table)[-1] == {"orders": 1}


def test_a_batch_is_known_after_its_commit_was_archived(table: bl.Table) -> None:
    orders, clicks = table.upsert_batch("orders"), table.upsert_batch("clicks")
    clicks(batch(0), 7)
    for number in range(4):
        orders(batch(number), number)
    table.archive(keep_min=1, keep_max=2)
    assert clicks(batch(9), 7).instant is None
    silenced(lambda: table.upsert(batch(4)))
    silenced(lambda: table.upsert(batch(5)))
    table.archive(keep_min=1, keep_max=2)  # Now the active timeline says nothing.
    assert commits(table) == [None]
    assert clicks(batch(9), 7).instant is None
    assert orders(batch(9), 3).instant is None
    assert orders(batch(9), 4).instant is not None
    assert commits(table)[-1] == {"clicks": 7, "orders": 4}


def test_two_drivers_of_one_stream_commit_a_batch_once(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they touch different buckets, so that nothing else is in conflict."""
    upsert_first = table.upsert_batch("orders")
    others: list[bl.WriteResult] = []
    meanwhile(monkeypatch, lambda: others.append(upsert_first(batch(1), 1)))
    late = table.upsert_batch("orders")(pa.table({"id": ["z"], "v": [9]}, schema=SCHEMA), 1)
    assert late.instant is None
    assert others[0].instant is not None
    assert "z" not in table.to_arrow()["id"].to_pylist()
    assert len(commits(table)) == 1


def test_an_empty_batch_is_no_commit(table: bl.Table) -> None:
    upsert = table.upsert_batch("orders")
    assert upsert(SCHEMA.empty_table(), 0).instant is None
    assert upsert(batch(0), 0).instant is not None


def test_commits_that_say_nothing_are_passed_over(table: bl.Table) -> None:
    """As those of Hudi do."""
    upsert = table.upsert_batch("orders")
    upsert(batch(0), 3)
    storage = MemoryStorage(table.path.removeprefix("memory://"))
    silence = silenced(lambda: table.upsert(batch(1)))
    assert commits(table)[-1] is None
    assert silence.instant is not None
    assert upsert(batch(2), 3).instant is None
    assert upsert(batch(2), 4).instant is not None
    assert storage is not None


def silenced(write: Callable[[], bl.WriteResult]) -> bl.WriteResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketlake.actions.commit.carried_on", lambda *_: {})
        return write()


def test_the_function_of_a_stream_can_be_pickled(table: bl.Table) -> None:
    upsert = pickle.loads(pickle.dumps(table.upsert_batch("orders")))
    assert upsert(batch(0), 0).inserted == 2


@pytest.mark.parametrize("number", ["Infinity", "1e999", "9" * 4301, "[" * 9999, "null"])
def test_a_batch_number_of_a_commit_that_is_none_is_an_error(table: bl.Table, number: str) -> None:
    table.upsert(batch(0))
    at = InstantTime("20991231235959999")
    extra = {BATCHES: f'{{"orders": {{"batch": {number}}}}}'}
    content = encode_commit_metadata(CommitMetadata("UPSERT", {}, extra))
    open_storage(table.path).put(f".hoodie/timeline/{at}_{at}.commit", content)
    with pytest.raises(FormatError, match=f"commit {at}.*batch ids by query name"):
        table.upsert_batch(query_name="orders")(batch(1), 1)
