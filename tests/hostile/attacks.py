"""Small files that would end or hang a process that trusts them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from bucketlake.format.avro.timeline_records import avro_schema
from bucketlake.format.byte_slices import UNPACKED_BYTES
from tests.hostile.decoders import DECODERS, PROPERTIES

DEEP = 200_000
MARK = b"0123456789abcdef"
COMMIT = "HoodieCommitMetadata"


def long(value: int) -> bytes:
    """Encode an Avro long."""
    zigzag, out = (value << 1) ^ (value >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def container(schema: object, content: bytes, codec: str = "null", count: int = 1) -> bytes:
    """Return an Avro container with one block."""
    text = (schema if isinstance(schema, str) else json.dumps(schema)).encode()
    meta = long(2)
    for key, value in ((b"avro.codec", codec.encode()), (b"avro.schema", text)):
        meta += long(len(key)) + key + long(len(value)) + value
    head = b"Obj\x01" + meta + long(0) + MARK
    return head + long(count) + long(len(content)) + content + MARK


def record(*fields: tuple[str, Any], name: str = COMMIT) -> dict[str, Any]:
    """Return the schema of a record."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields],
    }


def brackets(opening: str, inner: str = "1", closing: str = "") -> bytes:
    """Return JSON of many brackets inside each other."""
    return (opening * DEEP + inner + closing * DEEP).encode()


def doubling(levels: int, inner: object = "int") -> dict[str, Any]:
    """Return a schema whose records use each other twice."""
    kind: Any = record(("x", inner), name="R0")
    for level in range(1, levels):
        kind = record(("a", kind), ("b", f"R{level - 1}"), name=f"R{level}")
    return record(("v", kind), name="t_record")


def packed(codec: str) -> bytes:
    """Return a container whose block unpacks to much more than is read of it."""
    zeros, name = bytes(UNPACKED_BYTES * 4), codec
    if codec == "bzip2":
        content = bz2.compress(zeros)
    elif codec == "xz":
        content = lzma.compress(zeros, preset=0)
    else:
        pack = zlib.compressobj(1, zlib.DEFLATED, -15)
        content = pack.compress(zeros) + pack.flush()
    return container(avro_schema(COMMIT), content, name)


def _containers() -> Iterator[tuple[str, bytes]]:
    inside = record(("next", ["null", COMMIT]))
    yield "a record inside itself", container(inside, long(1) * DEEP + long(0))
    names: Any = {"type": "array", "items": COMMIT}
    yield "a record in its own list", container(record(("n", names)), long(1) * DEEP + b"\0" * DEEP)
    for what, items in (
        ("nulls", "null"),
        ("empty records", record(name="Empty")),
        ("empty fixed values", {"type": "fixed", "name": "F", "size": 0}),
        ("records of nulls", record(("a", "null"), name="N")),
    ):
        kind = record(("n", {"type": "array", "items": items}))
        yield f"an array of {what}", container(kind, long(1 << 40) + long(0))
        yield (
            f"an array of {what} in a block",
            container(kind, long(-(1 << 40)) + long(1) + long(0)),
        )
    yield (
        "a map of many",
        container(record(("n", {"type": "map", "values": "null"})), long(1 << 40)),
    )
    yield "records without bytes", container(doubling(60, "null") | {"name": COMMIT}, b"")
    yield "a schema of brackets", container(brackets("[").decode(), b"")
    yield "a schema inside itself", container('{"type":' * DEEP + '"int"' + "}" * DEEP, b"")
    yield "a text of an exabyte", container(record(("operationType", "string")), long(1 << 60))
    yield "many records", container(record(), b"", count=1 << 40)
    yield "a head of many facts", b"Obj\x01" + long(1 << 40)
    for codec in ("deflate", "bzip2", "xz", "snappy"):
        yield f"{codec} that unpacks to much more", packed(codec)


def _json() -> Iterator[tuple[str, bytes]]:
    yield "brackets", brackets("[")
    yield "objects", brackets('{"a":', closing="}")
    yield "brackets in a member", b'{"version": 1, "files": ' + brackets("[") + b"}"
    yield (
        "Infinity",
        b'{"version": Infinity, "files": [{"fileName": "a", "fileLen": 1e999}]}',
    )
    yield "digits", b'{"version": ' + b"9" * 5000 + b', "checksum": ' + b"1" * 5000 + b"}"
    yield "a long text", b'{"version": "' + b"x" * 10**7 + b'"}'


def attacks() -> Iterator[tuple[str, str, bytes]]:
    """Yield attacks: the kind of file, what is wrong, and the content."""
    containers, texts = list(_containers()), list(_json())
    for kind, decoder in DECODERS.items():
        held = containers if decoder.valid[0].startswith(b"Obj\x01") else []
        held = held + (texts if decoder.valid[-1].startswith((b"{", b"[")) else [])
        for what, data in held:
            yield kind, what, data
    for levels in (20, 60):
        for kind in ("table schema", "schema of records"):
            yield kind, f"records that double {levels} times", json.dumps(doubling(levels)).encode()
    zeros = gzip.compress(bytes(UNPACKED_BYTES * 4), 1, mtime=0)
    block = struct.pack(">8siiqBii", b"DATABLK*", len(zeros), UNPACKED_BYTES * 4, -1, 0, 0, 33)
    hfile = DECODERS["HFile"].valid[0]
    yield "HFile", "a block that unpacks to much more", block + zeros + hfile[-4096:]
    yield "properties", "a long value", PROPERTIES + b"hoodie.table.type=" + b"a=" * 20_000
    yield "properties", "escapes", b"\\" * 10**6
    yield "properties", "digits", PROPERTIES.replace(b"version=9", b"version=" + b"9" * 5000)
    yield "markers", "slashes", b"a/" * 10**5 + b".marker.CREATE"
    yield "markers", "markers", b".marker.A" * 10**4
    yield "packed JSON lines", "a gigabyte", gzip.compress(bytes(1 << 26), 1)
    yield "CSV", "quotes", b'v,text\n1,"' + b'""' * 10**6
    yield "CSV", "columns", b"," * 10**5 + b"\n"
    yield (
        "JSON lines",
        "a struct that differs in each row",
        b"".join(b'{"v": 1, "c%d": {"c": 1}}\n' % number for number in range(1000)),
    )
    yield "JSON lines", "500 objects", b'{"a":' * 500 + b"1" + b"}" * 500


def damaged(valid: bytes, choose: Callable[[int], int]) -> bytes:
    """Change, drop, repeat or add a few bytes; ``choose(n)`` returns a number below n."""
    content = bytearray(valid)
    for _ in range(1 + choose(4)):
        place = choose(max(1, len(content)))
        match choose(6):
            case 0 | 1 if content:
                content[min(place, len(content) - 1)] = choose(256)
            case 2:
                content[place : place + 1] = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x7F][: 1 + choose(5)])
            case 3:
                del content[place : place + 1 + choose(8)]
            case 4:
                content[place:place] = content[: choose(64)]
            case _:
                del content[place:]
    return bytes(content)
