"""Positions of sources: stored with the commit, by any write that says how far it has read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.stream_batches import POSITIONS
from bucketlake.actions.tombstone_list import BATCHES
from bucketlake.errors import ConfigError, FormatError, InputError
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at
from bucketlake.write import ingest
from tests.spies import overtake
from tests.tables.test_remembered_deletes import KINDS

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
_NUMBERS = itertools.count()


@pytest.fixture
def address() -> Iterator[str]:
    name = f"positions-{next(_NUMBERS)}"
    yield f"memory://{name}"
    forget(name)


def made(address: str, **options: Any) -> bl.Table:
    options = {"index": bl.SimpleBucket(2), **options}
    return bl.create_table(address, schema=SCHEMA, record_key=["id"], **options)


def rows(*ids: str, v: int = 0) -> pa.Table:
    return pa.table({"id": ids, "v": [v] * len(ids)}, schema=SCHEMA)


def at(number: int, first: int | None = None, **options: Any) -> bl.Position:
    begin = {} if first is None else {"p0": first}
    return bl.Position("orders", {"p0": number}, begin, **options)


def last(table: bl.Table, source: str = "orders", **options: Any) -> dict[str, int] | None:
    found = table.position(source, **options)
    return None if found is None else dict(found.last)


def with_newest(table: bl.Table, changed: dict[str, str | None]) -> None:
    """Change the extra metadata of the newest commit; None takes an entry away."""
    storage = MemoryStorage(table.path.removeprefix("memory://"))
    opened = table_at(storage)
    timeline = load_timeline(opened)
    instant = timeline.completed_commits()[-1]
    commit = timeline.read_commit(storage, instant)
    extra = {key: text for key, text in {**commit.extra, **changed}.items() if text is not None}
    data = encode_commit_metadata(replace(commit, extra=extra), opened.config.layout)
    storage.put(timeline.path_of(instant), data)


def upsert_as_hudi(table: bl.Table) -> None:
    """Make a commit without the entries that a commit of Hudi does not have."""
    table.upsert(rows("b"))
    with_newest(table, {BATCHES: None, POSITIONS: None})


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_position_is_stored_with_every_write_also_one_that_changes_nothing(
    kind: str, table_type: str, address: str
) -> None:
    table = made(address, index=KINDS[kind], table_type=table_type)
    assert table.position("orders") is None
    first = table.upsert(rows("a", "b"), position=at(9))
    assert last(table) == {"p0": 9}
    nothing = table.upsert(rows(), position=at(12, first=10))
    assert nothing.instant is not None
    assert (nothing.written, last(table)) == (0, {"p0": 12})
    table.upsert(rows("c"), position=bl.Position("orders", {"p1": 3}))
    table.upsert(rows("d"), position=bl.Position("clicks", {"x": 1}))
    table.upsert(rows("e"))
    assert last(table) == {"p0": 12, "p1": 3}
    assert last(table, "clicks") == {"x": 1}
    assert last(table, as_of=first) == {"p0": 9}
    assert table.count() == 5


def test_a_batch_up_to_the_stored_position_is_skipped(address: str) -> None:
    table = made(address)
    table.upsert(rows("a"), position=at(9))
    again = table.upsert(rows("b"), position=at(9, first=0))
    assert (again.skipped, again.instant, table.count()) == (True, None, 1)
    assert not table.upsert(rows("b"), position=at(11, first=5)).skipped  # Overlaps.


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (at(8), r"source 'orders': partition 'p0' goes back.* ends at 8.* 9 to 9 would come again"),
        (at(20, first=13), r"partition 'p0' continues at 13.* 10 to 12 are missing"),
        (at(20, first=13, on_jump="skip"), "10 to 12 are missing"),
    ],
)
def test_a_source_that_jumps_is_an_error_that_names_the_range(
    address: str, position: bl.Position, told: str
) -> None:
    table = made(address)
    table.upsert(rows("a"), position=at(9))
    with pytest.raises(InputError, match=told):
        table.upsert(rows("b"), position=position)
    assert (table.count(), len(table.timeline())) == (1, 1)


def test_a_caller_can_accept_a_jump_or_skip_what_comes_again(address: str) -> None:
    table = made(address)
    table.upsert(rows("a"), position=bl.Position("orders", {"p0": 9, "p1": 9}))
    assert table.upsert(rows("b"), position=at(4, on_jump="skip")).skipped
    both = bl.Position("orders", {"p0": 4, "p1": 12}, on_jump="skip")
    assert table.upsert(rows("c"), position=both).inserted == 1
    assert last(table) == {"p0": 9, "p1": 12}
    table.upsert(rows("d"), position=at(30, first=20, on_jump="accept"))
    assert last(table) == {"p0": 30, "p1": 12}
    table.upsert(rows("e"), position=at(2, first=0, on_jump="accept"))
    assert last(table) == {"p0": 2, "p1": 12}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_after_a_rollback_or_a_restore_it_is_the_older_one(address: str, version: int) -> None:
    table = made(address, version=version)
    table.upsert(rows("a"), position=at(1))
    point = table.savepoint()
    table.upsert(rows("a"), position=at(2))
    third = table.upsert(rows("a"), position=at(3))
    table.rollback(third.instant or "")
    assert last(table) == {"p0": 2}
    table.upsert(rows("a"), position=at(5, first=3))
    table.restore(point)
    assert last(table) == {"p0": 1}
    with pytest.raises(InputError, match="2 to 5 are missing"):
        table.upsert(rows("a"), position=at(7, first=6))


def test_a_rollback_below_another_commit_takes_the_position_away(address: str) -> None:
    table = made(address, index=bl.SimpleBucket(16))
    table.upsert(rows("a"), position=at(1))
    second = table.upsert(rows("b"), position=at(2))
    table.upsert(rows("c"))
    table.rollback(second.instant or "")
    assert last(table) == {"p0": 1}
    table.upsert(rows("d"))
    assert last(table) == {"p0": 1}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_commits_of_hudi_and_an_archival_do_not_lose_it(address: str, version: int) -> None:
    table = made(address, version=version)
    first = table.upsert(rows("a"), position=at(1))
    for number in range(2, 5):
        table.upsert(rows("a"), position=at(number))
    table.archive(keep_min=1, keep_max=2)
    upsert_as_hudi(table)
    upsert_as_hudi(table)
    assert last(table) == {"p0": 4}
    table.archive(keep_min=1, keep_max=2)  # Now the active timeline says nothing.
    assert last(table) == {"p0": 4}
    assert last(table, as_of=first) == {"p0": 1}
    assert table.upsert(rows("c"), position=at(4)).skipped
    table.upsert(rows("c"))
    table.clean(retain_commits=1)
    assert last(table) == {"p0": 4}


def test_a_table_without_positions_says_nothing_of_them(address: str) -> None:
    table = made(address)
    table.upsert(rows("a"))
    storage = MemoryStorage(table.path.removeprefix("memory://"))
    timeline = load_timeline(table_at(storage))
    commit = timeline.read_commit(storage, timeline.completed_commits()[0])
    assert POSITIONS not in commit.extra
    table.upsert(rows("a"), position=at(1))
    timeline = load_timeline(table_at(storage))
    newest = timeline.completed_commits()[-1]
    said = timeline.read_commit(storage, newest).extra[POSITIONS]
    assert json.loads(said) == {"orders": {"last": {"p0": 1}, "instant": newest.requested_at}}


def test_a_damaged_entry_is_told(address: str) -> None:
    table = made(address)
    table.upsert(rows("a"), position=at(1))
    with_newest(table, {POSITIONS: json.dumps({"orders": {"last": ["p0", 1]}})})
    with pytest.raises(FormatError, match="positions by source"):
        table.position("orders")


def test_two_jobs_of_one_source_meet_at_the_commit(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they touch different buckets, so that nothing else is in conflict."""
    table = made(address, index=bl.SimpleBucket(64))
    table.upsert(rows("a"), position=at(1))
    faster = partial(bl.open_table(address).upsert, rows("x"), position=at(4, first=2))
    overtake(monkeypatch, ingest, "run_stages", faster)
    with pytest.raises(InputError, match=r"goes back.*ends at 3, and 4"):
        table.upsert(rows("y"), position=at(3, first=2))
    assert {row["id"] for row in table.to_arrow().to_pylist()} == {"a", "x"}


