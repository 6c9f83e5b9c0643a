"""Reading HFiles: all entries, or those of some keys without reading the whole file.

This reader supports HFile version 3, uncompressed or gzip, with any number of index levels. Other
files raise ``UnsupportedFeatureError``. The caller interprets keys and values.

Hudi's own reader subtracts the checksum area of a block from the cells and can lose the last cells.
This reader uses the block's own size and compares the number of cells with the trailer. Checksums
are not verified, because Hudi writes none.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import BucketLakeError
from bucketlake.format.hfile.cells import CELL_PADDING_BYTES, decode_cells
from bucketlake.format.hfile.framing import (
    DATA_MAGIC,
    GZ,
    INFO_MAGIC,
    INNER_INDEX_MAGIC,
    LEAF_INDEX_MAGIC,
    ROOT_INDEX_MAGIC,
    TRAILER_BYTES,
    BlockPlace,
    block_bytes,
    decode_block,
    decode_info,
    decode_size,
    decode_trailer,
)
from bucketlake.format.object_file import ObjectRanges, open_ranges, ranges_of_bytes
from bucketlake.storage.base import Buffer, Storage

# ---- The index of an HFile: the first key of each block, and which blocks a lookup has to read ---
#
# Keys are sorted by their bytes, except that Hudi's writer sorts them as Java does, by UTF-16
# units. The orders differ between characters from U+E000 to U+FFFF and characters beyond U+FFFF.
# Where a lookup or the index has such characters, the blocks of both orders are read.

_ENTRY = struct.Struct(">qi")  # Offset and size of a block.
_INT = struct.Struct(">i")
_ROW_SIZE = struct.Struct(">h")
_ONE_BYTE_MAX = 127

# Moves the characters from U+E000 to U+FFFF behind the others, so that bytes compare like UTF-16.
_LEAD_BYTES = (0xEE, 0xEF)
_AS_JAVA = bytes.maketrans(bytes(_LEAD_BYTES), b"\xf5\xf6")


class IndexEntry(NamedTuple):  # A tuple, since a lookup makes thousands.
    """One block: a data block, or a block of the index one level below."""

    first_key: (
        bytes  # In files of HBase perhaps shorter, but above the last key of the block before.
    )
    offset: int
    size_bytes: int


def decode_root_index(payload: bytes, count: int, at: int, place: BlockPlace) -> list[IndexEntry]:
    """Decode the root index, whose block is at position ``at``.

    Raises
    ------
    FormatError
        If the payload does not hold this number of entries.
    """
    entries, position, size = [], 0, len(payload)
    for _ in range(count):
        start = position + _ENTRY.size
        if start >= size:
            raise place.malformed("an entry of the index", "its end", at)
        offset, size_bytes = _ENTRY.unpack_from(payload, position)
        key_size, start = payload[start], start + 1
        if key_size > _ONE_BYTE_MAX:  # Few keys are that long, and there may be many entries.
            key_size, start = decode_size(payload, start - 1)
        position = start + key_size
        if key_size < 0 or position > size:
            raise place.malformed("a key of the index", "a size beyond it", at)
        entries.append(IndexEntry(_row(payload, start, position, at, place), offset, size_bytes))
    if position != size:
        raise place.malformed("the end of the index", f"{size} bytes", at)
    return entries


def decode_inner_index(payload: bytes, at: int, place: BlockPlace) -> list[IndexEntry]:
    """Decode a block of the index below the root; only HBase writes such blocks.

    The payload has a count, the starts of the entries and their end, then the entries.
    """
    count = _INT.unpack_from(payload)[0] if len(payload) >= _INT.size else -1
    first = _INT.size * (count + 2)
    if count < 0 or first > len(payload):
        raise place.malformed("a count of entries of the index", count, at)
    starts = struct.unpack_from(f">{count + 1}i", payload, _INT.size)
    entries = []
    for start, end in pairwise(starts):
        if not 0 <= start <= end - _ENTRY.size or first + end > len(payload):
            raise place.malformed("an entry of the index", f"from {start} to {end}", at)
        offset, size_bytes = _ENTRY.unpack_from(payload, first + start)
        row = _row(payload, first + start + _ENTRY.size, first + end, at, place)
        entries.append(IndexEntry(row, offset, size_bytes))
    return entries


def require_order(entries: Sequence[IndexEntry], limit: int, at: int, place: BlockPlace) -> None:
    """Raise FormatError unless blocks follow each other without overlap up to ``limit``."""
    end = 0
    for entry in entries:
        if entry.offset < end:
            raise place.malformed("blocks in order", f"{entry.offset} before {end}", at)
        if entry.size_bytes <= 0 or entry.offset + entry.size_bytes > limit:
            raise place.malformed("a whole block", f"{entry.size_bytes} bytes", entry.offset)
        end = entry.offset + entry.size_bytes


def blocks_of_keys(entries: Sequence[IndexEntry], keys: Sequence[bytes]) -> list[IndexEntry]:
    """Return the blocks that can hold some keys.

    Parameters
    ----------
    entries : sequence of IndexEntry
        The index, in order of the file.
    keys : sequence of bytes
        Ascending by bytes.
    """
    first_keys = [entry.first_key for entry in entries]
    numbers = set(_holding_keys(first_keys, keys))
    if may_differ_in_java(first_keys) or may_differ_in_java(keys):
        in_java = sorted(key.translate(_AS_JAVA) for key in keys)
        numbers |= set(_holding_keys([key.translate(_AS_JAVA) for key in first_keys], in_java))
    return [entries[number] for number in sorted(numbers)]


def may_differ_in_java(keys: Iterable[bytes]) -> bool:
    """Return whether Hudi's writer may have sorted keys differently, because of these keys."""
    joined = b"".join(keys)
    return any(byte in joined for byte in _LEAD_BYTES)


