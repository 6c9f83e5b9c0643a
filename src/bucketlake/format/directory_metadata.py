"""Directory metadata: a partition's directory of extendible hashing (RFC-29).

``<instant>.extendible_meta`` is the JSON of the buckets, in the order of their reversed suffixes.
It is printed so that all writers make the same bytes for a new partition. The children of a
clustering group say what a resize does; they are JSON of the same buckets. Hudi has no such index
and does not read these files. ``index/`` decides which version is valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bucketlake.errors import DirectoryMetadataError, FormatError
from bucketlake.format.checked_json import render_checked
from bucketlake.format.hashing_metadata import HashingMetadata
from bucketlake.format.json_fields import (
    is_prefix,
    list_of,
    load_json,
    load_version,
    number_of,
    prefix_of,
    render_json,
    shown,
    text_of,
)
from bucketlake.hashing.directory import DEPTH_MAX, Directory, Suffix, has_letter
from bucketlake.hashing.ring import ChildNode, NodeTag, Ring
from bucketlake.model.file_name import InstantTime

_VERSION = 1


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
        "version": _VERSION,
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
    loaded = load_version(data, path, "directory metadata", _VERSION, "use a newer bucketlake")
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
