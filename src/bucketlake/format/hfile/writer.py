"""Writing an HFile of sorted keys and values, as Hudi's metadata table needs it.

The file has one index level, gzip blocks and no bloom filter. Hudi does not ask for the filter by
default.
The caller decides what keys and values mean, and sorts them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.format.hfile.cells import (
    CELL_FRAME_BYTES,
    ROW_BYTES_MAX,
    cell_sizes,
    encode_cells,
    lengths,
)
from bucketlake.format.hfile.framing import (
    DATA_MAGIC,
    INFO_MAGIC,
    ROOT_INDEX_MAGIC,
    Trailer,
    encode_info,
    encode_size,
    encode_trailer,
    frame_block,
    moved_block,
)
from bucketlake.model.arrays import Ints
from bucketlake.storage.base import Buffer

# Hudi's reader does not see a cell that starts in the last 4 * ceil(stored size / 16384) bytes of a
# block's cells. A block of this size is stored in at most 81,920 bytes, and no cell is as short as
# those 20 bytes. The small blocks also make the lookup of one key fast.
BLOCK_BYTES = 64 * 1024
FILE_BYTES_MAX = 2**31 - 1  # Hudi's reader keeps positions in 32 bits.

_BLOCKS_AT_ONCE = 256
_INDEX_ENTRY = struct.Struct(">qi")  # Offset and size of a block.
_ROW_SIZE = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_KEY_VALUE_VERSION = 1


def encode_hfile(
    keys: pa.Array, values: pa.Array, schema_json: str, *, created_at_ms: int
) -> bytes:
    """Encode an HFile.

    Parameters
    ----------
    keys : pyarrow.Array of binary or string
        Keys in ascending order of their bytes, each once.
    values : pyarrow.Array of binary, or a dictionary of binary
        A value for each key. A dictionary is faster where few values are distinct.
    schema_json : str
        Avro JSON of the values, for the file info.
    created_at_ms : int
        Milliseconds since 1970-01-01 UTC, for the file info. A function of the instant, so that
        repeated tasks write equal files.

    Returns
    -------
    bytes
        The file. Equal entries give equal bytes with the same deflate library.

    Raises
    ------
    InputError
        If a key is longer than 32,767 bytes, or the file would have 2 GiB or more.
    """
    return encode_hfiles(keys, values, [0, len(keys)], schema_json, created_at_ms=created_at_ms)[0]


def encode_hfiles(
    keys: pa.Array,
    values: pa.Array,
    bounds: Sequence[int],
    schema_json: str,
    *,
    created_at_ms: int,
) -> list[bytes]:
    """Encode several HFiles, whose cells are made together; see :func:`encode_hfile`.

    Parameters
    ----------
    keys, values
        The entries of all files, one file after another.
    bounds : sequence of int
        The first entry of each file, and the number of entries.
    """
    files = []
    for part in _parts_of(keys, values, bounds):
        writer = HFileWriter(schema_json, created_at_ms=created_at_ms)
        writer.add_part(part)
        files.append(writer.finish())
    return files


_Part: TypeAlias = tuple[Iterable[tuple[memoryview, bytes]], Sequence[bytes], int, int, int]
"""Entries of a file: cells and first key of each block; first and last key; count; bytes of keys,
and of cells."""


class HFileWriter:
    """Writes an HFile from entries that come in parts, ascending by key; see :func:`encode_hfile`.

    Blocks of an older HFile may be among the parts, as they are stored.
    """

    def __init__(self, schema_json: str, *, created_at_ms: int) -> None:
        self._schema_json, self._created_at_ms = schema_json, created_at_ms
        self._parts: list[Buffer] = []
        self._index: list[bytes] = []
        self._size_bytes = 0
        self._last_block_offset: int | None = None
        self._last_key: bytes | None = None
        self._count = self._key_bytes = self._cell_bytes = self._value_bytes = 0

    def add(self, keys: pa.Array, values: pa.Array) -> None:
        """Add entries; a part ends with the end of a block.

        Raises
        ------
        InputError
            If a key is longer than 32,767 bytes.
        """
        self.add_part(next(_parts_of(keys, values, [0, len(keys)])))

    def add_part(self, part: _Part) -> None:
        """Add entries of which the cells are made; a part ends with the end of a block."""
        blocks, ends, count, key_bytes, cell_bytes = part
        if ends:
            self._require_after(ends[0])
            self._last_key = ends[-1]
        for cells, key in blocks:
            # Hudi writes the block's own offset as that of the block before, except in the first.
            block = frame_block(DATA_MAGIC, cells, previous_offset=self._size_bytes or -1)
            self._append_data(block, key)
        self._count += count
        self._key_bytes += key_bytes
        self._cell_bytes += cell_bytes
        self._value_bytes += cell_bytes - key_bytes - CELL_FRAME_BYTES * count

    def add_stored(self, block: memoryview, first_key: bytes) -> None:
        """Add a data block of another HFile, compressed with gzip.

        Parameters
        ----------
        block : memoryview
            The whole block.
        first_key : bytes
            Its first key.
        """
        self._require_after(first_key)
        size_bytes, parts = moved_block(block, self._size_bytes or -1)
        self._append_data(parts, first_key)
        self._last_key = first_key  # The last key is not known without reading the block.
        self._cell_bytes += size_bytes

    def finish(self, *, stored_count: int = 0, last_key: bytes | None = None) -> bytes:
        """Add everything after the data, and return the file.

        Parameters
        ----------
        stored_count : int
            Number of entries in blocks of other HFiles.
        last_key : bytes, optional
            The last key, if it is in a block of another HFile.

        Raises
        ------
        InputError
            If the file would have 2 GiB or more.
        """
        last = self._last_key if last_key is None else last_key
        info = {
            "KEY_VALUE_VERSION": _INT.pack(_KEY_VALUE_VERSION),
            "MAX_MEMSTORE_TS_KEY": _LONG.pack(0),
            "hfile.AVG_KEY_LEN": _INT.pack(self._key_bytes // max(self._count, 1)),
            "hfile.AVG_VALUE_LEN": _INT.pack(self._value_bytes // max(self._count, 1)),
            "hfile.CREATE_TIME_TS": _LONG.pack(self._created_at_ms),
            "hfile.LASTKEY": b"" if last is None else _row(last),
            "schema": self._schema_json.encode(),
        }
        index_offset = self._append(frame_block(ROOT_INDEX_MAGIC, b"".join(self._index)))
        self._append(_index_of_meta_blocks())
        info_offset = self._append(frame_block(INFO_MAGIC, encode_info(info)))
        trailer = Trailer(
            info_offset=info_offset,
            index_offset=index_offset,
            root_count=len(self._index),
            entry_count=self._count + stored_count,
            cell_bytes=self._cell_bytes,
            last_block_offset=self._last_block_offset,
        )
        self._append(encode_trailer(trailer))
        if self._size_bytes > FILE_BYTES_MAX:
            problem = f"a file of {self._size_bytes} bytes"
            raise InputError("HFile", problem, "spread the keys over more file groups")
        return b"".join(self._parts)

    def _require_after(self, key: bytes) -> None:
        assert self._last_key is None or self._last_key < key, "keys are sorted by their bytes"

    def _append_data(self, block: bytes | tuple[Buffer, ...], first_key: bytes) -> None:
        """Add a data block, perhaps in pieces, and its entry of the index."""
        pieces = (block,) if isinstance(block, bytes) else block
        self._last_block_offset = self._size_bytes
        row = _row(first_key)
        entry = _INDEX_ENTRY.pack(self._size_bytes, sum(map(len, pieces)))
        self._index.append(entry + encode_size(len(row)) + row)
        for piece in pieces:
            self._append(piece)

    def _append(self, part: Buffer) -> int:
        """Append bytes; return where they start."""
        at = self._size_bytes
        self._parts.append(part)
        self._size_bytes += len(part)
        return at


def is_ascending(keys: pa.Array) -> bool:
    """Return whether keys are sorted by their bytes, each once."""
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _parts_of(keys: pa.Array, values: pa.Array, bounds: Sequence[int]) -> Iterator[_Part]:
    """Yield the entries of each file, whose blocks have to be taken before the next file's."""
    keys = keys.view(pa.binary())
    assert len(keys) == len(values) == bounds[-1], "each key has a value, and a file"
    assert keys.null_count == values.null_count == 0, "keys and values are not null"
    assert _is_ascending_within(keys, bounds), "keys are sorted by their bytes, each once"
    key_sizes = lengths(keys)
    if (largest := key_sizes.max(initial=0)) > ROW_BYTES_MAX:
        problem = f"a key of {largest} bytes"
        raise InputError("HFile", problem, f"HFiles hold keys of up to {ROW_BYTES_MAX} bytes")
    sizes = cell_sizes(key_sizes, values)
    key_ends, ends = (np.concatenate([[0], np.cumsum(each)]) for each in (key_sizes, sizes))
    cuts = _block_cuts(ends, bounds)
    blocks = _blocks((keys, values), (key_sizes, sizes), ends, np.array(cuts))
    firsts = iter(cuts)
    for first, last in pairwise(bounds):
        count = bisect_left(cuts, last) - bisect_left(cuts, first)
        own = (
            (cells, keys[at].as_py())
            for at, cells in zip(islice(firsts, count), blocks, strict=False)
        )
        key_bytes, cell_bytes = (int(each[last] - each[first]) for each in (key_ends, ends))
        ends_of_keys = [keys[at].as_py() for at in (first, last - 1)] if count else []
        yield own, ends_of_keys, last - first, key_bytes, cell_bytes


