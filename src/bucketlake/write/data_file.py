"""Putting a data file of a pending write, by a task that may run twice, late, or in vain."""

from __future__ import annotations

from contextlib import suppress

from bucketlake.errors import AlreadyExistsError, CommitConflictError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer, Storage
from bucketlake.timeline.markers import Marker, write_marker
from bucketlake.timeline.outcome import is_rolled_back
from bucketlake.timeline.transitions import require_pending


def put_data_file(
    storage: Storage, instant: InstantTime, inflight: str, marker: Marker, data: Buffer
) -> None:
    """Put a data file that is not there yet, its marker before it.

    Whoever rolls the write back forbids its commit first, and looks for markers then. So either it
    finds the file, or this finds that the commit is forbidden, and takes the file away again.

    Parameters
    ----------
    storage, instant
        The table, and the write.
    inflight : str
        Path of the write's inflight file.
    marker : Marker
        Names the file.
    data : bytes-like
        Its content.

    Raises
    ------
    CommitConflictError
        If the write was rolled back meanwhile.
    """
    require_pending(storage, inflight, instant)
    write_marker(storage, instant, marker)
    with suppress(AlreadyExistsError):  # Another attempt was first, with the same rows.
        storage.put_if_absent(marker.data_path, data)
    if is_rolled_back(storage, instant):
        storage.delete(marker.data_path)
        raise CommitConflictError(
            instant, "was rolled back while a task still wrote; nothing of it is kept"
        )
