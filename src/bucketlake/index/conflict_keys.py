"""Conflict keys: what a commit wrote, took out or looked at, as names that can be compared.

Two writes are in conflict where they share a key (RFC-29: where they touched one bucket). A key is
a partition path and a name: of a slot, or of a file group that belongs to none. Keys follow from
the file ids of a commit, so that commits of Hudi have them too; what a write only looked at stands
in its metadata. The check of a commit, the early detection of conflicts and the dependents of a
rollback all ask here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from bucketlake.errors import FormatError
from bucketlake.index.bucket_hash import bucket_of_file_id, bucket_text
from bucketlake.model.write_stat import CommitMetadata

ConflictKey: TypeAlias = tuple[str, str]
"""Partition path, and the name of a slot or of a file group in it."""

ConflictKeys: TypeAlias = AbstractSet[ConflictKey]

_LOOKED_AT = "bucketlake.looked_at"
"""Key of extra metadata: a JSON object, by partition path, of slots."""


def key_of_slot(partition_path: str, slot: int) -> ConflictKey:
    """Return the key of a slot.

    Examples
    --------
    >>> key_of_slot("dt=1", 3)
    ('dt=1', '00000003')
    """
    return partition_path, bucket_text(slot)


def key_of_group(partition_path: str, file_id: str) -> ConflictKey:
    """Return the key that a file group stands for: that of its bucket, if its id names one."""
    bucket_id = bucket_of_file_id(file_id)
    return (
        (partition_path, file_id) if bucket_id is None else key_of_slot(partition_path, bucket_id)
    )


def describe_key(key: ConflictKey) -> str:
    """Say in words what a key names.

    Examples
    --------
    >>> describe_key(("dt=1", "00000003"))
    "bucket 3 of partition 'dt=1'"
    """
    partition, name = key
    what = f"bucket {int(name)}" if name.isdecimal() else f"file group {name}"
    return f"{what} of partition {partition!r}"


def written_keys(commit: CommitMetadata) -> set[ConflictKey]:
    """Return the keys of what a commit wrote or took out."""
    return {key_of_group(partition, file_id) for partition, file_id in commit.file_groups}


def looked_at_metadata(keys: Iterable[ConflictKey]) -> dict[str, str]:
    """Return what a commit says of slots that it looked in, found nothing in, and left alone.

    A delete of keys that are not there means that they are not there after it, whatever is rolled
    back before it.
    """
    by_partition: dict[str, list[int | str]] = {}
    for partition, name in sorted(keys):
        # Buckets are numbers, as earlier releases wrote and read them.
        by_partition.setdefault(partition, []).append(int(name) if name.isdecimal() else name)
    return {_LOOKED_AT: json.dumps(by_partition)} if by_partition else {}


def looked_at_keys(commit: CommitMetadata, where: str) -> set[ConflictKey]:
    """Return the keys of the slots that a commit says it looked in.

    Raises
    ------
    FormatError
        If that cannot be read; ``where`` names the commit.
    """
    text = commit.extra.get(_LOOKED_AT, "{}")
    try:
        held: Mapping[str, list[int | str]] = json.loads(text)
        return {
            key_of_slot(partition, slot) if isinstance(slot, int) else (partition, str(slot))
            for partition, slots in held.items()
            for slot in slots
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(where, f"slots by partition in {_LOOKED_AT}", text[:80]) from error
