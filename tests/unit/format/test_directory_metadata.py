"""Directory metadata: its bytes, and what is no directory (RFC-29, extendible hashing)."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from bucketlake.errors import DirectoryMetadataError, FormatError, UnsupportedFeatureError
from bucketlake.format.hashing_metadata import (
    decode_child_buckets,
    decode_directory_metadata,
    encode_directory_metadata,
)
from bucketlake.hashing.directory import first_directory
from bucketlake.index.ring_engine import EXTENDIBLE
from bucketlake.index.rings import first_version

PATH = "p/1.extendible_meta"
PREFIXES = [f"{digit}0000000-0000-4000-8000-000000000000" for digit in "abcdef"]


def bucket(suffix: int, depth: int, prefix: str | None = None) -> dict[str, Any]:
    return {
        "suffix": suffix,
        "localDepth": depth,
        "fileIdPrefix": prefix or PREFIXES[(suffix + 2 * depth) % 6],
    }


def stored(buckets: Any, **others: Any) -> bytes:
    entries = {
        "version": 1,
        "partitionPath": "p",
        "instant": "1",
        "seqNo": 2,
        "globalDepth": 2,
        "buckets": buckets,
    }
    return json.dumps(entries | others).encode()


WHOLE = [bucket(0, 1), bucket(1, 2), bucket(3, 2)]


def test_a_directory_is_read_with_its_depths_and_fields_that_are_not_known_are_ignored() -> None:
    metadata = decode_directory_metadata(stored(WHOLE, globalDepth=9, other=[1]), PATH)
    assert [suffix.text for suffix in metadata.ring.suffixes] == ["0", "01", "11"]  # type: ignore[attr-defined]
    assert (metadata.partition_path, metadata.instant, metadata.sequence_number) == ("p", "1", 2)
    assert b'"globalDepth" : 2' in encode_directory_metadata(metadata)


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ([], "at least one bucket"),
        ([bucket(0, 1)], "one bucket for each hash"),
        ([bucket(0, 1), bucket(1, 2)], "one bucket for each hash"),
        ([bucket(1, 1)], "one bucket for each hash, in the order"),
        ([bucket(0, 1), bucket(3, 2), bucket(1, 2)], "in the order of the reversed suffixes"),
        ([bucket(0, 1), bucket(0, 2), bucket(1, 1)], "in the order of the reversed suffixes"),
        ([bucket(0, 1), bucket(1, 1), bucket(1, 1)], "in the order of the reversed suffixes"),
        ([bucket(0, 1, "12345678-0000-4000-8000-00000000000a"), bucket(1, 1)], "a letter"),
        ([bucket(0, 1, "abc"), bucket(1, 1)], "a UUID with a letter"),
        ([bucket(0, 1, PREFIXES[0]), bucket(1, 1, PREFIXES[0])], "a file id prefix of its own"),
    ],
)
def test_buckets_that_make_no_directory_are_an_error_of_the_index(
    buckets: Any, expected: str
) -> None:
    with pytest.raises(DirectoryMetadataError, match=expected) as caught:
        decode_directory_metadata(stored(buckets), PATH)
    error = caught.value
    assert f"{PATH}: expected " in str(error)
    assert "but the directory has " in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (DirectoryMetadataError, str(error))


@pytest.mark.parametrize("depth", [1, 31])
def test_a_global_depth_that_does_not_fit_is_an_error(depth: int) -> None:
    with pytest.raises(DirectoryMetadataError, match=f"globalDepth {depth}"):
        decode_directory_metadata(stored(WHOLE, globalDepth=depth), PATH)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{", "JSON"),
        (b"[]", "a JSON object"),
        (stored({}), "buckets as a JSON array"),
        (stored([1]), "a bucket as a JSON object"),
        (stored([{**bucket(0, 0), "suffix": "0"}]), "suffix as a number"),
        (stored([bucket(2, 1)]), "a suffix of at most 30 bits"),
        (stored([bucket(0, 31)]), "a suffix of at most 30 bits"),
        (stored([{**bucket(0, 0), "fileIdPrefix": 1}]), "fileIdPrefix as text"),
        (stored(WHOLE, globalDepth=None), "globalDepth as a number"),
        (stored(WHOLE, seqNo=-1), "seqNo as a number"),
        (stored(WHOLE, partitionPath=None), "partitionPath as text"),
    ],
)
def test_bytes_of_another_form_are_an_error(data: bytes, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        decode_directory_metadata(data, PATH)


def test_a_later_version_is_an_unsupported_feature() -> None:
    with pytest.raises(UnsupportedFeatureError, match="version 2 of directory metadata"):
        decode_directory_metadata(stored(WHOLE, version=2), PATH)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "child buckets as a JSON array"),
        (json.dumps([bucket(0, 1) | {"tag": "NORMAL"}]), "replaced or deleted"),
        (json.dumps([bucket(0, 1, "abc") | {"tag": "REPLACE"}]), "replaced or deleted"),
        (json.dumps([bucket(0, 1)]), "replaced or deleted"),
        (json.dumps([bucket(4, 2) | {"tag": "DELETE"}]), "a suffix of at most 30 bits"),
    ],
)
def test_children_that_cannot_be_followed_are_an_error(text: str, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        decode_child_buckets(text, "plan")


def test_all_writers_make_the_same_first_directory() -> None:
    made = [first_version("eu", 4, EXTENDIBLE) for _ in range(2)]
    data = {encode_directory_metadata(metadata) for metadata in made}
    assert len(data) == 1
    assert made[0].ring.prefixes != first_directory("us", 4).prefixes
    assert made[0].ring.prefixes[0] == "b24f4bfc-b8cc-3e29-a31b-3ca327c98519"


def test_a_prefix_that_looks_like_a_bucket_number_is_drawn_again() -> None:
    # The first draw is 32520251-bcfa-3eef-99dc-d6bb0ea335e3.
    assert first_directory("p8", 4).prefixes[0] == "31f6259c-c181-379b-9680-f86a8e0cc5c9"
