"""Progress of long work, for the logger ``bucketlake``.

The progress of tasks is the number of file groups with a marker. The tasks themselves do not count,
because a task may run on any machine, run twice, or be lost. But each file has its marker, and the
driver lists the markers from time to time.
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
    """Return a function that takes the number of done things and logs it every few seconds."""
    logged_at = time.monotonic()

    def log(done: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= INTERVAL_SECONDS:
            logged_at = time.monotonic()
            LOGGER.info("%s: %s of %s %s", doing, f"{done:,}", f"{total:,}", things)

    return log


@contextmanager
def telling_progress(
    storage: Storage, instant: InstantTime, doing: str, total: int
) -> Iterator[None]:
    """Log the progress of the body every few seconds, if the logger is enabled.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    instant : InstantTime
        The instant whose files are written.
    doing : str
        Name of the operation.
    total : int
        Greatest number of file groups that get a file.
    """
    if not LOGGER.isEnabledFor(logging.INFO):
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL_SECONDS):
            with suppress(StorageError):  # The next round logs it.
                done = len(read_markers(storage, instant))
                LOGGER.info("%s %s: %d of %d file groups", doing, instant, done, total)

    watcher = threading.Thread(target=watch, name=f"progress-{instant}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
