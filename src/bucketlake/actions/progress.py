"""Progress of long work, for the logger ``bucketlake``.

The progress of tasks is the number of file groups with a marker. The tasks themselves do not count,
because a task may run on any machine, run twice, or be lost. But each file has its marker, and the
driver lists the markers from time to time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bucketlake.errors import StorageError
from bucketlake.flow.call import doing as step_of_work
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.storage.waiting import repeating
from bucketlake.timeline.markers import read_markers

PROGRESS_SECONDS = 5.0

LOGGER = logging.getLogger("bucketlake")


def counted_progress(doing: str, total: int, things: str) -> Callable[[int], None]:
    """Return a function that takes the number of done things and logs it every few seconds."""
    started = logged_at = time.monotonic()

    def log(done: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= PROGRESS_SECONDS:
            logged_at = time.monotonic()
            left = remaining(done, total, logged_at - started)
            LOGGER.info("%s: %s of %s %s%s", doing, f"{done:,}", f"{total:,}", things, left)

    return log


def remaining(done: int, total: int, seconds: float) -> str:
    """Return in words how long the rest takes, if it goes on as before; empty if unknown.

    Examples
    --------
    >>> remaining(10, 40, 30.0), remaining(1, 2, 300.0), remaining(0, 40, 30.0)
    (', about 90 s left', ', about 5 min left', '')
    """
    if not 0 < done < total:
        return ""
    left = seconds / done * (total - done)
    return f", about {left:.0f} s left" if left < 120 else f", about {left / 60:.0f} min left"


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
    started = time.monotonic()

    def tell() -> None:
        with suppress(StorageError):  # The next round logs it.
            done = len(read_markers(storage, instant))
            left = remaining(done, total, time.monotonic() - started)
            LOGGER.info("%s %s: %d of %d file groups%s", doing, instant, done, total, left)

    with step_of_work(instant, "writing"):
        if not LOGGER.isEnabledFor(logging.INFO):
            yield
            return
        with repeating(tell, PROGRESS_SECONDS, f"progress-{instant}"):
            yield
