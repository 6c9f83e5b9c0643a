"""Hashing metadata: a partition's hash ring, as Hudi stores it for consistent hashing (RFC-42).

``<instant>.hashing_meta`` is the JSON of a ring, printed as Hudi's Jackson prints it. All writers
of bucketlake make the same bytes for a new partition. The children of a clustering group say what a
resize does to the ring; they are JSON of the same nodes. Two fields are bucketlake's own: ``stats``
describes the distribution of keys inside the nodes, for balanced splits, and ``checksum`` covers
the file. Hudi ignores both, and drops them when Hudi publishes its next version. ``index/`` decides
which version is valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bucketlake.errors import DirectoryMetadataError, FormatError, HashingMetadataError
from bucketlake.format.json_fields import (
    is_prefix,
    list_of,
    load_json,
    load_version,
    number_of,
    prefix_of,
    render_checked,
    render_json,
    shown,
    text_of,
)
from bucketlake.hashing.directory import DEPTH_MAX, Directory, Suffix, has_letter
from bucketlake.hashing.ring import ChildNode, NodeTag, Ring
from bucketlake.hashing.xx_hash import RING_HASH_MAX
from bucketlake.model.file_name import InstantTime

QUANTILE_COUNT = 7  # The hashes at 1/8 to 7/8 of a node's keys.

_VERSION = 0


@dataclass(frozen=True, slots=True)
class NodeStats:
    """How the keys of a node lie in its range.

    Attributes
    ----------
    row_count : int
        Rows of the node's file group when they were counted.
    quantiles : tuple of int, of length QUANTILE_COUNT
        Hash values below which 1/8, 2/8, … 7/8 of the rows lie, in the order of the range.
    """

    row_count: int
    quantiles: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HashingMetadata:
    """One version of a partition's hash ring.

    Attributes
    ----------
    partition_path : str
        Relative path of the partition.
    instant : InstantTime
        The resize that wrote it; fourteen zeros for the ring that the partition began with.
    initial_count : int
        How many nodes the partition began with; the ring knows how many it has.
    sequence_number : int
        Number of resizes before this version.
    ring : Ring
        The nodes.
    stats : mapping of str to NodeStats
        By file id prefix, for nodes whose keys were counted.
    """

    partition_path: str
    instant: InstantTime
    initial_count: int
    sequence_number: int
    ring: Ring
    stats: Mapping[str, NodeStats] = field(default_factory=dict)


def encode_hashing_metadata(metadata: HashingMetadata) -> bytes:
    """Encode a version as Hudi prints it, and a checksum.

    Examples
    --------
    >>> ring = Ring.of({2147483647: "13bf80ae-ea5e-3871-a8c3-2e516e20bd75"})
    >>> metadata = HashingMetadata("eu", InstantTime("00000000000000"), 1, 0, ring)
    >>> print(encode_hashing_metadata(metadata).decode())
    {
      "version" : 0,
      "partitionPath" : "eu",
      "instant" : "00000000000000",
      "numBuckets" : 1,
      "seqNo" : 0,
      "nodes" : [ {
        "value" : 2147483647,
        "fileIdPrefix" : "13bf80ae-ea5e-3871-a8c3-2e516e20bd75",
        "tag" : "NORMAL"
      } ],
      "checksum" : "92ed1526"
    }
    """
    ring = metadata.ring
    entries: dict[str, Any] = {
        "version": _VERSION,
        "partitionPath": metadata.partition_path,
        "instant": metadata.instant,
        "numBuckets": metadata.initial_count,
        "seqNo": metadata.sequence_number,
        "nodes": [
            _node_entries(value, prefix, NodeTag.NORMAL)
            for value, prefix in zip(ring.values.tolist(), ring.prefixes, strict=True)
        ],
    }
    if metadata.stats:
        entries["stats"] = {
            prefix: {"rows": stats.row_count, "quantiles": list(stats.quantiles)}
            for prefix, stats in metadata.stats.items()
        }
    return render_checked(entries, render_json)


def decode_hashing_metadata(data: bytes, path: str) -> HashingMetadata:
    """Decode a version; fields that are not known are ignored, and so are stats in another form.

    Raises
    ------
    FormatError
        If the bytes are not the JSON of hashing metadata.
    HashingMetadataError
        If the nodes do not make a hash ring.
    UnsupportedFeatureError
        If the JSON is of a later version.
    """
    loaded = load_version(
        data, path, "hashing metadata", _VERSION, "use a newer bucketlake, or Hudi"
    )
    nodes = list_of(loaded, "nodes", path)
    ring = _decode_ring([_decode_node(node, path) for node in nodes], path)
    return HashingMetadata(
        text_of(loaded, "partitionPath", path),
        InstantTime(text_of(loaded, "instant", path)),
        number_of(loaded, "numBuckets", path),
        number_of(loaded, "seqNo", path),
        ring,
        _decode_stats(loaded.get("stats"), ring),
    )


def encode_child_nodes(children: Iterable[ChildNode]) -> str:
    """Encode what a clustering group does to the ring, as a plan has it.

    Examples
    --------
    >>> print(encode_child_nodes([ChildNode(10, None, NodeTag.DELETE)]))
    [ {
      "value" : 10,
      "fileIdPrefix" : null,
      "tag" : "DELETE"
    } ]
    """
    return render_json(
        [_node_entries(child.value, child.file_id_prefix, child.tag) for child in children]
    )


def decode_child_nodes(text: str, path: str) -> tuple[ChildNode, ...]:
    """Decode the children of a clustering group, pretty or compact.

    Raises
    ------
    FormatError
        If the text is not the JSON of nodes that are replaced or deleted.
    """
    loaded = load_json(text, path)
    if not isinstance(loaded, list):
        raise FormatError(path, "child nodes as a JSON array", shown(loaded))
    children = tuple(_decode_node(node, path) for node in loaded)
    for child in children:
        replaced = child.tag is NodeTag.REPLACE and is_prefix(child.file_id_prefix)
        deleted = child.tag is NodeTag.DELETE
        if not (replaced or deleted) or not 0 <= child.value <= RING_HASH_MAX:
            expected = f"a child node that is replaced or deleted, with a value to {RING_HASH_MAX}"
            raise FormatError(path, expected, shown(child))
    return children


def _node_entries(value: int, prefix: str | None, tag: NodeTag) -> dict[str, Any]:
    return {"value": value, "fileIdPrefix": prefix, "tag": tag.value}


def _decode_node(node: Any, path: str) -> ChildNode:
    if not isinstance(node, dict):
        raise FormatError(path, "a node as a JSON object", shown(node))
    prefix, tag = prefix_of(node, path), node.get("tag")
    if type(tag) is not str or tag not in NodeTag.__members__:
        raise FormatError(path, f"a tag out of {', '.join(NodeTag.__members__)}", shown(node))
    value = node.get("value")
    if type(value) is not int:
        raise FormatError(path, "a node value as a number", shown(node))
    return ChildNode(value, prefix, NodeTag(tag))


def _decode_ring(nodes: list[ChildNode], path: str) -> Ring:
    """Make a ring of the nodes, or raise HashingMetadataError."""
    if not nodes:
        raise HashingMetadataError(path, "at least one node", "none")
    prefixes: dict[int, str] = {}
    for node in nodes:
        if not 0 <= node.value <= RING_HASH_MAX:
            raise HashingMetadataError(
                path, f"node values from 0 to {RING_HASH_MAX}", str(node.value)
            )
        prefix = node.file_id_prefix
        if prefix is None or not is_prefix(prefix):
            expected = "a UUID as the file id prefix of each node"
            raise HashingMetadataError(path, expected, f"{prefix!r} at {node.value}")
        if node.tag is not NodeTag.NORMAL:
            found = f"a node to {node.tag.value} at {node.value}"
            raise HashingMetadataError(path, "only nodes in use", found)
        prefixes[node.value] = prefix
    for before, after in pairwise(nodes):
        if before.value >= after.value:
            found = f"{after.value} after {before.value}"
            raise HashingMetadataError(path, "node values in ascending order, each once", found)
    if len(set(prefixes.values())) < len(nodes):
        raise HashingMetadataError(path, "a file id prefix of its own for each node", "one twice")
    return Ring.of(prefixes)


def _decode_stats(loaded: Any, ring: Ring) -> dict[str, NodeStats]:
    """Return what is known about the keys of nodes; a hint, never a reason to fail."""
    if not isinstance(loaded, dict):
        return {}
    found = {prefix: _decode_node_stats(loaded.get(prefix)) for prefix in ring.prefixes}
    return {prefix: stats for prefix, stats in found.items() if stats is not None}


def _decode_node_stats(entries: Any) -> NodeStats | None:
    if not isinstance(entries, dict):
        return None
    rows, quantiles = entries.get("rows"), entries.get("quantiles")
    if not isinstance(quantiles, list) or len(quantiles) != QUANTILE_COUNT:
        return None
    if type(rows) is not int or any(type(value) is not int for value in quantiles):
        return None
    if rows < 0 or not all(0 <= value <= RING_HASH_MAX for value in quantiles):
        return None
    return NodeStats(rows, tuple(quantiles))


# ---- Directory metadata: a partition's directory of extendible hashing (RFC-29) ------------------
#
# ``<instant>.extendible_meta`` is the JSON of the buckets, in the order of their reversed suffixes.
# It is printed so that all writers make the same bytes for a new partition. The children of a
# clustering group say what a resize does; they are JSON of the same buckets. Hudi has no such index
# and does not read these files. ``index/`` decides which version is valid.

_DIRECTORY_VERSION = 1


def encode_directory_metadata(metadata: HashingMetadata) -> bytes:
    """Encode a version of a directory, and a checksum.

    Examples
    --------
    >>> prefix = "13bf80ae-ea5e-3871-a8c3-2e516e20bd75"
    >>> directory = Directory.of_suffixes({Suffix(0, 0): prefix})
    >>> metadata = HashingMetadata("eu", InstantTime("00000000000000"), 1, 0, directory)
    >>> print(encode_directory_metadata(metadata).decode())
    {
      "version" : 1,
      "partitionPath" : "eu",
      "instant" : "00000000000000",
      "seqNo" : 0,
      "globalDepth" : 0,
      "buckets" : [ {
        "suffix" : 0,
        "localDepth" : 0,
        "fileIdPrefix" : "13bf80ae-ea5e-3871-a8c3-2e516e20bd75"
      } ],
      "checksum" : "72255f6a"
    }
    """
    directory = metadata.ring
    assert isinstance(directory, Directory)
    entries: dict[str, Any] = {
        "version": _DIRECTORY_VERSION,
        "partitionPath": metadata.partition_path,
        "instant": metadata.instant,
        "seqNo": metadata.sequence_number,
        "globalDepth": directory.global_depth,
        "buckets": [
            _entries(suffix, prefix)
            for suffix, prefix in zip(directory.suffixes, directory.prefixes, strict=True)
        ],
    }
    return render_checked(entries, render_json)


def decode_directory_metadata(data: bytes, path: str) -> HashingMetadata:
    """Decode a version of a directory; fields that are not known are ignored.

    Raises
    ------
    FormatError
        If the bytes are not the JSON of directory metadata.
    DirectoryMetadataError
        If the buckets do not make a directory.
    UnsupportedFeatureError
        If the JSON is of a later version.
    """
    loaded = load_version(
        data, path, "directory metadata", _DIRECTORY_VERSION, "use a newer bucketlake"
    )
    buckets = list_of(loaded, "buckets", path)
    directory = _decode_directory(buckets, number_of(loaded, "globalDepth", path), path)
    return HashingMetadata(
        text_of(loaded, "partitionPath", path),
        InstantTime(text_of(loaded, "instant", path)),
        len(directory),
        number_of(loaded, "seqNo", path),
        directory,
    )


def encode_child_buckets(directory: Ring, children: Iterable[ChildNode]) -> str:
    """Encode what a clustering group does to a directory, as a plan has it.

    Examples
    --------
    >>> directory = Directory.of_suffixes({Suffix(0, 1): "a", Suffix(1, 1): "b"})
    >>> children = directory.merge(directory.values.tolist(), "c")
    >>> load_json(encode_child_buckets(directory, children), "plan")[0]
    {'suffix': 0, 'localDepth': 1, 'fileIdPrefix': None, 'tag': 'DELETE'}
    """
    assert isinstance(directory, Directory)
    children = tuple(children)
    before = dict(zip(directory.values.tolist(), directory.suffixes, strict=True))
    changed = directory.with_children(children)
    after = dict(zip(changed.values.tolist(), changed.suffixes, strict=True))
    return render_json(
        [
            _entries(
                (before if child.tag is NodeTag.DELETE else after)[child.value],
                child.file_id_prefix,
                child.tag,
            )
            for child in children
        ]
    )


def decode_child_buckets(text: str, path: str) -> tuple[ChildNode, ...]:
    """Decode the children of a clustering group.

    Raises
    ------
    FormatError
        If the text is not the JSON of buckets that are replaced or deleted.
    """
    loaded = load_json(text, path)
    if not isinstance(loaded, list):
        raise FormatError(path, "child buckets as a JSON array", shown(loaded))
    children = []
    for entries in loaded:
        suffix, prefix = _decode_bucket(entries, path)
        tag = entries.get("tag")
        is_deleted = tag == NodeTag.DELETE.value
        if not is_deleted and (tag != NodeTag.REPLACE.value or not is_prefix(prefix)):
            expected = "a child bucket that is replaced or deleted"
            raise FormatError(path, expected, shown(entries))
        children.append(ChildNode(suffix.end, prefix, NodeTag(tag)))
    return tuple(children)


def _entries(suffix: Suffix, prefix: str | None, tag: NodeTag | None = None) -> dict[str, Any]:
    entries = {"suffix": suffix.value, "localDepth": suffix.depth, "fileIdPrefix": prefix}
    return entries if tag is None else {**entries, "tag": tag.value}


def _decode_bucket(entries: Any, path: str) -> tuple[Suffix, str | None]:
    if not isinstance(entries, dict):
        raise FormatError(path, "a bucket as a JSON object", shown(entries))
    suffix = Suffix(number_of(entries, "suffix", path), number_of(entries, "localDepth", path))
    if suffix.depth > DEPTH_MAX or suffix.value >> suffix.depth:
        expected = f"a suffix of at most {DEPTH_MAX} bits, as many as localDepth"
        raise FormatError(path, expected, shown(entries))
    return suffix, prefix_of(entries, path)


def _decode_directory(buckets: list[Any], global_depth: int, path: str) -> Directory:
    """Make a directory of the buckets, or raise DirectoryMetadataError."""

    def error(expected: str, found: str) -> DirectoryMetadataError:
        return DirectoryMetadataError(path, expected, found)

    decoded = [_decode_bucket(entries, path) for entries in buckets]
    if not decoded:
        raise error("at least one bucket", "none")
    place = 0  # On the ring, after the buckets so far: each hash has exactly one bucket.
    prefixes: dict[Suffix, str] = {}
    for suffix, prefix in decoded:
        if suffix.start != place:
            expected = "one bucket for each hash, in the order of the reversed suffixes"
            raise error(expected, f"suffix {suffix.text} out of place")
        if prefix is None or not is_prefix(prefix) or not has_letter(prefix):
            expected = "a UUID with a letter in its first part as the file id prefix of each bucket"
            raise error(expected, f"{prefix!r} for suffix {suffix.text}")
        prefixes[suffix], place = prefix, suffix.end + 1
    if place != Suffix(0, 0).end + 1:
        raise error("one bucket for each hash", f"no bucket after suffix {decoded[-1][0].text}")
    if len(set(prefixes.values())) < len(decoded):
        raise error("a file id prefix of its own for each bucket", "one twice")
    deepest = max(suffix.depth for suffix in prefixes)
    if not deepest <= global_depth <= DEPTH_MAX:
        raise error(
            f"a global depth from that of the deepest bucket ({deepest}) to {DEPTH_MAX}",
            f"globalDepth {global_depth}",
        )
    return Directory.of_suffixes(prefixes)
