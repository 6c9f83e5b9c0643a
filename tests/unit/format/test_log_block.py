"""Log blocks: framed, read back, and found damaged at any byte."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bucketlake.errors import FormatError, ObjectNotFoundError, UnsupportedFeatureError
from bucketlake.format import object_file
from bucketlake.format.log_block import (
    BlockKind,
    HeaderKey,
    LogBlock,
    encode_block,
    read_log_blocks,
)
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage
from tests.bounds import set_bounds
from tests.storages import memory_of

INSTANT = "20261120233122930"
PATH = "p/.f_1.log.1_0-0-0"
COMMAND = {
    HeaderKey.INSTANT_TIME: INSTANT,
    HeaderKey.TARGET_INSTANT_TIME: "20261120233000000",
    HeaderKey.COMMAND_BLOCK_TYPE: "0",
}
DATA = {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: "{}", HeaderKey.IS_PARTIAL: "true"}


def read(content: bytes) -> list[LogBlock]:
    return list(read_log_blocks(memory_of({PATH: content}), PATH))


def test_block_has_the_layout_of_the_format() -> None:
    headers = {HeaderKey.SCHEMA: "ä", HeaderKey.INSTANT_TIME: INSTANT}
    assert encode_block(BlockKind.AVRO_DATA, headers, b"con", b"tent") == (
        bytes.fromhex("234855444923000000000000004a000000010000000300000002")
        + bytes.fromhex("0000000000000011")
        + INSTANT.encode()
        + bytes.fromhex("0000000200000002c3a40000000000000007")
        + b"content"
        + bytes.fromhex("000000000000000000000050")
    )


def test_rollback_command_has_105_bytes_as_hudis_has() -> None:
    assert len(encode_block(BlockKind.COMMAND, COMMAND)) == 105


def test_blocks_come_back_in_order_with_their_places() -> None:
    parts = [
        encode_block(BlockKind.COMMAND, COMMAND),
        encode_block(BlockKind.PARQUET_DATA, DATA, b"content"),
    ]
    command, data = read(b"".join(parts))
    assert (command.kind, command.headers, bytes(command.content)) == (
        BlockKind.COMMAND,
        COMMAND,
        b"",
    )
    assert (command.offset_bytes, data.offset_bytes) == (0, len(parts[0]))
    assert (data.instant, data.is_partial, command.is_partial) == (INSTANT, True, False)
    assert bytes(data.content) == b"content"
    assert b"".join(parts)[data.content_offset_bytes :].startswith(b"content")


def test_content_of_a_local_file_is_not_copied(tmp_path: Path) -> None:
    content = encode_block(BlockKind.AVRO_DATA, DATA, bytes(100))
    (tmp_path / "f.log").write_bytes(content * 2)
    first, second = read_log_blocks(LocalStorage(str(tmp_path)), "f.log")
    assert first.content.readonly
    assert bytes(first.content) == bytes(second.content) == bytes(100)


class CountingStorage(MemoryStorage):
    """A remote storage that counts its answers."""

    requests = 0

    def read(self, path: str) -> bytes:
        raise AssertionError(f"{path} was read whole")

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self.requests += 1
        return super().read_range(path, start, length)


def test_large_remote_file_is_read_by_one_request_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, object_file, WHOLE_BYTES_MAX=100)
    storage = CountingStorage("log-blocks")
    storage.put(PATH, encode_block(BlockKind.AVRO_DATA, DATA, bytes(1000)) * 5)
    assert [len(block.content) for block in read_log_blocks(storage, PATH)] == [1000] * 5
    assert storage.requests == 1 + 5


def test_missing_and_empty_files_are_refused() -> None:
    with pytest.raises(ObjectNotFoundError):
        list(read_log_blocks(memory_of(), PATH))
    with pytest.raises(FormatError, match="empty file"):
        read(b"")


WHOLE = encode_block(BlockKind.AVRO_DATA, DATA, b"content")


def test_file_cut_off_at_any_byte_is_refused_at_the_block_that_is_cut() -> None:
    file = WHOLE + WHOLE
    for length in range(1, len(file)):
        if length == len(WHOLE):
            continue
        with pytest.raises(FormatError) as caught:
            read(file[:length])
        assert caught.value.path == PATH
        start = 0 if length < len(WHOLE) else len(WHOLE)
        assert caught.value.offset_bytes in (start, start + 6)


def test_bytes_after_the_last_block_are_refused_where_they_start() -> None:
    with pytest.raises(FormatError) as caught:
        read(WHOLE + b"x")
    assert caught.value.offset_bytes == len(WHOLE)


def patched(at: int, number: int, size: int = 4) -> bytes:
    return WHOLE[:at] + number.to_bytes(size, "big", signed=True) + WHOLE[at + size :]


CONTENT_SIZE_AT = WHOLE.index(b"content") - 8
FOOTERS_AT = len(WHOLE) - 12


@pytest.mark.parametrize(
    ("content", "at", "expected"),
    [
        (b"#HUDX#" + WHOLE[6:], 0, "magic"),
        (patched(6, -1, 8), 6, "whole log block"),
        (patched(6, 2**62, 8), 6, "whole log block"),
        (patched(6, len(WHOLE) - 15, 8), None, "block"),
        (patched(22, 0), 22, "headers"),
        (patched(22, -1), 22, "headers"),
        (patched(22, 2**31 - 1), 22, "headers"),
        (patched(30, -1), 34, "INSTANT_TIME"),
        (patched(30, 2**31 - 1), 34, "INSTANT_TIME"),
        (patched(CONTENT_SIZE_AT, -1, 8), CONTENT_SIZE_AT + 8, "content"),
        (patched(CONTENT_SIZE_AT, 2**62, 8), CONTENT_SIZE_AT + 8, "content"),
        (patched(CONTENT_SIZE_AT, 6, 8), None, "footers"),
        (patched(FOOTERS_AT, 1), FOOTERS_AT, "footers"),
        (patched(FOOTERS_AT + 4, 7, 8), FOOTERS_AT + 4, "size"),
        (patched(26, 2), None, "each header once"),
        (patched(26, 6), None, "header INSTANT_TIME"),
        (WHOLE.replace(INSTANT.encode(), b"\xff" * 17), 34, "UTF-8"),
    ],
)
def test_damaged_block_is_refused_at_the_byte(
    content: bytes, at: int | None, expected: str
) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        read(content)
    assert caught.value.path == PATH
    assert caught.value.offset_bytes is not None
    assert at in (None, caught.value.offset_bytes)


@pytest.mark.parametrize(
    ("content", "feature"),
    [
        (patched(14, 0), "log format version 0"),
        (patched(14, 2), "log format version 2"),
        (patched(18, 2), "kind 2"),
        (patched(18, 7), "kind 7"),
        (patched(26, 9), "header 9"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(content: bytes, feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=feature):
        read(content)


def test_no_change_of_one_byte_gives_another_error_or_is_unseen_in_the_frame() -> None:
    content_at = range(CONTENT_SIZE_AT + 8, CONTENT_SIZE_AT + 15)
    for at in range(len(WHOLE)):
        for bit in (1, 0x80):
            changed = bytearray(WHOLE)
            changed[at] ^= bit
            try:
                (block,) = read(bytes(changed))
            except (FormatError, UnsupportedFeatureError):
                continue
            in_header = any(value != DATA.get(key) for key, value in block.headers.items())
            assert at in content_at or in_header or set(block.headers) != set(DATA)


def test_size_of_a_block_is_checked_before_anything_is_read() -> None:
    start = struct.pack(">6sq", b"#HUDI#", 2**40)
    with pytest.raises(FormatError, match="1099511627776 bytes, of which 8"):
        read(start + bytes(8))
