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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.config.resize_options import ENGINE, EXTENDIBLE_ENGINE
from bucketlake.errors import (
    AlreadyExistsError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.format.json_fields import parse_checked, parsing, render_checked, require_version
from bucketlake.index.dynamic import DynamicBucket, RecordIndex
from bucketlake.index.hashing_config import instants_in
from bucketlake.index.ring_kind import ConsistentBucket, ExtendibleBucket, RingKind
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.outcome import is_committed

Parsed = TypeVar("Parsed")

StoredKind: TypeAlias = SimpleBucket | RingKind | RecordIndex | DynamicBucket
"""Kinds that are stored as a whole. A partition-level index is stored as a simple one."""

SETTING_FILE = f"{EXTENSION_FOLDER}/index.json"
VERSIONS_FOLDER = f"{EXTENSION_FOLDER}/index_versions"

_SUFFIX = ".json"
_VERSION = 1  # Of both files.
_VERSION_OF_SPLIT_KEYS = 2
_SPLIT_KEYS = "splitKeys"
_CONVERSION = "bucketlake.conversion"
"""Key in the extra metadata of a commit; its value is the engine of the new kind."""

_COUNT, _HASH_FIELDS, _FILE_SIZE = "bucketCount", "hashFields", "maxFileSize"
_LIMITS = {"minBucketCount": "min", "maxBucketCount": "max"}
_STORED: Mapping[str, tuple[type[StoredKind], Mapping[str, str]]] = {
    "SIMPLE": (
        SimpleBucket,
        {_COUNT: "count", _HASH_FIELDS: "hash_fields", _FILE_SIZE: "max_file_size"},
    ),
    ENGINE: (ConsistentBucket, {_COUNT: "initial", **_LIMITS, _HASH_FIELDS: "hash_fields"}),
    EXTENDIBLE_ENGINE: (
        ExtendibleBucket,
        {_COUNT: "initial", "maxDepth": "max_depth", _HASH_FIELDS: "hash_fields"},
    ),
    "RECORD_INDEX": (
        RecordIndex,
        {
            "partitioned": "partitioned",
            _FILE_SIZE: "max_file_size",
            "smallFileLimit": "small_file_limit",
        },
    ),
    "DYNAMIC": (
        DynamicBucket,
        {"assigners": "assigners", "maxRecords": "max_records", _FILE_SIZE: "max_file_size"},
    ),
}
"""The kind of each engine, and its settings by their names in the file, in the file's order."""


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
    split_keys : bool or None
        Whether keys are split (``index/key_rule.py``); None if that is not decided. Releases that
        do not know this hash all keys whole; they reject the file of a table that splits keys.
    """

    index: StoredKind | None
    has_versions: bool = False
    split_keys: bool | None = None

    def to_json(self) -> bytes:
        """Print the file."""
        flags = {} if self.split_keys is None else {_SPLIT_KEYS: self.split_keys}
        version = _VERSION_OF_SPLIT_KEYS if self.split_keys else _VERSION
        return _rendered(self.index, version, hasVersions=self.has_versions, **flags)


SettingVersion: TypeAlias = tuple[InstantTime, StoredKind]
"""A commit, and the index since then."""


def read_stored(storage: Storage) -> StoredSetting | None:
    """Return the setting of the first write; None if no write of bucketlake stored one."""
    try:
        data = storage.read(SETTING_FILE)
    except ObjectNotFoundError:
        return None

    def parsed(entries: Mapping[str, Any]) -> StoredSetting:
        held, has_versions = entries["index"], entries["hasVersions"]
        split_keys = entries.get(_SPLIT_KEYS)
        if type(has_versions) is not bool or type(split_keys) not in (bool, type(None)):
            raise ValueError(has_versions, split_keys)
        kind = None if held is None else _parsed_kind(held, storage.root)
        return StoredSetting(kind, has_versions, split_keys)

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


def store_key_rule(storage: Storage, split_keys: bool | None) -> StoredSetting | None:
    """Store which text of a key is hashed; return the setting, None if the table has none."""
    stored = read_stored(storage)
    if stored is not None and stored.split_keys is not split_keys:
        stored = replace(stored, split_keys=split_keys)
        storage.put(SETTING_FILE, stored.to_json())
    return stored


def save_version(storage: Storage, instant: InstantTime, index: StoredKind) -> None:
    """Save a version; raise AlreadyExistsError if its instant already has one."""
    storage.put_if_absent(version_path(instant), _rendered(index))


def latest_version(storage: Storage, timeline: Timeline) -> SettingVersion | None:
    """Return the newest valid version; None if there is none."""
    instants = committed_versions(storage, timeline)
    if not instants:
        return None
    path = version_path(instants[-1])

    index = _parsed(
        storage.read(path), path, lambda entries: _parsed_kind(entries["index"], storage.root)
    )
    return instants[-1], index


def committed_versions(storage: Storage, timeline: Timeline) -> list[InstantTime]:
    """Return the instants of the valid versions, sorted by completion time."""
    every = instants_in(storage, VERSIONS_FOLDER, _SUFFIX)
    valid = [instant for instant in every if is_committed(storage, timeline, instant)]
    return sorted(valid, key=lambda instant: timeline.completion_time(instant) or instant)


def version_path(instant: InstantTime) -> str:
    """Return the path of a commit's version, relative to the table."""
    return f"{VERSIONS_FOLDER}/{instant}{_SUFFIX}"


def conversion_metadata(index: StoredKind) -> dict[str, str]:
    """Return the entry in the extra metadata of a commit that puts a table under another kind."""
    return {_CONVERSION: str(_kind_entries(index)["engine"])}


def is_conversion(commit: CommitMetadata) -> bool:
    """Return whether a commit put the table under another kind of index."""
    return _CONVERSION in commit.extra


def _kind_entries(index: StoredKind) -> dict[str, object]:
    engine, names = next((e, names) for e, (kind, names) in _STORED.items() if kind is type(index))
    entries = {"engine": engine, **{name: getattr(index, own) for name, own in names.items()}}
    if _HASH_FIELDS in names:
        entries[_HASH_FIELDS] = list(index.hash_fields or ())
    return entries


def _parsed_kind(entries: Mapping[str, Any], table: str) -> StoredKind:
    engine = entries["engine"]
    if engine not in _STORED:
        feature = f"bucket index engine {engine!r}"
        raise UnsupportedFeatureError(feature, table, "use a newer bucketlake")
    kind, names = _STORED[engine]
    settings = {own: entries[name] for name, own in names.items()}
    if _HASH_FIELDS in names:
        settings["hash_fields"] = tuple(entries[_HASH_FIELDS]) or None
    return kind(**settings)


def _rendered(index: StoredKind | None, version: int = _VERSION, **flags: bool) -> bytes:
    entries = None if index is None else _kind_entries(index)
    return render_checked(
        {"version": version, "index": entries, **flags}, partial(json.dumps, indent=2)
    )


def _parsed(data: bytes, path: str, parsed: Callable[[Mapping[str, Any]], Parsed]) -> Parsed:
    with parsing(path, f"an index setting of version {_VERSION} as JSON", data):
        entries = parse_checked(data, path)
        known = _VERSION_OF_SPLIT_KEYS if entries.get(_SPLIT_KEYS) else _VERSION
        require_version(entries["version"], known, "the index setting", path)
        return parsed(entries)
