"""Inserts that leave stored records alone: records whose key is stored are dropped, or an error.

A bulk insert is an error where a partition has records.

The keys of a file group are read by the task that writes the group, so the table is read once, and
two writers that add the same key conflict, as all writers of a bucket do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.write_options import DUPLICATE_POLICY
from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.model.table_type import DuplicatePolicy, Operation
from bucketlake.read.slice_reader import SliceReader
from bucketlake.write.target import Target


def require_empty_partitions(reader: SliceReader, slices: Iterable[FileSlice]) -> None:
    """Raise InputError if a bulk insert writes to a partition that has records.

    Parameters
    ----------
    reader : SliceReader
    slices : iterable of FileSlice
        The live slices of the partitions of the batch. Those whose rows are all deleted are no
        obstacle: the batch goes into their file groups.
    """
    for held in slices:
        if any(chunk.num_rows for chunk in reader.read(held, [RECORD_KEY])):
            raise InputError(
                f"bulk_insert into partition {held.partition_path!r}",
                "the partition already has records, which bulk_insert would ignore",
                "use upsert or insert, or insert_overwrite to replace them",
            )


Unstored: TypeAlias = Callable[[IncomingRecords, FileSlice], IncomingRecords]
"""Returns the records whose key a slice does not have; picklable."""


def unstored_for(target: Target, operation: Operation) -> Unstored | None:
    """Return what an insert asks of its records; None for other writes.

    Raises
    ------
    UnsupportedFeatureError
        If a key is unique in the whole table: then it may be stored in another partition.
    """
    policy = target.duplicates
    if policy is None or operation is not Operation.INSERT:
        return None
    if target.index.has_global_keys:
        raise UnsupportedFeatureError(
            f"{DUPLICATE_POLICY}={policy.value} under a record-level index of the whole table",
            target.storage.root,
            "leave the option out, or use RecordIndex(partitioned=True)",
        )
    return partial(_unstored, SliceReader.of_snapshot(target.snapshot), policy)


def _unstored(
    reader: SliceReader, policy: DuplicatePolicy, incoming: IncomingRecords, held: FileSlice
) -> IncomingRecords:
    """Drop the records whose key is stored; raise InputError if the policy is to fail."""
    stored = [keys for keys, is_deleted in reader.keys(held) if not is_deleted]
    known = pa.concat_arrays([pa.array([], pa.string()), *stored])
    is_stored = pc.is_in(incoming.keys, value_set=known).to_numpy(zero_copy_only=False)
    if policy is DuplicatePolicy.FAIL and is_stored.any():
        first = incoming.keys[int(np.flatnonzero(is_stored)[0])].as_py()
        raise InputError(
            f"insert into {reader.storage.root}",
            f"the key {first!r} is stored already (and {int(is_stored.sum()) - 1} more keys of "
            f"file group {held.file_id})",
            f"remove these records, use operation upsert, or set {DUPLICATE_POLICY} to drop",
        )
    return incoming.take(np.flatnonzero(~is_stored))
