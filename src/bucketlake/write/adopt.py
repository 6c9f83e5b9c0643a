"""Adopting a table that another program began: checking the index that the caller states.

A wrong bucket count maps the key of a stored record to another bucket, and the next upsert would
write the record a second time. So the first write of bucketlake compares the keys of some base
files in the touched partitions with the slot of their file. Later, a file of another program is
checked completely when it is merged (``write/group_writer.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.layout import Layout
from bucketlake.model.file_name import FileId
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.storage.base import Storage

FILES_CHECKED_MAX = 16


def require_matching_index(storage: Storage, slices: Sequence[FileSlice], layout: Layout) -> None:
    """Check an index against stored keys.

    Raises
    ------
    IndexStateError
        If a stored key belongs to another slot than its file; the error names the key.
    """
    # Raises an error if the table has no such index.
    layout.pinned({file_slice.partition_path for file_slice in slices}, creates=False)
    layout.live_slots(slices)
    based = [s for s in slices if s.base_file is not None]
    step = max(1, len(based) // FILES_CHECKED_MAX)
    for file_slice in based[::step][:FILES_CHECKED_MAX]:
        _check_file(storage, file_slice, layout)


def _check_file(storage: Storage, file_slice: FileSlice, layout: Layout) -> None:
    assert file_slice.base_file is not None
    path = file_slice.base_file.path
    with BaseFileReader(storage, path) as reader:
        for chunk in reader.iter_chunks([RECORD_KEY], rows_max=131_072):
            require_own_keys(
                chunk[RECORD_KEY], file_slice.partition_path, file_slice.file_id, layout, path
            )


def require_own_keys(
    keys: pa.Array | pa.ChunkedArray,
    partition_path: str,
    file_id: FileId,
    layout: Layout,
    path: str,
) -> None:
    """Raise IndexStateError if stored keys of a file belong to another slot than the file."""
    strayed = layout.strayed_keys(keys, partition_path, file_id)
    if strayed is not None:
        raise IndexStateError(
            f"under {layout.setting_of(partition_path)} record key {strayed.key!r} belongs to "
            f"{strayed.belongs_to}",
            f"{path} holds it in {strayed.held_in}",
            "all writers of a table must use one bucket count and the same hash fields: open it "
            "with those of its Hudi writers, or overwrite the partition with its own rows",
        )
