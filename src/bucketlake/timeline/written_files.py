"""The data files that commits of the active timeline wrote, by their write statistics.

A read or write of a table without a metadata table compares them with the files that it lists. So
this module reads the metadata of each commit once per process: the file of a completed instant
never changes, and since table version 8 its name has the completion time, which no other instant
has. Before that, the metadata is read again for each timeline.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from bucketlake.errors import TimelineError
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

WrittenFiles: TypeAlias = Mapping[str, Mapping[str, DataFile]]
"""Files by partition path and by path."""

_FILES_MAX = 200_000  # About 60 MB.


_Key: TypeAlias = tuple[str, InstantTime, InstantTime]  # Root, requested time, completion time.


class _Known:
    """The files of the commits that this process read last."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._count = 0
        self._held: OrderedDict[_Key, WrittenFiles] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, keys: Sequence[_Key | None]) -> list[WrittenFiles | None]:
        with self._lock:
            found = [None if key is None else self._held.get(key) for key in keys]
            for key, files in zip(keys, found, strict=True):
                if key is not None and files is not None:
                    self._held.move_to_end(key)
            return found

    def put(self, key: _Key, files: WrittenFiles) -> None:
        with self._lock:
            if key in self._held:
                return
            self._held[key] = files
            self._count += _size_of(files)
            while self._count > self._files_max:
                _, dropped = self._held.popitem(last=False)
                self._count -= _size_of(dropped)


_KNOWN = _Known(_FILES_MAX)


def written_files(
    storage: Storage, timeline: Timeline
) -> Iterator[tuple[InstantTime, WrittenFiles]]:
    """Yield the completed commits of a timeline, oldest first, with the files that they wrote.

    A commit that was rolled back after the timeline was listed is left out.

    Raises
    ------
    FormatError
        If the metadata of a commit cannot be read.
    """
    root, commits = storage.root, timeline.completed_commits()
    keys: list[_Key | None] = [
        None if i.completed_at is None else (root, i.requested_at, i.completed_at) for i in commits
    ]
    found = _KNOWN.get(keys)

    def read(place: int) -> None:
        with suppress(TimelineError):
            files = found[place] = files_of(timeline.read_commit(storage, commits[place]))
            key = keys[place]
            if key is not None:
                _KNOWN.put(key, files)

    at_once(storage, read, [i for i, files in enumerate(found) if files is None])
    for commit, files in zip(commits, found, strict=True):
        if files is not None:
            yield commit.requested_at, files


def files_of(commit: CommitMetadata) -> WrittenFiles:
    """Return the base and log files that a commit wrote."""
    return {
        partition: held
        for partition, stats in commit.write_stats.items()
        if (held := _files_in(partition, [stat.path for stat in stats]))
    }


def _files_in(partition: str, paths: Sequence[str]) -> dict[str, DataFile]:
    named = ((path, path.rpartition("/")[2]) for path in paths)
    files = ((path, DataFile.of_name(partition, name, 0)) for path, name in named)
    return {path: file for path, file in files if file is not None}


def _size_of(files: WrittenFiles) -> int:
    return sum(map(len, files.values())) + 1
