"""Early detection of conflicts: a write waits for another write that is writing its buckets.

Without it both writes would run, and the write that commits second would have to run again. The
markers of a living write name the file groups that it has begun (Hudi: early conflict detection).
The check at the commit finds the remaining conflicts.
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
from bucketlake.timeline.instant import WRITES, Action
from bucketlake.timeline.markers import read_markers
from bucketlake.write.progress import LOGGER

WAIT_SECONDS_MAX = 600.0
_HOLDING = WRITES | {Action.CLUSTERING}  # A resize has such markers in its last rounds.
_LOOK_SECONDS = 0.5


def wait_for_writers(
    storage: Storage,
    timeline: Timeline,
    clock: InstantClock,
    wanted: ConflictKeys,
) -> None:
    """Wait for the end of another write to the same buckets; return at once if there is none.

    Parameters
    ----------
    storage, timeline
        The table, and the timeline that the write pinned.
    clock : InstantClock
        Decides whether a heartbeat is recent.
    wanted : set of ConflictKey
        Slots to write.

    Raises
    ------
    CommitConflictError
        After the other write has ended, because the table has changed.
    """
    for pending in timeline.pending():
        instant = pending.requested_at
        if pending.action not in _HOLDING or is_of_this_thread(instant):
            continue
        common = wanted & _begun(storage, instant)
        if common and is_alive(storage, instant, clock.now_ms):
            what = describe_key(min(common))
            LOGGER.info("waiting for %s, which writes %s", instant, what)
            waited = 0.0
            while is_alive(storage, instant, clock.now_ms) and waited < WAIT_SECONDS_MAX:
                time.sleep(_LOOK_SECONDS)
                waited += _LOOK_SECONDS
            raise CommitConflictError(
                instant,
                f"wrote {what} at the same time; retry",
            )


def _begun(storage: Storage, instant: InstantTime) -> set[ConflictKey]:
    """Return the keys of the file groups for which a write has markers."""
    found = set()
    for marker in read_markers(storage, instant):
        base = BaseFileName.from_file_name(marker.file_name)
        name = base or LogFileName.from_file_name(marker.file_name)
        if name is not None:
            found.add(key_of_group(marker.partition_path, name.file_id))
    return found
