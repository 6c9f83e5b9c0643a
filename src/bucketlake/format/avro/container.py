"""Avro object containers with one record, as in timelines: the schema of a writer is parsed once.

A timeline has many small files, and parsing the schema in their headers takes most of the time that
it takes to read them. A writer puts the same schema text into all files of a kind.

A container has a sync marker of 16 bytes in its header and after each block. Its writer may choose
it freely. bucketlake's marker is the word ``checksum`` and the checksum of the file, in which both
markers have zeros; other readers see nothing but a marker.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from bucketlake.format.checksum import BLANK, is_sealed, seal

_MAGIC_SIZE_BYTES = 4
_SYNC_SIZE_BYTES = 16
_META = {"type": "map", "values": "bytes"}
_MARKED = b"checksum"

BLANK_MARKER: Final = _MARKED + BLANK
"""The sync marker with which a container is written before :func:`seal_container`."""


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """The only record of a container.

    Attributes
    ----------
    name : str
        Name of the record, without its namespace.
    schema : Any
        The writer's schema, as fastavro parses it.
    content : bytes
        The encoded record.
    """

    name: str
    schema: Any
    content: bytes


def seal_container(data: bytes) -> bytes:
    """Put the checksum into the two blank markers of a container with one block."""
    return seal(data, *_digits(data, BLANK_MARKER))


def is_damaged(data: bytes) -> bool:
    """Return whether a container ends in a marker of bucketlake that is not its checksum."""
    marker = data[-_SYNC_SIZE_BYTES:]
    if not marker.startswith(_MARKED):
        return False  # Of another writer, or damaged: then it is not the marker in the header.
    header, end = _digits(data, marker)
    return header == end or not is_sealed(data, header, end)


def only_record(data: bytes) -> WrittenRecord | None:
    """Return the record of a container with one uncompressed block of one record.

    Returns
    -------
    WrittenRecord or None
        None for any other container and for broken bytes; fastavro's own reader says what it is.
    """
    import fastavro

    stream = io.BytesIO(data)
    stream.seek(_MAGIC_SIZE_BYTES)
    try:
        meta: Any = fastavro.schemaless_reader(stream, _META, None)
        sync = stream.read(_SYNC_SIZE_BYTES)
        count: Any = fastavro.schemaless_reader(stream, "long", None)
        size: Any = fastavro.schemaless_reader(stream, "long", None)
        start = stream.tell()
        is_whole = data[start + size :] == sync and len(sync) == _SYNC_SIZE_BYTES
        if count != 1 or size < 0 or not is_whole or meta.get("avro.codec", b"null") != b"null":
            return None
        name, schema = writer_schema(meta["avro.schema"])
    except Exception:  # The decoder may raise any exception for broken bytes.
        return None
    return WrittenRecord(name, schema, data[start : start + size])


@lru_cache(maxsize=256)
def writer_schema(text: bytes) -> tuple[str, Any]:
    """Return the name of a record and its parsed schema; raises any error for other text."""
    import fastavro

    schema = json.loads(text)
    return str(schema["name"]).rpartition(".")[2], fastavro.parse_schema(schema)


def _digits(data: bytes, marker: bytes) -> tuple[int, int]:
    """Return where the checksums of the first and the last marker begin."""
    return data.index(marker) + len(_MARKED), len(data) - len(BLANK)
