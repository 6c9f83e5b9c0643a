"""The hash ring of a partition: which node holds a hash, and how nodes split and merge (RFC-42).

A node stands at a value on the ring and holds the hashes after the node before it up to and
including its own value. Hashes behind the last node belong to the first one, so one range may wrap
around the end of the hash space. A split puts nodes inside a range; a merge removes nodes, whose
hashes pass to the next node. This module does no I/O: ``format/`` stores rings, and the plan of a
resize decides which nodes to split or merge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Self, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from bucketlake.errors import ConfigError, IndexStateError, InputError
from bucketlake.hashing.xx_hash import RING_HASH_MAX, RING_SIZE

RingHashes: TypeAlias = npt.NDArray[np.int32]

INITIAL_COUNT_MAX = 46_340
"""With more nodes, steps of one width may reach the end of the ring before the last node."""

_RING_BITS = 31
_CELLS_PER_NODE_BITS = 4  # From 16 cells per node on, few cells have several nodes.
_ROWS_AT_ONCE = 1 << 15  # The positions of so many rows fit into the processor's cache.


class NodeTag(Enum):
    """What a plan does at a node's value; nodes of a ring in use are NORMAL."""

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class ChildNode:
    """A node of a ring after a resize, or the removal of a node.

    Attributes
    ----------
    value : int
        Inclusive upper end of the node's range.
    file_id_prefix : str or None
        Of the node's file group; None for a node that is deleted.
    tag : NodeTag
        REPLACE puts the node at its value, DELETE removes the node there.
    """

    value: int
    file_id_prefix: str | None
    tag: NodeTag


