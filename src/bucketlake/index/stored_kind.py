"""The form in which a table stores an index kind: a JSON object with its engine and its settings.

``index/stored_setting.py`` stores it. Rules and bucket counts of partitions are stored elsewhere.
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


def kind_entries(index: StoredKind) -> dict[str, object]:
    """Return the entries of a kind."""
    if isinstance(index, ConsistentBucket):
        return {
            "engine": ENGINE,
            "bucketCount": index.initial,
            "minBucketCount": index.min,
            "maxBucketCount": index.max,
            "hashFields": list(index.hash_fields or ()),
        }
    if isinstance(index, ExtendibleBucket):
        return {
            "engine": EXTENDIBLE_ENGINE,
            "bucketCount": index.initial,
            "maxDepth": index.max_depth,
            "hashFields": list(index.hash_fields or ()),
        }
    if isinstance(index, RecordIndex):
        return {
            "engine": _RECORD_ENGINE,
            "partitioned": index.partitioned,
            "maxFileSize": index.max_file_size,
            "smallFileLimit": index.small_file_limit,
        }
    if isinstance(index, DynamicBucket):
        return {
            "engine": _DYNAMIC_ENGINE,
            "assigners": index.assigners,
            "maxRecords": index.max_records,
            "maxFileSize": index.max_file_size,
        }
    return {
        "engine": SIMPLE_ENGINE,
        "bucketCount": index.count,
        "hashFields": list(index.hash_fields or ()),
        "maxFileSize": index.max_file_size,
    }


def parse_kind(entries: Mapping[str, Any], table: str) -> StoredKind:
    """Parse the entries of a kind; ``table`` is for the message.

    Raises
    ------
    ValueError, KeyError, TypeError
        If an entry is missing or invalid.
    UnsupportedFeatureError
        If the kind is not known.
    """
    engine = entries["engine"]
    if engine == SIMPLE_ENGINE:
        fields = tuple(entries["hashFields"]) or None
        return SimpleBucket(entries["bucketCount"], fields, entries["maxFileSize"])
    if engine == _RECORD_ENGINE:
        sizes = entries["maxFileSize"], entries["smallFileLimit"]
        return RecordIndex(entries["partitioned"], *sizes)
    if engine == _DYNAMIC_ENGINE:
        limits = entries["maxRecords"], entries["maxFileSize"]
        return DynamicBucket(*limits, entries["assigners"])
    if engine == ENGINE:
        return ConsistentBucket(
            entries["bucketCount"],
            entries["minBucketCount"],
            entries["maxBucketCount"],
            tuple(entries["hashFields"]) or None,
        )
    if engine == EXTENDIBLE_ENGINE:
        counts = entries["bucketCount"], entries["maxDepth"]
        return ExtendibleBucket(*counts, tuple(entries["hashFields"]) or None)
    raise UnsupportedFeatureError(
        f"bucket index engine {engine!r}", table, "use a newer bucketlake"
    )
