"""Locks that are shared with Hudi: who has one, keeps others out, and notices when it is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

import bucketlake as bl
from bucketlake.errors import (
    ConfigError,
    FormatError,
    LockError,
    StorageError,
    UnsupportedFeatureError,
)
from bucketlake.storage.base import Storage, VersionedStorage
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline import locks
from bucketlake.timeline.locks import (
    FILE_LOCK,
    NO_LOCK,
    STORAGE_LOCK,
    FileSystemLock,
    InProcessLock,
    StorageLock,
    TableLock,
    _Lease,
    lock_from_options,
)
from tests.fake_time import locks_are_later
from tests.faulty_storage import Effect, Fault, FaultyStorage, Moment
from tests.waiting import SECONDS_MAX, wait_until

SOON = 0.3

KINDS: dict[str, Callable[[float], TableLock]] = {
    "in-process": lambda timeout: InProcessLock(timeout),
    "file": lambda timeout: FileSystemLock(timeout_seconds=timeout),
    "storage": lambda timeout: StorageLock(timeout_seconds=timeout),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture
def storage() -> Storage:
    return MemoryStorage.fresh(locks.system_now_ms)


@EACH_KIND
def test_only_one_holds_a_lock_at_a_time(
    storage: Storage, kind: Callable[[float], TableLock]
) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work(_: int) -> None:
        with kind(60).held(storage) as check:
            inside.append(1)
            most.append(len(inside))
            check()
            inside.pop()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(12)))
    assert len(most) == 12
    assert set(most) == {1}


@EACH_KIND
def test_a_lock_that_is_not_to_be_had_in_time_is_an_error_that_names_it(
    storage: Storage, kind: Callable[[float], TableLock]
) -> None:
    with kind(SOON).held(storage), ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: kind(SOON).held(storage).__enter__())
        with pytest.raises(LockError, match=r"held by (another|.*thread).* within 0\.3 s"):
            other.result()
    with kind(SOON).held(storage):
        pass


@EACH_KIND
def test_a_lock_is_given_up_where_the_body_fails(
    storage: Storage, kind: Callable[[float], TableLock]
) -> None:
    with pytest.raises(ZeroDivisionError), kind(SOON).held(storage):
        raise ZeroDivisionError
    with kind(SOON).held(storage):
        pass


def test_tables_have_locks_of_their_own() -> None:
    with (
        InProcessLock(SOON).held(MemoryStorage("one")),
        InProcessLock(SOON).held(MemoryStorage("two")),
    ):
        pass


def test_a_table_has_one_lock_in_a_process_however_its_path_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    real, link = (LocalStorage(str(tmp_path / name)) for name in ("real", "link"))
    with (
        InProcessLock(SOON).held(real),
        pytest.raises(LockError),
        InProcessLock(SOON).held(link),
    ):
        pass


def test_a_file_lock_that_expired_is_taken_over_and_its_owner_notices(storage: Storage) -> None:
    with FileSystemLock(timeout_seconds=SOON).held(storage) as check:
        MemoryStorage(storage.root.removeprefix("memory://"))
        taken = FileSystemLock(expire_minutes=1, timeout_seconds=SECONDS_MAX)
        check()
        with pytest.MonkeyPatch.context() as patch:
            locks_are_later(patch, 61_000)
            with taken.held(storage) as new_check:
                new_check()
                with pytest.raises(LockError, match="took it over"):
                    check()
        assert storage.stat(FILE_LOCK) is None


def test_a_file_lock_that_another_took_over_is_not_given_up(storage: Storage) -> None:
    with FileSystemLock(timeout_seconds=SOON).held(storage):
        storage.put(FILE_LOCK, b"another")
    assert storage.read(FILE_LOCK) == b"another"


def test_a_file_lock_never_expires_by_default(storage: Storage) -> None:
    storage.put(FILE_LOCK, b"")  # As Hudi leaves it when it dies.
    with pytest.MonkeyPatch.context() as patch:
        locks_are_later(patch, 10**15)
        with pytest.raises(LockError, match=r"\.hoodie/lock is held .* delete the lock"):
            FileSystemLock(timeout_seconds=SOON).held(storage).__enter__()
    assert storage.read(FILE_LOCK) == b""


def test_a_storage_lock_is_as_hudi_writes_it(storage: Storage) -> None:
    before = locks.system_now_ms()
    with StorageLock(validity_seconds=100, renew_seconds=10).held(storage):
        held = json.loads(storage.read(STORAGE_LOCK))
        assert set(held) == {"expired", "validUntil", "owner"}
        assert held["expired"] is False
        assert before + 100_000 <= held["validUntil"] <= locks.system_now_ms() + 100_000
    assert json.loads(storage.read(STORAGE_LOCK)) == {**held, "expired": True}


def test_a_storage_lock_that_ran_out_is_taken_over_and_its_owner_notices(storage: Storage) -> None:
    lock = StorageLock(validity_seconds=60, renew_seconds=6, timeout_seconds=SOON)
    with lock.held(storage) as check:
        check()
        with pytest.MonkeyPatch.context() as patch:
            locks_are_later(patch, 60_600)
            with lock.held(storage):
                with pytest.raises(LockError, match="expired"):
                    check()
                held = storage.read(STORAGE_LOCK)
    # The first owner does not give up what is another's by now.
    assert json.loads(storage.read(STORAGE_LOCK))["owner"] == json.loads(held)["owner"]


def test_a_storage_lock_is_renewed_while_it_is_held(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StorageLock, "__post_init__", lambda _: None)
    lock = StorageLock(validity_seconds=30, renew_seconds=0, timeout_seconds=SOON)
    with lock.held(storage) as check:
        first = json.loads(storage.read(STORAGE_LOCK))["validUntil"]
        wait_until(lambda: json.loads(storage.read(STORAGE_LOCK))["validUntil"] > first)
        check()


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.ECHO])
@pytest.mark.parametrize("kind", [KINDS["file"], KINDS["storage"]], ids=["file", "storage"])
def test_a_put_whose_answer_was_lost_still_holds_the_lock_or_leaves_none(
    storage: Storage, kind: Callable[[float], TableLock], effect: Effect
) -> None:
    """By echo it is the caller's own; by an error it is not known, and nobody goes on."""
    puts = FaultyStorage(storage, [Fault(1, Moment.AFTER, effect)], reads_count=False)
    if effect is Effect.ECHO:
        with kind(SOON).held(puts) as check:
            check()
        with kind(SOON).held(storage):
            pass
    else:
        with pytest.raises(Exception, match="simulated"):
            kind(SOON).held(puts).__enter__()
        with kind(SOON).held(storage):
            pass


