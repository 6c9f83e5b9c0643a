"""The index setting that a table stores, with a version for each commit that changes it.

``index.json`` in the extension folder holds the setting of the first write. A conversion to another
kind, or to another maximum file size, writes ``index_versions/<instant>.json`` with the whole
setting since its replace commit. A version is valid if its commit is completed on the timeline, so
undo, restore and time travel find the setting of their time. A table that was never converted costs
one read: the first file says whether there may be versions.

A conversion to another kind changes no file. It says in the metadata of its commit that it is one:
a write that began under the earlier kind finds it among the commits since its begin, and does not
commit (``actions/conflict.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.errors import AlreadyExistsError, FormatError, ObjectNotFoundError
from bucketlake.format.checked_json import parse_checked, render_checked, require_version
from bucketlake.index.stored_kind import StoredKind, kind_entries, parse_kind
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.outcome import is_committed

Parsed = TypeVar("Parsed")

SETTING_FILE = f"{EXTENSION_FOLDER}/index.json"
VERSIONS_FOLDER = f"{EXTENSION_FOLDER}/index_versions"

_SUFFIX = ".json"
_VERSION = 1  # Of both files.
_CONVERSION = "bucketlake.conversion"
"""Key in the extra metadata of a commit; its value is the engine of the new kind."""


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """The setting of the first write of bucketlake.

    Attributes
    ----------
    index : SimpleBucket, ConsistentBucket, ExtendibleBucket, RecordIndex, DynamicBucket or None
        The index before the first version; a partition-level index is stored as a simple one. None
        if the table was converted, or a conversion began, before it had a setting.
    has_versions : bool
        Whether there may be versions.
    """

    index: StoredKind | None
    has_versions: bool = False

    def to_json(self) -> bytes:
        """Print the file."""
        return _rendered(self.index, hasVersions=self.has_versions)


@dataclass(frozen=True, slots=True)
class SettingVersion:
    """The setting since a commit.

    Attributes
    ----------
    index : SimpleBucket, ConsistentBucket, ExtendibleBucket, RecordIndex or DynamicBucket
        The index.
    instant : InstantTime
        The commit.
    """

    index: StoredKind
    instant: InstantTime


def read_stored(storage: Storage) -> StoredSetting | None:
    """Return the setting of the first write; None if no write of bucketlake stored one."""
    try:
        data = storage.read(SETTING_FILE)
    except ObjectNotFoundError:
        return None

    def parsed(entries: Mapping[str, Any]) -> StoredSetting:
        held, has_versions = entries["index"], entries["hasVersions"]
        if type(has_versions) is not bool:
            raise ValueError(has_versions)
        return StoredSetting(None if held is None else parse_kind(held, storage.root), has_versions)

    return _parsed(data, SETTING_FILE, parsed)


def allow_versions(storage: Storage) -> None:
    """Store that there may be versions; call this before saving the first.

    Whoever stores the setting at the same time stores the same flag, so none is lost.
    """
    stored = read_stored(storage)
    if stored is None:
        try:
            storage.put_if_absent(SETTING_FILE, StoredSetting(None, has_versions=True).to_json())
            return
        except AlreadyExistsError:  # The first write of bucketlake stored a setting meanwhile.
            stored = read_stored(storage)
            assert stored is not None, "a setting is never deleted"
    if not stored.has_versions:
        storage.put(SETTING_FILE, replace(stored, has_versions=True).to_json())


def save_version(storage: Storage, version: SettingVersion) -> None:
    """Save a version; raise AlreadyExistsError if its instant already has one."""
    storage.put_if_absent(version_path(version.instant), _rendered(version.index))


def latest_version(storage: Storage, timeline: Timeline) -> SettingVersion | None:
    """Return the newest valid version; None if there is none."""
    instants = committed_versions(storage, timeline)
    if not instants:
        return None
    path = version_path(instants[-1])

    def parsed(entries: Mapping[str, Any]) -> SettingVersion:
        return SettingVersion(parse_kind(entries["index"], storage.root), instants[-1])

    return _parsed(storage.read(path), path, parsed)


def committed_versions(storage: Storage, timeline: Timeline) -> list[InstantTime]:
    """Return the instants of the valid versions, sorted by completion time."""
    valid = [at for at in _instants(storage) if is_committed(storage, timeline, at)]
    return sorted(valid, key=lambda instant: timeline.completion_time(instant) or instant)


def forget_versions(storage: Storage, instants: Callable[[InstantTime], bool]) -> None:
    """Delete the versions of commits that another program rolled back."""
    for instant in [*_instants(storage)]:
        if instants(instant):
            storage.delete(version_path(instant))


def version_path(instant: InstantTime) -> str:
    """Return the path of a commit's version, relative to the table."""
    return f"{VERSIONS_FOLDER}/{instant}{_SUFFIX}"


def conversion_metadata(index: StoredKind) -> dict[str, str]:
    """Return the entry in the extra metadata of a commit that puts a table under another kind."""
    return {_CONVERSION: str(kind_entries(index)["engine"])}


def is_conversion(commit: CommitMetadata) -> bool:
    """Return whether a commit put the table under another kind of index."""
    return _CONVERSION in commit.extra


def _instants(storage: Storage) -> Iterator[InstantTime]:
    for stored in storage.list(VERSIONS_FOLDER, recursive=False):
        name = stored.path.rpartition("/")[2]
        if name.endswith(_SUFFIX):
            yield InstantTime(name.removesuffix(_SUFFIX))


def _rendered(index: StoredKind | None, **flags: bool) -> bytes:
    entries = None if index is None else kind_entries(index)
    return render_checked(
        {"version": _VERSION, "index": entries, **flags}, partial(json.dumps, indent=2)
    )


def _parsed(data: bytes, path: str, parsed: Callable[[Mapping[str, Any]], Parsed]) -> Parsed:
    try:
        entries = parse_checked(data, path)
        require_version(entries["version"], _VERSION, "the index setting", path)
        return parsed(entries)
    except (ValueError, KeyError, TypeError) as error:
        expected = f"an index setting of version {_VERSION} as JSON"
        raise FormatError(path, expected, f"{data[:80]!r} ({error!r})") from None
