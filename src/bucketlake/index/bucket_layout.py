"""The layout of hash buckets: a key's slot is its bucket, a hash modulo the bucket count.

The simple bucket index (RFC-29) and the partition-level bucket index (RFC-89) use this layout; they
differ only in where a partition's bucket count comes from. A bucket has one file group (RFC-29,
pattern 1), or several if the index has a maximum file size (pattern 2);
``index/bucket_layout.py`` then finds the group of a key.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import BucketOutOfRangeError, IndexStateError
from bucketlake.format.key_range import in_key_range
from bucketlake.hashing.key_filter import key_hashes, may_contain
from bucketlake.index.bucket_hash import (
    ORDINALS_MAX,
    assign_buckets,
    bucket_of_file_id,
    new_file_id,
    ordinal_of_file_id,
)
from bucketlake.index.conflict_keys import ConflictKey, key_of_slot
from bucketlake.index.layout import (
    DamagedGroups,
    GroupChoice,
    Layout,
    Slot,
    SlotArray,
    SlotPlan,
)
from bucketlake.merge.incoming import IncomingRecords, IntArray
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice

if TYPE_CHECKING:
    from bucketlake.format.base_file import BaseFileReader
    from bucketlake.index.partition import PartitionBucket
    from bucketlake.index.simple import SimpleBucket
    from bucketlake.slices.stored_keys import StoredKeyReader


@dataclass(frozen=True, slots=True)
class BucketLayout(Layout):
    """Hash buckets at a pinned instant; see :class:`bucketlake.index.layout.Layout`.

    Attributes
    ----------
    counts : SimpleBucket or PartitionBucket
        The index kind, with the bucket counts of that instant.
    """

    slots_text = "buckets"

    counts: SimpleBucket | PartitionBucket

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
        rule = self.two_rules
        rules = [self.hash_fields] + ([] if rule is None else [rule.other.hash_fields])
        of_count = {
            count: frozenset(
                bucket
                for fields in rules
                for bucket in assign_buckets(keys, count, fields).tolist()
            )
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

    def conflict_key(self, partition_path: str, slot: int) -> ConflictKey:
        """Return the key of a bucket."""
        return key_of_slot(partition_path, slot)

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
                yield DamagedGroups(partition, (file_slice,), problem)
            else:
                groups[partition, bucket_id].append(file_slice)
        for (partition, bucket_id), held in sorted(groups.items()):
            if len(held) > 1 and not self.looks_up:
                problem = (
                    f"bucket {bucket_id} has {len(held)} file groups; keys may be stored twice, "
                    "and writes to the partition fail"
                )
                yield DamagedGroups(partition, tuple(held), problem, is_surplus=True)

    def choose(
        self,
        plan: SlotPlan,
        incoming: IncomingRecords,
        instant: InstantTime,
        stored: StoredKeyReader,
        *,
        appends: bool,
    ) -> list[GroupChoice]:
        """Choose the file group of each incoming record of a bucket, or of a part of it.

        Raises
        ------
        IndexStateError
            If two groups hold the same key, or the bucket needs more groups than file ids can
            number.
        """
        slot, slices, size_bytes_max = plan.key, plan.slices, self.counts.max_file_size
        if size_bytes_max is None:
            assert not plan.is_cut, "a bucket of one file group is not cut"
            if slices:
                (only,) = slices
                return [GroupChoice(only.file_id, only)]
            return [GroupChoice(new_file_id(instant, *slot), None)]
        incoming_bytes = incoming.keys.nbytes + incoming.columns.nbytes
        if len(slices) == 1 and slices[0].size_bytes + incoming_bytes <= size_bytes_max:
            return [GroupChoice(slices[0].file_id, slices[0])]
        places, row_counts = _locate(slot, slices, incoming.keys, stored)
        if appends and slices:
            # As in a bucket with one group, a log keeps a delete whose key may be written later.
            places[(places == _NOWHERE) & incoming.deleted] = len(slices) - 1
        chosen = [np.flatnonzero(places == place) for place in range(len(slices))]
        new = np.flatnonzero((places == _NOWHERE) & ~incoming.deleted)
        new = incoming.in_key_order(new)
        row_bytes = _row_bytes(slices, row_counts, incoming_bytes, len(incoming))
        if slices:  # The newest group takes as many new keys as it has room for.
            room = max(0, int((size_bytes_max - slices[-1].size_bytes) / row_bytes))
            chosen[-1] = np.sort(np.concatenate([chosen[-1], new[:room]]))
            new = new[room:]
        choices = [
            GroupChoice(file_slice.file_id, file_slice, rows)
            for file_slice, rows in zip(slices, chosen, strict=True)
            if len(rows)
        ]
        rows_max = max(1, int(size_bytes_max / row_bytes))
        # Part p of k opens the groups p, p + k, p + 2k …, so no two parts open the same group.
        first = _next_ordinal(slices) + plan.part
        for number, start in enumerate(range(0, len(new), rows_max)):
            ordinal = first + number * plan.part_count
            if ordinal >= ORDINALS_MAX:
                raise IndexStateError(
                    f"a bucket has at most {ORDINALS_MAX} file groups",
                    f"bucket {slot[1]} of partition {slot[0]!r} needs another one",
                    "rescale the partition to more buckets, or give a larger max_file_size",
                )
            file_id = new_file_id(instant, *slot, ordinal)
            choices.append(GroupChoice(file_id, None, np.sort(new[start : start + rows_max])))
        return choices

    def groups_of_keys(
        self, slices: Sequence[FileSlice], keys: Sequence[str], stored: StoredKeyReader
    ) -> list[FileSlice]:
        """Return the groups of a bucket that may hold one of the keys."""
        return groups_that_may_hold(slices, keys, stored) if len(slices) > 1 else [*slices]

    def parts_of_move(self, new: Layout, partition_path: str) -> int | None:
        """Return in how many parts rows move to another bucket count (RFC-29, multiple rehash).

        A key's old bucket is its hash modulo N, its new bucket the hash modulo M. Both buckets are
        equal modulo the greatest common divisor of N and M, so each residue is a part.
        """
        if not isinstance(new, BucketLayout) or new.hash_fields != self.hash_fields:
            return None
        return math.gcd(self.slot_count(partition_path), new.slot_count(partition_path))


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


# ---- Several file groups in a bucket: which group each key goes into (RFC-29, pattern 2) ---------
#
# A stored key stays in its group. Key ranges and filters tell which groups of the bucket may hold
# the key, and only these groups are read. New keys, sorted, fill the newest group up to the maximum
# file size; then the next group is opened. If a bucket has one group with room for all incoming
# records, no key is looked up. A bucket without stored rows may be cut into parts, each with its
# own groups; later writes find these groups in the bucket like any others.

_NOWHERE = -1
_STORED_SHARE = 0.5  # Stored bytes per byte in memory: a guess for a bucket without base files.


def groups_that_may_hold(
    slices: Sequence[FileSlice], keys: Sequence[str], stored: StoredKeyReader
) -> list[FileSlice]:
    """Return the groups of a bucket that may hold one of the keys, by key range and filter.

    A group with log files may hold any key, because log files have no key range and no filter.
    """
    texts = pa.array(keys, pa.string())
    hashes = key_hashes(texts)
    every = np.arange(len(texts))
    found = []
    for file_slice in slices:
        if not file_slice.log_files:
            with stored.open_base(file_slice) as (base, _):
                if not len(_candidates(base, texts, hashes, every)):
                    continue
        found.append(file_slice)
    return found


def _locate(
    slot: Slot, slices: Sequence[FileSlice], keys: pa.Array, stored: StoredKeyReader
) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the position of the slice that holds each key, and the rows of each base file.

    The position is ``_NOWHERE`` if no slice holds the key.
    """
    places = np.full(len(keys), _NOWHERE, np.int64)
    row_counts: list[int] = []
    hashes = key_hashes(keys) if slices else np.empty(0, np.uint32)
    every = np.arange(len(keys))
    for place, file_slice in enumerate(slices):
        with stored.open_base(file_slice) as (base, held):
            row_counts.append(0 if base is None else base.row_count)
            candidates = _candidates(base, keys, hashes, every)
            if len(candidates):
                _mark(slot, slices, places, place, keys, candidates, held)
    if any(file_slice.log_files for file_slice in slices) and (places == _NOWHERE).any():
        # A key may be only in a log: written by another program, or while a bucket had one group.
        for place, file_slice in enumerate(slices):
            if file_slice.log_files:
                _mark(slot, slices, places, place, keys, every, stored.log_keys(file_slice))
    return places, row_counts


