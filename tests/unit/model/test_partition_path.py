"""Partition paths: made, and refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.keys import KeyGenerator, KeySpec, TimestampPartition
from bucketlake.model.partition_path import (
    DEFAULT_PARTITION,
    check_partitioning,
    decode_segment,
    encode_segment,
    partition_paths,
)

ONE = KeySpec(("id",), ("p",), KeyGenerator.SIMPLE)
TWO = KeySpec(("id",), ("p", "q"), KeyGenerator.COMPLEX)
HIVE = replace(TWO, hive_style=True, url_encode=True)
NONE = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
DAILY = TimestampPartition("UNIX_TIMESTAMP", "yyyy/MM/dd")
TIME = KeySpec(("id",), ("p",), KeyGenerator.TIMESTAMP, timestamp=DAILY)
CUSTOM = KeySpec(
    ("id",), ("q", "p"), KeyGenerator.CUSTOM, timestamp=DAILY,
    partition_field_kinds=("SIMPLE", "TIMESTAMP"),
)  # fmt: skip


def test_a_table_without_partitions_has_the_one_path_that_is_empty() -> None:
    paths = partition_paths(pa.table({"id": [1, 2]}), NONE)
    assert paths.to_pylist() == ["", ""]
    assert paths.dictionary.to_pylist() == [""]
    assert partition_paths(pa.table({"id": pa.array([], pa.int64())}), NONE).to_pylist() == []


def test_each_path_of_the_data_is_in_the_dictionary_once() -> None:
    table = pa.table(
        {
            "p": pa.chunked_array([["a", None], ["", "b"], ["a", "a"]]),
            "q": pa.chunked_array([pa.array([1, 2, 2, 1, 1, 3])]),
        }
    )
    paths = partition_paths(table, TWO)
    default = DEFAULT_PARTITION
    assert paths.to_pylist() == ["a/1", f"{default}/2", f"{default}/2", "b/1", "a/1", "a/3"]
    assert sorted(paths.dictionary.to_pylist()) == sorted(set(paths.to_pylist()))
    assert paths.type == pa.dictionary(pa.int32(), pa.string())


def test_values_of_a_dictionary_that_no_row_has_make_no_path() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", "b/c", "d"]))
    paths = partition_paths(pa.table({"p": column}), ONE)
    assert paths.dictionary.to_pylist() == ["a"]


def test_a_record_batch_is_taken_like_a_table() -> None:
    batch = pa.record_batch({"p": pa.array(["a", "b"]), "q": pa.array([True, None])})
    expected = ["p=a/q=true", f"p=b/q={DEFAULT_PARTITION}"]
    assert partition_paths(batch, HIVE).to_pylist() == expected


def test_a_time_makes_a_folder_of_each_slash_unless_it_is_encoded() -> None:
    table = pa.table({"p": [1_700_000_000], "q": ["x"]})
    assert partition_paths(table, TIME).to_pylist() == ["2023/11/14"]
    assert partition_paths(table, CUSTOM).to_pylist() == ["x/2023/11/14"]
    encoded = replace(CUSTOM, hive_style=True, url_encode=True)
    assert partition_paths(table, encoded).to_pylist() == ["q=x/p=2023%2F11%2F14"]


@pytest.mark.parametrize(
    "value", ["a/b", "/", "/etc", "..", ".", ".hoodie", "a/../b", "../x", "a\0b", "a:b", "s3://x"]
)
def test_a_value_whose_path_is_no_place_in_the_table_is_refused(value: str) -> None:
    with pytest.raises(InputError) as caught:
        partition_paths(pa.table({"p": ["fine", value]}), ONE)
    assert repr(value) in str(caught.value)
    assert "'p'" in str(caught.value)


@pytest.mark.parametrize("value", ["..", ".", ".hoodie"])
def test_encoding_does_not_save_a_name_that_is_taken(value: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(value))):
        partition_paths(pa.table({"p": [value]}), replace(ONE, url_encode=True))
    hive = replace(ONE, hive_style=True)
    assert partition_paths(pa.table({"p": [value]}), hive).to_pylist() == [f"p={value}"]


def test_a_slash_is_refused_with_the_hint_to_encode() -> None:
    with pytest.raises(InputError, match=r"column 'q': the value 'a/b' contains a slash.*encode"):
        partition_paths(pa.table({"p": ["x"], "q": ["a/b"]}), TWO)


def test_a_colon_is_refused_in_the_first_folder_only() -> None:
    assert partition_paths(pa.table({"p": ["x"], "q": ["1:2"]}), TWO).to_pylist() == ["x/1:2"]
    with pytest.raises(InputError, match="scheme of a URI"):
        partition_paths(pa.table({"p": ["1:2"], "q": ["x"]}), TWO)


@pytest.mark.parametrize("value", [".x", "_x", "a b", " ", "%41", "a=b", "ü", "😀", "x" * 300])
def test_awkward_values_that_hudi_stores_are_stored(value: str) -> None:
    assert partition_paths(pa.table({"p": [value]}), ONE).to_pylist() == [value]


def test_a_missing_partition_column_is_named() -> None:
    with pytest.raises(InputError, match="partition column 'q': the data has no such column"):
        partition_paths(pa.table({"p": ["x"]}), TWO)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        (replace(TIME, timestamp=None), "give their format as partitions"),
        (replace(TIME, partition_fields=("p", "q")), "use CUSTOM for several"),
        (replace(CUSTOM, partition_field_kinds=("SIMPLE", "HASH")), "SIMPLE or TIMESTAMP"),
        (replace(TIME, timestamp=replace(DAILY, output_format="EEE")), "not supported"),
    ],
)
def test_settings_that_make_no_paths_are_refused_before_any_data(
    spec: KeySpec, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=allowed):
        check_partitioning(spec)
    with pytest.raises(ConfigError, match=allowed):
        partition_paths(pa.table({"p": [1], "q": ["x"]}), spec)


def test_exactly_the_characters_of_hudi_are_escaped() -> None:
    characters = [chr(i) for i in range(0x250)]
    escaped = {c for c in characters if encode_segment(c) != c}
    assert escaped == {*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"}
    assert all(encode_segment(c) == f"%{ord(c):02X}" for c in escaped)
    assert [decode_segment(encode_segment(c)) for c in characters] == characters
