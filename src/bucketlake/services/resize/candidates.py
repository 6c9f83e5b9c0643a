"""What a resize would do to a ring: which nodes split, and which neighbours merge (RFC-42).

Functions of a ring, the sizes of its file groups and the limits. Large groups are split first, so
that few free buckets go to the largest; what is small and adjacent is merged, as Hudi's planner
does it. A group that is neither is left alone (Hudi rewrites it, too). The range of a node is split
in equal parts, or by its keys: only then files are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.hashing.directory import Directory, Suffix
from bucketlake.hashing.ring import ChildNode, Ring, RingHashes
from bucketlake.hashing.xx_hash import RING_SIZE, hash_ring_keys
from bucketlake.index.ring_engine import engine_of_ring, new_prefix
from bucketlake.index.ring_state import RingState
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.services.resize.service import ResizeLimits

_EIGHTHS = 8

HashOfKeys = Callable[[pa.ChunkedArray, Sequence[str]], RingHashes]
"""Hashes record keys by some of their fields."""

SplitPoints = Callable[[FileSlice, int, int], "Sequence[int] | None"]
"""Gives the values at which to split: of a slice, the value of its node, and a number of parts."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A split or a merge that is worth doing.

    Attributes
    ----------
    partition_path : str
        The partition.
    slices : tuple of FileSlice
        The slices that are rewritten, in the order of the ring.
    values : tuple of int
        Values of their nodes.
    points : tuple of int
        For a split, the values of the new nodes but the last; empty for a merge.
    """

    partition_path: str
    slices: tuple[FileSlice, ...]
    values: tuple[int, ...]
    points: tuple[int, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether one node becomes several."""
        return bool(self.points)

    @property
    def size_bytes(self) -> int:
        """Bytes that are read."""
        return sum(file_slice.size_bytes for file_slice in self.slices)

    @property
    def new_values(self) -> tuple[int, ...]:
        """Values of the new nodes."""
        return (*self.points, self.values[-1])

    def children(self, ring: Ring, instant: InstantTime) -> tuple[ChildNode, ...]:
        """Return what happens to the ring; ids of file groups follow from the instant."""
        engine, path = engine_of_ring(ring), self.partition_path
        prefixes = [new_prefix(instant, path, value, engine) for value in self.new_values]
        if self.is_split:
            return ring.split(self.values[0], self.points, prefixes)
        return ring.merge(self.values, prefixes[0])


