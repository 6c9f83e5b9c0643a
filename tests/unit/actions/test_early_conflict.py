"""A write that sees another at work on its buckets waits for its end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import conflict
from bucketlake.actions.conflict import wait_for_earlier, wait_for_writers
from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.errors import CommitConflictError
from bucketlake.index.conflict_keys import key_of_slot
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage, Subfolder
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.heartbeat import beating, delete_heartbeat
from bucketlake.timeline.instant import Action, InstantClock
from bucketlake.timeline.markers import Marker, MarkerType, write_markers
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.timeline.transitions import create_requested
from tests.fake_time import FakeTime
from tests.unit.actions.bare_table import BareTable
from tests.unit.actions.test_commit import complete

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string())])
T = InstantTime("20991231235959999")  # Of the other writer.
ELSEWHERE = b'{"process": "of another machine"}'
APPENDS = b'{"process": "of another machine", "appends": {"x": ["00000001"]}}'
FILE = f"00000001-aaaa-0_1-0-1_{T}.parquet"


@dataclass
class Other:
    """Another process that writes bucket 1 of partition x."""

    storage: Storage
    clock: FakeTime

    def lives_until(self, seconds: float) -> None:
        """Let its heartbeat end at a time."""

        def look() -> None:
            if self.clock.seconds >= seconds:
                delete_heartbeat(self.storage, T)

        self.clock.then = look
        look()

    def wait(self, bucket_id: int = 1, partition: str = "x", *, appends: bool = False) -> None:
        """Do as a write of a bucket does before it begins."""
        config = bl.Table(self.storage.root).config()
        timeline = load_timeline(opened_table(self.storage, config))
        clock = InstantClock(config.timeline_timezone)
        slots = {key_of_slot(partition, bucket_id), key_of_slot(partition, 7)}
        wait_for_writers(self.storage, timeline, clock, slots, appends=appends)


@pytest.fixture
def other(new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Other:
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["p"], index=bl.SimpleBucket(2)
    )
    made = Other(open_storage(table.path), FakeTime().installed(monkeypatch))
    made.storage.put(f"{HEARTBEAT_FOLDER}/{T}", ELSEWHERE)
    create_requested(opened_table(made.storage, table.config()), T, Action.COMMIT)
    write_markers(made.storage, T, [Marker("x", FILE, MarkerType.MERGE)])
    return made


def test_a_write_waits_until_the_other_one_has_ended_and_then_begins_anew(
    other: Other, caplog: pytest.LogCaptureFixture
) -> None:
    other.lives_until(2)
    with (
        caplog.at_level(logging.INFO, logger="bucketlake"),
        pytest.raises(CommitConflictError, match=r"bucket 1 of partition 'x'.*retry") as caught,
    ):
        other.wait()
    assert caught.value.instant == T
    assert 2 <= other.clock.seconds < 2.2, "it looks again after a tenth of the time at most"
    assert [one.getMessage() for one in caplog.records] == [
        f"waiting for {T}, which writes bucket 1 of partition 'x'"
    ]


def test_it_waits_ten_minutes_at_most(other: Other) -> None:
    with pytest.raises(CommitConflictError, match="bucket 1"):
        other.wait()
    assert 600 <= other.clock.seconds < 601


@pytest.mark.parametrize(("bucket_id", "partition"), [(0, "x"), (1, "y")])
def test_it_does_not_wait_for_one_at_other_buckets(
    other: Other, bucket_id: int, partition: str
) -> None:
    other.wait(bucket_id, partition)
    assert not other.clock.naps


def test_it_does_not_wait_for_one_that_died(other: Other) -> None:
    other.lives_until(0)
    other.wait()
    assert not other.clock.naps


@pytest.mark.parametrize(
    ("told", "waits"), [({"x": ["00000001"]}, False), ({"x": ["00000002"]}, True), ({}, True)]
)
def test_a_blind_append_waits_for_one_that_does_not_say_that_it_appends_there(
    other: Other, told: dict[str, list[str]], waits: bool
) -> None:
    heartbeat = json.dumps({"process": "of another machine", "appends": told})
    other.storage.put(f"{HEARTBEAT_FOLDER}/{T}", heartbeat.encode())
    other.lives_until(2)
    if waits:
        with pytest.raises(CommitConflictError, match="bucket 1"):
            other.wait(appends=True)
    else:
        other.wait(appends=True)
    assert bool(other.clock.naps) is waits
    with pytest.raises(CommitConflictError, match="bucket 1") if not waits else nullcontext():
        other.wait()  # A write that is none waits.


@dataclass
class Earlier:
    """A blind append of another machine to bucket 1 of partition x, and one that came later."""

    table: BareTable
    clock: FakeTime
    at: InstantTime
    own: InstantTime

    def lives(self, then: Callable[[], object] = lambda: None, after: float = 2) -> None:
        """Let something happen after some seconds."""
        self.clock.then = lambda: self.clock.seconds >= after and then()

    def dies(self) -> None:
        delete_heartbeat(self.table.storage, self.at)

    def wait(self, *buckets: int, own: InstantTime | None = None) -> float:
        """Do as a write does before its turn; return how long it waited."""
        slots = {key_of_slot("x", bucket) for bucket in buckets}
        wait_for_earlier(self.table.opened, own or self.own, slots)
        return self.clock.seconds


@pytest.fixture
def earlier(new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Earlier:
    table = BareTable.at(new_path())
    at = table.leave(Action.DELTA_COMMIT).requested_at
    table.storage.put(f"{HEARTBEAT_FOLDER}/{at}", APPENDS)
    own = table.clock.next_instant(table.timeline())
    return Earlier(table, FakeTime().installed(monkeypatch), at, own)


def test_a_blind_append_tells_for_which_one_it_waits(
    earlier: Earlier, caplog: pytest.LogCaptureFixture
) -> None:
    earlier.lives(earlier.dies)
    with caplog.at_level(logging.INFO, logger="bucketlake"):
        earlier.wait(1)
    words = f"waiting for {earlier.at}, which began before"
    assert [one.getMessage() for one in caplog.records] == [words]


def test_it_waits_until_the_other_one_dies(earlier: Earlier) -> None:
    earlier.lives(earlier.dies)
    assert 2 <= earlier.wait(1, 2) < 2.3


def test_it_waits_until_the_other_one_is_decided(earlier: Earlier) -> None:
    """Services that follow its commit may take long."""
    earlier.lives(lambda: claim_rollback(earlier.table.storage, earlier.at))
    assert 2 <= earlier.wait(1) < 2.3


def test_it_commits_first_after_ten_minutes(earlier: Earlier) -> None:
    assert 600 <= earlier.wait(1) < 601


@pytest.mark.parametrize("why", ["it came later", "other buckets", "none", "dead"])
def test_it_waits_for_no_other_write(earlier: Earlier, why: str) -> None:
    buckets, own = {"other buckets": (2,), "none": ()}.get(why, (1,)), earlier.own
    if why == "it came later":
        own = InstantTime("20250101000000000")
    elif why == "dead":
        earlier.dies()
    assert earlier.wait(*buckets, own=own) == 0


def test_it_waits_for_none_that_was_overtaken(earlier: Earlier) -> None:
    """That one will be written again, and there may be many of its kind."""
    earlier.table.commit(1)
    assert earlier.wait(1) == 0


def test_a_compaction_overtakes_none(earlier: Earlier) -> None:
    earlier.table.commit(2)
    complete(earlier.table, Action.COMPACTION, "compact", 1, compacted=True)
    earlier.lives(earlier.dies)
    assert earlier.wait(1) >= 2


def test_it_does_not_wait_for_a_write_of_its_own_thread(earlier: Earlier) -> None:
    with beating(earlier.table.storage, earlier.at, is_new=False, appended={key_of_slot("x", 1)}):
        assert earlier.wait(1) == 0


@pytest.mark.filterwarnings("ignore::bucketlake.ClockWarning")  # T is far ahead.
@pytest.mark.parametrize(
    ("key", "waits"),
    [("new", True), ("held", True), ("other", False), ("elsewhere", False)],
)
def test_under_a_record_index_it_waits_for_groups_and_for_shards_with_new_keys(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch, key: str, waits: bool
) -> None:
    """Another process writes the group of the key ``held``, and adds keys to partition x."""
    index = bl.RecordIndex(small_file_limit=0)
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["p"], index=index
    )
    for held in ("held", "other"):
        table.upsert(_row(held))
    storage = open_storage(table.path)
    [group] = [found.file_id for found in table.locate("held")]
    create_requested(opened_table(storage, table.config()), T, Action.COMMIT)
    write_markers(storage, T, [Marker("x", f"{group}_1-0-1_{T}.parquet", MarkerType.MERGE)])
    log = f".record-index-x-0000-0_{T}.log.1_1-0-1"
    metadata = Subfolder(storage, METADATA_TABLE_FOLDER)
    write_markers(metadata, T, [Marker("record_index", log, MarkerType.CREATE)])
    clock = FakeTime().installed(monkeypatch)
    storage.put(f"{HEARTBEAT_FOLDER}/{T}", ELSEWHERE)
    if waits:
        with pytest.raises(CommitConflictError, match="at the same time"):
            table.upsert(_row(key))
    else:
        table.upsert(_row(key, "y" if key == "elsewhere" else "x"))
    assert bool(clock.naps) is waits


def _row(key: str, partition: str = "x") -> pa.Table:
    return pa.table({"id": [key], "p": [partition]}, SCHEMA)


def test_a_write_in_conflict_is_tried_four_times() -> None:
    met: list[InstantTime] = []

    def write() -> None:
        met.append(InstantTime(f"{len(met)}"))
        raise CommitConflictError(met[-1], "met another one")

    with pytest.raises(CommitConflictError) as caught:
        conflict.retried(write)
    assert len(met) == 4
    assert caught.value.instant == met[-1]