@pytest.mark.parametrize("by", ["another owner", "nobody: its object is gone"])
def test_a_lock_that_was_lost_is_not_renewed_though_it_is_free_again(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """What its owner checked before may be out of date: another one has perhaps committed."""
    slept, other = _Lease(storage, 10_000), _Lease(storage, 10_000)
    assert slept.taken()
    locks_are_later(monkeypatch, 20_000)
    if by == "another owner":
        assert other.taken()
        other.release()
    else:
        storage.delete(STORAGE_LOCK)
    held = storage.read_version(STORAGE_LOCK)
    assert not slept.renewed()
    assert not slept.renewed()
    with pytest.raises(LockError, match="expired"):
        slept.check()
    slept.release()
    assert storage.read_version(STORAGE_LOCK) == held


def test_a_lock_that_nobody_took_meanwhile_is_renewed_after_a_long_sleep(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = _Lease(storage, 10_000)
    assert lease.taken()
    locks_are_later(monkeypatch, 20_000)
    assert lease.renewed()
    lease.check()


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.ECHO])
def test_a_renewal_whose_answer_was_lost_keeps_the_lock_which_is_given_up_in_the_end(
    storage: Storage, effect: Effect
) -> None:
    puts = FaultyStorage(storage, [Fault(2, Moment.AFTER, effect)], reads_count=False)
    lease = _Lease(cast(VersionedStorage, puts), 10_000)
    assert lease.taken()
    if effect is Effect.ECHO:
        assert lease.renewed()
    else:
        with pytest.raises(StorageError):
            lease.renewed()
    lease.check()
    lease.release()
    assert json.loads(storage.read(STORAGE_LOCK))["expired"] is True


def test_a_file_lock_goes_though_storage_fails_at_first(storage: Storage) -> None:
    fails = FaultyStorage(storage, [Fault(2, Moment.BEFORE, Effect.ERROR)], reads_count=False)
    with FileSystemLock(timeout_seconds=SOON).held(fails):
        pass
    assert storage.stat(FILE_LOCK) is None


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"owner": "o", "validUntil": Infinity, "expired": false}',
        b'{"owner": "o", "validUntil": 1e999, "expired": false}',
        b'{"owner": "o", "validUntil": "' + b"9" * 4301 + b'", "expired": false}',
        b"[" * 10**5,
    ],
    ids=["list", "infinity", "exponent", "digits", "brackets"],
)
def test_a_lock_object_that_is_damaged_is_an_error_that_names_it(
    storage: Storage, content: bytes
) -> None:
    storage.put(STORAGE_LOCK, content)
    with pytest.raises(FormatError, match=r"table_lock\.json"):
        StorageLock(timeout_seconds=SOON).held(storage).__enter__()


