"""Gzip members, the compressed form of an HFile's blocks.

ISA-L packs ten times and unpacks three times as fast as zlib, see
``docs/decisions/0022-isal-for-hfiles.md``. The bytes differ from those of zlib, and every reader
accepts them.
"""

from __future__ import annotations

from typing import cast

from isal import isal_zlib

from bucketlake.storage.base import Buffer

_Error = cast("type[Exception]", isal_zlib.error)  # The package's stubs call it an instance.
_LEVEL = 1  # Gives files of the size of zlib's level 6.
_GZIP_WINDOW = 31  # zlib's number for a gzip member with the largest window.


def gzip_member(data: Buffer) -> bytes:
    """Compress bytes; equal bytes give equal members."""
    deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW)
    return b"".join([deflate.compress(data), deflate.flush()])


def gunzip_member(member: Buffer, size_bytes: int) -> bytes:
    """Decompress one member.

    Raises
    ------
    ValueError
        If the bytes are not exactly one member with ``size_bytes`` bytes; the error says why.
    """
    inflate = isal_zlib.decompressobj(_GZIP_WINDOW)
    try:
        data: bytes = inflate.decompress(member, size_bytes + 1)  # One more detects excess data.
    except _Error as error:
        raise ValueError(str(error)) from error
    if not inflate.eof or inflate.unused_data or len(data) != size_bytes:
        raise ValueError(f"a gzip member that does not end after {size_bytes} bytes")
    return data
