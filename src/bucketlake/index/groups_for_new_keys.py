"""Where new keys go under a record-level index: into which file groups, in which order, how many.

The writes of both index kinds are the same (``write/record_index/group_plan.py``): a stored key
stays in its group, and new keys fill groups with room before new groups are opened. A *filling*
says which groups have room for which keys. :class:`SmallGroups` fills any small group of a
partition, as Hudi's writers do. :class:`OwnBuckets` gives each shard of the index buckets of its
own (discussion
18514).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.hashing.index_key import hash_strings
from bucketlake.index.bucket_hash import bucket_of_file_id, new_file_id
from bucketlake.model.file_name import FileId, InstantTime, derived_uuid
from bucketlake.model.file_slice import FileSlice

BUCKETS_MAX = 1 << 15
"""Number of buckets that a partition may have: a bucket is a number of 15 bits (18514)."""

RowCounter = Callable[[FileSlice], int]
"""Returns the rows of a group: those of its base file, and an estimate for its log files."""

_FULL_SHARE = 0.9
"""Share of its rows, by its bytes, from which on a group is full without a look at its footer."""


@dataclass(frozen=True, slots=True)
class SmallGroups:
    """New keys fill the small groups of a partition, and then new ones.

    Attributes
    ----------
    size_bytes_max : int
        Size to which new keys fill a group.
    small_bytes : int
        Size below which a stored group gets new keys.
    """

    size_bytes_max: int
    small_bytes: int

    def pool(self, shard: int) -> int:
        """Return the pool of a shard: shards of one pool fill the same groups."""
        return 0

    def bucket_number(self, file_id: FileId) -> int | None:
        """Return the number of the bucket that a group is; None, as it is none."""
        return None

    def candidates(
        self, pool: int, shard_count: int, slices: Sequence[FileSlice], written: Collection[FileId]
    ) -> list[FileSlice]:
        """Return the stored groups of a partition that may get keys of a pool, in their order.

        They are the small ones: those that are written in any case first, then by size.

        Parameters
        ----------
        pool : int
            The pool.
        shard_count : int
            Number of shards of the partition.
        slices : sequence of FileSlice
            Live slices of the partition.
        written : collection of FileId
            Groups that get records in any case.
        """
        small = (held for held in slices if held.size_bytes < self.small_bytes)
        return sorted(small, key=lambda s: (s.file_id not in written, -s.size_bytes, s.file_id))

    def room(self, held: FileSlice, row_bytes: float, rows_of: RowCounter) -> int:
        """Return how many new keys a stored group takes, by its size; 0 or less if it is full.

        Parameters
        ----------
        held : FileSlice
            The group.
        row_bytes : float
            Estimated bytes of a stored row.
        rows_of : callable
            Counts the rows of a group; it reads the footer of a file.
        """
        return int((self.size_bytes_max - held.size_bytes) / row_bytes)

    def rows_max(self, row_bytes: float) -> int:
        """Return how many keys a new group takes: the rows that have its size."""
        return max(1, int(self.size_bytes_max / row_bytes))

    def new_numbers(
        self, pool: int, shard_count: int, used: Callable[[], Collection[FileId]]
    ) -> Iterator[int]:
        """Yield the numbers of new groups of a pool, which only make their ids different.

        Parameters
        ----------
        pool, shard_count
            As for :meth:`candidates`.
        used : callable
            Returns the partition's groups, also those that are no longer live.
        """
        return count()

    def new_group_id(self, instant: InstantTime, partition_path: str, number: int) -> FileId:
        """Derive the id of a new group; a repeated task derives the same.

        Hudi draws a random id. Lower-case hexadecimal digits are what the index stores as numbers.

        Examples
        --------
        >>> SmallGroups(1 << 20, 0).new_group_id("20240101120000000", "region=eu", 3)
        '078c1f47-40ff-474c-a2dc-4dbcb6fd150c-0'
        """
        return FileId(f"{derived_uuid(instant, partition_path, str(number))}-0")


@dataclass(frozen=True, slots=True)
class OwnBuckets:
    """Each shard has buckets of its own: those whose number modulo the shard count is the shard's.

    New keys fill the buckets of their shard in the order of the numbers, and then new ones
    (18514, "assigning").

    Attributes
    ----------
    rows : int or None
        Rows of a full bucket; None for no limit.
    size_bytes_max : int or None
        Size of a full bucket; None for no limit.
    """

    rows: int | None
    size_bytes_max: int | None

    def pool(self, shard: int) -> int:
        """Return the shard."""
        return shard

    def candidates(
        self, pool: int, shard_count: int, slices: Sequence[FileSlice], written: Collection[FileId]
    ) -> list[FileSlice]:
        """Return the buckets of the shard by their numbers, then its groups without a number."""
        own = (held for held in slices if owner_of_group(held.file_id, shard_count) == pool)
        return sorted(own, key=_order_of_bucket)

    def bucket_number(self, file_id: FileId) -> int | None:
        """Return the number in the id; None if another writer opened the group."""
        return bucket_of_group(file_id)

    def room(self, held: FileSlice, row_bytes: float, rows_of: RowCounter) -> int:
        """Return how many rows the bucket takes, by its size and by its rows."""
        rooms: list[int] = []
        if self.size_bytes_max is not None:
            rooms.append(int((self.size_bytes_max - held.size_bytes) / row_bytes))
        if self.rows is not None:
            estimated = self.rows - int(held.size_bytes / row_bytes)
            # A shard may have many full buckets, and their footers are not read.
            is_full = estimated < (1 - _FULL_SHARE) * self.rows
            rooms.append(min(estimated, 0) if is_full else self.rows - rows_of(held))
        return min(rooms)

    def rows_max(self, row_bytes: float) -> int:
        """Return how many rows a new bucket takes."""
        limits = [] if self.rows is None else [self.rows]
        if self.size_bytes_max is not None:
            limits.append(int(self.size_bytes_max / row_bytes))
        return max(1, min(limits))

    def new_numbers(
        self, pool: int, shard_count: int, used: Callable[[], Collection[FileId]]
    ) -> Iterator[int]:
        """Yield the numbers of the shard after the greatest that was ever used.

        Raises
        ------
        IndexStateError
            If no number is left.
        """
        own = [n for n in map(bucket_of_group, used()) if n is not None and n % shard_count == pool]
        first = max(own) + shard_count if own else pool
        yield from range(first, BUCKETS_MAX, shard_count)
        raise IndexStateError(
            f"a partition has at most {BUCKETS_MAX:,} dynamic buckets",
            "the write needs more of them",
            "open the table with larger buckets (index=DynamicBucket(max_records=...) or "
            "max_file_size=...), or choose smaller partitions",
        )

    def new_group_id(self, instant: InstantTime, partition_path: str, number: int) -> FileId:
        """Derive the id of a new bucket, which begins with its number (18514, "design").

        Examples
        --------
        >>> OwnBuckets(1000, None).new_group_id("20240101120000000", "region=eu", 3)
        '00000003-40ff-474c-a2dc-4dbcb6fd150c-0'
        """
        return new_file_id(instant, partition_path, number)


Filling: TypeAlias = SmallGroups | OwnBuckets
"""Says which groups get new keys; a small picklable value."""


def bucket_of_group(file_id: FileId) -> int | None:
    """Return the number of a dynamic bucket; None if the group has none.

    Other writers open groups with random ids; one in forty begins with eight digits, but few of
    these are numbers that a bucket can have.
    """
    number = bucket_of_file_id(file_id)
    return None if number is None or number >= BUCKETS_MAX else number


def owner_of_group(file_id: FileId, shard_count: int) -> int:
    """Return the shard whose new keys may go into a group; each group has one."""
    number = bucket_of_group(file_id)
    if number is None:
        number = abs(int(hash_strings(pa.array([file_id]))[0]))
    return number % shard_count


def _order_of_bucket(held: FileSlice) -> tuple[int, FileId]:
    number = bucket_of_group(held.file_id)
    return (BUCKETS_MAX if number is None else number), held.file_id
