"""Writing a data file from a task, which may run twice, late, or after a rollback."""

from __future__ import annotations

from contextlib import suppress

from bucketlake.errors import AlreadyExistsError, CommitConflictError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer, Storage
from bucketlake.timeline.markers import Marker, write_marker
from bucketlake.timeline.outcome import is_decided_commit, is_rolled_back
from bucketlake.timeline.transitions import require_pending


def put_data_file(
    storage: Storage,
    instant: InstantTime,
    inflight: str,
    marker: Marker,
    data: Buffer,
    *,
    place: Storage | None = None,
) -> bool:
    """Write a data file that does not exist yet; write its marker before.

    A rollback first forbids the commit and then reads the markers. So either the rollback finds the
    file, or this function finds that the commit is forbidden and deletes the file.

    Parameters
    ----------
    storage, instant
        The table, and the instant of the write.
    inflight : str
        Path of the write's inflight file.
    marker : Marker
        Marker that names the file.
    data : bytes-like
        Content of the file.
    place : Storage, optional
        Storage of the file and its marker, if it is not the table's: the metadata table. Then a
        late attempt does not write a file that is gone after the commit: the partition was deleted,
        perhaps built again, and readers would count the file.

    Returns
    -------
    bool
        Whether this call wrote the file; False if another attempt was faster, with the same rows,
        or the write was committed before with this file.

    Raises
    ------
    CommitConflictError
        If the write was rolled back meanwhile.
    """
    files = storage if place is None else place
    require_pending(storage, inflight, instant)
    if place is not None and is_decided_commit(storage, instant):
        return False
    write_marker(files, instant, marker)
    is_written = False
    with suppress(AlreadyExistsError):
        files.put_if_absent(marker.data_path, data)
        is_written = True
    if is_rolled_back(storage, instant):
        files.delete(marker.data_path)
        raise CommitConflictError(
            instant, "was rolled back while a task was still writing; none of its files are kept"
        )
    return is_written
