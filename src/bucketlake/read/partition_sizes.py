"""The size of each partition, and how evenly its buckets are filled: the skew (RFC-29).

One task writes or compacts a bucket, so a write waits for the task of its largest bucket. No engine
cures that. What can be done is to tell it: the largest bucket as a multiple of the mean, and the
value of the hash fields that fills it, where statistics of columns tell that value.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bucketlake.errors import BucketLakeError
from bucketlake.format.metadata_record.bounds import has_bounds
from bucketlake.index.kinds import IndexKind
from bucketlake.index.layout import Layout
from bucketlake.model.field_path import fields_at
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.shown import Shown
from bucketlake.read.growth import Growth
from bucketlake.read.pruning.by_record_index import group_of
from bucketlake.read.pruning.by_statistics import ColumnBounds, bounds_of_slices
from bucketlake.read.snapshot import Snapshot

SKEW_FACTOR = 2.0
"""A partition is skewed if its largest bucket has so many times the mean of its buckets."""

SKEW_BYTES_MIN = 1_000_000
"""Smaller buckets are never skewed, because they cost a task nothing that matters."""

_LOOKUPS_MAX = 20  # Partitions whose statistics are read; the largest of the skewed ones.
_GUIDE = "docs/how-to/see-your-table.md#skew"


@dataclass(frozen=True, slots=True)
class PartitionSizes(Shown):
    """The size of a partition, and how evenly its buckets are filled.

    Attributes
    ----------
    partition_path : str
        Partition, empty in a table without partitions.
    file_groups : int
        Number of file groups.
    rows : int or None
        Rows of its file groups, as in :class:`Bucket`; None if one of them is unknown.
    size_bytes, log_bytes : int
        Size of all files, and of the log files among them.
    share : float
        Share of the table's bytes, from 0 to 1.
    growth_bytes : int
        Bytes that the partition gained during the last ten writes.
    written : int
        Records that these writes inserted, updated or deleted.
    buckets : int or None
        Number of buckets, including buckets without records. None if no hash chooses the bucket:
        then the largest file group is compared with the mean file group.
    largest_bucket : int or None
        The bucket with most bytes; None if it has no number.
    max_over_mean : float
        Bytes of the largest bucket, divided by the mean of all buckets.
    hot_value : str or None
        The value of the hash fields that all rows of the largest bucket have, such as
        ``device=d7``. None if there are several, or if the table has no statistics that tell.
    is_skewed : bool
        Whether the largest bucket has at least twice the mean, and at least 1 MB. Never where no
        hash chooses the bucket, because then the size of a file group is limited.
    """

    partition_path: str
    file_groups: int
    rows: int | None
    size_bytes: int
    log_bytes: int
    share: float
    growth_bytes: int
    written: int
    buckets: int | None
    largest_bucket: int | None
    max_over_mean: float
    hot_value: str | None = None
    is_skewed: bool = False

    @property
    def skew(self) -> str | None:
        """What the skew is and what to do about it, in a sentence; None without skew."""
        if not self.is_skewed:
            return None
        where = f"partition {self.partition_path}" if self.partition_path else "the table"
        of_mean = f"{self.max_over_mean:g} times the mean of {self.buckets:,} buckets"
        fact = f"{where}: bucket {self.largest_bucket} has {of_mean}"
        if self.hot_value is not None:
            return (
                f"{fact}, and all its rows have {self.hot_value}; no split divides them: choose "
                f"hash fields with more values, see {_GUIDE}"
            )
        return f"{fact}, and each write waits for its task; see {_GUIDE}"


def partition_sizes(
    snapshot: Snapshot,
    index: IndexKind | None,
    slices: Sequence[FileSlice],
    numbers: Mapping[FileId, int],
    growth: Growth,
) -> list[PartitionSizes]:
    """Return the sizes of all partitions, the most skewed first.

    Parameters
    ----------
    snapshot : Snapshot
        The pinned table.
    index : IndexKind or None
        Its index, if it is known.
    slices : sequence of FileSlice
        Its live slices.
    numbers : mapping of FileId to int
        The buckets of file groups.
    growth : Growth
        What its commits say about the file groups.
    """
    layout = None if index is None else index.layout()
    held: dict[str, list[FileSlice]] = defaultdict(list)
    for file_slice in slices:
        held[file_slice.partition_path].append(file_slice)
    total_bytes = _size_of(slices)
    before, written = _by_partition(growth.bytes_before), _by_partition(growth.written)
    found, largest = [], {}
    for path, own in held.items():
        buckets, fullest = _fullest(path, own, numbers, layout)
        largest[path] = fullest
        size_bytes, largest_bytes = _size_of(own), _size_of(fullest)
        ratio = largest_bytes * (buckets or len(own)) / max(size_bytes, 1)
        is_large = largest_bytes >= SKEW_BYTES_MIN and ratio >= SKEW_FACTOR
        rows = [growth.rows.get(group_of(file_slice)) for file_slice in own]
        known = [count for count in rows if count is not None]
        found.append(
            PartitionSizes(
                partition_path=path,
                file_groups=len(own),
                rows=sum(known) if len(known) == len(rows) else None,
                size_bytes=size_bytes,
                log_bytes=sum(file_slice.log_bytes for file_slice in own),
                share=round(size_bytes / max(total_bytes, 1), 4),
                growth_bytes=size_bytes - before[path],
                written=written[path],
                buckets=buckets,
                largest_bucket=numbers.get(fullest[0].file_id),
                max_over_mean=round(ratio, 2),
                is_skewed=is_large and buckets is not None,
            )
        )
    found.sort(key=lambda sizes: (not sizes.is_skewed, -sizes.size_bytes, sizes.partition_path))
    return _with_hot_values(snapshot, index, found, largest)


def _by_partition(of_groups: Mapping[Group, int]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for (path, _), number in of_groups.items():
        sums[path] += number
    return sums


def _size_of(slices: Iterable[FileSlice]) -> int:
    return sum(file_slice.size_bytes for file_slice in slices)


def _fullest(
    path: str, slices: Sequence[FileSlice], numbers: Mapping[FileId, int], layout: Layout | None
) -> tuple[int | None, list[FileSlice]]:
    """Return the bucket count of a partition, and the slices of its largest bucket.

    Without a hash there is no count, and each file group is compared.
    """
    by_hash = layout is not None and not layout.locates
    buckets: dict[object, list[FileSlice]] = defaultdict(list)
    for file_slice in slices:
        number = numbers.get(file_slice.file_id) if by_hash else None
        buckets[file_slice.file_id if number is None else number].append(file_slice)
    fullest = max(buckets.values(), key=_size_of)
    count = layout.slot_count(path) if layout is not None and by_hash else None
    return count, fullest


def _with_hot_values(
    snapshot: Snapshot,
    index: IndexKind | None,
    partitions: Iterable[PartitionSizes],
    largest: Mapping[str, Sequence[FileSlice]],
) -> list[PartitionSizes]:
    found = [*partitions]
    skewed = [sizes for sizes in found if sizes.is_skewed][:_LOOKUPS_MAX]
    fields = () if index is None else tuple(index.hash_fields or ())
    if not skewed or not fields or {*fields} >= {*snapshot.config.key_spec.record_key_fields}:
        return found  # A value of the whole key is one row.
    columns = fields_at(snapshot.schema, fields)
    if len(columns) < len(fields) or not all(has_bounds(field.type) for field in columns):
        return found
    slices = [held for sizes in skewed for held in largest[sizes.partition_path]]
    try:
        bounds = bounds_of_slices(snapshot, columns, slices)
    except BucketLakeError:  # The doctor says what is wrong with the metadata table.
        return found
    values: dict[str, set[str | None]] = defaultdict(set)
    for place, held in enumerate(slices):
        single = [_single_value(name, own, place) for name, own in (bounds or {}).items()]
        texts = [text for text in single if text is not None]
        is_single = len(texts) == len(fields)
        values[held.partition_path].add(", ".join(texts) if is_single else None)
    hot = {path: next(iter(own)) for path, own in values.items() if len(own) == 1}
    return [replace(sizes, hot_value=hot.get(sizes.partition_path)) for sizes in found]


def _single_value(name: str, bounds: ColumnBounds, place: int) -> str | None:
    """Return a column and its only value in a slice; None if there may be several values."""
    low, high = bounds.minima[place].as_py(), bounds.maxima[place].as_py()
    is_single = low is not None and low == high and not bounds.may_be_null[place]
    return f"{name}={low}" if is_single else None
