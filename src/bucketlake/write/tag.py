"""Tagging: the record key, partition path and bucket of each incoming record.

A pure function of the columns, so that the driver's count, the placement and the writing task all
see the same groups (RFC-29: partition first, then bucket). Everything a task needs for it is in
:class:`Tagger`, a small picklable value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.index.kinds import BucketIndex
from bucketlake.index.simple import assign_buckets
from bucketlake.model.cast import require_valid
from bucketlake.model.keys import KeySpec, record_keys
from bucketlake.model.partition_path import partition_paths
from bucketlake.model.schema import cast_table

GROUP_COUNTS = pa.schema(
    [("partition_path", pa.string()), ("bucket_id", pa.int32()), ("records", pa.int64())]
)
"""How many records of a batch belong to each file group: one row a group."""


@dataclass(frozen=True, slots=True)
class TaggedRecords:
    """Locations of records, an entry each.

    Attributes
    ----------
    keys : pa.StringArray
        Record keys.
    partitions : list of str
        Distinct partition paths.
    partition_codes : ndarray of int32
        Positions in ``partitions``.
    bucket_ids : ndarray of int32
        Buckets within the partition.
    """

    keys: pa.Array
    partitions: list[str]
    partition_codes: npt.NDArray[np.int32]
    bucket_ids: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tagger:
    """Gives records their location.

    Attributes
    ----------
    key_spec : KeySpec
        How the table makes keys and paths.
    index : BucketIndex
        How a key finds its bucket.
    schema : pa.Schema
        Columns in the types of the table: a key's text depends on its column's type.
    """

    key_spec: KeySpec
    index: BucketIndex
    schema: pa.Schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns that tagging reads, without repetition."""
        names = (*self.key_spec.record_key_fields, *self.key_spec.partition_fields)
        return list(dict.fromkeys(names))

    @property
    def _stored(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.columns])

    def count(self, columns: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """Count the records of each file group, as one batch of ``GROUP_COUNTS``.

        This is the first look at keys, before anything is written.

        Raises
        ------
        InputError
            Where a key is missing, or its bytes are not of its type.
        """
        columns = columns.select(self.columns)
        require_valid(columns, where="batch")
        return _counts(self.tag(columns))

    def tag(self, columns: pa.Table | pa.RecordBatch) -> TaggedRecords:
        """Locate records; InputError where a key is missing."""
        columns = cast_table(columns.select(self.columns), self._stored)
        keys = record_keys(columns, self.key_spec)
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        paths = partition_paths(columns, self.key_spec)
        paths = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
        partitions = paths.dictionary.to_pylist()
        codes = paths.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        counts = np.array([self.index.count_of(path) for path in partitions], np.int32)
        buckets = assign_buckets(keys, counts[codes], tuple(self.index.hash_fields or ()))
        return TaggedRecords(keys, partitions, codes, buckets)


def _counts(tagged: TaggedRecords) -> pa.RecordBatch:
    width = int(tagged.bucket_ids.max(initial=0)) + 1
    codes = tagged.partition_codes.astype(np.int64) * width + tagged.bucket_ids
    groups, counts = np.unique(codes, return_counts=True)
    partitions = pa.array(tagged.partitions, pa.string()).take(pa.array(groups // width))
    return pa.RecordBatch.from_arrays(
        [partitions, pa.array((groups % width).astype(np.int32)), pa.array(counts)],
        schema=GROUP_COUNTS,
    )
