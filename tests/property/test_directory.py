"""For all keys and directories: each key is in the bucket of its last bits; resizes keep that."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.format.hashing_metadata import (
    HashingMetadata,
    decode_child_buckets,
    decode_directory_metadata,
    encode_child_buckets,
    encode_directory_metadata,
)
from bucketlake.hashing.directory import (
    Directory,
    Suffix,
    first_directory,
    has_letter,
    hash_directory_keys,
)
from bucketlake.model.file_name import InstantTime, derived_uuid
from tests.hash_oracle import bucket_of
from tests.property.test_hashing import FIELDS, ODD_KEYS, TEXTS

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=30)
DEEP = 12


def prefix_of(number: int) -> str:
    return "a" + derived_uuid(str(number))[1:]


class PlainDirectory:
    """The last bits of hashes as text, and the file id prefix of each."""

    def __init__(self) -> None:
        self.buckets = {"": prefix_of(0)}
        self.count = 1

    def drawn(self) -> str:
        self.count += 1
        return prefix_of(self.count)

    def find(self, hash_value: int) -> str:
        bits = f"{hash_value & 0x7FFFFFFF:031b}"
        [found] = [prefix for bits_of, prefix in self.buckets.items() if bits.endswith(bits_of)]
        return found


def suffix_of(bits: str) -> Suffix:
    return Suffix(int(bits or "0", 2), len(bits))


def grown(steps: list[tuple[bool, int]]) -> tuple[Directory, PlainDirectory]:
    """Split and merge a directory and a plain one; check what plans and files spell on the way."""
    plain = PlainDirectory()
    directory = Directory.of_suffixes({Suffix(0, 0): plain.buckets[""]})
    for splits, number in steps:
        names = sorted(plain.buckets)
        bits = names[number % len(names)]
        suffix = suffix_of(bits)
        if splits and len(bits) < DEEP:
            middle = directory.middle(suffix.end)
            assert middle == suffix.halves[0].end
            made = plain.drawn(), plain.drawn()
            children = directory.split(suffix.end, [middle], made)
            del plain.buckets[bits]
            plain.buckets |= {"0" + bits: made[0], "1" + bits: made[1]}
        else:
            buddy = ("0" if bits[:1] == "1" else "1") + bits[1:]
            if not bits or buddy not in plain.buckets:
                continue
            ends = [suffix_of(digit + bits[1:]).end for digit in "01"]
            made_one = plain.drawn()
            children = directory.merge(ends, made_one)
            del plain.buckets[bits], plain.buckets[buddy]
            plain.buckets[bits[1:]] = made_one
        text = encode_child_buckets(directory, children)
        assert decode_child_buckets(text, "plan") == children
        directory = directory.with_children(children)
    return directory, plain


@given(steps=STEPS, hashes=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_each_hash_is_in_the_bucket_of_its_last_bits_after_any_resizes(
    steps: list[tuple[bool, int]], hashes: list[int]
) -> None:
    directory, plain = grown(steps)
    assert isinstance(directory, Directory)
    held = dict(zip((s.text for s in directory.suffixes), directory.prefixes, strict=True))
    assert held == {bits or "*": prefix for bits, prefix in plain.buckets.items()}
    assert directory.global_depth == max(map(len, plain.buckets))
    positions = [int(f"{value & 0x7FFFFFFF:031b}"[::-1], 2) for value in hashes]
    found = directory.locate(np.array(positions, np.int32)).tolist()
    assert [directory.prefixes[place] for place in found] == [plain.find(h) for h in hashes]


@given(steps=STEPS)
def test_a_stored_directory_is_the_one_that_was_saved(steps: list[tuple[bool, int]]) -> None:
    directory, plain = grown(steps)
    metadata = HashingMetadata("a=ü", InstantTime("1"), len(directory), 3, directory)
    data = encode_directory_metadata(metadata)
    assert decode_directory_metadata(data, "path") == metadata
    entries = json.loads(data)
    reversed_suffixes = [
        f"{bucket['suffix']:0{bucket['localDepth']}b}"[::-1] if bucket["localDepth"] else ""
        for bucket in entries["buckets"]
    ]
    assert reversed_suffixes == sorted(reversed_suffixes)
    assert sum(2.0 ** -bucket["localDepth"] for bucket in entries["buckets"]) == 1.0
    assert entries["globalDepth"] == max(map(len, plain.buckets))


@given(
    keys=st.lists(st.one_of(ODD_KEYS, TEXTS)),
    hash_fields=FIELDS,
    depth=st.integers(0, 10),
)
def test_a_directory_of_one_depth_is_the_simple_index(
    keys: list[str], hash_fields: list[str], depth: int
) -> None:
    directory = first_directory("p", 1 << depth)
    assert all(map(has_letter, directory.prefixes))
    assert len(set(directory.prefixes)) == 1 << depth
    found = directory.locate(hash_directory_keys(pa.array(keys, pa.string()), hash_fields))
    suffixes = [directory.suffixes[place].value for place in found.tolist()]
    assert suffixes == [bucket_of(key, 1 << depth, hash_fields) for key in keys]
