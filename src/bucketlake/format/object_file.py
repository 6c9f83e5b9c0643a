"""An object in storage as a file that Arrow can read; only the needed bytes are fetched."""

from __future__ import annotations

import io

import pyarrow as pa

from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.storage.base import Storage

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
