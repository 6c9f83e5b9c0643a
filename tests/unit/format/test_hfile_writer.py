"""HFiles as bucketlake writes them, and lookups that read only a part of a file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import FormatError, InputError, UnsupportedFeatureError
from bucketlake.format.hfile import cells as cells_module
from bucketlake.format.hfile.framing import TRAILER_BYTES, BlockPlace
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.hfile.writer import BLOCK_BYTES, encode_hfile
from bucketlake.format.object_file import ObjectRanges
from bucketlake.storage.memory import MemoryStorage
from tests.bounds import set_bounds
from tests.unit.format import hfiles

PATH = "record_index/f.hfile"
SCHEMA = '{"type":"string"}'
MARKS = b"\0\x7f" + b"\xff" * 7 + b"\x04"

Entry = tuple[bytes, bytes]
keys_ = st.binary(max_size=40) | st.text(max_size=10).map(str.encode)
values_ = st.binary(max_size=60) | st.sampled_from([b"", MARKS, MARKS * 3])


def binary(items: list[bytes]) -> pa.Array:
    return pa.array(items, pa.binary())


def encode(entries: list[Entry]) -> bytes:
    keys, values = (binary([entry[i] for entry in entries]) for i in (0, 1))
    return encode_hfile(keys, values, SCHEMA, created_at_ms=7)


def entries_of(content: bytes) -> list[Entry]:
    hfile = HFileReader.of_bytes(content, PATH).read()
    return list(zip(hfile.keys.to_pylist(), hfile.values.to_pylist(), strict=True))


def many(count: int, value: Callable[[int], bytes] = lambda row: b"%d" % row) -> list[Entry]:
    return [(b"%08d" % row, value(row)) for row in range(count)]


def offsets_and_payloads(content: bytes) -> list[tuple[int, bytes]]:
    """Return the data blocks of a file, by their headers alone."""
    found, at = [], 0
    while content[at : at + 8] == b"DATABLK*":
        stored, size = struct.unpack_from(">ii", content, at + 8)
        (end,) = struct.unpack_from(">i", content, at + 29)
        payload = zlib.decompress(content[at + 33 : at + end], 31)
        assert len(payload) == size
        found.append((at, payload))
        at += 33 + stored
    return found


@given(st.dictionaries(keys_, values_, max_size=30))
def test_any_keys_and_values_come_back(entries: dict[bytes, bytes]) -> None:
    assert entries_of(encode(sorted(entries.items()))) == sorted(entries.items())


@given(
    count=st.integers(0, 6000),
    seed=st.integers(0, 2**32 - 1),
    key_bytes=st.integers(4, 40),
    value_bytes=st.integers(0, 60),
    fixed=st.booleans(),
)
def test_files_of_many_blocks_come_back(
    count: int, seed: int, key_bytes: int, value_bytes: int, fixed: bool
) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(4, key_bytes + 1, count) if not fixed else [key_bytes] * count
    keys = sorted({random.bytes(size) for size in sizes})
    distinct = [random.bytes(size) for size in random.integers(0, value_bytes + 1, 5)] + [MARKS]
    indices = pa.array(random.integers(0, len(distinct), len(keys)), pa.int32())
    values = pa.DictionaryArray.from_arrays(indices, binary(distinct))
    content = encode_hfile(binary(keys), values, SCHEMA, created_at_ms=7)
    hfile = HFileReader.of_bytes(content, PATH).read()
    assert hfile.keys.to_pylist() == keys
    assert hfile.values.to_pylist() == values.to_pylist()
    plain = encode_hfile(binary(keys), values.dictionary_decode(), SCHEMA, created_at_ms=7)
    assert plain == content


def test_file_is_a_function_of_its_entries() -> None:
    entries = many(3000)
    assert encode(entries) == encode(entries)


def test_info_and_trailer_are_those_that_hudi_reads() -> None:
    content = encode([(b"a", b"1"), (b"bcd", b"345")])
    assert HFileReader.of_bytes(content, PATH).info == {
        "KEY_VALUE_VERSION": b"\0\0\0\x01",
        "MAX_MEMSTORE_TS_KEY": bytes(8),
        "hfile.AVG_KEY_LEN": b"\0\0\0\x02",
        "hfile.AVG_VALUE_LEN": b"\0\0\0\x02",
        "hfile.CREATE_TIME_TS": bytes(7) + b"\x07",
        "hfile.LASTKEY": b"\0\x03bcd",
        "schema": SCHEMA.encode(),
    }
    assert content[-TRAILER_BYTES:].startswith(b'TRABLK"$')
    assert content.endswith(b"\0\0\0\x03")


def test_file_without_entries_has_no_last_key() -> None:
    hfile = HFileReader.of_bytes(encode([]), PATH)
    assert (len(hfile.read().keys), hfile.info["hfile.LASTKEY"]) == (0, b"")


@pytest.mark.parametrize("noise", [False, True], ids=["compressible", "random"])
def test_last_cell_of_each_block_starts_where_hudis_reader_still_sees_it(noise: bool) -> None:
    random = np.random.default_rng(5)
    entries = many(20_000, lambda row: random.bytes(20) if noise else b"")
    content = encode(entries)
    blocks = offsets_and_payloads(content)
    assert len(blocks) > 5
    ends = [at for at, _ in blocks[1:]] + [len(content)]
    for (at, payload), end in zip(blocks, ends, strict=True):
        assert len(payload) <= BLOCK_BYTES
        last_cell_bytes = len(payload) - payload.rindex(b"\0\x08", 0, payload.rindex(MARKS)) + 8
        assert last_cell_bytes > 4 * -(-min(end - at, 90_000) // 16384)


def test_entry_that_is_larger_than_a_block_has_its_own_block() -> None:
    entries = [(b"a", b"1"), (b"b", b"2" * 200_000), (b"c", b"3"), (b"d", b"4")]
    content = encode(entries)
    assert [payload.count(MARKS) for _, payload in offsets_and_payloads(content)] == [1, 1, 2]
    assert entries_of(content) == entries


def test_values_that_look_like_cells_do_not_mislead_the_reader() -> None:
    cell = hfiles.cell(b"%08d" % 5, b"x")
    entries = many(9000, lambda row: cell * (row % 3) + b"%d" % row)
    assert entries_of(encode(entries)) == entries


def test_reader_of_few_long_blocks_finds_the_same_cells_as_one_of_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = many(30_000, lambda row: b"v" * (row % 7))
    content = hfiles.encode_hfile([entries[:20_000], entries[20_000:]], compressed=True)
    assert entries_of(content) == entries
    set_bounds(monkeypatch, cells_module, _LANES_MIN=10**9)
    assert entries_of(content) == entries


def test_key_that_an_hfile_cannot_hold_is_refused() -> None:
    encode([(b"k" * 32_767, b"")])
    with pytest.raises(InputError, match="a key of 32768 bytes"):
        encode([(b"k" * 32_768, b"")])


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"]])
def test_keys_out_of_order_are_a_mistake_of_the_caller(keys: list[bytes]) -> None:
    with pytest.raises(AssertionError):
        encode([(key, b"") for key in keys])


# Lookups.


class Watched:
    """The ranges of a file, and those that were read."""

    def __init__(self, content: bytes) -> None:
        self.read: list[tuple[int, int]] = []
        self.content = memoryview(content)

    def ranges(self) -> ObjectRanges:
        return ObjectRanges(len(self.content), self._read_all)

    def _read_all(self, asked: Sequence[tuple[int, int]]) -> list[memoryview]:
        self.read += asked
        return [self.content[start : start + length] for start, length in asked]


def test_lookup_reads_the_end_of_the_file_and_one_block() -> None:
    random = np.random.default_rng(1)
    content = encode(many(50_000, lambda row: random.bytes(30)))
    watched = Watched(content)
    reader = HFileReader(watched.ranges(), BlockPlace(PATH))
    found = reader.lookup(binary([b"%08d" % 12_345]))
    assert found.keys.to_pylist() == [b"%08d" % 12_345]
    assert watched.read[0][0] == len(content) - 2**17
    assert len(watched.read) == 2
    assert sum(length for _, length in watched.read) < 2**17 + BLOCK_BYTES
    assert reader.entry_count == 50_000


def test_large_object_is_read_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, "bucketlake.format.object_file", WHOLE_BYTES_MAX=1000)
    storage = MemoryStorage("t")
    entries = many(20_000)
    content = encode(entries)
    storage.put(PATH, content)
    whole = HFileReader.open(storage, PATH, len(content)).read()
    assert whole.keys.to_pylist() == [key for key, _ in entries]
    found = HFileReader.open(storage, PATH, len(content)).lookup(binary([b"%08d" % 7]))
    assert found.values.to_pylist() == [b"7"]


FILES = {
    "written": encode,
    "deep": lambda entries: hfiles.encode_hfile(
        [entries[at : at + 3] for at in range(0, len(entries), 3)], index_levels=4
    ),
    "deep and compressed": lambda entries: hfiles.encode_hfile(
        [entries[at : at + 2] for at in range(0, len(entries), 2)], index_levels=2, compressed=True
    ),
}


@pytest.mark.parametrize("make", FILES.values(), ids=list(FILES))
@given(
    stored=st.sets(st.text(st.sampled_from("ab～😀"), max_size=6).map(str.encode), max_size=25),
    wanted=st.sets(st.text(st.sampled_from("ab～😀"), max_size=6).map(str.encode), max_size=25),
    java=st.booleans(),
)
def test_lookups_find_what_a_scan_finds(
    make: Callable[[list[Entry]], bytes], stored: set[bytes], wanted: set[bytes], java: bool
) -> None:
    is_java = java and make is not encode  # We write keys in the order of their bytes.
    order = sorted(stored, key=lambda key: key.decode().encode("utf-16-be") if is_java else key)
    reader = HFileReader.of_bytes(make([(key, b"v" + key) for key in order]), PATH)
    assert reader.read().keys.to_pylist() == order
    found = reader.lookup(binary(sorted(wanted)))
    assert found.keys.to_pylist() == [key for key in order if key in wanted]
    assert found.values.to_pylist() == [b"v" + key for key in found.keys.to_pylist()]


def test_lookup_of_many_keys_and_of_none() -> None:
    entries = many(20_000)
    reader = HFileReader.of_bytes(encode(entries), PATH)
    wanted = [key for key, _ in entries[::3]] + [b"zzz"]
    assert reader.lookup(binary(wanted)).keys.to_pylist() == wanted[:-1]
    assert len(reader.lookup(binary([])).keys) == 0


def test_index_key_of_hbase_may_be_shorter_than_the_first_key() -> None:
    # HBase may write any text between the keys of two blocks.
    blocks = [[(b"aa", b"1")], [(b"abcd", b"2"), (b"abce", b"3")]]
    content = hfiles.encode_hfile(blocks, index_keys=[b"aa", b"ab"])
    reader = HFileReader.of_bytes(content, PATH)
    assert reader.lookup(binary([b"abcd"])).values.to_pylist() == [b"2"]
    assert reader.lookup(binary([b"abcd", b"abce"])).values.to_pylist() == [b"2", b"3"]


# Damage.

ENTRIES = many(4000)
WRITTEN = encode(ENTRIES)
USED = len(WRITTEN) - TRAILER_BYTES + 120  # What lies behind is padding.


@given(st.lists(st.tuples(st.integers(0, USED - 1), st.integers(1, 255)), min_size=1, max_size=3))
def test_flipped_bytes_raise_a_named_error_or_change_nothing(flips: list[tuple[int, int]]) -> None:
    content = bytearray(WRITTEN)
    for at, bits in flips:
        content[at] ^= bits
    try:
        found = entries_of(bytes(content))
    except (FormatError, UnsupportedFeatureError):
        return
    assert found == ENTRIES


@given(st.integers(0, USED - 1), st.integers(1, 255), st.integers(0, len(ENTRIES) - 1))
def test_lookup_in_a_damaged_file_raises_or_finds_the_entry(at: int, bits: int, row: int) -> None:
    content = bytearray(WRITTEN)
    content[at] ^= bits
    try:
        reader = HFileReader.of_bytes(bytes(content), PATH)
        found = reader.lookup(binary([ENTRIES[row][0]]))
    except (FormatError, UnsupportedFeatureError):
        return
    assert found.values.to_pylist() == [ENTRIES[row][1]]


@given(st.integers(1, len(WRITTEN) - 1))
def test_file_cut_off_anywhere_is_refused(size: int) -> None:
    with pytest.raises(FormatError):
        entries_of(WRITTEN[:size])


DEEP = hfiles.encode_hfile([ENTRIES[at : at + 20] for at in range(0, 400, 20)], index_levels=3)


@given(
    flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), min_size=1, max_size=3),
    row=st.integers(0, 399),
)
def test_damaged_deep_index_gives_entries_or_a_named_error(
    flips: list[tuple[int, int]], row: int
) -> None:
    content = bytearray(DEEP)
    for at, bits in flips:
        content[at % (len(DEEP) - TRAILER_BYTES + 120)] ^= bits
    try:
        reader = HFileReader.of_bytes(bytes(content), PATH)
        found = [reader.lookup(binary([ENTRIES[row][0]])), *reader.batches()]
    except (FormatError, UnsupportedFeatureError):
        return
    for entries in found:
        entries.keys.validate(full=True)
        entries.values.validate(full=True)
        assert len(entries.keys) == len(entries.values)
