"""Early detection of conflicts: a write waits for another that is at work on its buckets.

Both would do their work, and the later one to commit would have to do it again. The markers of a
write that lives tell which file groups it has begun (Hudi: early conflict detection). What is not
seen here is found at the commit.
"""

from __future__ import annotations

import time

from bucketlake.errors import CommitConflictError
from bucketlake.index.conflict_keys import ConflictKey, ConflictKeys, describe_key, key_of_group
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.heartbeat import is_alive, is_of_this_thread
from bucketlake.timeline.instant import WRITES
from bucketlake.timeline.markers import read_markers
from bucketlake.write.progress import LOGGER

WAIT_SECONDS_MAX = 600.0
_LOOK_SECONDS = 0.5


def wait_for_writers(
    storage: Storage,
    timeline: Timeline,
    clock: InstantClock,
    wanted: ConflictKeys,
) -> None:
    """Return at once where no other write is at work on these buckets; else wait for its end.

    Parameters
    ----------
    storage, timeline
        The table, and its timeline as the write pinned it.
    clock : InstantClock
        Tells which writers live.
    wanted : set of ConflictKey
        Slots that are to be written.

    Raises
    ------
    CommitConflictError
        Once the other write has ended, since the table is not what it was then.
    """
    for one in timeline.pending():
        instant = one.requested_at
        if one.action not in WRITES or is_of_this_thread(instant):
            continue
        common = wanted & _begun(storage, instant)
        if common and is_alive(storage, instant, clock.now_ms):
            what = describe_key(min(common))
            LOGGER.info("wait for %s, which writes %s", instant, what)
            waited = 0.0
            while is_alive(storage, instant, clock.now_ms) and waited < WAIT_SECONDS_MAX:
                time.sleep(_LOOK_SECONDS)
                waited += _LOOK_SECONDS
            raise CommitConflictError(
                instant,
                f"wrote {what} at the same time; retry",
            )


def _begun(storage: Storage, instant: InstantTime) -> set[ConflictKey]:
    """Return the keys of the file groups that a write has markers of."""
    found = set()
    for marker in read_markers(storage, instant):
        base = BaseFileName.from_file_name(marker.file_name)
        name = base or LogFileName.from_file_name(marker.file_name)
        if name is not None:
            found.add(key_of_group(marker.partition_path, name.file_id))
    return found
