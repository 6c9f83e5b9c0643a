"""An object of a storage as a file that Arrow can read, without more bytes than it asks for."""

from __future__ import annotations

import io

import pyarrow as pa

from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.storage.base import Storage

WHOLE_BYTES_MAX = 8 * 2**20  # Up to here one request for all costs less than several for parts.


def open_object(storage: Storage, path: str, size_bytes: int | None = None) -> pa.NativeFile:
    """Open an object for reading at any place.

    Parameters
    ----------
    storage : Storage
        Where it lies.
    path : str
        The object.
    size_bytes : int, optional
        Its size, where a listing told it: a remote object is then not asked for it.

    Returns
    -------
    pyarrow.NativeFile
        Local files are mapped; small remote objects are read whole, larger ones range by range.

    Raises
    ------
    ObjectNotFoundError
        If there is no such object.
    FormatError
        If it is empty.
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
    """Reads ranges of an object; Arrow joins neighbouring ones before it asks."""

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
