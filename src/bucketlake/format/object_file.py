"""An object in storage as a file for Arrow, or as ranges; only the needed bytes are fetched."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.storage.base import Buffer, Storage, at_once, flat_view

WHOLE_BYTES_MAX = 8 * 2**20  # Up to this size, one request for all is cheaper than several.


def open_object(storage: Storage, path: str, size_bytes: int | None = None) -> pa.NativeFile:
    """Open an object for random access.

    Parameters
    ----------
    storage : Storage
        The storage of the object.
    path : str
        Path of the object.
    size_bytes : int, optional
        Size of the object, if known from a listing; this saves a request.

    Returns
    -------
    pyarrow.NativeFile
        Local files are mapped; small remote objects are read whole, larger objects by ranges.

    Raises
    ------
    ObjectNotFoundError
        If there is no such object.
    FormatError
        If the object is empty.
    """
    local = storage.local_path(path)
    if local is not None or not size_bytes:
        size_bytes = _size_of(storage, path)
    if local is not None:
        return pa.memory_map(str(local))
    if size_bytes <= WHOLE_BYTES_MAX:
        return pa.BufferReader(storage.read(path))
    return pa.PythonFile(_RangeReader(storage, path, size_bytes), mode="r")


@dataclass(frozen=True, slots=True)
class ObjectRanges:
    """The ranges of an object, for formats that are read by positions."""

    size_bytes: int
    read_all: Callable[[Sequence[tuple[int, int]]], list[memoryview]]  # Of starts and lengths.

    def read(self, start: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``start``, fewer at the end of the object."""
        (data,) = self.read_all([(start, length)])
        return data


def ranges_of_bytes(content: Buffer) -> ObjectRanges:
    """Return the ranges of bytes in memory, as views."""
    view = flat_view(content)
    return ObjectRanges(
        len(view), lambda ranges: [view[start : start + length] for start, length in ranges]
    )


def open_ranges(storage: Storage, path: str, size_bytes: int | None = None) -> ObjectRanges:
    """Open an object for reading ranges, several of them in parallel; see :func:`open_object`."""
    with open_object(storage, path, size_bytes) as source:
        if not isinstance(source, pa.PythonFile):
            return ranges_of_bytes(memoryview(source.read_buffer()))
        size_bytes = source.size()

    def read(asked: tuple[int, int]) -> memoryview:
        return memoryview(storage.read_range(path, *asked))

    return ObjectRanges(size_bytes, lambda ranges: at_once(storage, read, ranges))


def _size_of(storage: Storage, path: str) -> int:
    stored = storage.stat(path)
    if stored is None:
        raise ObjectNotFoundError(path, "read", "there is no such file")
    if stored.size_bytes == 0:
        raise FormatError(path, "a file with content", "an empty file")
    return stored.size_bytes


class _RangeReader(io.RawIOBase):
    """Reads ranges of an object; Arrow combines adjacent ranges before."""

    def __init__(self, storage: Storage, path: str, size_bytes: int) -> None:
        super().__init__()
        self._storage, self._path, self._size_bytes = storage, path, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = start[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        rest = max(self._size_bytes - self._position, 0)
        length = rest if size < 0 else min(size, rest)
        data = self._storage.read_range(self._path, self._position, length) if length else b""
        self._position += len(data)
        return data
