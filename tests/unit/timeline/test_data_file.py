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
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.storage.subfolder import Subfolder
from bucketlake.timeline.data_file import put_data_file
from bucketlake.timeline.instant import Action
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.timeline.outcome import Publication, claim_commit, forbid_commit
from bucketlake.timeline.table_properties import table_at

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
    put_data_file(storage, INSTANT, INFLIGHT, MARKER, b"rows")


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

    def put_log() -> bool:
        return put_data_file(storage, INSTANT, INFLIGHT, marker, b"entries", place=metadata)

    assert put_log()
    claim_commit(storage, INSTANT, Publication(INSTANT, Action.COMMIT, b""))
    metadata.delete(marker.data_path)  # By a build of the index, before the inflight file is gone.
    assert not put_log()
    assert metadata.stat(marker.data_path) is None
