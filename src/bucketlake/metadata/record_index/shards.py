"""The shards of a record-level index: how many there are, and which of them holds a key's entry.

A shard is a file group of the partition ``record_index``. A global index has one set of shards. A
partitioned index has a set for each data partition, perhaps of different sizes. The number of
shards of a set never changes, and no file stores it: it is the number of file groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import ConfigError, IndexStateError
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.model.arrays import number_order
from bucketlake.model.file_name import FileId

REBUILD = "rebuild the record-level index"
"""The next step after an error."""

_RECORD_BYTES = 48  # Hudi's fixed estimate of an entry.
_SHARD_BYTES_MAX = 2**30  # Size of a full shard.
_GROWTH_FACTOR = 2  # There shall be room for this multiple of the keys.
_SHARDS_MAX = 10_000  # Names number them with four digits.

ROWS_OF_LARGE: Final = 100_000
"""Rows with which a data partition counts as large."""


class ShardRule(Protocol):
    """Says how many shards a new data partition gets, or a global index."""

    def shard_count(self, key_count: int) -> int:
        """Return the number of shards for a number of keys."""


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """How many shards a new index gets for a number of keys, by Hudi's options.

    Attributes
    ----------
    least, most : int
        Smallest and largest number of shards (``min.filegroup.count``, ``max.filegroup.count``).
    """

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most <= _SHARDS_MAX:
            allowed = f"give 1 <= least <= most <= {_SHARDS_MAX}"
            raise ConfigError("shards of the record-level index", (self.least, self.most), allowed)

    def shard_count(self, key_count: int) -> int:
        """Return the number of shards for a number of keys.

        Examples
        --------
        >>> GLOBAL_LIMITS.shard_count(30), PARTITIONED_LIMITS.shard_count(20_000_000)
        (10, 1)
        >>> PARTITIONED_LIMITS.shard_count(25_000_000)
        2
        """
        if self.least == self.most:
            return self.least
        count = key_count * _GROWTH_FACTOR // (_SHARD_BYTES_MAX // _RECORD_BYTES)
        return min(max(count, self.least), self.most)


GLOBAL_LIMITS = ShardLimits(10, 10_000)
PARTITIONED_LIMITS = ShardLimits(1, 10)  # For each data partition.


@dataclass(frozen=True, slots=True)
class ShardsBySize:
    """How many shards a data partition gets, by whether it is large.

    Attributes
    ----------
    of_small, of_large : int
        Number of shards of a small and of a large data partition. The first divides the second, so
        that some shards of a large one together have the keys of a shard of a small one.
    """

    of_small: int
    of_large: int

    def __post_init__(self) -> None:
        assert self.of_large % self.of_small == 0, self

    def shard_count(self, key_count: int) -> int:
        """Return the number of shards for a number of keys.

        Examples
        --------
        >>> [ShardsBySize(1, 4).shard_count(rows) for rows in (99_999, 100_000)]
        [1, 4]
        """
        return self.of_large if key_count >= ROWS_OF_LARGE else self.of_small

    def fits(self, count: int) -> bool:
        """Return whether a data partition may have this number of shards by the rule."""
        return count in (self.of_small, self.of_large)


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard.

    Attributes
    ----------
    number : int
        Its position, from 0.
    data_partition : str or None
        The data partition whose keys it holds; None in a global index.
    """

    number: int
    data_partition: str | None = None

    @property
    def file_id(self) -> FileId:
        """The file group; raises InputError if the data partition's path has a dot."""
        partition = MetadataPartition.RECORD_INDEX
        return MetadataFileId(partition, self.number, self.data_partition).to_file_id()


@dataclass(frozen=True, slots=True)
class IndexShards:
    """The shard counts of an index; a small picklable value.

    Attributes
    ----------
    global_count : int or None
        Number of shards of a global index; None for a partitioned index.
    counts : mapping of str to int
        Number of shards of each data partition of a partitioned index.
    """

    global_count: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_file_ids(cls, file_ids: Iterable[str], table: str) -> Self:
        """Count the file groups of the index of a table; ``table`` is for the message.

        Raises
        ------
        IndexStateError
            If there are file groups of both kinds of index.
        """
        counts: dict[str | None, int] = {}
        for file_id in file_ids:
            facts = MetadataFileId.from_file_id(file_id)
            if facts is not None:
                path = facts.data_partition
                counts[path] = max(counts.get(path, 0), facts.shard + 1)
        global_count = counts.pop(None, None)
        if global_count is not None and counts:
            believed = f"{table}: the record-level index is global"
            held = f"data partition {min(map(str, counts))!r} has shards of its own"
            raise IndexStateError(believed, held, REBUILD)
        return cls(global_count, {str(path): count for path, count in counts.items()})

    @property
    def is_partitioned(self) -> bool:
        """Whether each data partition has shards of its own."""
        return self.global_count is None

    def count(self, data_partition: str) -> int:
        """Return the number of shards for keys of a data partition; 0 if it has none yet."""
        if self.global_count is not None:
            return self.global_count
        return self.counts.get(data_partition, 0)

    def with_partitions(self, data_partitions: Collection[str], shard_count: int) -> IndexShards:
        """Return the shards after a write that touches some data partitions.

        A data partition without shards gets ``shard_count`` shards.
        """
        if not self.is_partitioned:
            return self
        added = {path: shard_count for path in data_partitions if path not in self.counts}
        return IndexShards(None, {**self.counts, **added})

    def shards(self, data_partitions: Iterable[str] | None = None) -> list[Shard]:
        """Return the shards for keys of some data partitions, or all shards."""
        if self.global_count is not None:
            return [Shard(number) for number in range(self.global_count)]
        paths = self.counts if data_partitions is None else data_partitions
        return [Shard(number, path) for path in paths for number in range(self.count(path))]

    def shard(self, number: int, data_partition: str) -> Shard:
        """Return the shard with a number among those for keys of a data partition."""
        return Shard(number, data_partition if self.is_partitioned else None)

    def numbers_of(
        self, keys: pa.Array | pa.ChunkedArray, data_partition: str
    ) -> npt.NDArray[np.int32]:
        """Return the number of the shard of each key of a data partition with shards."""
        return shards_of_keys(keys, self.count(data_partition))


def rows_by_number(numbers: npt.NDArray[np.int32]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each number that occurs, ascending, and the rows that have it, in their order.

    Examples
    --------
    >>> [(n, rows.tolist()) for n, rows in rows_by_number(np.array([4, 1, 4], np.int32))]
    [(1, [1]), (4, [0, 2])]
    """
    if len(numbers) and (numbers == numbers[0]).all():
        yield int(numbers[0]), np.arange(len(numbers))
        return
    order = number_order(numbers)
    ordered = numbers[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            yield int(numbers[rows[0]]), rows
