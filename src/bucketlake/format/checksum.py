"""A checksum that is stored in the bytes that it covers.

The checksum is the CRC-32 of the bytes as eight hexadecimal digits. While it is computed, zeros are
in the place of the digits. Files of the timeline, JSON files and properties use it; each of them
says where its digits are. Files of other writers have no such digits and are not checked.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from isal import isal_zlib

from bucketlake.storage.base import Buffer

DIGITS: Final = 8
BLANK: Final = b"0" * DIGITS
"""What a writer puts in the place of the checksum before :func:`seal`."""


def seal(data: bytes, *places: int) -> bytes:
    """Replace the zeros at one or more places by the checksum of the bytes.

    Examples
    --------
    >>> seal(b"name=a 00000000", 7)
    b'name=a 6a62288a'
    """
    return _filled(data, places, b"%08x" % crc(data))


def is_sealed(data: bytes, *places: int) -> bool:
    """Return whether the digits at the places are the checksum of the bytes."""
    told = data[places[0] : places[0] + DIGITS]
    return told == b"%08x" % crc(_filled(data, places, BLANK))


def with_one_byte_restored(data: bytes, place: int) -> bytes | None:
    """Return the bytes as they were sealed if exactly one of them was changed; else None.

    The CRC of a change does not depend on the other bytes. So the difference between the two
    checksums tells which byte was changed and how: one of about 255 changes per byte of the file
    out of 2 ** 32 differences.
    """
    told = data[place : place + DIGITS]
    try:
        wanted = int(told, 16) ^ crc(_filled(data, (place,), BLANK))
    except ValueError:
        return None
    table = np.array([crc(bytes([x])) ^ crc(b"\0") for x in range(256)], np.uint32)
    changes = table.copy()  # The difference that each change of the byte at ``at`` makes.
    for at in range(len(data) - 1, -1, -1):
        (found,) = np.nonzero(changes == wanted)
        if wanted and found.size and not place <= at < place + DIGITS:
            return data[:at] + bytes([data[at] ^ int(found[0])]) + data[at + 1 :]
        changes = table[changes & 0xFF] ^ (changes >> 8)
    return None


def _filled(data: bytes, places: tuple[int, ...], digits: bytes) -> bytes:
    filled = bytearray(data)
    for place in places:
        filled[place : place + DIGITS] = digits
    return bytes(filled)


def crc(data: Buffer) -> int:
    """Return the CRC-32 of bytes."""
    return int(isal_zlib.crc32(data))
