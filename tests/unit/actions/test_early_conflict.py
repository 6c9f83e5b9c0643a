"""A write that sees another at work on its buckets waits for its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import conflict
from bucketlake.actions.conflict import wait_for_writers
from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.errors import CommitConflictError
from bucketlake.index.conflict_keys import key_of_slot
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage, Subfolder
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import Action, InstantClock
from bucketlake.timeline.markers import Marker, MarkerType, write_markers
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.transitions import create_requested
from tests.fake_time import FakeTime

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string())])
T = InstantTime("20991231235959999")  # Of the other writer.
ELSEWHERE = b'{"process": "of another machine"}'
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

    def wait(self, bucket_id: int = 1, partition: str = "x") -> None:
        """Do as a write of a bucket does before it begins."""
        config = bl.Table(self.storage.root).config()
        timeline = load_timeline(opened_table(self.storage, config))
        clock = InstantClock(config.timeline_timezone)
        slots = {key_of_slot(partition, bucket_id), key_of_slot(partition, 7)}
        wait_for_writers(self.storage, timeline, clock, slots)


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