@dataclass(frozen=True, slots=True)
class HashRange:
    """The hashes of a node: after ``start``, up to and including ``end``.

    The range wraps around the end of the hash space unless ``start < end``; a node that is alone
    on its ring has ``start == end`` and holds all hashes.
    """

    start: int
    end: int

    @property
    def width(self) -> int:
        """Number of hash values in the range."""
        return (self.end - self.start - 1) % RING_SIZE + 1

    @property
    def share(self) -> float:
        """Width as a share of the whole ring."""
        return self.width / RING_SIZE

    def point(self, distance: int) -> int:
        """Return the value that lies ``distance`` behind the start."""
        return (self.start + distance) % RING_SIZE


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """Nodes of a hash ring.

    Attributes
    ----------
    values : ndarray of int32, shape (n_nodes,)
        Inclusive upper ends of the nodes' ranges, ascending; read-only.
    prefixes : tuple of str
        File id prefixes of the nodes, in the same order.

    Examples
    --------
    >>> ring = Ring.of({10: "a", 20: "b"})
    >>> ring.locate(np.array([0, 10, 11, 20, 21], np.int32)).tolist()
    [0, 0, 1, 1, 0]
    """

    values: RingHashes
    prefixes: tuple[str, ...]
    _cells: _Cells = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert len(self.values) == len(self.prefixes) > 0
        assert self.values.dtype == np.int32
        assert self.values[0] >= 0
        assert (self.values[1:] > self.values[:-1]).all()
        values = self.values.copy()
        values.setflags(write=False)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "_cells", _Cells.of(values))

    @classmethod
    def of(cls, prefixes: dict[int, str]) -> Self:
        """Make a ring of the file id prefixes by value, in any order."""
        values = sorted(prefixes)
        return cls(np.array(values, np.int32), tuple(prefixes[value] for value in values))

    def __len__(self) -> int:
        return len(self.prefixes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ring):
            return NotImplemented
        return self.prefixes == other.prefixes and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.prefixes)

    def __reduce__(self) -> tuple[type[Ring], tuple[RingHashes, tuple[str, ...]]]:
        return type(self), (self.values, self.prefixes)

    def locate(self, hashes: RingHashes) -> RingHashes:
        """Find the node that holds each hash.

        Parameters
        ----------
        hashes : ndarray of int32, shape (n_hashes,)
            Non-negative hashes of index keys.

        Returns
        -------
        ndarray of int32, shape (n_hashes,)
            Positions of the nodes on the ring.
        """
        positions = np.empty(len(hashes), np.int32)
        for first in range(0, len(hashes), _ROWS_AT_ONCE):
            block = slice(first, first + _ROWS_AT_ONCE)
            positions[block] = self._cells.locate(hashes[block])
        return positions

    def position(self, value: int) -> int:
        """Return the position of the node at a value.

        Raises
        ------
        IndexStateError
            If no node has this value.
        """
        at = int(np.searchsorted(self.values, value))
        if at == len(self) or self.values[at] != value:
            raise IndexStateError(
                f"a node at {value} was asked for",
                f"the hash ring of {len(self)} nodes has none there",
                "the partition was resized meanwhile: plan anew",
            )
        return at

    def former(self, value: int) -> int:
        """Return the greatest node value below ``value``; the last one if there is none."""
        return int(self.values[int(np.searchsorted(self.values, value)) - 1])

    def range_of(self, value: int) -> HashRange:
        """Return the range of the node at a value."""
        return HashRange(self.former(value), value)

    def middle(self, value: int) -> int | None:
        """Return the middle of a node's range; None if the range is too narrow to split.

        Examples
        --------
        >>> Ring.of({5: "a", 6: "b", 8: "c"}).middle(8)
        7
        >>> Ring.of({5: "a", 6: "b", 8: "c"}).middle(6) is None
        True
        """
        hash_range = self.range_of(value)
        # A wrapping range ends in the next turn of the ring, so its end is one ring size larger.
        end = value if hash_range.start < value else value + RING_SIZE
        middle = (hash_range.start + end) // 2 % RING_SIZE
        return None if middle in (hash_range.start, hash_range.end) else middle

    def even_points(self, value: int, part_count: int) -> list[int] | None:
        """Return where to split a node's range into parts of equal width.

        Parameters
        ----------
        value : int
            The node's value.
        part_count : int
            Number of parts, at least 2.

        Returns
        -------
        list of int or None
            Upper ends of all parts but the last, in the order of the range, for :meth:`split`;
            None if the range has fewer hash values than parts.
        """
        assert part_count >= 2
        hash_range = self.range_of(value)
        width = hash_range.width
        if width < part_count:
            return None
        return [hash_range.point(width * part // part_count) for part in range(1, part_count)]

    def can_split(self, value: int, points: Sequence[int]) -> bool:
        """Tell whether ``former < point < value`` holds in the node's range, in ascending order.

        Without points there is nothing to split at.
        """
        hash_range = self.range_of(value)
        distances = [(point - hash_range.start) % RING_SIZE for point in points]
        inside = all(0 <= point < RING_SIZE for point in points)
        steps = zip([0, *distances], [*distances, hash_range.width], strict=True)
        return bool(points) and inside and all(before < after for before, after in steps)

    def split(
        self, value: int, points: Sequence[int], prefixes: Sequence[str]
    ) -> tuple[ChildNode, ...]:
        """Return the children of a split of the node at a value.

        Parameters
        ----------
        value : int
            The node's value, which becomes that of its last child.
        points : sequence of int
            Values of the other children, in the order of the range.
        prefixes : sequence of str
            New file id prefixes, one for each child: one more than points.

        Raises
        ------
        InputError
            If a point lies outside the range, or the points are not in its order.
        IndexStateError
            If no node has this value.
        """
        assert len(prefixes) == len(points) + 1
        self.position(value)
        if not self.can_split(value, points):
            raise InputError(
                f"split of the node at {value}",
                f"its range ({self.former(value)}, {value}] cannot be cut at {list(points)}",
                "choose different points inside the range, in ascending order",
            )
        return tuple(
            ChildNode(end, prefix, NodeTag.REPLACE)
            for end, prefix in zip([*points, value], prefixes, strict=True)
        )

    def merge(self, values: Sequence[int], prefix: str) -> tuple[ChildNode, ...]:
        """Return the children of a merge of neighbours: all nodes but the last are deleted.

        Parameters
        ----------
        values : sequence of int
            Values of two or more nodes, in the order of the ring, possibly across its end.
        prefix : str
            New file id prefix of the node that remains.

        Raises
        ------
        InputError
            If the nodes are not neighbours in this order.
        IndexStateError
            If no node has one of these values.
        """
        positions = [self.position(value) for value in values]
        follows = all((before + 1) % len(self) == after for before, after in pairwise(positions))
        if not follows or not 2 <= len(set(positions)) == len(positions):
            raise InputError(
                f"merge of the nodes at {list(values)}",
                "each has to be followed by the next on the hash ring",
                "merge two or more neighbours, in the order of the ring",
            )
        deleted = [ChildNode(value, None, NodeTag.DELETE) for value in values[:-1]]
        return (*deleted, ChildNode(values[-1], prefix, NodeTag.REPLACE))

    def with_children(self, children: Iterable[ChildNode]) -> Self:
        """Return the ring after a resize.

        Raises
        ------
        IndexStateError
            If a deleted node is not on this ring, or no node remains.
        """
        nodes = dict(zip(self.values.tolist(), self.prefixes, strict=True))
        for child in children:
            if child.tag is NodeTag.DELETE:
                self.position(child.value)
                nodes.pop(child.value, None)
            else:
                assert child.file_id_prefix is not None
                nodes[child.value] = child.file_id_prefix
        if not nodes:
            raise IndexStateError(
                "the resize deletes all nodes",
                "a hash ring needs at least one",
                "keep a node in the plan",
            )
        return self.of(nodes)


def initial_ring(partition_path: str, bucket_count: int) -> Ring:
    """Return the ring that a partition begins with; all writers make the same.

    Parameters
    ----------
    partition_path : str
        Relative path of the partition; empty for a table without partitions.
    bucket_count : int
        Number of nodes, from 1 to INITIAL_COUNT_MAX.

    Raises
    ------
    ConfigError
        If the number is less than 1 or more than INITIAL_COUNT_MAX.

    Notes
    -----
    RFC-42; the file id prefix is a name-based UUID (version 3, without a namespace) of a node's
    range and the partition path.

    Examples
    --------
    >>> ring = initial_ring("0", 2)
    >>> ring.values
    array([1073741824, 2147483647], dtype=int32)
    >>> ring.prefixes[0]
    '13bf80ae-ea5e-3871-a8c3-2e516e20bd75'
    """
    if not 1 <= bucket_count <= INITIAL_COUNT_MAX:
        raise ConfigError(
            "hoodie.bucket.index.num.buckets",
            bucket_count,
            f"a hash ring begins with 1 to {INITIAL_COUNT_MAX} nodes",
        )
    step = -(-RING_HASH_MAX // bucket_count)
    ends = [*range(step, step * bucket_count, step), RING_HASH_MAX]
    name = partition_path.encode()
    prefixes = [_initial_prefix(*r, name) for r in zip([0, *ends[:-1]], ends, strict=True)]
    return Ring(np.array(ends, np.int32), tuple(prefixes))


def _initial_prefix(start: int, end: int, name: bytes) -> str:
    return named_uuid(start.to_bytes(8, "big") + end.to_bytes(8, "big") + name)


def named_uuid(name: bytes) -> str:
    """Return the UUID of a name: version 3, without a namespace."""
    return str(UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))


@dataclass(frozen=True, slots=True)
class _Cells:
    """Equal cells of the hash space, each with the first node that may hold its hashes.

    A lookup reads this table instead of a binary search. The number of cells grows with the number
    of nodes, so the table of a small ring is cheap.
    """

    shift: int
    first_nodes: npt.NDArray[np.int32]
    bounds: RingHashes  # Values of the nodes, and the end of the ring for hashes behind the last.
    is_crowded: bool  # A cell holds several nodes.
    wraps: bool

    @classmethod
    def of(cls, values: RingHashes) -> _Cells:
        bits = min(len(values).bit_length() + _CELLS_PER_NODE_BITS, _RING_BITS)
        shift = _RING_BITS - bits
        counts = np.bincount(values >> shift, minlength=1 << bits)
        return cls(
            shift,
            (np.cumsum(counts) - counts).astype(np.int32),
            np.append(values, np.int32(RING_HASH_MAX)),
            bool(counts.max() > 1),
            bool(values[-1] < RING_HASH_MAX),
        )

    def locate(self, hashes: RingHashes) -> RingHashes:
        positions: RingHashes = self.first_nodes[hashes >> self.shift]
        positions += self.bounds[positions] < hashes
        if self.is_crowded:
            early = np.flatnonzero(self.bounds[positions] < hashes)
            positions[early] = np.searchsorted(self.bounds, hashes[early])
        if self.wraps:
            positions[positions == len(self.bounds) - 1] = 0
        return positions
