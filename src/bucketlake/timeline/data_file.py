"""Writing data files from a task, which may run twice, late, or after a rollback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bucketlake.errors import CommitConflictError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer, Storage, put_all_if_absent
from bucketlake.timeline.markers import Marker, write_markers
from bucketlake.timeline.outcome import is_decided_commit, is_rolled_back
from bucketlake.timeline.transitions import require_pending

_FILES_MAX = 256
_BYTES_MAX = 16 << 20


class DataFiles:
    """Collects the data files of a task, and publishes many at once.

    The storage flushes them together, and their markers are one list. The caller publishes the last
    ones before the task ends. Its parameters are those of :func:`put_data_files`, and ``written``:
    it gets the facts of the files that were written, unless they were there before.
    """

    def __init__(
        self,
        storage: Storage,
        instant: InstantTime,
        inflight: str,
        *,
        place: Storage | None = None,
        written: Callable[[list[Any]], None] | None = None,
    ) -> None:
        self._write = storage, instant, inflight
        self._place, self._written = place, written
        self._before: list[tuple[Marker, Buffer]] = []
        self._waiting: list[tuple[Marker, Buffer]] = []
        self._facts: dict[str, Any] = {}
        self._bytes = 0

    def add(self, marker: Marker, data: Buffer, fact: object = None) -> None:
        """Add a file, and a fact of it for ``written``."""
        self._waiting.append((marker, data))
        self._bytes += len(data)
        if fact is not None:
            self._facts[marker.data_path] = fact
        if len(self._waiting) >= _FILES_MAX or self._bytes >= _BYTES_MAX:
            self.publish()

    def add_before(self, marker: Marker, data: Buffer) -> None:
        """Add a file that must be there when the file is that is added next."""
        self._before.append((marker, data))
        self._bytes += len(data)

    def publish(self) -> None:
        """Publish the files that wait."""
        facts, parts = self._facts, (self._before, self._waiting)
        self._before, self._waiting, self._facts, self._bytes = [], [], {}, 0
        for files in filter(None, parts):
            paths = put_data_files(*self._write, files, place=self._place)
            if self._written is not None:
                self._written([facts[path] for path in paths if path in facts])


def put_data_files(
    storage: Storage,
    instant: InstantTime,
    inflight: str,
    files: Sequence[tuple[Marker, Buffer]],
    *,
    place: Storage | None = None,
) -> list[str]:
    """Write data files that do not exist yet; write their markers before.

    A rollback first forbids the commit and then reads the markers. So either the rollback finds the
    files, or this function finds that the commit is forbidden and deletes the files.

    Parameters
    ----------
    storage, instant
        The table, and the instant of the write.
    inflight : str
        Path of the write's inflight file.
    files : sequence of (Marker, bytes-like)
        The markers that name the files, and their content.
    place : Storage, optional
        Storage of the files and their markers, if it is not the table's: the metadata table. Then a
        late attempt does not write a file that is gone after the commit: the partition was deleted,
        perhaps built again, and readers would count the file.

    Returns
    -------
    list of str
        The files that this call wrote. Another attempt was faster with the others, with the same
        rows, or the write was committed before with these files.

    Raises
    ------
    CommitConflictError
        If the write was rolled back meanwhile.
    """
    held = storage if place is None else place
    require_pending(storage, inflight, instant)
    if place is not None and is_decided_commit(storage, instant):
        return []
    write_markers(held, instant, (marker for marker, _ in files))
    objects = [(marker.data_path, data) for marker, data in files]
    existing = put_all_if_absent(held, objects)
    if is_rolled_back(storage, instant):
        for path, _ in objects:
            held.delete(path)
        raise CommitConflictError(
            instant, "was rolled back while a task was still writing; none of its files are kept"
        )
    return [path for path, _ in objects if path not in existing]
