"""The directory of extendible hashing: buckets by the last bits of a hash (RFC-29).

A bucket with the suffix ``s`` and the local depth ``L`` holds the hashes whose last ``L`` bits are
``s``. The directory's global depth is the greatest local depth. A split makes two buckets with one
more bit each, a merge makes one bucket of two buddies, which differ in their last bit.

A directory is a hash ring (``hashing/ring.py``) of hashes whose bits are reversed: hashes with a
common suffix are neighbours there, so that a bucket is a range, and buddies are neighbours, too. So
lookups, splits and merges of rings do for directories. The table by which a ring finds a node in
one step is the directory array; for suffixes that are much longer than most, a search follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.hashing.index_key import hash_index_keys
from bucketlake.hashing.ring import Ring, RingHashes, named_uuid

DEPTH_MAX = 30

_BITS = 31
_HALF_BITS = 16
_LETTERS = frozenset("abcdef")
_LETTERS_IN = 8  # Characters of a file id that a bucket number would take.


@dataclass(frozen=True, slots=True, order=True)
class Suffix:
    """The hashes of a bucket: those whose last ``depth`` bits are ``value``."""

    value: int
    depth: int

    @property
    def end(self) -> int:
        """The greatest position on the ring: the value of the bucket's node.

        Examples
        --------
        >>> hex(Suffix(0b01, 2).end)
        '0x5fffffff'
        """
        return self.start + (1 << (_BITS - self.depth)) - 1

    @property
    def start(self) -> int:
        """The smallest position on the ring."""
        return _reversed_bits(self.value)

    @property
    def halves(self) -> tuple[Suffix, Suffix]:
        """The two suffixes of one bit more, in the order of the ring."""
        return (
            Suffix(self.value, self.depth + 1),
            Suffix(self.value | 1 << self.depth, self.depth + 1),
        )

    @property
    def text(self) -> str:
        """The last bits of the hashes as text, ``01``; ``*`` for all hashes."""
        return f"{self.value:0{self.depth}b}" if self.depth else "*"

    @classmethod
    def of_range(cls, start: int, end: int) -> Self | None:
        """Return the suffix with these positions; None if they have no common one."""
        width = end - start + 1
        if width < 1 or width & (width - 1) or start % width:
            return None
        return cls(_reversed_bits(start), _BITS - width.bit_length() + 1)


class Directory(Ring):
    """The buckets of a partition as a ring of hashes whose bits are reversed."""

    __slots__ = ()

    @classmethod
    def of_suffixes(cls, prefixes: dict[Suffix, str]) -> Self:
        """Make a directory of the file id prefixes by suffix, in any order."""
        return cls.of({suffix.end: prefix for suffix, prefix in prefixes.items()})

    @property
    def suffixes(self) -> tuple[Suffix, ...]:
        """The suffixes of all buckets, in the order of the ring.

        Raises
        ------
        IndexStateError
            If a range of the ring is not a suffix, or the last one does not reach the end.
        """
        ends = self.values.tolist()
        starts = [0, *(end + 1 for end in ends[:-1])]
        found = [Suffix.of_range(start, end) for start, end in zip(starts, ends, strict=True)]
        if None in found or ends[-1] != (1 << _BITS) - 1:
            raise IndexStateError(
                "each hash has one bucket, of a suffix of its bits",
                f"a directory whose {len(self)} buckets have the ends {ends[:8]}",
                "run table.doctor() (bucketlake doctor)",
            )
        return tuple(suffix for suffix in found if suffix is not None)

    def suffix_at(self, position: int) -> Suffix:
        """Return the suffix of one bucket."""
        start = int(self.values[position - 1]) + 1 if position else 0
        found = Suffix.of_range(start, int(self.values[position]))
        assert found is not None, "the buckets make a directory"
        return found

    @property
    def global_depth(self) -> int:
        """The number of bits by which a bucket is found: the greatest local depth."""
        return max(suffix.depth for suffix in self.suffixes)


def first_directory(partition_path: str, bucket_count: int) -> Directory:
    """Return the directory that a partition begins with; all writers make the same.

    The number of buckets is rounded up to a power of two.

    Examples
    --------
    >>> directory = first_directory("eu", 3)
    >>> [suffix.text for suffix in directory.suffixes]
    ['00', '10', '01', '11']
    """
    depth = (bucket_count - 1).bit_length()
    suffixes = [Suffix(value, depth) for value in range(1 << depth)]
    name = f"ext:{partition_path}".encode()
    return Directory.of_suffixes({suffix: _first_prefix(suffix, name) for suffix in suffixes})


def has_letter(prefix: str) -> bool:
    """Return whether a file id prefix cannot be mistaken for one with a bucket number."""
    return not _LETTERS.isdisjoint(prefix[:_LETTERS_IN])


def hash_directory_keys(
    record_keys: pa.Array | pa.ChunkedArray, hash_fields: Sequence[str] = ()
) -> RingHashes:
    """Return the position of each record key on the ring of a directory.

    It is the hash of a simple bucket index with its bits reversed.

    Parameters
    ----------
    record_keys : Array or ChunkedArray of string type
        Keys as ``_hoodie_record_key`` stores them.
    hash_fields : sequence of str
        Names of the fields to hash; without a name, each key is one value.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        Positions, each in ``[0, 2**31)``.

    Examples
    --------
    >>> positions = hash_directory_keys(pa.array(["k1", "", "k4"]))
    >>> [f"{position >> 28:03b}"[::-1] for position in positions.tolist()]  # 5, 7 and 0 modulo 8.
    ['101', '111', '000']
    """
    hashes = hash_index_keys(record_keys, hash_fields).view(np.uint32)
    table = _reversed_halves()
    positions = table[hashes & 0xFFFF].astype(np.uint32)
    positions <<= _HALF_BITS
    positions |= table[hashes >> _HALF_BITS]
    positions >>= 1  # The sign bit of a hash does not count, and is the last one here.
    found: RingHashes = positions.view(np.int32)
    return found


def _first_prefix(suffix: Suffix, name: bytes) -> str:
    place = suffix.value.to_bytes(8, "big") + suffix.depth.to_bytes(8, "big")
    tries = (b"", *(bytes([number]) for number in range(256)))
    return next(filter(has_letter, (named_uuid(place + name + number) for number in tries)))


def _reversed_bits(number: int) -> int:
    return int(f"{number:0{_BITS}b}"[::-1], 2)


@cache
def _reversed_halves() -> npt.NDArray[np.uint16]:
    """Return the 16 reversed bits of each number of 16 bits."""
    numbers = np.arange(1 << _HALF_BITS, dtype=np.uint32)
    found = np.zeros(1 << _HALF_BITS, np.uint32)
    for bit in range(_HALF_BITS):
        found |= ((numbers >> bit) & 1) << (_HALF_BITS - 1 - bit)
    return found.astype(np.uint16)
