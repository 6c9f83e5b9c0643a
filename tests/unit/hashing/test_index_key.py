"""From record keys to list hashes: the corners of Hudi's rule, each by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.hashing.index_key import SplitFields, hash_index_keys
from tests.hash_oracle import index_key, java_list_hash


@pytest.mark.parametrize(
    ("key", "hash_fields", "values"),
    [
        ("k1", [], ["k1"]),
        ("", [], [""]),
        ("__null__", [], ["__null__"]),
        ("a:b", ["a"], ["a:b"]),
        ("a,b", ["a"], ["a,b"]),
        ("f1:a,f2:b", [], ["f1:a,f2:b"]),
        ("f1:a,f2:b", [""], ["f1:a,f2:b"]),
        ("f1:a,f2:b", ["f2"], ["b"]),
        ("f1:a,f2:b", ["f2", "f1"], ["a", "b"]),
        ("f1:a,f2:b", ["f3"], ["f1:a,f2:b"]),
        ("f1:__null__,f2:b", ["f1", "f2"], [None, "b"]),
        ("f1:__empty__,f2:b", ["f1", "f2"], ["", "b"]),
        ("f1:__null__,f2:__empty__", ["f1", "f2"], [None, ""]),
        ("f1:x,y,f2:b", ["f1"], ["x,y"]),
        ("f1:10:30,f2:b", ["f1"], ["10:30"]),
        ("f1:a,f2:2014-10-22 13:50:42", ["f1"], ["a"]),
        ("f1:a,f2:2014-10-22 13:50:42", ["f3"], ["f1:a,f2:2014-10-22 13:50:42"]),
        ("a:b,c", ["a"], ["b,c"]),
        ("a:b,c", ["id"], ["a:b,c"]),
        ("x,y:z", ["y"], ["x,y:z"]),
        ("x,y:z", ["x,y"], ["z"]),
        (":,", [""], [","]),
        (":,", ["a"], [":,"]),
        (",:", [","], [""]),
        ("a:,b:", ["a", "b"], ["", ""]),
        ("a:b,", ["id"], ["a:b,"]),
        ("a:p,zz:q,b:1", ["a", "b"], ["p", "1"]),
        ("a:x,b:1,b:2", ["a", "b"], ["x", "1", "2"]),
        ("longer_name_1:a,longer_name_2:b", ["longer_name_1", "longer_name_3"], ["a"]),
        ("名:1,é:2", ["é"], ["2"]),
    ],
)
def test_a_key_hashes_as_the_list_of_these_values(
    key: str, hash_fields: list[str], values: list[str | None]
) -> None:
    assert index_key(key, hash_fields) == values
    expected = java_list_hash(values)
    assert hash_index_keys(pa.array([key]), hash_fields).tolist() == [expected]
    among_others = pa.array(["plain", key, "f1:1,f2:2", "a:b", key])
    hashes = hash_index_keys(among_others, hash_fields).tolist()
    assert (hashes[1], hashes[4]) == (expected, expected)


def test_a_null_key_hashes_as_a_list_of_one_null_in_every_layout() -> None:
    keys = pa.array([None, "a"], pa.string())
    expected = [java_list_hash([None]), java_list_hash(["a"])]
    assert hash_index_keys(keys).tolist() == expected
    assert hash_index_keys(keys.dictionary_encode()).tolist() == expected
    with_null = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["a", None]))
    assert hash_index_keys(with_null).tolist() == expected


def test_keys_with_different_numbers_of_hash_fields_fold_apart() -> None:
    keys = ["a:1,b:2", "a:1,b:2,c:3", "a:1", "b:2,c:3,a:__null__,a:4"]
    expected = [java_list_hash(index_key(key, ["a", "b"])) for key in keys]
    assert hash_index_keys(pa.array(keys), ["a", "b"]).tolist() == expected


def test_no_keys_have_no_hashes() -> None:
    assert hash_index_keys(pa.array([], pa.string())).tolist() == []
    assert hash_index_keys(pa.chunked_array([], pa.string())).tolist() == []


def test_split_fields_are_not_the_same_names_of_whole_keys() -> None:
    split, whole = SplitFields(["id"]), ("id",)
    assert split != whole
    assert whole != split
    assert len({split, SplitFields(["id"]), whole}) == 2
