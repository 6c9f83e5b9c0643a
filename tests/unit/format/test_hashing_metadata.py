"""Hashing metadata: the form that Hudi prints, what is ignored, and what is no hash ring."""

from __future__ import annotations

import json
import pickle
import re
from typing import Any

import pytest

from bucketlake.errors import (
    FormatError,
    HashingMetadataError,
    IndexStateError,
    UnsupportedFeatureError,
)
from bucketlake.format.hashing_metadata import (
    HashingMetadata,
    NodeStats,
    decode_child_nodes,
    decode_hashing_metadata,
    encode_child_nodes,
    encode_hashing_metadata,
)
from bucketlake.hashing.ring import ChildNode, NodeTag, Ring, initial_ring
from bucketlake.model.file_name import InstantTime

FIRST, SECOND = initial_ring("0", 2).prefixes
END = 2**31 - 1


def a_node(value: Any = END, prefix: Any = FIRST, tag: Any = "NORMAL") -> dict[str, Any]:
    return {"value": value, "fileIdPrefix": prefix, "tag": tag}


def entries(*nodes: Any, **changes: Any) -> dict[str, Any]:
    written: dict[str, Any] = {
        "version": 0,
        "partitionPath": "0",
        "instant": "00000000000000",
        "numBuckets": 2,
        "seqNo": 0,
        "nodes": list(nodes),
    }
    return written | changes


def decode(loaded: Any) -> HashingMetadata:
    return decode_hashing_metadata(json.dumps(loaded).encode(), "p/1.hashing_meta")


def _without_checksum(data: bytes) -> str:
    """Return the text as Hudi prints it: the checksum is the last member, and bucketlake's own."""
    text, count = re.subn(r',\n  "checksum" : "[0-9a-f]{8}"\n}$', "\n}", data.decode())
    assert count == 1
    return text


def test_a_new_partition_is_printed_as_hudi_prints_it() -> None:
    metadata = HashingMetadata("0", InstantTime("00000000000000"), 2, 0, initial_ring("0", 2))
    assert _without_checksum(encode_hashing_metadata(metadata)) == (
        "{\n"
        '  "version" : 0,\n'
        '  "partitionPath" : "0",\n'
        '  "instant" : "00000000000000",\n'
        '  "numBuckets" : 2,\n'
        '  "seqNo" : 0,\n'
        '  "nodes" : [ {\n'
        '    "value" : 1073741824,\n'
        '    "fileIdPrefix" : "13bf80ae-ea5e-3871-a8c3-2e516e20bd75",\n'
        '    "tag" : "NORMAL"\n'
        "  }, {\n"
        '    "value" : 2147483647,\n'
        '    "fileIdPrefix" : "60ef31a3-4206-3491-9c27-7d7c63370a66",\n'
        '    "tag" : "NORMAL"\n'
        "  } ]\n"
        "}"
    )


def test_stats_are_printed_behind_the_nodes() -> None:
    stats = {FIRST: NodeStats(90, (1, 2, 3, 4, 5, 6, 7))}
    ring = Ring.of({END: FIRST})
    metadata = HashingMetadata("ключ", InstantTime("1"), 1, 3, ring, stats)
    data = encode_hashing_metadata(metadata)
    assert _without_checksum(data).endswith(
        "  } ],\n"
        '  "stats" : {\n'
        f'    "{FIRST}" : {{\n'
        '      "rows" : 90,\n'
        '      "quantiles" : [ 1, 2, 3, 4, 5, 6, 7 ]\n'
        "    }\n"
        "  }\n"
        "}"
    )
    assert decode_hashing_metadata(data, "path") == metadata


def test_unknown_fields_are_ignored() -> None:
    node = a_node() | {"load": 7}
    plain = decode(entries(a_node()))
    assert decode(entries(node, comment="words")) == plain
    assert plain.ring == Ring.of({END: FIRST})
    assert plain.initial_count == 2  # Hudi leaves the first number as it was.


