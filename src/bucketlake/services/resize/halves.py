"""What a resize would do to a directory: which buckets split in halves, and which merge (RFC-29).

A bucket that is too large is split by the next bit of the hash, and so are the halves that are
still too large, down to the greatest depth. Two buddies, which differ in their last bit, are merged
if they are small together. For a split the keys of the bucket are read: they say how large each
half is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bucketlake.errors import ConfigError
from bucketlake.hashing.directory import Directory, Suffix
from bucketlake.hashing.ring import Ring, RingHashes
from bucketlake.index.ring_layout import RingLayout
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.services.resize.candidates import Candidate
from bucketlake.services.resize.limits import ResizeLimits


def require_halves(limits: ResizeLimits) -> None:
    """Raise ConfigError for limits that ask for a split of a directory other than in halves."""
    for name, default in (("split_into", 2), ("split_at", "middle")):
        value = getattr(limits, name)
        if value != default:
            allowed = f"the buckets of an ExtendibleBucket split in halves: leave {name} out"
            raise ConfigError(name, value, allowed)


def key_positions(reader: SliceReader, layout: RingLayout, file_slice: FileSlice) -> RingHashes:
    """Return the places of a slice's keys on the ring, sorted."""
    found = [
        layout.engine.hash_keys(chunk[RECORD_KEY], layout.hash_fields)
        for chunk in reader.read(file_slice, [RECORD_KEY])
    ]
    return np.sort(np.concatenate([np.empty(0, np.int32), *found]))


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
        ends = split_ends(suffix, positions_of(file_slice), size, limits.split_bytes, depth_max)
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
