"""Versions of a table's maximum file size: whether a bucket may have several file groups.

A table may change from one file group per bucket (RFC-29, pattern 1) to several (pattern 2), and
back. ``group_sizes/<instant>.json`` in the extension folder holds the setting since the replace
commit of that instant (``index/setting_versions.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.errors import FormatError
from bucketlake.format.checked_json import parse_checked, render_checked, require_version
from bucketlake.index.setting_versions import SettingVersions
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

SIZES = SettingVersions("group_sizes")

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


def save_size(storage: Storage, size: GroupSize) -> None:
    """Save a new version; raise AlreadyExistsError if its instant already has a version."""
    data = render_checked({"version": _VERSION, "maxFileSize": size.max_file_size})
    SIZES.save(storage, size.instant, data)


def latest_size(storage: Storage, timeline: Timeline) -> GroupSize | None:
    """Return the newest valid version; None if there is none."""
    instant = SIZES.latest(storage, timeline)
    return None if instant is None else _read(storage, instant)


def _read(storage: Storage, instant: InstantTime) -> GroupSize:
    path = SIZES.path(instant)
    data = storage.read(path)
    try:
        held = parse_checked(data, path)
        require_version(held["version"], _VERSION, "file sizes", path)
        size = held["maxFileSize"]
        if not (size is None or type(size) is int):
            raise ValueError(held)
    except (ValueError, KeyError, TypeError) as error:
        expected = f"a file size of version {_VERSION} as JSON"
        raise FormatError(path, expected, f"{data[:80]!r} ({error!r})") from None
    return GroupSize(size, instant)
