"""Hudi's storage-based lock and bucketlake's, on one table in a bucket."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import bucketlake as bl
from bucketlake.errors import LockError
from bucketlake.storage.base import Storage
from bucketlake.timeline.instant import State
from bucketlake.timeline.locks import STORAGE_LOCK
from tests.interop.at_once import write_at_once
from tests.interop.model import Model, in_order, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import rows
from tests.interop.table_kind import TableKind
from tests.unit.storage.bucket import Bucket
from tests.waiting import SECONDS_MAX

pytestmark = pytest.mark.interop

CLIENT = Path(__file__).parent / "peer" / "S3StorageLockClient.java"
SHARING = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    ),
    "hoodie.write.lock.wait_time_ms": "60000",
}
LOCK = bl.StorageLock(timeout_seconds=SECONDS_MAX)
KIND = TableKind()
BATCHES = 3


@pytest.fixture(scope="module")
def hudi(hudi_on_s3: HudiPeer) -> HudiPeer:
    """Real Hudi, with what its lock asks of S3."""
    hudi_on_s3.load(CLIENT)
    return hudi_on_s3


class LockedTable:
    """A table in a bucket to which Hudi and bucketlake write under the lock."""

    def __init__(self, hudi: HudiPeer, bucket: Bucket, name: str) -> None:
        self.path, self._hudi, self._bucket = f"s3a://{bucket.name}/lake/{name}", hudi, bucket
        self._options = KIND.write_options(Path(name)) | SHARING
        self.model = Model(KIND)
        bl.create_table(
            self.path, schema=KIND.schema, record_key=KIND.record_key,
            partition_by=KIND.partition_by, ordering=KIND.ordering, index=KIND.index,
            storage_options=bucket.options,
        )  # fmt: skip
        self.storage: Storage = bucket.open(f"lake/{name}")

    def ours(self, lock: bl.StorageLock = LOCK) -> bl.Table:
        options = self._bucket.options
        return bl.open_table(self.path, index=KIND.index, lock=lock, storage_options=options)

    def write_with_hudi(self, batch: list[dict[str, object]]) -> None:
        self._hudi.write(self.path, KIND.rows(batch), self._options)

    def lock(self) -> dict[str, object]:
        held: dict[str, object] = json.loads(self.storage.read(STORAGE_LOCK))
        return held

    def assert_read_by_both(self) -> None:
        held = in_order(self.model.rows.values(), KIND.schema)
        assert rows_of(self.ours().to_arrow(), KIND.schema) == held
        assert rows_of(self._hudi.read(self.path), KIND.schema) == held


@pytest.fixture
def table(hudi: HudiPeer, bucket: Bucket, request: pytest.FixtureRequest) -> LockedTable:
    return LockedTable(hudi, bucket, request.node.name)


def test_hudi_waits_for_our_lock_and_leaves_one_that_we_take(table: LockedTable) -> None:
    batch = rows(range(10), ts=1)
    table.model.upsert(batch)
    done = threading.Event()

    def write() -> None:
        table.write_with_hudi(batch)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        with LOCK.held(table.storage) as require_held:
            ours = table.lock()["owner"]
            job = pool.submit(write)
            assert not done.wait(12), "Hudi committed while we had the lock"
            assert table.lock()["owner"] == ours
            require_held()
        job.result()
    left = table.lock()
    assert set(left) == {"expired", "validUntil", "owner"}
    assert left["expired"] is True
    assert left["owner"] != ours
    table.ours().upsert(KIND.rows(rows(range(5, 15), ts=2)))
    table.model.upsert(rows(range(5, 15), ts=2))
    assert table.lock()["owner"] not in (ours, left["owner"])
    table.assert_read_by_both()


def test_who_has_the_lock_keeps_the_other_out(table: LockedTable, hudi: HudiPeer) -> None:
    batch = KIND.rows(rows(range(5), ts=1))
    table.ours().upsert(batch)
    table.model.upsert(rows(range(5), ts=1))
    assert hudi.lock(table.path)
    held = table.lock()
    with pytest.raises(LockError, match="another writer"):
        table.ours(bl.StorageLock(timeout_seconds=2)).upsert(batch)
    assert table.lock() == held
    hudi.unlock(table.path)
    with LOCK.held(table.storage) as require_held:
        assert not hudi.lock(table.path)
        require_held()
    assert hudi.lock(table.path)
    hudi.unlock(table.path)
    table.ours().upsert(KIND.rows(rows(range(8), ts=2)))
    table.model.upsert(rows(range(8), ts=2))
    table.assert_read_by_both()


def test_two_writers_at_once_under_the_lock_lose_and_double_nothing(table: LockedTable) -> None:
    table.write_with_hudi(rows(range(10), ts=0))
    table.model.upsert(rows(range(10), ts=0))

    ours = table.ours()
    left, _ = write_at_once(
        BATCHES, table.write_with_hudi, lambda batch: ours.upsert(KIND.rows(batch))
    )
    for batch in left:
        table.model.upsert(batch)
    table.assert_read_by_both()
    assert all(one.state is State.COMPLETED for one in table.ours().timeline())
