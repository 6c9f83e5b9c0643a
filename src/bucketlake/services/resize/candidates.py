"""What a resize would do to a ring: which nodes split, and which neighbours merge (RFC-42).

Pure functions of a ring, the sizes of its file groups and the limits. Large groups are split first,
so that few free buckets go to the largest; what is small and adjacent is merged, as Hudi's planner
does it. A group that is neither is left alone (Hudi rewrites it, too).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bucketlake.hashing.ring import ChildNode, Ring
from bucketlake.index.ring_engine import engine_of_ring, new_prefix
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.services.resize.limits import ResizeLimits

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