def candidates_of_ring(
    partition_path: str,
    ring: Ring,
    slices: Mapping[int, FileSlice],
    limits: ResizeLimits,
    *,
    count_min: int,
    count_max: int,
    points_of: SplitPoints,
) -> Iterator[Candidate]:
    """Yield the splits of a partition, the largest first, then the merges.

    Parameters
    ----------
    partition_path : str
        The partition.
    ring : Ring
        Its ring.
    slices : mapping of int to FileSlice
        The slices that may be rewritten, by position of their node.
    limits : ResizeLimits
        What is large and what is small.
    count_min, count_max : int
        Limits to the number of nodes.
    points_of : callable
        Says where to split.
    """
    largest = sorted(slices.items(), key=lambda held: (-held[1].size_bytes, held[0]))
    room = count_max - len(ring)
    added = 0
    left = dict(slices)
    for position, file_slice in largest:
        if room < 1 or file_slice.size_bytes <= limits.split_bytes:
            break
        value = int(ring.values[position])
        wanted = -(-file_slice.size_bytes // limits.max_file_size)
        parts = min(limits.split_into, max(2, wanted), room + 1)
        points = points_of(file_slice, value, parts)
        if points is None or not ring.can_split(value, points):
            continue  # The range is too narrow.
        yield Candidate(partition_path, (file_slice,), (value,), tuple(points))
        del left[position]
        room -= len(points)
        added += len(points)
    for positions in _merges(len(ring), left, limits.merge_bytes, len(ring) - count_min + added):
        yield Candidate(
            partition_path,
            tuple(left[position] for position in positions),
            tuple(int(ring.values[position]) for position in positions),
        )


def _merges(
    node_count: int, slices: Mapping[int, FileSlice], merge_bytes: int, room: int
) -> Iterator[list[int]]:
    """Yield runs of neighbours to merge, in the order of the ring."""
    merged: set[int] = set()
    sizes = {position: held.size_bytes for position, held in slices.items()}

    def fits(position: int, run: Sequence[int]) -> bool:
        is_free = position in sizes and position not in merged and position not in run
        return is_free and sizes[position] <= merge_bytes

    for position in sorted(sizes):
        if position in merged or sizes[position] > merge_bytes:
            continue
        run, total = [position], sizes[position]
        for step in (-1, 1):
            while room > 0 and total <= merge_bytes:
                end = (run[0] if step < 0 else run[-1]) + step
                neighbour = end % node_count
                if not fits(neighbour, run):
                    break
                run = [neighbour, *run] if step < 0 else [*run, neighbour]
                total += sizes[neighbour]
                room -= 1
        if len(run) > 1:
            merged.update(run)
            yield run


def within_limits(candidates: Sequence[Candidate], limits: ResizeLimits) -> list[Candidate]:
    """Return as much as one resize does: splits come before merges, and large before small."""
    ordered = sorted(candidates, key=lambda one: (not one.is_split, -one.size_bytes))
    chosen: list[Candidate] = []
    partitions: set[str] = set()
    size_bytes = 0
    for candidate in ordered:
        size_bytes += candidate.size_bytes
        if chosen and limits.max_bytes is not None and size_bytes > limits.max_bytes:
            break
        if limits.max_groups is not None and len(chosen) == limits.max_groups:
            break
        is_full = limits.max_partitions is not None and len(partitions) == limits.max_partitions
        if is_full and candidate.partition_path not in partitions:
            size_bytes -= candidate.size_bytes
            continue
        chosen.append(candidate)
        partitions.add(candidate.partition_path)
    return chosen


def split_points(
    reader: SliceReader, state: RingState, hash_fields: tuple[str, ...], policy: str
) -> SplitPoints:
    """Return what gives the values at which a node is split.

    Parameters
    ----------
    reader : SliceReader
        Reads the keys of a node if nobody counted them.
    state : RingState
        The ring.
    hash_fields : tuple of str
        Record key fields that choose the node.
    policy : {"middle", "balanced"}
        Equal parts of the range, or equal numbers of keys. Where keys are too few, or all of one
        hash, a balanced split falls back to equal parts.
    """

    def points_of(file_slice: FileSlice, value: int, parts: int) -> Sequence[int] | None:
        ring = state.ring
        if policy == "balanced":
            stats = state.metadata.stats.get(file_slice.file_id.removesuffix("-0"))
            if stats is not None and _EIGHTHS % parts == 0:
                step = _EIGHTHS // parts
                points = [stats.quantiles[step * part - 1] - 1 for part in range(1, parts)]
            else:
                start = ring.range_of(value).start
                points = _points_of_keys(reader, file_slice, hash_fields, start, parts)
            points = [point % RING_SIZE for point in points]
            if ring.can_split(value, points):
                return points
        if parts > 2:
            return ring.even_points(value, parts)
        middle = ring.middle(value)
        return None if middle is None else [middle]

    return points_of


def _points_of_keys(
    reader: SliceReader, file_slice: FileSlice, hash_fields: tuple[str, ...], start: int, parts: int
) -> list[int]:
    """Return the greatest hash of each part but the last, of parts with equal numbers of keys."""
    hashes = key_positions(reader, hash_ring_keys, hash_fields, file_slice)
    if len(hashes) < parts:
        return []
    distances = np.sort((hashes.astype(np.int64) - start - 1) % RING_SIZE)
    places = len(hashes) * np.arange(1, parts) // parts - 1
    return [int(distance) + start + 1 for distance in distances[places]]


def key_positions(
    reader: SliceReader, hash_keys: HashOfKeys, hash_fields: Sequence[str], file_slice: FileSlice
) -> RingHashes:
    """Return the places of a slice's keys on a ring."""
    hashes = [
        hash_keys(chunk[RECORD_KEY], hash_fields) for chunk in reader.read(file_slice, [RECORD_KEY])
    ]
    return np.concatenate([np.empty(0, np.int32), *hashes])


# ---- What a resize would do to a directory: which buckets split in halves, and which merge
# (RFC-29) ----
#
# A bucket that is too large is split by the next bit of the hash, and so are the halves that are
# still too large, down to the greatest depth. Two buddies, which differ in their last bit, are
# merged if they are small together. For a split the keys of the bucket are read: they say how large
# each half is.


def require_halves(limits: ResizeLimits) -> None:
    """Raise ConfigError for limits that ask for a split of a directory other than in halves."""
    for name, default in (("split_into", 2), ("split_at", "middle")):
        value = getattr(limits, name)
        if value != default:
            allowed = f"the buckets of an ExtendibleBucket split in halves: leave {name} out"
            raise ConfigError(name, value, allowed)


def candidates_of_directory(
    partition_path: str,
    directory: Ring,
    slices: Mapping[int, FileSlice],
    limits: ResizeLimits,
    *,
    depth_max: int,
    positions_of: Callable[[FileSlice], RingHashes],
) -> Iterator[Candidate]:
    """Yield the splits of a partition, the largest first, then the merges.

    Parameters
    ----------
    partition_path : str
        The partition.
    directory : Ring
        Its directory.
    slices : mapping of int to FileSlice
        The slices that may be rewritten, by position of their bucket.
    limits : ResizeLimits
        What is large and what is small.
    depth_max : int
        Most bits of a suffix.
    positions_of : callable
        Returns the places of a slice's keys on the ring, sorted.
    """
    assert isinstance(directory, Directory)
    suffixes = directory.suffixes
    largest = sorted(slices.items(), key=lambda held: (-held[1].size_bytes, held[0]))
    split: set[int] = set()
    for position, file_slice in largest:
        suffix, size = suffixes[position], file_slice.size_bytes
        if size <= limits.split_bytes:
            break
        if suffix.depth >= depth_max:
            continue
        positions = np.sort(positions_of(file_slice))
        ends = split_ends(suffix, positions, size, limits.split_bytes, depth_max)
        if len(ends) > 1:
            yield Candidate(partition_path, (file_slice,), (suffix.end,), tuple(ends[:-1]))
            split.add(position)
    for position in range(len(suffixes) - 1):
        pair = (position, position + 1)
        low, high = suffixes[position], suffixes[position + 1]
        buddies = Suffix.of_range(low.start, high.end)
        if buddies is None or low.depth != high.depth or split.intersection(pair):
            continue
        if any(one not in slices for one in pair):
            continue  # A bucket without a file group, or one that is compacted.
        held = tuple(slices[one] for one in pair)
        if sum(one.size_bytes for one in held) <= limits.merge_bytes:
            yield Candidate(partition_path, held, (low.end, high.end))


def split_ends(
    suffix: Suffix, positions: RingHashes, size_bytes: int, split_bytes: int, depth_max: int
) -> list[int]:
    """Return the ends of the buckets that a bucket becomes; only its own if no split helps.

    Parameters
    ----------
    suffix : Suffix
        The bucket.
    positions : ndarray of int32, shape (n_keys,)
        Places of its keys on the ring, sorted. Keys of one hash cannot be separated.
    size_bytes, split_bytes : int
        Bytes of the bucket, and from which size on buckets are split.
    depth_max : int
        Most bits of a suffix.
    """
    row_bytes = size_bytes / max(len(positions), 1)

    def ends(one: Suffix) -> Iterator[int]:
        first = int(np.searchsorted(positions, one.start))
        last = int(np.searchsorted(positions, one.end, side="right"))
        is_small = (last - first) * row_bytes <= split_bytes
        if one.depth == depth_max or is_small or positions[first] == positions[last - 1]:
            yield one.end
            return
        for half in one.halves:
            yield from ends(half)

    return list(ends(suffix))


def suffix_texts(ranges: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Return ranges of a directory, whose start is excluded, as the last bits of hash values."""
    found = []
    for start, end in ranges:
        suffix = Suffix.of_range(start + 1 if start < end else 0, end)
        assert suffix is not None, "the buckets make a directory"
        found.append(suffix.text)
    return tuple(found)