def test_a_storage_lock_on_local_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="FileSystemLock"):
        StorageLock().held(LocalStorage(str(tmp_path))).__enter__()


def test_a_storage_lock_that_could_not_be_renewed_in_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="10 times"):
        StorageLock(validity_seconds=60, renew_seconds=30)
    with pytest.raises(ConfigError, match="at least 1"):
        StorageLock(renew_seconds=0)


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("wait_time_ms", "9" * 5000),
        ("wait_time_ms", ""),
        ("storage.renew.interval.secs", "0"),
        ("storage.renew.interval.secs", "-1"),
        ("storage.validity.timeout.secs", "299"),  # Ten renewals, and one is every 30 s.
    ],
)
def test_a_number_that_cannot_be_used_is_refused_by_its_option(option: str, number: str) -> None:
    options = OCC | {
        "hoodie.write.lock.provider": f"{PROVIDERS}StorageBasedLockProvider",
        f"hoodie.write.lock.{option}": number,
    }
    with pytest.raises(ConfigError, match=f"hoodie.write.lock.{option} = .*whole number"):
        lock_from_options(options)


PROVIDERS = "org.apache.hudi.client.transaction.lock."
OCC = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}


@pytest.mark.parametrize(
    ("options", "lock"),
    [
        ({}, NO_LOCK),
        ({"hoodie.write.lock.provider": f"{PROVIDERS}FileSystemBasedLockProvider"}, NO_LOCK),
        (
            OCC
            | {
                "hoodie.write.lock.provider": f"{PROVIDERS}FileSystemBasedLockProvider",
                "hoodie.write.lock.filesystem.expire": "5",
                "hoodie.write.lock.wait_time_ms": "1500",
            },
            FileSystemLock(5, 1.5),
        ),
        (
            OCC
            | {
                "hoodie.write.lock.provider": f"{PROVIDERS}StorageBasedLockProvider",
                "hoodie.write.lock.storage.validity.timeout.secs": "100",
                "hoodie.write.lock.storage.renew.interval.secs": "10",
            },
            StorageLock(100, 10, 60.0),
        ),
        (
            OCC | {"hoodie.write.lock.provider": f"{PROVIDERS}InProcessLockProvider"},
            InProcessLock(60.0),
        ),
    ],
)
def test_the_options_of_a_hudi_job_name_the_lock(options: dict[str, str], lock: TableLock) -> None:
    assert lock_from_options(options) == lock


@pytest.mark.parametrize(
    "options",
    [
        OCC,
        OCC | {"hoodie.write.lock.provider": f"{PROVIDERS}ZookeeperBasedLockProvider"},
        {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
        OCC
        | {
            "hoodie.write.lock.provider": f"{PROVIDERS}FileSystemBasedLockProvider",
            "hoodie.write.lock.filesystem.path": "/locks",
        },
        OCC
        | {
            "hoodie.write.lock.provider": f"{PROVIDERS}InProcessLockProvider",
            "hoodie.write.lock.wait_time_ms": "long",
        },
    ],
)
def test_a_lock_that_cannot_be_shared_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        lock_from_options(options)


@EACH_KIND
def test_writes_services_and_rollbacks_go_through_under_a_lock(
    kind: Callable[[float], TableLock],
) -> None:
    import pyarrow as pa

    name = MemoryStorage.fresh(locks.system_now_ms)
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
    bl.create_table(
        name.root, schema=schema, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(2), table_type="merge_on_read",
    )  # fmt: skip
    table = bl.open_table(name.root, lock=kind(5))
    batch = pa.table({"id": ["a", "b"], "day": ["x", "y"], "v": [1, 2]}, schema=schema)
    for _ in range(2):
        instant = table.upsert(batch).instant
    assert instant is not None
    table.rollback(instant)
    table.upsert(batch)
    assert len(table.compact().instants) == 1
    table.rescale({"x": 3}, dry_run=False)
    table.delete_partitions(["y"])
    assert table.to_arrow()["id"].to_pylist() == ["a"]
