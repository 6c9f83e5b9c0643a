"""Gzip members, the compressed form of an HFile's blocks.

ISA-L (package ``isal``) packs ten times and unpacks three times as fast as zlib, see
``docs/decisions/0022-isal-for-hfiles.md``. It is optional: without it, zlib does the same work. The
two give different bytes, which every reader accepts.
"""

from __future__ import annotations

import zlib
from types import ModuleType

from bucketlake.storage.base import Buffer

try:
    from isal import isal_zlib
except ImportError:
    isal_zlib = None

_DEFLATE: ModuleType = zlib if isal_zlib is None else isal_zlib
# ISA-L's level 1 gives files of the size of zlib's level 6. zlib's levels above 4 take twice the
# time for 3 % smaller files.
_LEVEL = 4 if isal_zlib is None else 1
_GZIP_WINDOW = 31  # zlib's number for a gzip member with the largest window.


def gzip_member(data: Buffer) -> bytes:
    """Compress bytes; equal bytes give equal members."""
    deflate = _DEFLATE.compressobj(_LEVEL, _DEFLATE.DEFLATED, _GZIP_WINDOW)
    return b"".join([deflate.compress(data), deflate.flush()])


def gunzip_member(member: Buffer, size_bytes: int) -> bytes:
    """Decompress one member.

    Raises
    ------
    ValueError
        If the bytes are not exactly one member with ``size_bytes`` bytes; the error says why.
    """
    inflate = _DEFLATE.decompressobj(_GZIP_WINDOW)
    try:
        data: bytes = inflate.decompress(member, size_bytes + 1)  # One more detects excess data.
    except _DEFLATE.error as error:
        raise ValueError(str(error)) from error
    if not inflate.eof or inflate.unused_data or len(data) != size_bytes:
        raise ValueError(f"a gzip member that does not end after {size_bytes} bytes")
    return data
