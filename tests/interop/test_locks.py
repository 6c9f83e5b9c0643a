"""Writers of Hudi's and of bucketlake's at the same time, under one lock."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.instant import State
from bucketlake.timeline.locks import FILE_LOCK
from tests.interop.layouts import ONE
from tests.interop.peer.client import HudiPeer, PeerError
from tests.interop.shared_table import HUDI, SharedTable, rows

pytestmark = pytest.mark.interop

LOCK = bl.FileSystemLock(timeout_seconds=240)
SHARING = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.write.lock.wait_time_ms": "60000",
}
BATCHES = 4


def own_rows(writer: str, batch: int) -> list[dict[str, object]]:
    """Make rows of a writer's own, in buckets that the other one's lie in, too."""
    return [row | {"id": f"{writer}-{row['id']}"} for row in rows(range(12), batch)]


@pytest.mark.parametrize("merge_on_read", [False, True], ids=["copy-on-write", "merge-on-read"])
def test_two_writers_at_once_lose_and_double_nothing(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    kind = replace(ONE.kind, merge_on_read=merge_on_read)
    table = SharedTable(hudi, tmp_path / "at_once", kind)
    table.begin()
    table.upsert(HUDI, rows(range(30), 0))
    refused = {"hudi": 0, "bucketlake": 0}

    def hudi_writes() -> None:
        for batch in range(1, BATCHES + 1):
            while True:
                try:
                    table.write(HUDI, own_rows("hudi", batch), SHARING)
                    break
                except PeerError as error:
                    if "conflict" not in str(error).lower():
                        raise
                    refused["hudi"] += 1

    def we_write() -> None:
        ours = bl.open_table(str(table.path), index=kind.index, lock=LOCK)
        for batch in range(1, 3 * BATCHES + 1):
            while True:
                try:
                    ours.upsert(kind.rows(own_rows("ours", batch)))
                    break
                except CommitConflictError:
                    refused["bucketlake"] += 1
            time.sleep(0.3)

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(hudi_writes), pool.submit(we_write)]:
            job.result()
    table.model.upsert(own_rows("hudi", BATCHES))
    table.model.upsert(own_rows("ours", 3 * BATCHES))
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
