"""Parts of the cache, compared with a dict, also where hashes collide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.hashing.texts import TextHashes, Texts, hash_texts
from bucketlake.metadata.location_cache.cached_shard import DENSE, SPARSE, PartBuilder, WideCodes
from bucketlake.metadata.location_cache.part import (
    ABSENT,
    REMOVED,
    DamagedFileError,
    Part,
    find_rows,
    lookup_order,
    open_part,
    wide_codes,
    write_part,
)


def weak(hashes: TextHashes, mask: int) -> TextHashes:
    """Return hashes that collide; with mask 0 all are equal."""
    return hashes & np.uint64(mask)


def columns(names: list[str], mask: int = 2**64 - 1) -> tuple[pa.Array, TextHashes]:
    keys = pa.array(names, pa.large_string())
    return keys, weak(hash_texts(Texts.of_array(keys)), mask)


def built(keys: pa.Array, hashes: TextHashes, codes: WideCodes, keys_per_cell: float) -> Part:
    builder = PartBuilder(len(keys))
    builder.add(keys, hashes, codes)
    return builder.finish(keys_per_cell)


def part_of(names: list[str], mask: int = 2**64 - 1, keys_per_cell: float = DENSE) -> Part:
    keys, hashes = columns(names, mask)
    return built(keys, hashes, np.arange(len(names), dtype=np.uint32), keys_per_cell)


def found_codes(part: Part, names: list[str], mask: int = 2**64 - 1) -> list[int]:
    keys, hashes = columns(names, mask)
    order = lookup_order(hashes)
    rows = np.empty(len(names), np.int64)
    rows[order] = find_rows(part, Texts.of_array(keys).take(order), hashes[order])
    codes = np.append(wide_codes(part.codes).astype(np.int64), ABSENT)
    return [int(codes[row]) for row in rows]


@given(
    st.sets(st.text(max_size=9), max_size=60),
    st.lists(st.text(max_size=9), max_size=20),
    st.sampled_from([0, 1, 0xFFFFFFFF, 0xFFFFFFFF00000000, 0x700000007, 2**64 - 1]),
    st.sampled_from([DENSE, SPARSE]),
)
def test_part_equals_a_dict_whatever_the_hash(
    stored: set[str], others: list[str], mask: int, keys_per_cell: float
) -> None:
    names = sorted(stored)
    part = part_of(names, mask, keys_per_cell)
    asked = names[::-1] + others
    expected = [names.index(name) if name in stored else ABSENT for name in asked]
    assert found_codes(part, asked, mask) == expected
    assert sorted(part.key_column().to_pylist()) == names


@pytest.mark.parametrize("mask", [0, 0xFFFFFFFF00000000, 0xFFFFFFFF])
def test_keys_with_one_hash_are_told_apart_by_their_bytes(mask: int) -> None:
    # With mask 0, all keys are in one cell and have one fingerprint.
    names = [f"key-{number:06d}" for number in range(3000)]
    part = part_of(names, mask)
    assert found_codes(part, names, mask) == list(range(3000))
    assert set(found_codes(part, [f"new-{n:06d}" for n in range(3000)], mask)) == {ABSENT}


def test_key_that_begins_another_key_is_another_key() -> None:
    part = part_of(["k", "k1"], mask=0)
    assert found_codes(part, ["k", "k1", "k10", "", "k\0"], mask=0) == [
        0,
        1,
        ABSENT,
        ABSENT,
        ABSENT,
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 200_000])
def test_keys_in_batches_make_the_part_of_all_keys(count: int) -> None:
    names = [f"key{number * 7919 % 10**6:06d}" for number in range(count)]
    keys, hashes = columns(names)
    codes = np.arange(count, dtype=np.uint32)
    builder = PartBuilder(count)
    for start in range(0, count, 30_000):
        rows = slice(start, start + 30_000)
        builder.add(keys[rows], hashes[rows], codes[rows])
    part = builder.finish(DENSE)
    assert found_codes(part, names) == list(range(count))
    assert found_codes(part, ["absent"]) == [ABSENT]


def test_codes_take_32_bits_only_if_there_are_more_than_65535() -> None:
    keys, hashes = columns(["a", "b", "c"])
    for greatest, size in ((65_534, 2), (65_535, 4), (100_000, 4)):
        codes = np.array([0, greatest, REMOVED], np.uint32)
        part = built(keys, hashes, codes, SPARSE)
        assert part.codes.itemsize == size
        assert found_codes(part, ["a", "b", "c"]) == codes.tolist()


@pytest.mark.parametrize("names", [["fixed", "sizes"], ["a", "bcd", ""], []])
def test_part_in_a_file_is_the_part(tmp_path: Path, names: list[str]) -> None:
    part = part_of(names)
    write_part(part, tmp_path / "x.part")
    assert (tmp_path / "x.part").stat().st_size >= part.size_bytes
    mapped = open_part(tmp_path / "x.part")
    assert found_codes(mapped, [*names, "new"]) == [*range(len(names)), ABSENT]
    assert mapped.key_column().to_pylist() == part.key_column().to_pylist()
    assert [path.name for path in tmp_path.iterdir()] == ["x.part"]


def test_file_that_this_process_verified_is_verified_again_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    write_part(part_of(["abc"]), path)
    open_part(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"abc", b"abd"))
    with pytest.raises(DamagedFileError, match="checksum"):
        open_part(path)
