"""Accidents to conditional puts: one commit comes of an upsert, or none, and no row twice."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import AlreadyExistsError, StorageError
from bucketlake.storage.location import open_storage
from tests.fake_time import FakeTime
from tests.object_store.proxy import SLOW_SECONDS, Accident, Road
from tests.waiting import wait_until

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])


def rows(numbers: range, v: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{n}", "p": "x", "v": v} for n in numbers], SCHEMA)


def values(table: bl.Table) -> dict[str, int]:
    found = table.to_arrow().to_pylist()
    held = {row["id"]: row["v"] for row in found}
    assert len(held) == len(found), "a key is there twice"
    return held


@pytest.fixture
def table(road: Road, new_path: Callable[[], str]) -> bl.Table:
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["p"], index=bl.SimpleBucket(2)
    )
    made.upsert(rows(range(10), 1))
    return made


@pytest.mark.parametrize("accident", Accident)
def test_an_upsert_survives_an_accident_to_each_kind_of_its_conditional_puts(
    table: bl.Table, road: Road, accident: Accident, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTime().installed(monkeypatch)
    road.reset(accident)
    done = table.upsert(rows(range(5, 15), 2))
    kinds = set(road.conditional_puts)
    # Heartbeat, requested, inflight, the list of markers and its type, a data file, the turn, the
    # outcome, the completed instant; of the metadata table requested, inflight and completed.
    assert len(kinds) == 12
    if accident is not Accident.SLOW:
        assert len(road.conditional_puts) >= 20, "an accident did not happen"
    road.reset()
    assert (done.inserted, done.updated) == (5, 5)
    expected = {f"k{n}": 1 if n < 5 else 2 for n in range(15)}
    assert values(table) == expected
    assert table.upsert(rows(range(15), 3)).updated == 15
    assert {one.state.name for one in table.timeline()} == {"COMPLETED"}
    assert values(table) == dict.fromkeys(expected, 3)


@pytest.mark.parametrize("accident", [Accident.ANSWER_LOST, Accident.FAILED_AFTER])
def test_a_put_whose_answer_was_lost_is_taken_for_what_it_is(
    road: Road, new_path: Callable[[], str], accident: Accident
) -> None:
    storage = open_storage(new_path())
    road.reset(accident)
    # The client asks again and meets its own object: who must know reads it back.
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent("a", b"mine")
    assert len(road.conditional_puts) == 2
    assert storage.read("a") == b"mine"


def test_a_late_answer_is_waited_for(road: Road, new_path: Callable[[], str]) -> None:
    storage = open_storage(new_path())
    road.reset(Accident.SLOW)
    storage.put_if_absent("a", b"mine")
    assert len(road.conditional_puts) == 1
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent("a", b"theirs")


def test_an_answer_later_than_the_timeout_leaves_the_outcome_unknown(
    road: Road, new_path: Callable[[], str]
) -> None:
    options = {"timeout": f"{SLOW_SECONDS * 1000 / 3:.0f}ms", "max_retries": "0"}
    storage = open_storage(new_path(), options)
    road.reset(Accident.SLOW)
    with pytest.raises(StorageError) as caught:
        storage.put_if_absent("a", b"mine")
    assert type(caught.value) is StorageError
    patient = open_storage(storage.root)
    wait_until(lambda: [*patient.list("")])  # The server may still be at it.
    assert patient.read("a") == b"mine"
