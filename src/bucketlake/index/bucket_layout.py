"""The layout of hash buckets: a key's slot is its bucket, a hash modulo the bucket count.

The simple bucket index (RFC-29) and the partition-level bucket index (RFC-89) use this layout; they
differ only in where a partition's bucket count comes from. A bucket has one file group (RFC-29,
pattern 1), or several if the index has a maximum file size (pattern 2);
``index/bucket_groups.py`` then finds the group of a key.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import BucketOutOfRangeError, IndexStateError
from bucketlake.index.bucket_groups import choose_groups, groups_that_may_hold
from bucketlake.index.bucket_hash import (
    assign_buckets,
    bucket_of_file_id,
    new_file_id,
    ordinal_of_file_id,
)
from bucketlake.index.conflict_keys import ConflictKey, key_of_group, key_of_slot
from bucketlake.index.layout import (
    Damage,
    DamagedGroups,
    GroupChoice,
    Layout,
    Moves,
    Slot,
    SlotArray,
    SlotPart,
    StoredKeys,
    StrayedKeys,
)
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice


class BucketCounts(Protocol):
    """An index kind whose buckets are a hash of the key modulo a bucket count."""

    @property
    def hash_fields(self) -> Sequence[str] | None:
        """Record key fields that choose the bucket; None for all of them."""
        ...

    @property
    def max_file_size(self) -> int | None:
        """Bytes at which a bucket's next file group is opened; None for one group per bucket."""
        ...

    def count_of(self, partition_path: str) -> int:
        """Return the bucket count of a partition, also of a partition without records."""
        ...


