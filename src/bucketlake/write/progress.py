"""Progress of long work, for the logger ``bucketlake``.

Of tasks it is how many file groups have a file by now. Nobody counts while they run: they may be
anywhere, run twice, or be lost. But each file has its marker, and whoever waits looks at those from
time to time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bucketlake.errors import StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.markers import read_markers

INTERVAL_SECONDS = 5.0

LOGGER = logging.getLogger("bucketlake")


def counted(doing: str, total: int, things: str) -> Callable[[int], None]:
    """Return what logs, every few seconds that it is called, how many of some things are done."""
    told_at = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= INTERVAL_SECONDS:
            told_at = time.monotonic()
            LOGGER.info("%s: %s of %s %s", doing, f"{done:,}", f"{total:,}", things)

    return tell


@contextmanager
def telling_progress(
    storage: Storage, instant: InstantTime, doing: str, total: int
) -> Iterator[None]:
    """Log, while the body runs, how far it is; nothing where it is short, or nobody listens.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    instant : InstantTime
        The instant that the files are written for.
    doing : str
        What it does.
    total : int
        File groups that get a file, at most.
    """
    if not LOGGER.isEnabledFor(logging.INFO):
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL_SECONDS):
            with suppress(StorageError):  # It is told the next time.
                done = len(read_markers(storage, instant))
                LOGGER.info("%s %s: %d of %d file groups", doing, instant, done, total)

    watcher = threading.Thread(target=watch, name=f"progress-{instant}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
