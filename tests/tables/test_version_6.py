"""Tables of version 6: what they store, the order of their commits, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.conflict import require_not_in_savepoint
from bucketlake.actions.pending import begin_instant
from bucketlake.config import table_keys as keys
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    TimelineError,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action, State
from bucketlake.timeline.table_properties import read_properties, table_at
from bucketlake.timeline.transitions import create_requested, remove_pending
from tests.inside import timeline_of, values_of
from tests.meanwhile import meanwhile

NewPath = Callable[[], str]
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])


def make(path: str, **more: object) -> bl.Table:
    given = {
        "index": bl.SimpleBucket(2),
        "partition_by": ["day"],
        "ordering": "v",
        "metadata_table": False,
        "version": 6,
    } | more
    return bl.create_table(path, schema=SCHEMA, record_key=["id"], **given)


def rows(*numbers: int, v: int = 1) -> pa.Table:
    made = [{"id": f"k{n}", "day": "ab"[n % 2], "v": v} for n in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


def test_a_new_table_has_the_properties_that_hudi_0_15_writes(new_path: NewPath) -> None:
    found = read_properties(open_storage(make(new_path()).path))
    assert found[keys.VERSION] == "6"
    assert found[keys.LAYOUT_VERSION] == "1"
    assert found[keys.ARCHIVE_FOLDER] == "archived"
    assert found[keys.PAYLOAD_CLASS] == "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    assert found[keys.MERGE_STRATEGY_OLD] == "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
    assert found[keys.ORDERING_FIELDS_OLD] == "v"
    assert found[keys.KEY_GENERATOR_CLASS] == "org.apache.hudi.keygen.SimpleKeyGenerator"
    of_hudi_1 = {keys.MERGE_MODE, keys.MERGE_STRATEGY, keys.INITIAL_VERSION, keys.TIMELINE_PATH}
    assert not of_hudi_1 & found.keys()


def test_the_later_write_wins_without_an_ordering_field(new_path: NewPath) -> None:
    table = make(new_path(), ordering=None)
    found = read_properties(open_storage(table.path))
    assert found[keys.PAYLOAD_CLASS].endswith(".OverwriteWithLatestAvroPayload")
    table.upsert(rows(1, v=5))
    bl.open_table(table.path).upsert(rows(1, v=4))
    assert values_of(table) == {"k1": 4}


def test_commits_are_json_directly_in_the_hoodie_folder(new_path: NewPath) -> None:
    table = make(new_path())
    upsert, overwrite = table.upsert(rows(1, 2)), table.insert_overwrite(rows(3))
    assert upsert.completed_at == upsert.instant
    storage = open_storage(table.path)
    first = json.loads(storage.read(f".hoodie/{upsert.instant}.commit"))
    assert first["operationType"] == "UPSERT"
    second = json.loads(storage.read(f".hoodie/{overwrite.instant}.replacecommit"))
    [(partition, [replaced])] = second["partitionToReplaceFileIds"].items()
    assert partition == "b"
    assert replaced in {stat["fileId"] for stat in first["partitionToWriteStats"]["b"]}
    times = [(i.requested_at, i.completed_at) for i in table.timeline()]
    assert times == [(result.instant, result.instant) for result in (upsert, overwrite)]


def test_a_range_goes_on_where_the_last_one_ended(new_path: NewPath) -> None:
    table = make(new_path())
    first = table.upsert(rows(1, 2))
    second = table.upsert(rows(2, 3, v=2))
    table.upsert(rows(4, v=3))
    assert table.to_arrow(since=first, until=second, columns=["id"]).num_rows == 2
    assert table.to_arrow(since=second, columns=["id"])["id"].to_pylist() == ["k4"]


def test_a_range_ends_before_a_pending_write(new_path: NewPath) -> None:
    table = make(new_path())
    first = table.upsert(rows(1))
    opened = table_at(open_storage(table.path))
    with begin_instant(opened, load_timeline(opened), Action.COMMIT) as (pending, _):
        later = table.upsert(rows(2, v=2))
        assert pending < later.instant
        assert table.to_arrow(since=first).num_rows == 0
        with pytest.raises(TimelineError, match="may still complete inside the range"):
            table.to_arrow(since=first, until=later)
        assert values_of(table) == {"k1": 1, "k2": 2}
    remove_pending(opened, pending, Action.COMMIT)
    assert table.to_arrow(since=first, columns=["id"])["id"].to_pylist() == ["k2"]


def test_a_write_takes_no_time_before_a_completed_commit(new_path: NewPath) -> None:
    table = make(new_path())
    opened = table_at(open_storage(table.path))
    early = opened.clock.next_instant(load_timeline(opened))
    table.upsert(rows(1))
    second = table.upsert(rows(2))
    between = InstantTime(f"{int(second.instant) - 1}")
    for at in (early, between):
        with pytest.raises(AlreadyExistsError, match="too old"):
            create_requested(opened, at, Action.COMMIT)
    assert len(table.timeline()) == 2
    create_requested(opened, InstantTime(f"{int(second.instant) + 1}"), Action.COMMIT)


def test_a_write_that_began_before_the_commit_of_a_new_savepoint_is_repeated(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a restore would keep its commit, and a clean would not keep its files."""
    table = make(new_path())
    table.upsert(rows(1))
    failed: list[InstantTime] = []

    def make_savepoint() -> None:
        failed.append(timeline_of(table).pending()[0].requested_at)
        table.upsert(rows(2, v=2))  # In the other partition: no conflict.
        table.savepoint()

    meanwhile(monkeypatch, make_savepoint)
    result = table.upsert(rows(1, v=3))
    saved = next(i.requested_at for i in table.timeline() if i.action.value == "savepoint")
    assert failed[0] < saved < result.instant
    table.restore(saved)
    assert values_of(table) == {"k1": 1, "k2": 2}


def test_a_savepoint_is_no_hindrance_in_a_layout_with_completion_times(new_path: NewPath) -> None:
    table = make(new_path(), version=9)
    table.upsert(rows(1))
    table.savepoint()
    require_not_in_savepoint(InstantTime("2"), timeline_of(table))
    old = make(new_path())
    old.upsert(rows(1))
    saved = InstantTime(old.savepoint())
    require_not_in_savepoint(saved, timeline_of(old))
    with pytest.raises(CommitConflictError, match="savepoint"):
        require_not_in_savepoint(InstantTime("2"), timeline_of(old))


def test_a_dead_overwrite_is_rolled_back_and_not_taken_for_a_clustering(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows(1, 2))
    result = table.insert_overwrite(rows(3))
    storage = open_storage(table.path)
    storage.delete(f".hoodie/{result.instant}.replacecommit")
    storage.delete(f".hoodie/.bucket_index/ext/outcome/{result.instant}.json")
    table.upsert(rows(4))
    assert values_of(table) == {"k1": 1, "k2": 1, "k4": 1}
    assert all(i.state is State.COMPLETED for i in table.timeline())
