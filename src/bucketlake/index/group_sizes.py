"""Versions of a table's maximum file size: whether a bucket may have several file groups.

A table may change from one file group per bucket (RFC-29, pattern 1) to several (pattern 2), and
back. ``group_sizes/<instant>.json`` in the extension folder holds the setting since the replace
commit of that instant. A version is valid if its commit is completed on the timeline, so undo,
restore and time travel find the setting of their time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bucketlake.config.layout import EXTENSION_FOLDER
from bucketlake.errors import FormatError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.outcome import is_committed

SIZES_FOLDER = f"{EXTENSION_FOLDER}/group_sizes"

_SUFFIX = ".json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class GroupSize:
    """One version of the setting.

    Attributes
    ----------
    max_file_size : int or None
        Bytes at which a bucket's next file group is opened; None for one group per bucket.
    instant : InstantTime
        The commit that set it.
    """

    max_file_size: int | None
    instant: InstantTime


def size_path(instant: InstantTime) -> str:
    """Return the path of a commit's version, relative to the table."""
    return f"{SIZES_FOLDER}/{instant}{_SUFFIX}"


def save_size(storage: Storage, size: GroupSize) -> None:
    """Save a new version; raise AlreadyExistsError if its instant already has a version."""
    data = json.dumps({"version": _VERSION, "maxFileSize": size.max_file_size}).encode()
    storage.put_if_absent(size_path(size.instant), data)


def committed_sizes(storage: Storage, timeline: Timeline) -> list[GroupSize]:
    """Return the versions that are valid on a timeline, sorted by completion time."""
    valid = [instant for instant in _versions(storage) if is_committed(storage, timeline, instant)]
    valid.sort(key=lambda instant: timeline.completion_time(instant) or instant)
    return [_read(storage, instant) for instant in valid]


def latest_size(storage: Storage, timeline: Timeline) -> GroupSize | None:
    """Return the newest valid version; None if there is none."""
    sizes = committed_sizes(storage, timeline)
    return sizes[-1] if sizes else None


def forget_sizes(storage: Storage, instants: Callable[[InstantTime], bool]) -> None:
    """Delete the versions of commits that another program rolled back."""
    for instant in [*_versions(storage)]:
        if instants(instant):
            storage.delete(size_path(instant))


def _versions(storage: Storage) -> Iterator[InstantTime]:
    for stored in storage.list(SIZES_FOLDER, recursive=False):
        name = stored.path.rpartition("/")[2]
        if name.endswith(_SUFFIX):
            yield InstantTime(name.removesuffix(_SUFFIX))


def _read(storage: Storage, instant: InstantTime) -> GroupSize:
    path = size_path(instant)
    data = storage.read(path)
    try:
        held = json.loads(data)
        size = held["maxFileSize"]
        if held["version"] != _VERSION or not (size is None or type(size) is int):
            raise ValueError(held)
    except (ValueError, KeyError, TypeError) as error:
        expected = f"a file size of version {_VERSION} as JSON"
        raise FormatError(path, expected, f"{data[:80]!r} ({error!r})") from None
    return GroupSize(size, instant)