def test_a_merge_and_the_batch_of_a_stream_store_it(address: str) -> None:
    table = made(address)
    upsert = table.upsert_batch("stream")
    upsert(rows("a"), 0, position=at(1))
    assert last(table) == {"p0": 1}
    assert upsert(rows("b"), 1, position=at(1)).skipped
    merge = table.merge(rows("a", "b", v=5), "t.id = s.id", position=at(2))
    merge = merge.when_matched_update({"v": "s.v"}, "t.v < s.v").when_not_matched_insert_all()
    assert merge.execute().updated == 1
    assert merge.execute().skipped
    everything = table.merge(rows("c"), "t.id = s.id", position=at(3))
    assert everything.when_matched_update_all().when_not_matched_insert_all().execute().instant
    nobody = table.merge(rows("c"), "t.id = s.id", position=at(4))
    assert nobody.when_matched_update({"v": "s.v"}, "t.v > 99").execute().instant
    assert last(table) == {"p0": 4}
    assert table.count() == 3


def test_rows_that_are_seen_are_left_out(address: str) -> None:
    table = made(address)
    read = pa.table({"partition": [0, 0, 1, 2, None], "offset": [4, 5, 9, 0, 3], "v": [*"abcde"]})
    assert table.unseen(read, "orders") is read or table.unseen(read, "orders").equals(read)
    table.upsert(rows("a"), position=bl.Position("orders", {"0": 4, "1": 9}))
    kept = table.unseen(read, "orders")
    assert isinstance(kept, pa.Table)
    assert kept["v"].to_pylist() == ["b", "d", "e"]
    named = read.rename_columns(["p", "n", "v"])
    assert len(table.unseen(named, "orders", partition="p", offset="n")) == 3
    with pytest.raises(InputError, match="no column 'partition', but p, n, v"):
        table.unseen(named, "orders")
    with pytest.raises(InputError, match="are no texts and numbers"):
        table.unseen(named, "orders", partition="p", offset="v")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("orders", {}), "last"),
        (("orders", 5), "last"),
        (("orders", {"p": "5"}), "last"),
        (("orders", {"p": True}), "last"),
        (("orders", {"p": 2**63}), "last"),
        ((7, {"p": 1}), "source"),
        (("orders", {"p": 1}, {"q": 1}), "first"),
        (("orders", {"p": 1}, {"p": 3}), "first"),
        (("orders", {"p": 1}, {}, "ignore"), "on_jump"),
    ],
)
def test_a_position_that_cannot_be_is_refused(arguments: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named} = "):
        bl.Position(*arguments)


def test_another_value_than_a_position_is_refused(address: str) -> None:
    table = made(address)
    given: Any = {"orders": {"p0": 1}}
    with pytest.raises(ConfigError, match=r"position = .* give a Position"):
        table.upsert(rows("a"), position=given)
