"""Early detection of conflicts: a write waits for another write that is writing its buckets.

Without it both writes would run, and the write that commits second would have to run again. The
markers of a living write name the file groups that it has begun (Hudi: early conflict detection).
The check at the commit finds the remaining conflicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bucketlake.actions.conflict import WAIT_SECONDS_MAX, WaitedError
from bucketlake.actions.progress import LOGGER
from bucketlake.format.metadata_record.file_ids import MetadataFileId
from bucketlake.index.conflict_keys import (
    ConflictKey,
    ConflictKeys,
    describe_key,
    key_of_group,
    key_of_shard,
)
from bucketlake.metadata.slices.compaction_state import IN_TURN
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.heartbeat import is_alive, is_of_this_thread
from bucketlake.timeline.markers import read_markers

_LOOK_SECONDS = (0.05, 0.5)
"""Least and greatest pause: a tenth of the wait, so that a short write is seen to end in time."""


def wait_for_writers(
    storage: Storage,
    timeline: Timeline,
    clock: InstantClock,
    wanted: ConflictKeys,
    *,
    group_key: Callable[[str, FileId], ConflictKey] = key_of_group,
    metadata: Storage | None = None,
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
    group_key : callable
        The conflict key of a file group (``Layout.conflict_key_of_group``).
    metadata : Storage, optional
        The metadata table, if shards of its record-level index are among the wanted keys.

    Raises
    ------
    WaitedError
        After the other write has ended, because the table has changed.
    """
    for pending in timeline.pending():
        instant = pending.requested_at
        if pending.action not in IN_TURN or is_of_this_thread(instant):
            continue
        begun = _begun(storage, instant, group_key)
        if metadata is not None:
            begun |= _begun_shards(metadata, instant)
        common = wanted & begun
        if common and is_alive(storage, instant, clock.now_ms):
            what = describe_key(min(common))
            LOGGER.info("waiting for %s, which writes %s", instant, what)
            waited = 0.0
            while is_alive(storage, instant, clock.now_ms) and waited < WAIT_SECONDS_MAX:
                least, greatest = _LOOK_SECONDS
                pause = min(max(waited / 10, least), greatest, WAIT_SECONDS_MAX - waited)
                time.sleep(pause)
                waited += pause
            raise WaitedError(instant, f"wrote {what} at the same time; retry", waited)


def _begun(
    storage: Storage, instant: InstantTime, group_key: Callable[[str, FileId], ConflictKey]
) -> set[ConflictKey]:
    """Return the keys of the file groups for which a write has markers."""
    return {group_key(path, file_id) for path, file_id in _marked(storage, instant)}


def _begun_shards(metadata: Storage, instant: InstantTime) -> set[ConflictKey]:
    """Return the keys of the shards of the index for which a write has markers."""
    found = (MetadataFileId.from_file_id(file_id) for _, file_id in _marked(metadata, instant))
    return {key_of_shard(facts.data_partition, facts.shard) for facts in found if facts is not None}


def _marked(storage: Storage, instant: InstantTime) -> Iterator[tuple[str, FileId]]:
    """Yield partition path and file id of the file groups for which a write has markers."""
    for marker in read_markers(storage, instant):
        base = BaseFileName.from_file_name(marker.file_name)
        name = base or LogFileName.from_file_name(marker.file_name)
        if name is not None:
            yield marker.partition_path, name.file_id
