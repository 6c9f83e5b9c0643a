"""Early detection of conflicts: a write waits for another that is at work on its buckets.

Both would do their work, and the later one to commit would have to do it again. The markers of a
write that lives tell which file groups it has begun (Hudi: early conflict detection). What is not
seen here is found at the commit.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from bucketlake.errors import CommitConflictError
from bucketlake.index.simple import bucket_id_of_file_id
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.heartbeat import is_alive, is_of_this_thread
from bucketlake.timeline.instant import WRITES
from bucketlake.timeline.markers import Marker, read_markers
from bucketlake.write.progress import LOGGER

WAIT_SECONDS_MAX = 600.0
_LOOK_SECONDS = 0.5


def wait_for_writers(
    storage: Storage,
    timeline: Timeline,
    clock: InstantClock,
    wanted: Collection[tuple[str, int]],
) -> None:
    """Return at once where no other write is at work on these buckets; else wait for its end.

    Parameters
    ----------
    storage, timeline
        The table, and its timeline as the write pinned it.
    clock : InstantClock
        Tells which writers live.
    wanted : collection of (partition path, bucket id)
        Buckets that are to be written.

    Raises
    ------
    CommitConflictError
        Once the other write has ended, since the table is not what it was then.
    """
    for one in timeline.pending():
        instant = one.requested_at
        if one.action not in WRITES or is_of_this_thread(instant):
            continue
        common = set(wanted) & _begun(storage, instant)
        if common and is_alive(storage, instant, clock.now_ms):
            partition, bucket_id = min(common)
            LOGGER.info("wait for %s, which writes bucket %d of %r", instant, bucket_id, partition)
            waited = 0.0
            while is_alive(storage, instant, clock.now_ms) and waited < WAIT_SECONDS_MAX:
                time.sleep(_LOOK_SECONDS)
                waited += _LOOK_SECONDS
            raise CommitConflictError(
                instant,
                f"wrote bucket {bucket_id} of partition {partition!r} at the same time; retry",
            )


def _begun(storage: Storage, instant: InstantTime) -> set[tuple[str, int]]:
    """Return the buckets that a write has markers of."""
    return {
        (marker.partition_path, bucket_id)
        for marker in read_markers(storage, instant)
        if (bucket_id := _bucket_of(marker)) is not None
    }


def _bucket_of(marker: Marker) -> int | None:
    name = BaseFileName.from_file_name(marker.file_name) or LogFileName.from_file_name(
        marker.file_name
    )
    return None if name is None else bucket_id_of_file_id(name.file_id)
