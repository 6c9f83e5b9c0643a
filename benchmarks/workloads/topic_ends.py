"""The ends of topics, asked of a broker with one request of Kafka's protocol, without a client."""

from __future__ import annotations

import socket
import struct

_LIST_OFFSETS, _VERSION, _LATEST = 2, 1, -1
_SECONDS_MAX = 5


def topic_end(port: int, topic: str) -> int:
    """Return the offset after the last record of partition 0 of a topic on this machine.

    Raises
    ------
    OSError
        If the broker does not answer, or has no such topic.
    """
    header = struct.pack(">hhih", _LIST_OFFSETS, _VERSION, 1, 0)  # Without a client's name.
    name = topic.encode()
    # A consumer (-1) asks for one topic, and one partition of it: number 0, its latest offset.
    body = struct.pack(f">iih{len(name)}siiq", -1, 1, len(name), name, 1, 0, _LATEST)
    with socket.create_connection(("127.0.0.1", port), _SECONDS_MAX) as broker:
        broker.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        with broker.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4).rjust(4, b"\0"))
            answer = answers.read(size)
    error, _timestamp, offset = struct.unpack(">hqq", answer[-18:].rjust(18, b"\xff"))
    if error:
        raise OSError(f"the broker answers error {error} for topic {topic}")
    return int(offset)
