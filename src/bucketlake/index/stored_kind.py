"""The form in which a table stores an index kind: a JSON object with its engine and its settings.

The first write stores the index of a table (``index/setting.py``), and a conversion stores another
kind (``index/kind_versions.py``). Rules and bucket counts of partitions are stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from bucketlake.config.resize_options import ENGINE, EXTENDIBLE_ENGINE
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.index.consistent import ConsistentBucket
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.extendible import ExtendibleBucket
from bucketlake.index.record import RecordIndex
from bucketlake.index.simple import SimpleBucket

StoredKind: TypeAlias = (
    SimpleBucket | ConsistentBucket | ExtendibleBucket | RecordIndex | DynamicBucket
)
"""Kinds that are stored as a whole. A partition-level index is stored as a simple one."""

SIMPLE_ENGINE = "SIMPLE"
_RECORD_ENGINE, _DYNAMIC_ENGINE = "RECORD_INDEX", "DYNAMIC"
_WITHOUT_SIZE, _WITH_SIZE = 1, 2  # Versions of a simple index.
_VERSION = 1  # The version of all other kinds.


def kind_entries(index: StoredKind, *, with_size: bool = False) -> dict[str, object]:
    """Return the entries of a kind.

    ``with_size`` says that a simple index has an entry for its maximum file size; releases of
    bucketlake that do not support the entry raise an error for the table.
    """
    if isinstance(index, ConsistentBucket):
        return {
            "engine": ENGINE,
            "version": _VERSION,
            "bucketCount": index.initial,
            "minBucketCount": index.min,
            "maxBucketCount": index.max,
            "hashFields": list(index.hash_fields or ()),
        }
    if isinstance(index, ExtendibleBucket):
        return {
            "engine": EXTENDIBLE_ENGINE,
            "version": _VERSION,
            "bucketCount": index.initial,
            "maxDepth": index.max_depth,
            "hashFields": list(index.hash_fields or ()),
        }
    if isinstance(index, RecordIndex):
        return {
            "engine": _RECORD_ENGINE,
            "version": _VERSION,
            "partitioned": index.partitioned,
            "maxFileSize": index.max_file_size,
            "smallFileLimit": index.small_file_limit,
        }
    if isinstance(index, DynamicBucket):
        return {
            "engine": _DYNAMIC_ENGINE,
            "version": _VERSION,
            "assigners": index.assigners,
            "maxRecords": index.max_records,
            "maxFileSize": index.max_file_size,
        }
    entries: dict[str, object] = {
        "engine": SIMPLE_ENGINE,
        "version": _WITH_SIZE if with_size else _WITHOUT_SIZE,
        "bucketCount": index.count,
        "hashFields": list(index.hash_fields or ()),
    }
    if with_size:
        entries["maxFileSize"] = index.max_file_size
    return entries


def has_size(entries: Mapping[str, Any]) -> bool:
    """Return whether entries of a simple index say its maximum file size."""
    return bool(entries["engine"] == SIMPLE_ENGINE and entries["version"] == _WITH_SIZE)


def parse_kind(entries: Mapping[str, Any], table: str) -> StoredKind:
    """Parse the entries of a kind; ``table`` is for the message.

    Raises
    ------
    ValueError, KeyError, TypeError
        If an entry is missing or invalid.
    UnsupportedFeatureError
        If the kind or its version is not known.
    """
    engine, version = entries["engine"], entries["version"]
    if engine == SIMPLE_ENGINE and version in (_WITHOUT_SIZE, _WITH_SIZE):
        size = entries["maxFileSize"] if has_size(entries) else None
        return SimpleBucket(entries["bucketCount"], tuple(entries["hashFields"]) or None, size)
    if engine == _RECORD_ENGINE and version == _VERSION:
        sizes = entries["maxFileSize"], entries["smallFileLimit"]
        return RecordIndex(entries["partitioned"], *sizes)
    if engine == _DYNAMIC_ENGINE and version == _VERSION:
        limits = entries["maxRecords"], entries["maxFileSize"]
        return DynamicBucket(*limits, entries["assigners"])
    if engine == ENGINE and version == _VERSION:
        return ConsistentBucket(
            entries["bucketCount"],
            entries["minBucketCount"],
            entries["maxBucketCount"],
            tuple(entries["hashFields"]) or None,
        )
    if engine == EXTENDIBLE_ENGINE and version == _VERSION:
        counts = entries["bucketCount"], entries["maxDepth"]
        return ExtendibleBucket(*counts, tuple(entries["hashFields"]) or None)
    raise UnsupportedFeatureError(
        f"bucket index engine {engine!r} of version {version}", table, "use a newer bucketlake"
    )