@dataclass(frozen=True, slots=True)
class BucketLayout(Layout):
    """Hash buckets at a pinned instant; see :class:`bucketlake.index.layout.Layout`.

    Attributes
    ----------
    counts : BucketCounts
        The index kind, with the bucket counts of that instant.
    """

    counts: BucketCounts

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """Record key fields that choose the bucket; empty for all of them."""
        return tuple(self.counts.hash_fields or ())

    @property
    def looks_up(self) -> bool:
        """Whether a bucket may have several file groups."""
        return self.counts.max_file_size is not None

    def slots_of_keys(
        self, keys: pa.Array, partitions: Sequence[str], codes: npt.NDArray[np.int32]
    ) -> SlotArray:
        """Return the bucket of each key."""
        counts = np.array([self.counts.count_of(path) for path in partitions], np.int32)
        return assign_buckets(keys, counts[codes], self.hash_fields)

    def slots_of_literals(
        self, partitions: Collection[str], keys: Sequence[str]
    ) -> dict[str, frozenset[int]]:
        """Return, for each partition, the buckets that can hold one of the record keys."""
        counts = {path: self.counts.count_of(path) for path in partitions}
        of_count = {
            count: frozenset(assign_buckets(keys, count, self.hash_fields).tolist())
            for count in {*counts.values()}
        }
        return {path: of_count[count] for path, count in counts.items()}

    def slot_count(self, partition_path: str) -> int:
        """Return the bucket count of a partition."""
        return self.counts.count_of(partition_path)

    def parts_max(self, size_bytes: int) -> int:
        """Return how many groups a bucket of this size fills; 1 where it has one group."""
        size_bytes_max = self.counts.max_file_size
        return 1 if size_bytes_max is None else max(1, size_bytes // size_bytes_max)

    def slot_of_group(self, partition_path: str, file_id: FileId) -> int | None:
        """Return the bucket in a file id; None if the file id has none."""
        return bucket_of_file_id(file_id)

    bucket_number = slot_of_group

    def slot_text(self, slot: int) -> str:
        """Return a bucket in words, such as ``bucket 3``."""
        return f"bucket {slot}"

    @property
    def slots_text(self) -> str:
        """What slots are: ``buckets``."""
        return "buckets"

    def conflict_key(self, partition_path: str, slot: int) -> ConflictKey:
        """Return the key of a bucket."""
        return key_of_slot(partition_path, slot)

    def conflict_key_of_group(self, partition_path: str, file_id: FileId) -> ConflictKey:
        """Return the key of a file group: that of its bucket."""
        return key_of_group(partition_path, file_id)

    def setting_of(self, partition_path: str) -> str:
        """Return in words the bucket count, and whether buckets may have several file groups."""
        count = self.counts.count_of(partition_path)
        text = "1 bucket" if count == 1 else f"{count} buckets"
        return f"{text} of several file groups" if self.looks_up else text

    def live_slots(self, slices: Collection[FileSlice]) -> dict[Slot, tuple[FileSlice, ...]]:
        """Return the slices of each bucket, oldest group first, and check them."""
        found: dict[Slot, list[FileSlice]] = defaultdict(list)
        for file_slice in slices:
            partition = file_slice.partition_path
            bucket_id = bucket_of_file_id(file_slice.file_id)
            if bucket_id is None:
                raise IndexStateError(
                    "the table was opened as a table with a bucket index",
                    f"the id of file group {file_slice.file_id!r} does not begin with a bucket of "
                    "eight digits",
                    "check the table's index kind; bucketlake writes only to tables with a bucket "
                    "index",
                )
            count = self.counts.count_of(partition)
            if bucket_id >= count:
                raise BucketOutOfRangeError(file_slice.file_id, bucket_id, count)
            found[partition, bucket_id].append(file_slice)
            held = found[partition, bucket_id]
            if len(held) > 1 and not self.looks_up:
                first = held[0]
                raise IndexStateError(
                    f"a bucket index has one file group per bucket ({count} buckets)",
                    f"partition {partition!r} has two for bucket {bucket_id}: "
                    f"{first.file_id} (instant {first.instant}) and {file_slice.file_id} "
                    f"(instant {file_slice.instant})",
                    "rewrite the partition, one row per key, with table.repair() (bucketlake "
                    "repair --run)",
                )
        return {slot: tuple(sorted(held, key=_age)) for slot, held in found.items()}

    def damaged_groups(self, slices: Collection[FileSlice]) -> Iterator[DamagedGroups]:
        """Find file groups without a bucket, and buckets with too many file groups."""
        groups: dict[Slot, list[FileSlice]] = defaultdict(list)
        for file_slice in slices:
            partition = file_slice.partition_path
            count = self.counts.count_of(partition)
            bucket_id = bucket_of_file_id(file_slice.file_id)
            if bucket_id is None or bucket_id >= count:
                problem = (
                    f"file group {file_slice.file_id} belongs to none of the {count} buckets of "
                    "the partition, so writes to the partition fail"
                )
                yield DamagedGroups(Damage.UNKNOWN_GROUP, partition, (file_slice,), problem)
            else:
                groups[partition, bucket_id].append(file_slice)
        for (partition, bucket_id), held in sorted(groups.items()):
            if len(held) > 1 and not self.looks_up:
                problem = (
                    f"bucket {bucket_id} has {len(held)} file groups; keys may be stored twice, "
                    "and writes to the partition fail"
                )
                yield DamagedGroups(Damage.SURPLUS_GROUPS, partition, tuple(held), problem)

    def strayed_keys(
        self, keys: pa.Array | pa.ChunkedArray, partition_path: str, file_id: FileId
    ) -> StrayedKeys | None:
        """Find keys of a file group that belong to another bucket."""
        bucket_id = bucket_of_file_id(file_id)
        if bucket_id is None:
            return None
        buckets = assign_buckets(keys, self.counts.count_of(partition_path), self.hash_fields)
        return self._strayed(keys, buckets, bucket_id)

    def choose(
        self,
        slot: Slot,
        slices: Sequence[FileSlice],
        incoming: IncomingRecords,
        instant: InstantTime,
        stored: StoredKeys,
        *,
        appends: bool,
        part: SlotPart,
    ) -> list[GroupChoice]:
        """Choose the file group of each incoming record of a bucket, or of a part of it."""
        size_bytes_max = self.counts.max_file_size
        if size_bytes_max is not None:
            return choose_groups(
                slot, slices, incoming, instant, stored, size_bytes_max, appends=appends, part=part
            )
        assert part.count == 1, "a bucket of one file group is not cut"
        if slices:
            (only,) = slices
            return [GroupChoice(only.file_id, only)]
        return [GroupChoice(new_file_id(instant, *slot), None)]

    def groups_of_keys(
        self, slices: Sequence[FileSlice], keys: Sequence[str], stored: StoredKeys
    ) -> list[FileSlice]:
        """Return the groups of a bucket that may hold one of the keys."""
        return groups_that_may_hold(slices, keys, stored) if len(slices) > 1 else [*slices]

    def moves_to(self, new: Layout, partition_path: str) -> Moves | None:
        """Return how rows move to another bucket count (RFC-29, multiple rehash).

        A key's old bucket is its hash modulo N, its new bucket the hash modulo M. Both buckets are
        equal modulo the greatest common divisor of N and M, so each residue is a part.
        """
        if not isinstance(new, BucketLayout) or new.hash_fields != self.hash_fields:
            return None
        old_count, new_count = self.slot_count(partition_path), new.slot_count(partition_path)
        divisor = math.gcd(old_count, new_count)
        return Moves(
            {slot: slot % divisor for slot in range(old_count)},
            {slot: slot % divisor for slot in range(new_count)},
        )


def bucket_numbers(layout: Layout | None, slices: Collection[FileSlice]) -> dict[FileId, int]:
    """Return the buckets of file groups, by file id; groups without a bucket are left out.

    Without a layout, a bucket is read from the file ids only if all of them begin with eight
    digits, because one in forty random ids begins with eight digits, too.
    """
    numbers = {
        file_slice.file_id: bucket_of_file_id(file_slice.file_id)
        if layout is None
        else layout.bucket_number(file_slice.partition_path, file_slice.file_id)
        for file_slice in slices
    }
    if layout is None and None in numbers.values():
        return {}
    return {file_id: number for file_id, number in numbers.items() if number is not None}


def _age(file_slice: FileSlice) -> tuple[int, str]:
    """Sort key of a bucket's groups: groups without an ordinal first, then by ordinal."""
    ordinal = ordinal_of_file_id(file_slice.file_id)
    return (-1 if ordinal is None else ordinal), file_slice.file_id
