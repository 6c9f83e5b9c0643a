"""The ``hoodie.write.lock.*`` options of a Hudi job."""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.config.entries import Entries
from bucketlake.errors import ConfigError
from bucketlake.model.names import one_of
from bucketlake.timeline.locks import (
    NO_LOCK,
    RENEWALS_LEAST,
    FileSystemLock,
    InProcessLock,
    StorageLock,
    TableLock,
)

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
    entries = Entries(options)
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