def _mark(
    slot: Slot,
    slices: Sequence[FileSlice],
    places: npt.NDArray[np.int64],
    place: int,
    keys: pa.Array,
    candidates: IntArray,
    held: Iterator[pa.Array],
) -> None:
    """Set ``place`` for the candidates whose keys are in the slice, whose keys are ``held``."""
    wanted = keys.take(pa.array(candidates))
    for chunk in held:
        # Looking the chunk up among the candidates is faster: the hash table is the smaller one.
        found = pc.index_in(chunk.cast(pa.string()), value_set=wanted).drop_null()
        rows = candidates[found.to_numpy()]
        twice = rows[(places[rows] != _NOWHERE) & (places[rows] != place)]
        if len(twice):
            row = int(twice[0])
            raise IndexStateError(
                "a key is in one file group of its bucket",
                f"key {keys[row].as_py()!r} of partition {slot[0]!r} is in two file groups: "
                f"{slices[int(places[row])].file_id} and {slices[place].file_id}",
                "rewrite the partition, one row per key, with table.repair(check_keys=True) "
                "(bucketlake repair --check-keys --run)",
            )
        places[rows] = place


def _candidates(
    base: BaseFileReader | None, keys: pa.Array, hashes: npt.NDArray[np.uint32], rows: IntArray
) -> IntArray:
    """Return the rows whose keys may be in the base file of a group, if it has one."""
    if base is None or base.row_count == 0:
        return rows[:0]
    if (key_filter := base.key_filter) is not None:
        rows = rows[may_contain(key_filter, hashes[rows])]
    if (key_range := base.key_range) is not None and len(rows):
        rows = rows[in_key_range(keys.take(pa.array(rows)), *key_range)]
    return rows


def _row_bytes(
    slices: Sequence[FileSlice],
    row_counts: Sequence[int],
    incoming_bytes: int,
    incoming_rows: int,
) -> float:
    """Return the stored bytes per row, from the group with most rows, else a guess.

    A file with few rows would mislead, because it is mostly footer.
    """
    based = [
        (rows, file_slice.base_file.size_bytes)
        for file_slice, rows in zip(slices, row_counts, strict=True)
        if file_slice.base_file is not None and rows
    ]
    if based:
        rows, size_bytes = max(based)
        return max(1.0, size_bytes / rows)
    return max(1.0, incoming_bytes / max(1, incoming_rows) * _STORED_SHARE)


def _next_ordinal(slices: Sequence[FileSlice]) -> int:
    numbered = [ordinal_of_file_id(file_slice.file_id) for file_slice in slices]
    return max([len(slices) - 1, *(n for n in numbered if n is not None)]) + 1