def _holding_keys(first_keys: list[bytes], keys: Sequence[bytes]) -> Iterable[int]:
    if len(keys) < len(first_keys):
        numbers = {bisect_right(first_keys, key) - 1 for key in keys}
        return numbers - {-1}
    # Few blocks, many keys: look up where each block starts among the keys.
    cuts = [*(bisect_left(keys, first_key) for first_key in first_keys), len(keys)]
    return (number for number in range(len(first_keys)) if cuts[number] < cuts[number + 1])


def _row(payload: bytes, start: int, end: int, at: int, place: BlockPlace) -> bytes:
    """Return the row of a key in the index: its size and its bytes, then perhaps more."""
    begin = start + _ROW_SIZE.size
    size = _ROW_SIZE.unpack_from(payload, start)[0] if begin <= end else -1
    if not 0 <= size <= end - begin:
        raise place.malformed("a key of the index", f"a row of {size} bytes", at)
    return payload[begin : begin + size]


# ---- Reading HFiles: all entries, or those of some keys without reading the whole file -----------

_PART_BYTES = 2**24  # Stored size of blocks that are read together.
_BATCH_BYTES = 2**23  # Size of blocks, uncompressed, that are decoded together.
_TAIL_BYTES = 2**17  # One request for this much of the end reads the index of most files.
_GAP_BYTES = 2**16  # Up to this size, unwanted blocks between wanted blocks are read as well.
_LEVELS_MAX = 8

Narrow = Callable[[Sequence[IndexEntry]], Sequence[IndexEntry]]
Convert = Callable[[pa.BinaryArray], pa.BinaryArray]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Some entries of an HFile, in its order: keys and values as arrays of binary.

    Keys are sorted by bytes, except keys with characters beyond U+FFFF, which Hudi's writer sorts
    as Java does.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Self:
        """Return the entries of several parts, one after another."""
        empty = pa.nulls(0, pa.binary())
        return cls(
            pa.concat_arrays([empty, *(part.keys for part in parts)]),
            pa.concat_arrays([empty, *(part.values for part in parts)]),
        )


