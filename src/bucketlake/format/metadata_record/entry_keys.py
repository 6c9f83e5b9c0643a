"""Keys of the metadata table's entries.

The record-level index uses record keys as they are. Statistics use hashes in Base64, so that all
entries of a column have one prefix, and so have those of a column in one partition.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.avro.cursor import Ints
from bucketlake.hashing.xx_hash_64 import xx_hash_64

ALL_PARTITIONS = "__all_partitions__"
"""Key of the entry that lists the partitions."""

_NOT_PARTITIONED = "."
_SEED = 0xFFFFFFFFDABADABA  # 0xDABADABA, sign-extended to 64 bits.


def partition_key(partition_path: str) -> str:
    """Return the key of a partition's entry in ``files``; a path is empty without partitions.

    >>> partition_key("eu"), partition_key("")
    ('eu', '.')
    """
    return partition_path or _NOT_PARTITIONED


def partition_stats_key(column: str, partition_path: str) -> bytes:
    """Return the key of a column's statistics of a partition.

    It is also the prefix of the keys of the statistics of files in this partition.
    """
    return _hash_of_name(column) + _hash_of_name(partition_key(partition_path))


def column_stats_keys(column: str, partition_path: str, file_names: Iterable[str]) -> pa.Array:
    """Return the keys of a column's statistics of some files in one partition, as binary."""
    prefix = partition_stats_key(column, partition_path)
    return pc.binary_join_element_wise(prefix, _hashes_of_files(file_names), b"")


def keys_of_statistics(
    columns: pa.Array, partition_paths: Sequence[str], places: Ints, file_names: pa.Array
) -> pa.Array:
    """Return the keys of statistics, as binary.

    Parameters
    ----------
    columns, file_names : pyarrow.Array of string
        The column and the file of each key.
    partition_paths : sequence of str
        Data partitions.
    places : ndarray of int64
        The partition of each file: its place among the partitions.
    """
    named, files = columns.dictionary_encode(), file_names.dictionary_encode()
    names = named.dictionary.to_pylist()
    pairs = [partition_stats_key(name, path) for path in partition_paths for name in names]
    of_pair = places * len(names) + named.indices.to_numpy()
    hashes = _hashes_of_files(files.dictionary.to_pylist())
    parts = pa.array(pairs, pa.binary()).take(pa.array(of_pair)), hashes.take(files.indices)
    return pc.binary_join_element_wise(*parts, b"")


def _hashes_of_files(names: Iterable[str]) -> pa.Array:
    hashes = [b64encode(hashlib.md5(n.encode(), usedforsecurity=False).digest()) for n in names]
    return pa.array(hashes, pa.binary())


@lru_cache(maxsize=2**14)
def _hash_of_name(name: str) -> bytes:
    return b64encode(xx_hash_64(name.encode(), _SEED).to_bytes(8, "big"))
