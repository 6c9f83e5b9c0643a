"""XXH32 over Arrow columns, and hashes of record keys for a ring: known values and odd layouts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.hashing.index_key import text_buffers
from bucketlake.hashing.xx_hash import RING_HASH_MAX, hash_ring_keys, xx_hash_texts
from tests.ring_oracle import ring_hash, xx_hash_32

TEXTS_OF_LENGTHS = ["0123456789abcdefghij"[:5] * 14, "x" * 70, "~" * 70]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("k1", 113350462),
        ("", 46947589),
        ("日本語", 1219371197),
        ("😀", 1127825596),
        ("f1:a,f2:b", 1234828371),
        ("f1:__null__,f2:b", 275121179),
        ("f1:__empty__,f2:b", 571256255),
    ],
)
def test_known_keys_have_the_hash_of_hudi(key: str, expected: int) -> None:
    assert hash_ring_keys(pa.array([key]), ["f1", "f2"]).tolist() == [expected]
    assert ring_hash(key, ["f1", "f2"]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_the_oracle_gives_the_published_values(text: bytes, expected: int) -> None:
    assert xx_hash_32(text) == expected
    assert xx_hash_texts(*text_buffers(pa.array([text.decode()]))).tolist() == [expected]


@pytest.mark.parametrize(
    ("text", "expected"), [("k1", 113350462), ("", 46947589), ("f1:a,f2:b", 554797933)]
)
def test_known_texts_have_their_hash_whole(text: str, expected: int) -> None:
    (found,) = xx_hash_texts(*text_buffers(pa.array([text]))).tolist()
    assert found & RING_HASH_MAX == expected


@pytest.mark.parametrize("length", range(71))
def test_texts_of_each_length_hash_alike_alone_among_equals_and_among_others(length: int) -> None:
    texts = [text[:length] for text in TEXTS_OF_LENGTHS]
    expected = [xx_hash_32(text.encode()) for text in texts]
    assert xx_hash_texts(*text_buffers(pa.array(texts[:1]))).tolist() == expected[:1]
    assert xx_hash_texts(*text_buffers(pa.array(texts))).tolist() == expected
    mixed = xx_hash_texts(*text_buffers(pa.array(["", *texts, "a" * 33, "b"])))
    assert mixed[1:4].tolist() == expected


def test_many_rows_over_many_blocks_hash_as_each_alone() -> None:
    texts = [f"key-{i}" + "é" * (i % 23) for i in range(40_000)]
    expected = [xx_hash_32(text.encode()) for text in texts]
    assert xx_hash_texts(*text_buffers(pa.array(texts))).tolist() == expected


def test_texts_too_long_for_numbers_of_16_bits_hash_among_short_ones() -> None:
    texts = ["short", "ж" * 40_000, "", "a" * 32_768, "b" * 32_767]
    expected = [xx_hash_32(text.encode()) for text in texts]
    assert xx_hash_texts(*text_buffers(pa.array(texts))).tolist() == expected


@pytest.mark.parametrize("layout", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_slice_in_any_layout_hashes_as_its_texts(layout: pa.DataType) -> None:
    texts = ["before", "k1", "", "ключ", "after"]
    column = pa.array(texts).cast(layout).slice(1, 3)
    assert hash_ring_keys(column).tolist() == [ring_hash(text) for text in texts[1:4]]


def test_a_null_key_hashes_as_the_word_null_in_every_layout() -> None:
    keys = pa.array([None, "a", "id:1,b:2"], pa.string())
    expected = [ring_hash(None), ring_hash("a"), ring_hash("id:1,b:2")]
    assert expected[0] == ring_hash("null")
    assert hash_ring_keys(keys).tolist() == expected
    assert hash_ring_keys(keys.dictionary_encode()).tolist() == expected
    assert hash_ring_keys(keys.cast(pa.string_view())).tolist() == expected
    with_null = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["a", None]))
    assert hash_ring_keys(with_null).tolist() == expected[:2]


def test_chunks_hash_in_their_order() -> None:
    keys = pa.chunked_array([["k1", "k2"], [], ["f1:a,f2:b"]], pa.string())
    expected = [ring_hash(key, ["f2"]) for key in ["k1", "k2", "f1:a,f2:b"]]
    assert hash_ring_keys(keys, ["f2"]).tolist() == expected


@pytest.mark.parametrize("keys", [pa.array([], pa.string()), pa.chunked_array([], pa.string())])
def test_no_keys_have_no_hashes(keys: pa.Array) -> None:
    hashes = hash_ring_keys(keys)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == []


def test_keys_without_any_byte_hash_as_empty_texts() -> None:
    assert hash_ring_keys(pa.array(["", ""])).tolist() == [46947589, 46947589]
    nulls = pa.nulls(2, pa.string())
    assert xx_hash_texts(*text_buffers(nulls)).tolist() == [46947589, 46947589]


def test_a_column_that_is_not_text_is_refused_by_its_type() -> None:
    with pytest.raises(InputError, match="int64"):
        hash_ring_keys(pa.array([1, 2]))