class HFileReader:
    """An HFile whose trailer is read; the rest is read when it is asked for.

    Keys come in binary arrays. Every method raises FormatError if the bytes are malformed, which
    names file and byte, and UnsupportedFeatureError if version, codec or a cell's kind is not
    supported.
    """

    def __init__(self, ranges: ObjectRanges, place: BlockPlace) -> None:
        self._ranges, self._place = ranges, place
        self._convert: Convert | None = None
        size = ranges.size_bytes
        self._tail_at = max(size - _TAIL_BYTES, 0)
        self._tail = ranges.read(self._tail_at, size - self._tail_at)
        trailer = self._tail[-TRAILER_BYTES:]
        self._blocks_end = size - TRAILER_BYTES
        self._trailer = decode_trailer(trailer, max(self._blocks_end, 0), place)
        if not 1 <= self._trailer.index_levels <= _LEVELS_MAX:
            raise place.unsupported(f"an index of {self._trailer.index_levels} levels")

    @classmethod
    def open(cls, storage: Storage, path: str, size_bytes: int | None = None) -> HFileReader:
        """Open a file in storage.

        Parameters
        ----------
        storage : Storage
            Storage of the file. Local files are mapped, small remote files are read whole, and
            large ones by ranges: first the end with the index, then the needed blocks.
        path : str
            Path of the file, relative to the table.
        size_bytes : int, optional
            File size, if known from a listing.

        Raises
        ------
        ObjectNotFoundError
            If there is no such file.
        FormatError
            If the end of the file is no trailer of an HFile.
        """
        return cls(open_ranges(storage, path, size_bytes), BlockPlace(path))

    @classmethod
    def of_bytes(cls, content: Buffer, path: str, *, offset_bytes: int = 0) -> HFileReader:
        """Open an HFile in memory.

        Parameters
        ----------
        content : bytes-like
            The HFile.
        path : str
            The file that is or contains the HFile, for messages.
        offset_bytes : int
            Start of the HFile in that file, for messages.
        """
        return cls(ranges_of_bytes(content), BlockPlace(path, offset_bytes))

    def converting(self, convert: Convert) -> HFileReader:
        """Return a reader of the same file whose values pass through a function."""
        reader = copy(self)
        reader._convert = convert
        return reader

    @property
    def converts(self) -> bool:
        """Whether values pass through a function, so that they differ from the stored blocks."""
        return self._convert is not None

    @property
    def entry_count(self) -> int:
        """Number of entries, as the trailer states it."""
        return self._trailer.entry_count

    @cached_property
    def info(self) -> Mapping[str, bytes]:
        """The file info."""
        at = self._trailer.info_offset
        return decode_info(self._block_at(at, INFO_MAGIC), at, self._place)

    @property
    def is_gzip(self) -> bool:
        """Whether blocks are compressed with gzip; otherwise they are not compressed."""
        return self._trailer.codec == GZ

    def data_blocks(self) -> Sequence[IndexEntry]:
        """Return the places of all data blocks, in the file's order."""
        return self._data_blocks(lambda entries: entries)

    def stored_blocks(self, blocks: Sequence[IndexEntry]) -> Iterator[memoryview]:
        """Yield data blocks as they are stored."""
        for part in _cut(blocks):
            yield from self._stored(part)

    def entries_of(self, blocks: Sequence[IndexEntry]) -> Iterator[Entries]:
        """Yield the entries of data blocks in the file's order, some blocks at a time."""
        return self._batches(blocks)

    def read(self) -> Entries:
        """Read all entries, and compare their number with the trailer."""
        batches = list(self.batches())
        return batches[0] if len(batches) == 1 else Entries.joined(batches)

    def batches(self) -> Iterator[Entries]:
        """Yield all entries in the file's order, some blocks at a time."""
        count = 0
        for batch in self._batches(self.data_blocks()):
            count += len(batch.keys)
            yield batch
        if count != self.entry_count:
            raise self._place.malformed(f"{self.entry_count} entries", count, 0)

    def lookup(self, keys: pa.Array) -> Entries:
        """Find the entries of some keys; only the blocks that can hold them are read.

        Parameters
        ----------
        keys : pyarrow.Array of binary
            Wanted keys, ascending by bytes.
        """
        if len(keys) > self.entry_count:  # The few entries are in few blocks.
            blocks = self._data_blocks(lambda entries: entries)
            return self._matching(blocks, lambda found: _are_among(found, keys))
        wanted = keys.to_pylist()
        blocks = self._data_blocks(partial(blocks_of_keys, keys=wanted))

        def are_wanted(found: pa.Array) -> pa.BooleanArray:
            bounds = pc.min_max(found)
            start = bisect_left(wanted, bounds["min"].as_py())
            end = bisect_right(wanted, bounds["max"].as_py())
            return _are_among(found, keys[start:end])

        return self._matching(blocks, are_wanted)

    def _matching(
        self, blocks: Sequence[IndexEntry], holds: Callable[[pa.Array], pa.Array]
    ) -> Entries:
        found = []
        for entries in self._batches(blocks):
            mask = holds(entries.keys)
            found.append(Entries(entries.keys.filter(mask), entries.values.filter(mask)))
        return Entries.joined(found)

    def _data_blocks(self, narrow: Narrow) -> Sequence[IndexEntry]:
        """Return the data blocks that a lookup needs, level by level of the index."""
        blocks = narrow(self._root)
        for level in range(self._trailer.index_levels - 1, 0, -1):
            magic = LEAF_INDEX_MAGIC if level == 1 else INNER_INDEX_MAGIC
            below: list[IndexEntry] = []
            for block, payload in zip(blocks, self._payloads(blocks, magic), strict=True):
                below += decode_inner_index(payload, block.offset, self._place)
            require_order(below, self._blocks_end, self._trailer.index_offset, self._place)
            blocks = narrow(below)
        return blocks

    @cached_property
    def _root(self) -> list[IndexEntry]:
        at = self._trailer.index_offset
        payload = self._block_at(at, ROOT_INDEX_MAGIC)
        entries = decode_root_index(payload, self._trailer.root_count, at, self._place)
        require_order(entries, self._blocks_end, at, self._place)
        return entries

    def _batches(self, blocks: Sequence[IndexEntry]) -> Iterator[Entries]:
        """Read and decode data blocks, some at a time."""
        # All batches use one buffer: new memory would cost as much time as copying into it.
        buffer, offsets, bounds = bytearray(), [0], [0]
        for part in _cut(blocks):
            for block, payload in zip(part, self._payloads(part, DATA_MAGIC), strict=True):
                if bounds[-1] and bounds[-1] + len(payload) > _BATCH_BYTES:
                    yield self._entries(buffer, offsets, bounds)
                    offsets, bounds = [0], [0]
                start, end = bounds[-1], bounds[-1] + len(payload)
                if len(buffer) < end + CELL_PADDING_BYTES:
                    buffer += bytes(end + CELL_PADDING_BYTES - len(buffer))
                buffer[start:end] = payload
                offsets.append(block.offset)
                bounds.append(end)
        if bounds[-1]:
            yield self._entries(buffer, offsets, bounds)

    def _entries(self, buffer: bytearray, offsets: list[int], bounds: list[int]) -> Entries:
        def refuse(what: str, is_feature: bool, number: int) -> BucketLakeError:
            at = offsets[number + 1]
            if is_feature:
                return self._place.unsupported(f"{what} (block at {at})")
            return self._place.malformed(what, "the end of the block", at)

        keys, values = decode_cells(buffer, np.array(bounds, np.int64), refuse)
        return Entries(keys, values if self._convert is None else self._convert(values))

    def _payloads(self, blocks: Sequence[IndexEntry], magic: bytes) -> Iterator[bytes]:
        for block, stored in zip(blocks, self._stored(blocks), strict=True):
            yield decode_block(stored, block.offset, magic, self._trailer.codec, self._place)

    def _stored(self, blocks: Sequence[IndexEntry]) -> Iterator[memoryview]:
        runs = list(_runs(blocks))
        spans = [(run[0].offset, run[-1].offset + run[-1].size_bytes) for run in runs]
        read = self._ranges.read_all([(start, end - start) for start, end in spans])
        for run, (start, _), data in zip(runs, spans, read, strict=True):
            for block in run:
                at = block.offset - start
                stored = data[at : at + block.size_bytes]
                if block_bytes(stored) != len(stored):
                    found = f"a block of {block_bytes(stored)} bytes, {len(stored)} in the index"
                    raise self._place.malformed("a whole block", found, block.offset)
                yield stored

    def _block_at(self, at: int, magic: bytes) -> bytes:
        """Read a block of unknown size, which usually is in the tail of the file."""
        limit = self._blocks_end
        if not 0 <= at < limit:
            raise self._place.malformed(f"a block {magic!r}", "an offset outside the blocks", at)
        if at < self._tail_at:
            # The blocks from here on are loaded together: the indexes and the file info.
            self._tail = self._ranges.read(at, self._ranges.size_bytes - at)
            self._tail_at = at
        data = self._tail[at - self._tail_at : limit - self._tail_at]
        return decode_block(data, at, magic, self._trailer.codec, self._place)


def _are_among(found: pa.Array, keys: pa.Array) -> pa.BooleanArray:
    """Return which found keys are among others; Arrow hashes the smaller of both sets."""
    near = keys.filter(pc.is_in(keys, value_set=found)) if len(keys) > len(found) else keys
    return pc.is_in(found, value_set=near)


def _cut(blocks: Sequence[IndexEntry]) -> Iterator[Sequence[IndexEntry]]:
    """Cut blocks into parts that are read together."""
    first, size_bytes = 0, 0
    for number, block in enumerate(blocks):
        if size_bytes and size_bytes + block.size_bytes > _PART_BYTES:
            yield blocks[first:number]
            first, size_bytes = number, 0
        size_bytes += block.size_bytes
    if first < len(blocks):
        yield blocks[first:]


def _runs(blocks: Sequence[IndexEntry]) -> Iterator[list[IndexEntry]]:
    """Group blocks that are read with one request."""
    run: list[IndexEntry] = []
    for block in blocks:
        if run and block.offset - run[-1].offset - run[-1].size_bytes > _GAP_BYTES:
            yield run
            run = []
        run.append(block)
    if run:
        yield run
