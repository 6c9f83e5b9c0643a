"""Conflict keys: comparable names of what a commit wrote, removed or looked at.

Two writes conflict if they share a key (RFC-29: if they touch the same bucket). A key is a
partition path and the name of a slot, or of a file group that belongs to no slot. Keys are derived
from the file ids of a commit, so commits of Hudi have keys too. Slots that a write only looked at
are in its commit metadata. The conflict check of a commit, early conflict detection and the search
for dependents of a rollback use this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Self, TypeAlias

from bucketlake.config.entries import is_number
from bucketlake.format.json_fields import parsing
from bucketlake.index.bucket_hash import bucket_of_file_id, bucket_text
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.file_name import FileId
from bucketlake.model.write_stat import CommitMetadata

ConflictKey: TypeAlias = tuple[str, str]
"""Partition path, and the name of a slot or of a file group in it."""

ConflictKeys: TypeAlias = AbstractSet[ConflictKey]

_SHARD = "shard:"
_SHARDS = "bucketlake.index_shards"
_LOOKED_AT = "bucketlake.looked_at"
"""Key in the extra metadata of a commit; its value is a JSON object, partition path to slots."""


def key_of_slot(partition_path: str, slot: int) -> ConflictKey:
    """Return the key of a slot.

    Examples
    --------
    >>> key_of_slot("dt=1", 3)
    ('dt=1', '00000003')
    """
    return partition_path, bucket_text(slot)


def key_of_group(partition_path: str, file_id: str) -> ConflictKey:
    """Return the key of a file group: the key of its bucket, or its own if it has no bucket."""
    bucket_id = bucket_of_file_id(file_id)
    if bucket_id is None:
        return partition_path, file_id
    return key_of_slot(partition_path, bucket_id)


def key_of_shard(data_partition: str | None, shard: int) -> ConflictKey:
    """Return the key of a shard of the record-level index, for changes of its entries.

    In a global index, the shard belongs to no partition.

    Examples
    --------
    >>> key_of_shard("dt=1", 3)
    ('dt=1', 'shard:3')
    """
    return data_partition or "", f"{_SHARD}{shard}"


def describe_key(key: ConflictKey) -> str:
    """Return a key in words, for messages.

    Examples
    --------
    >>> describe_key(("dt=1", "00000003"))
    "bucket 3 of partition 'dt=1'"
    """
    partition, name = key
    if name.startswith(_SHARD):
        what = f"new or deleted keys of index shard {name.removeprefix(_SHARD)}"
    else:
        what = f"bucket {int(name)}" if is_number(name) else f"file group {name}"
    return f"{what} of partition {partition!r}"


def written_keys(
    commit: CommitMetadata,
    group_key: Callable[[str, FileId], ConflictKey] = key_of_group,
    *,
    leaves_appended: bool = False,
) -> set[ConflictKey]:
    """Return the keys of the file groups that a commit wrote or removed.

    ``group_key`` is the rule of the table's layout (``Layout.conflict_key_of_group``). File groups
    that were there before, and only got log files, may be left out.
    """
    groups = commit.file_groups
    if leaves_appended:
        written = {stat.group for stat in commit.stats if stat.opens_group or not stat.is_log}
        groups = written | commit.replaced_groups
    return {group_key(*group) for group in groups}


@dataclass(frozen=True, slots=True)
class ChangedShards:
    """Shards of the record-level index whose entries a commit changed.

    Attributes
    ----------
    added, removed : set of ConflictKey
        Shards with new keys, and shards with removed keys. A shard that the commit opened is among
        the removed ones: without the commit, a later one would not have found it as it did.
    """

    added: frozenset[ConflictKey] = frozenset()
    removed: frozenset[ConflictKey] = frozenset()

    def to_metadata(self) -> dict[str, str]:
        """Return the entry in the extra metadata of the commit."""
        return {_SHARDS: json.dumps([sorted(self.added), sorted(self.removed)])}

    @classmethod
    def of_commit(cls, commit: CommitMetadata, where: str) -> Self | None:
        """Return the shards that a commit names; None if its writer does not name any.

        Raises
        ------
        FormatError
            If the entry cannot be read; ``where`` names the commit.
        """
        text = commit.extra.get(_SHARDS)
        if text is None:
            return None
        with parsing(where, f"two lists of partition and shard in {_SHARDS}", text):
            added, removed = parse_json(text)
            return cls(_keys(added), _keys(removed))


def looked_at_metadata(keys: Iterable[ConflictKey]) -> dict[str, str]:
    """Return the commit metadata for slots that the write looked in and did not change.

    A delete of absent keys promises that the keys are absent after it, also if an earlier commit is
    rolled back.
    """
    by_partition: dict[str, list[int | str]] = {}
    for partition, name in sorted(keys):
        # Buckets are numbers, as in earlier releases.
        by_partition.setdefault(partition, []).append(int(name) if is_number(name) else name)
    return {_LOOKED_AT: json.dumps(by_partition)} if by_partition else {}


def looked_at_keys(commit: CommitMetadata, where: str) -> set[ConflictKey]:
    """Return the keys of the slots that a commit only looked in, from its metadata.

    Raises
    ------
    FormatError
        If the entry cannot be read; ``where`` names the commit.
    """
    text = commit.extra.get(_LOOKED_AT, "{}")
    with parsing(where, f"slots by partition in {_LOOKED_AT}", text):
        held: Mapping[str, list[int | str]] = parse_json(text)
        return {
            key_of_slot(partition, slot) if isinstance(slot, int) else (partition, str(slot))
            for partition, slots in held.items()
            for slot in slots
        }


def _keys(pairs: Iterable[tuple[str, str]]) -> frozenset[ConflictKey]:
    return frozenset((str(path), str(name)) for path, name in pairs)