def _is_ascending_within(keys: pa.Array, bounds: Sequence[int]) -> bool:
    """Return whether the keys of each file are ascending."""
    if len(bounds) == 2:
        return is_ascending(keys)
    is_less = pc.less(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False).copy()
    inner = np.array(bounds)
    is_less[inner[(inner > 0) & (inner < len(keys))] - 1] = True
    return bool(is_less.all())


def _block_cuts(ends: Ints, bounds: Sequence[int]) -> list[int]:
    """Return the first row of each block, and the number of rows; a file begins with a block."""
    cuts = [0]
    for first, last in pairwise(bounds):
        at = first
        while at < last:
            # A cell that is larger than a block gets a block of its own.
            most = int(ends[at]) + BLOCK_BYTES
            at = max(int(np.searchsorted(ends[: last + 1], most, side="right")) - 1, at + 1)
            cuts.append(at)
    return cuts


def _blocks(
    entries: Sequence[pa.Array], sizes: Sequence[Ints], ends: Ints, cuts: Ints
) -> Iterator[memoryview]:
    """Yield the cells of each block; cells of many blocks are made together."""
    starts = ends[cuts]
    for number in range(0, len(cuts) - 1, _BLOCKS_AT_ONCE):
        rows, offsets = (each[number : number + _BLOCKS_AT_ONCE + 1] for each in (cuts, starts))
        own = slice(int(rows[0]), int(rows[-1]))
        cells = encode_cells(*(each[own] for each in (*entries, *sizes)))
        inner = (offsets - offsets[0]).tolist()
        for begin, end in pairwise(inner):
            yield cells[begin:end]


@cache
def _index_of_meta_blocks() -> bytes:
    return frame_block(ROOT_INDEX_MAGIC, b"")


def _row(key: bytes) -> bytes:
    return _ROW_SIZE.pack(len(key)) + key
