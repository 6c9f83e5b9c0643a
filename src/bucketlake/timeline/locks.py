"""Table locks that bucketlake's writers share with Hudi's writers.

bucketlake's writers need no lock among themselves, because their commits take turns
(``timeline/commit_order.py``); a lease that ends while its owner sleeps does no harm. Hudi's
writers do not know turns. If Hudi writes at the same time, all writers of the table must use the
same one of Hudi's lock providers. A writer holds the lock while it checks for conflicts and
publishes.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol

from bucketlake.config.entries import ConfigEntries
from bucketlake.config.paths_of_table import HOODIE_FOLDER
from bucketlake.errors import (
    AlreadyExistsError,
    ConfigError,
    FormatError,
    LockError,
    StorageError,
    UnsupportedFeatureError,
)
from bucketlake.format.json_fields import parsing
from bucketlake.model.arguments import check_integers, check_seconds
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.names import one_of
from bucketlake.storage.base import Storage, VersionedStorage, put_or_find, read_if_there
from bucketlake.storage.location import place_of
from bucketlake.storage.waiting import repeating, until
from bucketlake.timeline.instant import system_now_ms

FILE_LOCK = f"{HOODIE_FOLDER}/lock"
STORAGE_LOCK = f"{HOODIE_FOLDER}/.locks/table_lock.json"

_TIMEOUT_MAX = threading.TIMEOUT_MAX  # Python waits no longer.
_SKEW_MS = 500  # Allowed difference between the clocks of two hosts, as in Hudi.
RENEWALS_LEAST = 10  # Renewals during the lease; Hudi demands as many.
_ATTEMPTS = 3

LockCheck = Callable[[], None]
"""Raises LockError if a lock is no longer held."""


class TableLock(Protocol):
    """A lock that keeps other writers out."""

    def held(self, storage: Storage) -> AbstractContextManager[LockCheck]:
        """Hold the lock of a table while the body runs; raise LockError if it is not free."""


@dataclass(frozen=True, slots=True)
class NoLock:
    """No lock: for bucketlake writers only, or if a Hudi writer never runs at the same time."""

    def held(self, storage: Storage) -> AbstractContextManager[LockCheck]:  # noqa: ARG002
        """Hold nothing."""
        return nullcontext(_nothing)


NO_LOCK = NoLock()


@dataclass(frozen=True, slots=True)
class InProcessLock:
    """A lock for the threads of this process (Hudi: ``InProcessLockProvider``).

    Parameters
    ----------
    timeout_seconds : float
        How long to wait for the lock.
    """

    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_seconds(_TIMEOUT_MAX, timeout_seconds=self.timeout_seconds)

    @contextmanager
    def held(self, storage: Storage) -> Iterator[LockCheck]:
        """Hold the lock of a table."""
        lock = _IN_PROCESS.setdefault(place_of(storage.root), threading.Lock())
        if not lock.acquire(timeout=self.timeout_seconds):
            raise LockError(storage.root, "another thread of this process", self.timeout_seconds)
        try:
            yield _nothing
        finally:
            lock.release()


_IN_PROCESS: dict[str, threading.Lock] = {}


@dataclass(frozen=True, slots=True)
class FileSystemLock:
    """A file that exists while the lock is held (Hudi: ``FileSystemBasedLockProvider``).

    Parameters
    ----------
    expire_minutes : int
        Age at which the file is treated as left behind and deleted; 0, the default as in Hudi,
        means never. Must be longer than any commit takes.
    timeout_seconds : float
        How long to wait for the lock.

    Notes
    -----
    bucketlake writes an id of the owner into the file; Hudi's file is empty.
    """

    expire_minutes: int = 0
    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_integers(0, expire_minutes=self.expire_minutes)
        check_seconds(_TIMEOUT_MAX, timeout_seconds=self.timeout_seconds)

    @contextmanager
    def held(self, storage: Storage) -> Iterator[LockCheck]:
        """Hold the lock of a table."""
        own = uuid.uuid4().hex.encode()

        def check() -> None:
            if read_if_there(storage, FILE_LOCK) != own:
                raise LockError(f"{storage.root}/{FILE_LOCK}", "a writer that took it over", None)

        try:
            _until(lambda: self._taken(storage, own), storage, FILE_LOCK, self.timeout_seconds)
            yield check
        finally:  # Also after a put that failed but arrived: nobody else would delete the file.
            _give_up(storage, own)

    def _taken(self, storage: Storage, own: bytes) -> bool:
        if put_or_find(storage, FILE_LOCK, own):
            return True
        stored = storage.stat(FILE_LOCK)
        age_ms = 0 if stored is None else system_now_ms() - stored.modified_at_ms
        if self.expire_minutes and age_ms > self.expire_minutes * 60_000:
            storage.delete(FILE_LOCK)
        return False


def _give_up(storage: Storage, own: bytes) -> None:
    """Delete a file lock if this writer owns it; give up after several storage errors."""
    for _ in range(_ATTEMPTS):
        with suppress(StorageError):
            if read_if_there(storage, FILE_LOCK) == own:
                storage.delete(FILE_LOCK)
            return


@dataclass(frozen=True, slots=True)
class StorageLock:
    """An object with an owner and an expiry time (Hudi: ``StorageBasedLockProvider``).

    It uses conditional puts, and works on object stores only, as in Hudi.

    Parameters
    ----------
    validity_seconds : int
        The lease: how long the lock stays valid without renewal.
    renew_seconds : int
        How often the owner renews the lock; at least ten times within ``validity_seconds``.
    timeout_seconds : float
        How long to wait for the lock.
    """

    validity_seconds: int = 300
    renew_seconds: int = 30
    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_integers(1, renew_seconds=self.renew_seconds, validity_seconds=self.validity_seconds)
        check_seconds(_TIMEOUT_MAX, timeout_seconds=self.timeout_seconds)
        if self.validity_seconds < RENEWALS_LEAST * self.renew_seconds:
            raise ConfigError(
                "validity_seconds",
                self.validity_seconds,
                f"at least {RENEWALS_LEAST} times renew_seconds ({self.renew_seconds})",
            )

    @contextmanager
    def held(self, storage: Storage) -> Iterator[LockCheck]:
        """Hold the lock of a table."""
        if not isinstance(storage, VersionedStorage):
            raise UnsupportedFeatureError(
                "the storage-based lock without conditional puts",
                storage.root,
                "use FileSystemLock",
            )
        lease = _Lease(storage, self.validity_seconds * 1000)

        def renew() -> bool:
            with suppress(StorageError):  # The next renewal may succeed.
                return lease.renewed()
            return True

        try:
            _until(lease.taken, storage, STORAGE_LOCK, self.timeout_seconds)
            with repeating(renew, self.renew_seconds, "lock-renewal"):
                yield lease.check
        finally:
            with suppress(StorageError, FormatError):  # Without release the lease expires.
                lease.release()


class _Lease:
    """A storage-based lock as one owner holds it."""

    def __init__(self, storage: VersionedStorage, validity_ms: int) -> None:
        self._storage, self._validity_ms = storage, validity_ms
        self._owner = str(uuid.uuid4())
        self._version: str | None = None
        self._valid_until_ms = 0

    def taken(self) -> bool:
        """Take the lock; return False if another owner has it."""
        found = self._storage.read_version(STORAGE_LOCK)
        if found is None:
            return self._put(None)
        held, version = self._parsed(found)
        # The owner may be this one, after a lost response to its put.
        is_free = held.expired or held.owner == self._owner
        return (is_free or held.valid_until_ms + _SKEW_MS < system_now_ms()) and self._put(version)

    def renewed(self) -> bool:
        """Renew the lease; return False forever if another owner has or had the lock meanwhile.

        Then the checks of this owner may be out of date, even if the lock is free again.
        """
        for _ in range(_ATTEMPTS):  # A repeated put may fail because its first attempt arrived.
            version = self._own_version()
            if version is None:
                break
            if self._put(version):
                return True
        self._version = None
        return False

    def release(self) -> None:
        """Release the lock; the object stays and is marked as expired."""
        version = self._version
        for _ in range(_ATTEMPTS):  # The response to a renewal may have been lost.
            version = version or self._own_version()
            if version is None:
                return
            with suppress(AlreadyExistsError):
                self._write(version, valid_until_ms=self._valid_until_ms, expired=True)
                return
            version = None

    def check(self) -> None:
        """Raise LockError if the lock is no longer held."""
        if self._version is None or system_now_ms() > self._valid_until_ms:
            raise LockError(
                f"{self._storage.root}/{STORAGE_LOCK}", "nobody: its lease expired", None
            )

    def _put(self, version: str | None) -> bool:
        valid_until_ms = system_now_ms() + self._validity_ms
        try:
            self._version = self._write(version, valid_until_ms=valid_until_ms, expired=False)
        except AlreadyExistsError:
            return False
        self._valid_until_ms = valid_until_ms
        return True

    def _own_version(self) -> str | None:
        """Return the version of the object if this owner holds the lock; else None."""
        found = self._storage.read_version(STORAGE_LOCK)
        if found is None:
            return None
        held, version = self._parsed(found)
        return version if held.owner == self._owner and not held.expired else None

    def _parsed(self, found: tuple[bytes, str]) -> tuple[_Held, str]:
        content, version = found
        return _parsed(content, f"{self._storage.root}/{STORAGE_LOCK}"), version

    def _write(self, version: str | None, *, valid_until_ms: int, expired: bool) -> str:
        fields = {"expired": expired, "validUntil": valid_until_ms, "owner": self._owner}
        return self._storage.put_if_version(STORAGE_LOCK, json.dumps(fields).encode(), version)


def lock_left_behind(storage: Storage, now_ms: int, min_age_ms: int) -> str | None:
    """Return the path of a file system lock that is older than any commit takes; else None.

    A storage-based lock expires; this function raises FormatError if the lock is not readable.
    """
    content = read_if_there(storage, STORAGE_LOCK)
    if content is not None:
        _parsed(content, STORAGE_LOCK)
    stored = storage.stat(FILE_LOCK)
    is_old = stored is not None and now_ms - stored.modified_at_ms >= min_age_ms
    return FILE_LOCK if is_old else None


def _until(taken: Callable[[], bool], storage: Storage, path: str, timeout_seconds: float) -> None:
    if not until(taken, timeout_seconds):
        raise LockError(f"{storage.root}/{path}", "another writer", timeout_seconds)


@dataclass(frozen=True, slots=True)
class _Held:
    """The content of a storage-based lock."""

    owner: str
    valid_until_ms: int
    expired: bool


def _parsed(content: bytes, path: str) -> _Held:
    with parsing(path, "a lock's owner and expiry as JSON", content):
        fields = parse_json(content)
        return _Held(str(fields["owner"]), int(fields["validUntil"]), bool(fields["expired"]))


def _nothing() -> None:
    """Check nothing."""


# ---- The ``hoodie.write.lock.*`` options of a Hudi job -------------------------------------------

CONCURRENCY_MODE = "hoodie.write.concurrency.mode"
PROVIDER = "hoodie.write.lock.provider"
WAIT_MS = "hoodie.write.lock.wait_time_ms"
EXPIRE_MINUTES = "hoodie.write.lock.filesystem.expire"
LOCK_FOLDER = "hoodie.write.lock.filesystem.path"
VALIDITY_SECONDS = "hoodie.write.lock.storage.validity.timeout.secs"
RENEW_SECONDS = "hoodie.write.lock.storage.renew.interval.secs"

_DEFAULT = StorageLock()

_SINGLE_WRITER, _OPTIMISTIC = _MODES = ("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL")


def lock_from_options(options: Mapping[str, str]) -> TableLock:
    """Return the lock that the options of a job ask for.

    Parameters
    ----------
    options : mapping of str to str
        The options of the job. As in Hudi, a job with a single writer takes no lock.

    Raises
    ------
    ConfigError
        If bucketlake does not support the lock provider or the concurrency mode.
    """
    mode = options.get(CONCURRENCY_MODE, _SINGLE_WRITER).strip().upper()
    if mode not in _MODES:
        raise ConfigError(CONCURRENCY_MODE, mode, one_of(mode, _MODES))
    entries = ConfigEntries(options)
    wait_seconds = entries.option(WAIT_MS, 60_000) / 1000
    expire_minutes = entries.option(EXPIRE_MINUTES, 0)
    renew = entries.option(RENEW_SECONDS, _DEFAULT.renew_seconds, least=1)
    validity = entries.option(VALIDITY_SECONDS, _DEFAULT.validity_seconds, least=1)
    if mode == _SINGLE_WRITER:
        return NO_LOCK
    match options.get(PROVIDER, "").strip().rpartition(".")[2]:
        case "FileSystemBasedLockProvider":
            if options.get(LOCK_FOLDER):
                raise ConfigError(LOCK_FOLDER, options[LOCK_FOLDER], "the table's own, its default")
            return FileSystemLock(expire_minutes, wait_seconds)
        case "StorageBasedLockProvider":
            entries.option(VALIDITY_SECONDS, validity, least=RENEWALS_LEAST * renew)
            return StorageLock(validity, renew, wait_seconds)
        case "InProcessLockProvider":
            return InProcessLock(wait_seconds)
        case _:
            raise ConfigError(
                PROVIDER,
                options.get(PROVIDER),
                "a job with several writers needs one of FileSystemBasedLockProvider, "
                "StorageBasedLockProvider, InProcessLockProvider",
            )
