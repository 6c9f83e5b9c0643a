"""Partitions in which a dynamic bucket holds keys of several shards.

Buckets that bucketlake filled hold keys of one shard each. Other programs, and conversions from
other kinds, do not keep to that. A write that finds such a partition notes it here, so that later
writes do not try again (``write/record_index/by_shard.py``). A note only chooses how a write works,
never what it writes: a partition without a note is checked by the tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.storage.base import Storage

SHARED_FOLDER = f"{EXTENSION_FOLDER}/shared_groups"


def note_shared_groups(storage: Storage, partitions: Collection[str]) -> None:
    """Note partitions that have buckets with keys of several shards."""
    for path in sorted(partitions):
        storage.put(f"{SHARED_FOLDER}/{_name(path)}", path.encode())


def have_shared_groups(storage: Storage, partitions: Collection[str]) -> bool:
    """Return whether one of some partitions was noted."""
    noted = {stored.path.rpartition("/")[2] for stored in storage.list(SHARED_FOLDER)}
    return bool(noted) and not noted.isdisjoint(map(_name, partitions))


def _name(partition_path: str) -> str:
    return hashlib.sha256(partition_path.encode()).hexdigest()[:32]
