"""HFiles: read, and refused where they are damaged or of a kind that is not read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.hfile.framing import TRAILER_BYTES
from bucketlake.format.hfile.reader import Entries, HFileReader
from tests.unit.format.hfiles import Cell, encode_hfile

PATH = "files/f.hfile"
CELLS: list[list[Cell]] = [
    [(b"a", b"1"), (b"b", b"")],
    [(b"c" * 300, b"3" * 1000)],
    [("ключ".encode(), b"4")],
]


def read(content: bytes | bytearray, *, offset_bytes: int = 0) -> Entries:
    reader = HFileReader.of_bytes(content, PATH, offset_bytes=offset_bytes)
    _ = reader.info  # Raises FormatError if it is damaged.
    return reader.read()


@pytest.mark.parametrize("compressed", [False, True])
def test_cells_of_all_blocks_come_in_order(compressed: bool) -> None:
    content = encode_hfile(CELLS, compressed=compressed)
    hfile = read(content)
    cells = [cell for block in CELLS for cell in block]
    assert list(zip(hfile.keys.to_pylist(), hfile.values.to_pylist(), strict=True)) == cells
    assert HFileReader.of_bytes(content, PATH).info == {"schema": b"{}"}


def test_hfile_without_cells_is_empty() -> None:
    hfile = read(encode_hfile([]))
    assert len(hfile.keys) == len(hfile.values) == 0


def test_last_cells_of_a_large_block_are_not_lost_to_the_checksums() -> None:
    cells = [(b"%06d" % row, b"v" * 12) for row in range(6000)]
    hfile = read(encode_hfile([cells]))
    assert hfile.keys.to_pylist() == [key for key, _ in cells]


def test_offset_of_an_error_counts_from_the_start_of_the_file_around() -> None:
    content = bytearray(encode_hfile(CELLS))
    content[0] ^= 1
    with pytest.raises(FormatError, match=r"files/f\.hfile at byte 1000: .*DATABLK") as caught:
        read(content, offset_bytes=1000)
    assert caught.value.offset_bytes == 1000


@pytest.mark.parametrize(
    ("content", "feature"),
    [
        (encode_hfile(CELLS, version=2), "HFile version 2"),
        (encode_hfile(CELLS, trailer={12: 3}), "compression SNAPPY"),
        (encode_hfile(CELLS, trailer={12: 99}), "compression 99"),
        (encode_hfile(CELLS, trailer={8: 9}), "an index of 9 levels"),
        (encode_hfile(CELLS).replace(b"\x7f" + b"\xff" * 7 + b"\x04", b"\x7f" * 8 + b"\x08", 1),
         "a mark"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused_by_its_name(content: bytes, feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=feature):
        read(content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "trailer"),
        (bytes(5000), "trailer"),
        (encode_hfile(CELLS, entry_count=5), "5 entries"),
        (encode_hfile(CELLS, trailer={5: 4}), "an entry of the index"),
        (encode_hfile(CELLS, trailer={5: 2}), "end of the index"),
        (encode_hfile(CELLS, trailer={1: 2**40}), "FILEINF2"),
        (encode_hfile(CELLS, trailer={1: 0}), "FILEINF2"),
        (encode_hfile(CELLS, trailer={2: 2**63}), "IDXROOT2"),
        (encode_hfile(CELLS, compressed=True, trailer={12: 2}), "a block of"),
        (encode_hfile(CELLS, trailer={12: 1}), "gzip member"),
        (encode_hfile(CELLS, trailer={8: 2}), "IDXLEAF2"),
        (encode_hfile(CELLS, index_levels=2, trailer={8: 1}), "DATABLK"),
    ],
)
def test_hfile_that_contradicts_itself_is_refused(content: bytes, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        read(content)


@pytest.mark.parametrize("compressed", [False, True])
def test_hfile_cut_off_at_any_byte_is_refused(compressed: bool) -> None:
    content = encode_hfile(CELLS, compressed=compressed)
    for length in range(len(content)):
        with pytest.raises(FormatError, match="trailer"):
            read(content[:length])
        cut = content[: max(length - TRAILER_BYTES, 0)] + content[-TRAILER_BYTES:]
        if len(cut) < len(content):
            with pytest.raises(FormatError):
                read(cut)


@given(
    compressed=st.booleans(),
    patches=st.lists(st.tuples(st.integers(0, 2**16), st.binary(max_size=5)), max_size=4),
)
def test_damaged_hfile_gives_columns_of_one_length_or_a_named_error(
    compressed: bool, patches: list[tuple[int, bytes]]
) -> None:
    content = bytearray(encode_hfile(CELLS, compressed=compressed))
    size = len(content) - TRAILER_BYTES + 100  # What lies behind is padding.
    for at, data in patches:
        content[at % size : at % size + len(data)] = data
    try:
        hfile = read(bytes(content))
    except (FormatError, UnsupportedFeatureError):
        return
    hfile.keys.validate(full=True)
    hfile.values.validate(full=True)
    assert len(hfile.keys) == len(hfile.values)


@given(st.binary(max_size=200))
def test_garbage_before_a_trailer_gives_a_named_error(garbage: bytes) -> None:
    trailer = encode_hfile(CELLS)[-TRAILER_BYTES:]
    with pytest.raises((FormatError, UnsupportedFeatureError)):
        read(garbage + trailer)
