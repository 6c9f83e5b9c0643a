"""Java's string hash over Arrow columns: known values, and layouts that properties do not draw."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.hashing.index_key import hash_spans, hash_strings, powers_of_31
from tests.hash_oracle import java_string_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Hello, World!", 1498789909),
        ("polygenelubricants", -(2**31)),
        ("日本語", 25921943),
        ("😀", 1772899),
    ],
)
def test_known_texts_have_the_hash_of_java(text: str, expected: int) -> None:
    assert hash_strings(pa.array([text])).tolist() == [expected]
    assert java_string_hash(text) == expected


@pytest.mark.parametrize("text", ["x" * 100_000, "ж" * 70_000 + "😀" * 9, "a" * 32_768])
def test_a_text_longer_than_a_block_hashes_between_short_ones(text: str) -> None:
    keys = ["short", text, "", text, "ё"]
    assert hash_strings(pa.array(keys)).tolist() == [java_string_hash(key) for key in keys]


def test_many_rows_over_many_blocks_hash_as_each_alone() -> None:
    keys = [f"key-{i}" + "é" * (i % 3 == 0) for i in range(30_000)]
    assert hash_strings(pa.array(keys)).tolist() == [java_string_hash(key) for key in keys]


def test_bytes_below_a_null_do_not_count() -> None:
    validity = pa.py_buffer(bytes([0b101]))
    offsets = pa.py_buffer(np.array([0, 1, 5, 6], np.int32))
    data = pa.py_buffer(b"a\xff\xff\xff\xffb")
    keys = pa.Array.from_buffers(pa.string(), 3, [validity, offsets, data])
    assert hash_strings(keys).tolist() == [97, 0, 98]


def test_a_null_in_a_dictionary_hashes_to_zero_like_a_null_index() -> None:
    dictionary = pa.array(["a", None, "b"])
    keys = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0]), dictionary)
    assert hash_strings(keys).tolist() == [98, 0, 0, 97]


def test_a_lone_surrogate_counts_as_the_one_unit_it_is() -> None:
    data = "a\ud800b".encode("utf-8", "surrogatepass")
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    keys = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(data)])
    assert hash_strings(keys).tolist() == [java_string_hash("a\ud800b")]


def test_an_array_without_rows_or_buffers_has_no_hashes() -> None:
    assert hash_strings(pa.array([], pa.string())).tolist() == []
    assert hash_strings(pa.chunked_array([], pa.string())).tolist() == []
    assert hash_strings(pa.nulls(3, pa.string())).tolist() == [0, 0, 0]


def test_bytes_that_are_no_utf_8_are_refused_with_their_surroundings() -> None:
    offsets = pa.py_buffer(np.array([0, 4], np.int32))
    keys = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"ab\xff\xfe")])
    with pytest.raises(InputError, match=r"not UTF-8, near b'ab\\xff\\xfe'"):
        hash_strings(keys)


def test_a_column_that_is_not_text_is_refused_by_its_type() -> None:
    with pytest.raises(InputError, match="int64"):
        hash_strings(pa.array([1, 2]))


def test_spans_with_gaps_between_them_hash_without_the_gaps() -> None:
    data = np.frombuffer("id:ключ,x:b".encode(), np.uint8)
    hashes = hash_spans(data, np.array([3, 14]), np.array([11, 15])).view(np.int32)
    assert hashes.tolist() == [java_string_hash("ключ"), java_string_hash("b")]


def test_powers_wrap_at_32_bits() -> None:
    assert powers_of_31(9).tolist() == [pow(31, i, 2**32) for i in range(9)]
