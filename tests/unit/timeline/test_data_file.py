"""A task and whoever rolls its write back: no file of the write is left by both."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.rollback import undo
from bucketlake.errors import CommitConflictError
from bucketlake.format.rollback_metadata import RollbackPlan
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Subfolder
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.data_file import DataFiles, put_data_files
from bucketlake.timeline.instant import Action
from bucketlake.timeline.markers import Marker, MarkerType, marker_folder, read_markers
from bucketlake.timeline.outcome import Publication, claim_commit, forbid_commit
from bucketlake.timeline.table_properties import table_at
from tests.faulty_storage import FaultyStorage

INSTANT = InstantTime("20260101000000000")
INFLIGHT = f".hoodie/timeline/{INSTANT}.compaction.inflight"
MARKER = Marker("a", f"f-0_1-0-1_{INSTANT}.parquet", MarkerType.MERGE)


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    made = MemoryStorage("data-file")
    bl.create_table(
        made.root,
        schema=pa.schema([("id", pa.string())]),
        record_key=["id"],
        index=bl.SimpleBucket(1),
    )
    made.put(INFLIGHT, b"")
    yield made
    forget("data-file")


def put(storage: MemoryStorage) -> None:
    put_data_files(storage, INSTANT, INFLIGHT, [(MARKER, b"rows")])


def test_a_file_that_comes_after_the_rollback_goes_again(storage: MemoryStorage) -> None:
    forbid_commit(storage, INSTANT)
    with pytest.raises(CommitConflictError, match="rolled back while a task was still writing"):
        put(storage)
    assert storage.stat(MARKER.data_path) is None


def test_a_file_that_came_after_the_rollback_was_planned_goes_with_it(
    storage: MemoryStorage,
) -> None:
    plan = RollbackPlan(INSTANT, Action.COMPACTION.value, {})
    put(storage)
    undo(table_at(storage), plan, Action.COMPACTION)
    assert storage.stat(MARKER.data_path) is None
    with pytest.raises(CommitConflictError, match="ended while a task still wrote"):
        put(storage)
    assert storage.stat(MARKER.data_path) is None


def test_a_late_attempt_brings_no_log_file_of_an_index_back_that_was_built_again(
    storage: MemoryStorage,
) -> None:
    metadata = Subfolder(storage, ".hoodie/metadata")
    name = f".record-index-0000-0_{INSTANT}.log.1_0-0-1"
    marker = Marker("record_index", name, MarkerType.CREATE)

    def put_log() -> list[str]:
        return put_data_files(storage, INSTANT, INFLIGHT, [(marker, b"entries")], place=metadata)

    assert put_log()
    claim_commit(storage, INSTANT, Publication(INSTANT, Action.COMMIT, b""))
    metadata.delete(marker.data_path)  # By a build of the index, before the inflight file is gone.
    assert not put_log()
    assert metadata.stat(marker.data_path) is None


def test_files_of_a_task_are_published_together_after_one_list_of_markers(
    storage: MemoryStorage,
) -> None:
    watched = FaultyStorage(storage)
    written: list[str] = []
    files = DataFiles(watched, INSTANT, INFLIGHT, written=written.extend)
    for number in range(3):
        name = f"f-{number}_1-0-1_{INSTANT}.parquet"
        marker = Marker("a", name, MarkerType.CREATE)
        files.add(marker, b"rows", name)
    assert [*storage.list("a")] == []
    storage.put(f"a/f-1_1-0-1_{INSTANT}.parquet", b"rows")  # By another attempt.
    files.publish()
    files.publish()
    puts = [step.path for step in watched.trace if step.operation == "put_if_absent"]
    assert [path.rpartition("/")[0] for path in puts] == [*[marker_folder(INSTANT)] * 2, *["a"] * 3]
    assert len(read_markers(storage, INSTANT)) == 3
    assert [name[:3] for name in written] == ["f-0", "f-2"]


@pytest.mark.parametrize(("count", "size"), [(300, 1), (3, 10 << 20)])
def test_a_task_holds_few_files_and_few_bytes(
    storage: MemoryStorage, count: int, size: int
) -> None:
    files = DataFiles(storage, INSTANT, INFLIGHT)
    for number in range(count):
        name = f"f-{number}_1-0-1_{INSTANT}.parquet"
        files.add(Marker("a", name, MarkerType.CREATE), bytes(size))
    assert 0 < len([*storage.list("a")]) < count
    files.publish()
    assert len([*storage.list("a")]) == count


def test_files_that_come_after_the_rollback_all_go_again(storage: MemoryStorage) -> None:
    files = DataFiles(storage, INSTANT, INFLIGHT)
    for number in range(3):
        name = f"f-{number}_1-0-1_{INSTANT}.parquet"
        files.add(Marker("a", name, MarkerType.CREATE), b"rows")
    forbid_commit(storage, INSTANT)
    with pytest.raises(CommitConflictError, match="rolled back while a task was still writing"):
        files.publish()
    assert [*storage.list("a")] == []


def test_a_file_of_changes_is_there_before_its_base_file(storage: MemoryStorage) -> None:
    watched = FaultyStorage(storage)
    files = DataFiles(watched, INSTANT, INFLIGHT)
    for number in range(2):
        name = f"f-{number}_1-0-1_{INSTANT}.parquet"
        files.add_before(Marker("a", f"{name}.cdc", MarkerType.CREATE), b"changes")
        files.add(Marker("a", name, MarkerType.CREATE), b"rows")
    files.publish()
    ends = [step.path[-3:] for step in watched.trace if step.path.startswith("a/")]
    assert ends == ["cdc", "cdc", "uet", "uet"]
