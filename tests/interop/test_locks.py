"""Writers of Hudi's and of bucketlake's at the same time, under one lock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import bucketlake as bl
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.instant import State
from bucketlake.timeline.locks import FILE_LOCK
from tests.interop.at_once import write_at_once
from tests.interop.layouts import ONE
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import HUDI, SharedTable, rows
from tests.waiting import SECONDS_MAX

pytestmark = pytest.mark.interop

LOCK = bl.FileSystemLock(timeout_seconds=SECONDS_MAX)
SHARING = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.write.lock.wait_time_ms": "60000",
}
BATCHES = 3


@pytest.mark.every_case
@pytest.mark.parametrize("merge_on_read", [False, True], ids=["copy-on-write", "merge-on-read"])
def test_two_writers_at_once_lose_and_double_nothing(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    kind = replace(ONE.kind, merge_on_read=merge_on_read)
    table = SharedTable(hudi, tmp_path / "at_once", kind)
    table.begin()
    table.upsert(HUDI, rows(range(30), 0))
    ours = bl.open_table(str(table.path), index=kind.index, lock=LOCK)
    left, refused = write_at_once(
        BATCHES,
        lambda batch: table.write(HUDI, batch, SHARING),
        lambda batch: ours.upsert(kind.rows(batch)),
    )
    for batch in left:
        table.model.upsert(batch)
    table.assert_read_by_all()
    table.upsert(HUDI, rows(range(20, 40), 9), SHARING)
    table.assert_read_by_all()
    assert all(i.state is State.COMPLETED for i in table.ours.timeline()), refused


def test_hudi_waits_for_our_lock(hudi: HudiPeer, tmp_path: Path) -> None:
    table = SharedTable(hudi, tmp_path / "waiting", ONE.kind)
    table.begin()
    table.upsert(HUDI, rows(range(10), 0), SHARING)
    storage = LocalStorage(str(table.path))
    assert storage.stat(FILE_LOCK) is None
    done = threading.Event()

    def write() -> None:
        table.upsert(HUDI, rows(range(10), 1), SHARING)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        with LOCK.held(storage) as require_held:
            job = pool.submit(write)
            assert not done.wait(8), "Hudi committed while we had the lock"
            require_held()
        job.result()
    table.assert_read_by_all()
