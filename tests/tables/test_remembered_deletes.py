"""Deletes with an ordering value are remembered: the table follows from the set of events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.errors import ConfigError, StorageError, TimelineError
from bucketlake.storage.memory import forget
from tests.meanwhile import PUTS, meanwhile

KINDS = {
    "simple": bl.SimpleBucket(2),
    "partition": bl.PartitionBucket({"p": 3}, 2),
    "consistent": bl.ConsistentBucket(2),
    "extendible": bl.ExtendibleBucket(2),
    "dynamic": bl.DynamicBucket(),
    "record": bl.RecordIndex(),
    "global": bl.RecordIndex(partitioned=False),
}
NUMBERS = itertools.count()


class Event(NamedTuple):
    """A row or a delete of a key."""

    key: str
    at: int
    deletes: bool


EVENTS = (
    Event("a", 6, True),
    Event("a", 5, False),
    Event("b", 3, False),
    Event("b", 4, True),
    Event("b", 5, False),
    Event("c", 1, False),
)


@pytest.fixture
def address() -> Iterator[str]:
    name = f"remembered{next(NUMBERS)}"
    yield f"memory://{name}"
    forget(name)


def made(
    address: str, index: Any = None, table_type: str = "copy_on_write", **options: Any
) -> bl.Table:
    return bl.create_table(
        address,
        schema="id string, ts bigint, part string, v bigint",
        record_key="id",
        partition_by="part",
        ordering="ts",
        index=index or bl.SimpleBucket(2),
        table_type=table_type,
        **options,
    )


def batch(events: Sequence[Event]) -> pa.Table:
    return pa.table(
        {
            "id": [event.key for event in events],
            "ts": [event.at for event in events],
            "part": ["p"] * len(events),
            "v": [event.at for event in events],
            "_hoodie_is_deleted": [event.deletes for event in events],
        }
    )


def rows_of(table: bl.Table) -> dict[str, int]:
    return {row["id"]: row["ts"] for row in table.to_arrow().to_pylist()}


def expected(events: Sequence[Event]) -> dict[str, int]:
    """Return what the set of events means: of each key the greatest; a delete wins a tie."""
    newest: dict[str, Event] = {}
    for event in events:
        newest[event.key] = max(
            newest.get(event.key, event), event, key=lambda e: (e.at, e.deletes)
        )
    return {event.key: event.at for event in newest.values() if not event.deletes}


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_order_and_any_cut_give_one_table(kind: str, table_type: str) -> None:
    orders = [*itertools.permutations(EVENTS)][::180]
    for number, order in enumerate(orders):
        name = f"orders{next(NUMBERS)}"
        table = made(f"memory://{name}", KINDS[kind], table_type)
        size = (1, 2, 6)[number % 3]
        for at in range(0, len(order), size):
            table.upsert(batch(order[at : at + size]))
            if table_type == "merge_on_read" and number % 2:
                table.compact()
        assert rows_of(table) == expected(EVENTS), order
        forget(name)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.builds(Event, st.sampled_from("abcd"), st.integers(0, 9), st.booleans()),
        min_size=1,
        max_size=24,
        unique_by=lambda event: (event.key, event.at, event.deletes),
    ),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.sampled_from(["copy_on_write", "merge_on_read"]),
    st.data(),
)
def test_random_histories_with_repeats(
    events: list[Event], sizes: list[int], table_type: str, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(events + events[:3]))
    name = f"random{next(NUMBERS)}"
    table = made(f"memory://{name}", table_type=table_type)
    for size in itertools.cycle(sizes):
        if not order:
            break
        table.upsert(batch(order[:size]))
        order = order[size:]
    assert rows_of(table) == expected(events)
    forget(name)


def test_a_delete_is_remembered_over_the_commits_after_it(address: str) -> None:
    table = made(address)
    table.upsert(batch([Event("a", 6, True)]))
    table.upsert(batch([Event("b", 1, False)]))
    table.upsert(batch([Event("a", 5, False), Event("c", 1, False)]))
    assert rows_of(table) == {"b": 1, "c": 1}


def test_a_key_that_the_table_never_had_stays_out(address: str) -> None:
    table = made(address)
    assert table.upsert(batch([Event("a", 6, True)])).instant is not None
    result = table.upsert(batch([Event("a", 5, False), Event("b", 1, False)]))
    assert (result.inserted, result.ignored) == (1, 1)
    assert rows_of(table) == {"b": 1}
    assert table.upsert(batch([Event("a", 5, False)])).instant is None


def test_a_delete_by_key_is_not_remembered(address: str) -> None:
    table = made(address)
    table.upsert(batch([Event("a", 6, False)]))
    table.delete(pa.table({"id": ["a"], "part": ["p"]}))
    table.upsert(batch([Event("a", 5, False)]))
    assert rows_of(table) == {"a": 5}


def test_a_delete_without_ordering_value_deletes_also_after_one_that_is_remembered(
    address: str,
) -> None:
    table = made(address)
    table.upsert(batch([Event("a", 6, True)]))
    table.upsert(batch([Event("a", 8, False)]))
    nothing = pa.array([None], pa.int64())
    table.upsert(batch([Event("a", 0, True)]).set_column(1, "ts", nothing))
    assert rows_of(table) == {}


def test_of_equal_values_in_a_batch_the_delete_wins(address: str) -> None:
    table = made(address)
    table.upsert(batch([Event("a", 6, True), Event("a", 6, False), Event("b", 6, False)]))
    assert rows_of(table) == {"b": 6}


def test_nothing_is_remembered_if_the_table_says_so(address: str) -> None:
    table = made(address, keep_deletes="0")
    table.upsert(batch([Event("a", 6, True)]))
    table.upsert(batch([Event("a", 5, False)]))
    assert rows_of(table) == {"a": 5}


@pytest.mark.parametrize(("given", "ordering"), [("soon", "ts"), ("7 days", None), ("7", "ts")])
def test_a_time_that_is_none_is_refused(address: str, given: str, ordering: str | None) -> None:
    with pytest.raises(ConfigError, match="keep_deletes"):
        bl.create_table(
            address,
            schema="id string, ts bigint",
            record_key="id",
            ordering=ordering,
            keep_deletes=given,
        )


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_rollback_and_a_restore_bring_back_what_was_remembered(
    address: str, version: int
) -> None:
    table = made(address, version=version)
    table.upsert(batch([Event("b", 1, False)]))
    point = table.savepoint()
    table.upsert(batch([Event("a", 6, True)]))
    table.restore(point)
    table.upsert(batch([Event("a", 5, False)]))
    assert rows_of(table) == {"a": 5, "b": 1}


@pytest.mark.parametrize("version", [6, 9])
def test_later_commits_build_on_deletes_that_kept_their_late_rows_out(
    address: str, version: int
) -> None:
    table = made(address, version=version)
    table.upsert(batch([Event("b", 1, False)]))
    deletes = table.upsert(batch([Event("a", 6, True)])).instant
    assert deletes is not None
    later = table.upsert(batch([Event("a", 5, False), Event("b", 2, False)])).instant
    with pytest.raises(TimelineError, match="1 later commits build on it"):
        table.rollback(deletes)
    gone = table.rollback(deletes, cascade=True)
    assert [commit.instant for commit in gone.commits] == [later, deletes]
    table.upsert(batch([Event("a", 5, False), Event("b", 2, False)]))
    assert rows_of(table) == {"a": 5, "b": 2}


def test_many_deletes_are_in_few_files_that_a_clean_reduces(address: str) -> None:
    table = made(address)
    for number in range(20):
        table.upsert(batch([Event(f"k{number}", 6, True), Event("row", number, False)]))
    storage = table._handle.storage
    folder = ".hoodie/.bucket_index/ext/tombstones"
    newest = table.timeline()[-1]
    assert newest is not None
    for number in range(20):
        assert table.upsert(batch([Event(f"k{number}", 5, False)])).instant is None
    assert len([*storage.list(folder)]) <= 40
    table.clean(retain_commits=1)
    assert rows_of(table) == {"row": 19}
    assert table.upsert(batch([Event("k3", 5, False)])).instant is None


def test_tables_that_change_their_buckets_or_kind_remember(address: str) -> None:
    table = made(address, bl.PartitionBucket({"p": 3}, 2))
    table.upsert(batch([Event("a", 6, True), Event("b", 1, False)]))
    table.rescale(add={"p": 4}, dry_run=False)
    assert table.upsert(batch([Event("a", 5, False)])).instant is None
    table.convert(bl.DynamicBucket())
    assert bl.open_table(address).upsert(batch([Event("a", 5, False)])).instant is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_delete_that_is_committed_meanwhile_keeps_a_late_row_out(
    kind: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(address, KINDS[kind])
    table.upsert(batch([Event("b", 1, False)]))
    meanwhile(
        monkeypatch,
        lambda: bl.open_table(address).upsert(batch([Event("a", 6, True)])),
        PUTS,
        "/timeline/",
        after=True,
    )
    result = table.upsert(batch([Event("a", 5, False), Event("c", 1, False)]))
    assert (result.inserted, result.ignored) == (1, 1)
    assert rows_of(table) == {"b": 1, "c": 1}


def test_a_merge_meets_them_and_leaves_them(address: str) -> None:
    table = made(address)
    table.upsert(batch([Event("a", 6, True), Event("b", 1, False), Event("c", 1, False)]))
    rows = batch([Event("a", 5, False), Event("b", 2, False), Event("d", 1, False)])
    merge = table.merge(rows.drop_columns("_hoodie_is_deleted"), "t.id = s.id AND t.part = s.part")
    result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows_of(table) == {"b": 2, "c": 1, "d": 1}
    assert (result.inserted, result.updated, result.ignored) == (1, 1, 1)
    gone = batch([Event("c", 9, False)]).drop_columns("_hoodie_is_deleted")
    merge = table.merge(gone, "t.id = s.id AND t.part = s.part")
    merge.when_matched_delete().execute()
    assert "c" not in rows_of(table)


def test_an_update_of_a_stored_row_is_never_late(address: str) -> None:
    """A row can be older than a delete of its key where another program wrote it."""
    table = made(address)
    table.upsert(batch([Event("a", 6, True), Event("b", 1, False)]))
    table.insert_overwrite(batch([Event("a", 5, False)]).drop_columns("_hoodie_is_deleted"))
    assert table.update({"v": "7"}, where="id = 'a'").updated == 1
    assert table.to_arrow()["v"].to_pylist() == [7]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("kind", ["simple", "dynamic", "global"])
def test_a_matched_row_of_a_merge_is_never_late(kind: str, table_type: str, address: str) -> None:
    table = made(address, KINDS[kind], table_type)
    table.upsert(batch([Event("a", 6, True), Event("c", 6, True), Event("b", 1, False)]))
    by_another = batch([Event("a", 4, False), Event("b", 1, False)])
    table.insert_overwrite(by_another.drop_columns("_hoodie_is_deleted"))
    rows = batch([Event("a", 5, False), Event("b", 2, False), Event("c", 5, False)])
    merge = table.merge(rows.drop_columns("_hoodie_is_deleted"), "t.id = s.id AND t.part = s.part")
    merge = merge.when_matched_update({"ts": "s.ts", "v": "t.v + 100"})
    result = merge.when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated, result.ignored) == (0, 2, 1)
    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == {"a": 104, "b": 101}
    merge = table.merge(rows.slice(0, 1), "t.id = s.id").when_matched_delete().execute()
    assert (merge.deleted, merge.inserted, rows_of(table)) == (1, 0, {"b": 2})


@pytest.mark.parametrize("version", [6, 9])
def test_the_time_can_be_changed(address: str, version: int) -> None:
    table = made(address, version=version)
    assert table.config().kept_deletes == "7 days"
    table.set_keep_deletes("12 hours")
    table.upsert(batch([Event("a", 6, True), Event("b", 6, True)]))
    assert table.upsert(batch([Event("a", 5, False)])).instant is None
    table.set_keep_deletes("0")
    table.upsert(batch([Event("a", 5, False)]))
    table.set_keep_deletes("7 days")
    table.upsert(batch([Event("b", 5, False), Event("c", 6, True)]))
    assert rows_of(table) == {"a": 5, "b": 5}, "what was forgotten does not come back"
    assert table.upsert(batch([Event("c", 5, False)])).instant is None
    with pytest.raises(ConfigError, match=r"keep_deletes = 'soon'.*'7 days'"):
        table.set_keep_deletes("soon")
    assert bl.open_table(address).config().keep_deletes == "7 days"


def test_a_table_without_ordering_keeps_no_deletes(address: str) -> None:
    table = bl.create_table(address, schema="id string", record_key="id")
    with pytest.raises(ConfigError, match="the table has no ordering"):
        table.set_keep_deletes("7 days")
    table.set_keep_deletes("0")


@pytest.mark.parametrize("version", [6, 9])
def test_the_doctor_finds_a_lost_file_of_deletes_and_says_what_to_do(
    address: str, version: int
) -> None:
    table = made(address, version=version)
    table.upsert(batch([Event("a", 6, True), Event("b", 1, False)]))
    storage = table._handle.storage
    (held,) = storage.list(".hoodie/.bucket_index/ext/tombstones")
    kept = bytes(storage.read(held.path))
    storage.put(held.path, b"none")
    assert [finding.kind.value for finding in table.doctor()] == ["unreadable"]
    storage.delete(held.path)
    (finding,) = table.doctor()
    assert (finding.kind.value, finding.files) == ("deletes_lost", (held.path,))
    with pytest.raises(StorageError):
        table.upsert(batch([Event("a", 5, False)]))
    storage.put(held.path, kept)
    assert not table.doctor()
    storage.delete(held.path)
    assert [fixed.kind.value for fixed in table.repair().repaired] == ["deletes_lost"]
    assert not table.doctor()
    table.upsert(batch([Event("a", 5, False)]))
    assert rows_of(table) == {"a": 5, "b": 1}


def test_many_keys_in_several_partitions_against_a_model(address: str) -> None:
    rng = np.random.default_rng(3)
    table = made(address, bl.SimpleBucket(3))
    model: dict[tuple[str, str], tuple[int, bool]] = {}
    for _ in range(6):
        keys = [f"k{number}" for number in rng.choice(3_000, 1_500, replace=False)]
        parts = [f"p{number}" for number in rng.integers(0, 4, 1_500)]
        times, gone = rng.integers(0, 1_000, 1_500).tolist(), (rng.random(1_500) < 0.4).tolist()
        columns = {"id": keys, "ts": times, "part": parts, "v": times, "_hoodie_is_deleted": gone}
        table.upsert(pa.table(columns))
        for key, part, at, deletes in zip(keys, parts, times, gone, strict=True):
            held = model.get((part, key), (-1, False))
            if (at, deletes) > held:
                model[part, key] = (at, deletes)
    found = {(row["part"], row["id"]): row["ts"] for row in table.to_arrow().to_pylist()}
    assert found == {key: at for key, (at, deletes) in model.items() if not deletes}


@pytest.mark.parametrize("is_written", [False, True])
def test_a_write_that_fails_at_its_remembered_deletes_leaves_nothing(
    is_written: bool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(address)
    table.upsert(batch([Event("b", 1, False)]))

    def fail() -> None:
        raise StorageError("", "put", "no space left on device")

    meanwhile(monkeypatch, fail, PUTS, "/tombstones/", after=is_written)
    with pytest.raises(StorageError, match="no space left"):
        table.upsert(batch([Event("a", 6, True), Event("b", 2, False)]))
    assert rows_of(table) == {"b": 1}
    table.upsert(batch([Event("a", 5, False)]))
    assert rows_of(table) == {"a": 5, "b": 1}, "a delete of no commit is not remembered"
