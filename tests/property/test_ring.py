"""For all keys and rings: hashes and lookups equal the plain ones; resizes keep the ring whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from bucketlake.format.hashing_metadata import (
    HashingMetadata,
    NodeStats,
    decode_child_nodes,
    decode_hashing_metadata,
    encode_child_nodes,
    encode_hashing_metadata,
)
from bucketlake.hashing import index_key, xx_hash
from bucketlake.hashing.index_key import text_buffers
from bucketlake.hashing.ring import HashRange, Ring, initial_ring
from bucketlake.hashing.xx_hash import hash_ring_keys, xx_hash_texts
from bucketlake.model.file_name import InstantTime
from tests.property.test_hashing import FIELDS, KEYS, ODD_KEYS, TEXTS, composite_keys
from tests.ring_oracle import node_of, ring_hash, xx_hash_32

END = 2**31 - 1
HASHES = st.one_of(st.integers(0, END), st.integers(0, 40), st.integers(END - 40, END))
RINGS = st.sets(HASHES, min_size=1, max_size=40)


def a_ring(values: set[int]) -> Ring:
    return Ring.of({value: f"old-{value}" for value in values})


def holds(hash_range: HashRange, value: int) -> bool:
    start, end = hash_range.start, hash_range.end
    return start < value <= end if start < end else value > start or value <= end


@given(texts=KEYS)
def test_the_hash_of_any_text_is_the_plain_one(texts: list[str | None]) -> None:
    expected = [xx_hash_32((text or "").encode()) for text in texts]
    assert xx_hash_texts(*text_buffers(pa.array(texts, pa.string()))).tolist() == expected


@given(data=st.binary(max_size=70), count=st.integers(1, 5))
def test_texts_of_one_length_hash_as_each_alone(data: bytes, count: int) -> None:
    texts = [bytes((byte + i) % 128 for byte in data).decode() for i in range(count)]
    expected = [xx_hash_32(text.encode()) for text in texts]
    assert xx_hash_texts(*text_buffers(pa.array(texts))).tolist() == expected


@given(
    keys=st.lists(st.one_of(ODD_KEYS, TEXTS, st.none())),
    hash_fields=FIELDS,
    rows=st.integers(1, 5),
    texts=st.integers(1, 5),
)
def test_any_key_hashes_as_its_plainly_joined_values(
    keys: list[str | None], hash_fields: list[str], rows: int, texts: int
) -> None:
    expected = [ring_hash(key, hash_fields) for key in keys]
    usual = index_key._ROWS_AT_ONCE, xx_hash._ROWS_AT_ONCE
    column = pa.array(keys, pa.string())
    assert hash_ring_keys(column, hash_fields).tolist() == expected
    try:
        index_key._ROWS_AT_ONCE, xx_hash._ROWS_AT_ONCE = rows, texts
        assert hash_ring_keys(column, hash_fields).tolist() == expected
    finally:
        index_key._ROWS_AT_ONCE, xx_hash._ROWS_AT_ONCE = usual


@given(keys=composite_keys(), hash_fields=FIELDS)
def test_composite_keys_hash_as_their_plainly_joined_values(
    keys: list[str], hash_fields: list[str]
) -> None:
    expected = [ring_hash(key, hash_fields) for key in keys]
    column = pa.chunked_array([pa.array(keys, pa.string()), pa.array(keys[:1], pa.string())])
    assert hash_ring_keys(column, hash_fields).tolist() == expected + expected[:1]


@given(values=RINGS, hashes=st.lists(HASHES))
def test_every_hash_falls_in_the_range_of_its_node_and_in_no_other(
    values: set[int], hashes: list[int]
) -> None:
    ring = a_ring(values)
    found = ring.locate(np.array(hashes, np.int32)).tolist()
    assert found == [node_of(value, sorted(values)) for value in hashes]
    ranges = [ring.range_of(value) for value in sorted(values)]
    assert sum(hash_range.width for hash_range in ranges) == 2**31
    for hash_value, position in zip(hashes, found, strict=True):
        holding = [i for i, hash_range in enumerate(ranges) if holds(hash_range, hash_value)]
        assert holding == [position]


@given(values=RINGS, hashes=st.lists(HASHES), data=st.data())
def test_a_split_moves_hashes_of_its_node_alone_and_a_merge_restores_the_ring(
    values: set[int], hashes: list[int], data: st.DataObject
) -> None:
    ring = a_ring(values)
    value = data.draw(st.sampled_from(sorted(values)))
    part_count = data.draw(st.integers(2, 9))
    points = ring.even_points(value, part_count)
    assert (points is None) == (ring.range_of(value).width < part_count)
    assume(points is not None and ring.can_split(value, points))
    prefixes = [f"new-{i}" for i in range(part_count)]
    children = ring.split(value, points, prefixes)
    after = ring.with_children(children)
    widths = [after.range_of(child.value).width for child in children]
    assert sum(widths) == ring.range_of(value).width
    assert max(widths) - min(widths) <= 1

    located = np.array(hashes, np.int32)
    old = np.array(ring.prefixes)[ring.locate(located)]
    new = np.array(after.prefixes)[after.locate(located)]
    assert (np.isin(new, prefixes) == (old == f"old-{value}")).all()

    merged = after.merge([child.value for child in children], f"old-{value}")
    assert after.with_children(merged) == ring


@given(values=RINGS, data=st.data())
def test_even_points_can_always_be_split_at_and_two_parts_meet_in_the_middle(
    values: set[int], data: st.DataObject
) -> None:
    ring = a_ring(values)
    value = data.draw(st.sampled_from(sorted(values)))
    middle = ring.middle(value)
    assert ring.even_points(value, 2) == (None if middle is None else [middle])
    points = ring.even_points(value, data.draw(st.integers(2, 9)))
    assert points is None or ring.can_split(value, points)


@given(
    partition=TEXTS,
    count=st.integers(1, 50),
    sequence=st.integers(0, 9),
    counted=st.integers(0, 50),
    quantiles=st.lists(HASHES, min_size=7, max_size=7),
)
def test_hashing_metadata_decode_to_what_was_encoded(
    partition: str, count: int, sequence: int, counted: int, quantiles: list[int]
) -> None:
    ring = initial_ring(partition, count)
    stats = {prefix: NodeStats(counted, tuple(quantiles)) for prefix in ring.prefixes[:counted]}
    metadata = HashingMetadata(
        partition, InstantTime("20261120233222140"), count, sequence, ring, stats
    )
    data = encode_hashing_metadata(metadata)
    assert decode_hashing_metadata(data, "path") == metadata


@given(values=RINGS, data=st.data())
def test_child_nodes_decode_to_what_was_encoded(values: set[int], data: st.DataObject) -> None:
    ring, new = a_ring(values), initial_ring("new", 2).prefixes
    value = data.draw(st.sampled_from(sorted(values)))
    middle = ring.middle(value)
    groups = [ring.split(value, [middle], new)] if middle is not None else []
    if len(ring) > 1:
        latter = int(ring.values[(ring.position(value) + 1) % len(ring)])
        groups.append(ring.merge([value, latter], new[0]))
    for children in groups:
        assert decode_child_nodes(encode_child_nodes(children), "path") == children
