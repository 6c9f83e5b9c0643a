"""Adopting a table that another program began: checking the index that the caller states.

A wrong bucket count maps the key of a stored record elsewhere, and the next upsert would write it
a second time. So before the first write of bucketlake, keys of some base files of the touched
partitions are hashed and compared with the bucket in the name of their file. Later on, a file that
another program wrote is checked whole when it is merged (``write/group_writer.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.kinds import BucketIndex
from bucketlake.index.simple import assign_buckets, bucket_id_of_file_id
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.storage.base import Storage
from bucketlake.write.plan import live_buckets

FILES_CHECKED_MAX = 16


def require_matching_index(
    storage: Storage, slices: Sequence[FileSlice], index: BucketIndex
) -> None:
    """Refuse an index that stored keys contradict.

    Raises
    ------
    IndexStateError
        If a stored key hashes to another bucket than its file's, naming the key.
    """
    live_buckets(slices, index)
    based = [s for s in slices if s.base_file is not None]
    step = max(1, len(based) // FILES_CHECKED_MAX)
    for file_slice in based[::step][:FILES_CHECKED_MAX]:
        _check_file(storage, file_slice, index)


def _check_file(storage: Storage, file_slice: FileSlice, index: BucketIndex) -> None:
    assert file_slice.base_file is not None
    path = file_slice.base_file.path
    bucket_id = bucket_id_of_file_id(file_slice.file_id)
    with BaseFileReader(storage, path) as reader:
        for chunk in reader.iter_chunks([RECORD_KEY], rows_max=131_072):
            require_keys_of_bucket(
                chunk[RECORD_KEY], file_slice.partition_path, bucket_id, index, path
            )


def require_keys_of_bucket(
    keys: pa.Array | pa.ChunkedArray,
    partition_path: str,
    bucket_id: int,
    index: BucketIndex,
    path: str,
) -> None:
    """Refuse stored keys of a file that hash to another bucket than the file's."""
    buckets = assign_buckets(keys, index.count_of(partition_path), tuple(index.hash_fields or ()))
    wrong = np.flatnonzero(buckets != bucket_id)
    if len(wrong):
        raise IndexStateError(
            f"under {index!r} record key {keys[int(wrong[0])].as_py()!r} belongs into "
            f"bucket {buckets[wrong[0]]}",
            f"{path} holds it in bucket {bucket_id}",
            "all writers of a table need its bucket count and hash fields: open it with those of "
            "its Hudi writers, or repair it by overwriting the partition with its own rows",
        )