@pytest.mark.parametrize(
    "stats",
    [
        None,
        [],
        {"histogram": [1, 2]},
        {SECOND: {"rows": 1, "quantiles": [1] * 7}},
        {FIRST: {"rows": 1}},
        {FIRST: {"rows": -1, "quantiles": [1] * 7}},
        {FIRST: {"rows": True, "quantiles": [1] * 7}},
        {FIRST: {"rows": 1, "quantiles": [1] * 6}},
        {FIRST: {"rows": 1, "quantiles": [1] * 6 + [2**31]}},
        {FIRST: {"rows": 1, "quantiles": ["1"] * 7}},
    ],
)
def test_stats_in_another_form_are_ignored(stats: Any) -> None:
    assert decode(entries(a_node(), stats=stats)).stats == {}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "at least one node"),
        ([a_node(-1)], "node values from 0 to 2147483647, but the hash ring has -1"),
        ([a_node(2**31)], "has 2147483648"),
        ([a_node(7), a_node(7, SECOND)], "7 after 7"),
        ([a_node(9), a_node(7, SECOND)], "ascending order, each once.*7 after 9"),
        ([a_node(prefix=None)], "None at 2147483647"),
        ([a_node(prefix="../../etc")], "a UUID as the file id prefix"),
        ([a_node(prefix=FIRST.upper())], "a UUID as the file id prefix"),
        ([a_node(prefix=FIRST + "-0")], "a UUID as the file id prefix"),
        ([a_node(3), a_node(7)], "a file id prefix of its own"),
        ([a_node(tag="DELETE")], "a node to DELETE at 2147483647"),
    ],
)
def test_nodes_that_make_no_ring_are_an_error_of_the_index(nodes: list[Any], message: str) -> None:
    with pytest.raises(HashingMetadataError, match=message) as caught:
        decode(entries(*nodes))
    error = caught.value
    assert isinstance(error, IndexStateError)
    assert error.path == "p/1.hashing_meta"
    assert str(error).startswith("p/1.hashing_meta: expected ")
    assert str(error).endswith("; restore the file, or run table.doctor() (bucketlake doctor)")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.args) == (str(error), (error.path, error.expected, error.found))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe\xfd",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        *(
            json.dumps(loaded).encode()
            for loaded in (
                entries(a_node(), version=None),
                entries(a_node(), partitionPath=None),
                entries(a_node(), instant=7),
                entries(a_node(), numBuckets="2"),
                entries(a_node(), seqNo=-1),
                entries(a_node(), seqNo=True),
                entries(a_node(), nodes={}),
                entries(7),
                entries(a_node(value="7")),
                entries(a_node(value=7.5)),
                entries(a_node(prefix=7)),
                entries(a_node(tag=None)),
                entries(a_node(tag=["NORMAL"])),
                entries(a_node(tag="OTHER")),
            )
        ),
    ],
)
def test_bytes_that_are_no_hashing_metadata_are_named_by_their_path(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"p/1\.hashing_meta"):
        decode_hashing_metadata(data, "p/1.hashing_meta")


def test_a_later_version_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="version 1 of hashing metadata"):
        decode(entries(a_node(), version=1))


def test_child_nodes_are_printed_as_hudi_prints_them_and_read_compact_too() -> None:
    children = (ChildNode(END, None, NodeTag.DELETE), ChildNode(7, FIRST, NodeTag.REPLACE))
    text = encode_child_nodes(children)
    assert text == (
        '[ {\n  "value" : 2147483647,\n  "fileIdPrefix" : null,\n  "tag" : "DELETE"\n}, '
        f'{{\n  "value" : 7,\n  "fileIdPrefix" : "{FIRST}",\n  "tag" : "REPLACE"\n}} ]'
    )
    compact = json.dumps(json.loads(text), separators=(",", ":"))
    assert decode_child_nodes(text, "plan") == decode_child_nodes(compact, "plan") == children


@pytest.mark.parametrize(
    "loaded",
    [
        {},
        [7],
        [a_node()],
        [a_node(-1, tag="REPLACE")],
        [a_node(2**31, None, tag="DELETE")],
        [a_node(prefix=None, tag="REPLACE")],
        [a_node(prefix="a/b", tag="REPLACE")],
    ],
)
def test_child_nodes_that_no_plan_can_have_are_refused(loaded: Any) -> None:
    with pytest.raises(FormatError, match=r"plan\.requested"):
        decode_child_nodes(json.dumps(loaded), "plan.requested")
