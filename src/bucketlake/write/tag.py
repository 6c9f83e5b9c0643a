"""Tagging: the record key, partition path and slot of each incoming record.

Tagging is a pure function of the columns, so that the driver's count, the placement and the writing
task all see the same slots (RFC-29: partition first, then bucket). :class:`Tagger`, a small
picklable value, holds everything that a task needs for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.index.layout import Layout, SlotArray
from bucketlake.model.cast import require_valid
from bucketlake.model.field_path import columns_at, fields_at
from bucketlake.model.keys import KeySpec, record_keys
from bucketlake.model.partition_path import partition_paths
from bucketlake.model.schema import cast_batch

SLOT_COUNTS = pa.schema(
    [("partition_path", pa.string()), ("slot", pa.int32()), ("records", pa.int64())]
)
"""Number of records of a batch in each slot: one row per slot."""

_SLOT_BITS = np.int64(32)
_SLOT_MASK = (np.int64(1) << _SLOT_BITS) - 1


@dataclass(frozen=True, slots=True)
class TaggedRecords:
    """Locations of records, one entry per record.

    Attributes
    ----------
    keys : pa.StringArray
        Record keys.
    partitions : list of str
        Distinct partition paths.
    partition_codes : ndarray of int32
        Positions in ``partitions``.
    slots : ndarray of int32
        Slots within the partition.
    """

    keys: pa.Array
    partitions: list[str]
    partition_codes: npt.NDArray[np.int32]
    slots: SlotArray

    def codes(self, partitions: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """Return a number for the partition and slot of each record.

        Parameters
        ----------
        partitions : mapping of str to int
            Numbers of partition paths; records of another partition get a negative number.
        """
        known = np.array([partitions.get(path, -1) for path in self.partitions], np.int64)
        return slot_codes(known[self.partition_codes], self.slots)

    def take(self, positions: npt.NDArray[np.int64]) -> TaggedRecords:
        """Return the locations at some positions."""
        return TaggedRecords(
            self.keys.take(pa.array(positions)),
            self.partitions,
            self.partition_codes[positions],
            self.slots[positions],
        )

    def counts(self) -> pa.RecordBatch:
        """Return the number of records in each slot, as a batch of ``SLOT_COUNTS``."""
        codes, counts = np.unique(
            slot_codes(self.partition_codes.astype(np.int64), self.slots), return_counts=True
        )
        partitions = pa.array(self.partitions, pa.string()).take(pa.array(codes >> _SLOT_BITS))
        slots = (codes & _SLOT_MASK).astype(np.int32)
        return pa.RecordBatch.from_arrays(
            [partitions, pa.array(slots), pa.array(counts)], schema=SLOT_COUNTS
        )


@dataclass(frozen=True, slots=True)
class Tagger:
    """Finds the location of each record.

    Attributes
    ----------
    key_spec : KeySpec
        Key and partition columns of the table.
    layout : Layout
        Maps keys to slots.
    schema : pa.Schema
        Columns with the types of the table: a key's text depends on its column's type.
    """

    key_spec: KeySpec
    layout: Layout
    schema: pa.Schema

    @property
    def columns(self) -> list[str]:
        """Paths of the fields that tagging reads, without repetition."""
        names = (*self.key_spec.record_key_fields, *self.key_spec.partition_fields)
        return list(dict.fromkeys(names))

    @property
    def _stored(self) -> pa.Schema:
        return fields_at(self.schema, self.columns)

    def count(self, columns: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """Count the records of each slot; see :meth:`tag_first`."""
        return self.tag_first(columns).counts()

    def tag_first(self, columns: pa.Table | pa.RecordBatch) -> TaggedRecords:
        """Locate records that were not checked before.

        Raises
        ------
        InputError
            If a key is missing, or its bytes are not valid for its type.
        """
        columns = columns_at(columns, self.columns)
        require_valid(columns, where="batch")
        return self.tag(columns)

    def tag(self, columns: pa.Table | pa.RecordBatch) -> TaggedRecords:
        """Locate records; raise InputError if a key is missing."""
        columns = cast_batch(columns_at(columns, self.columns), self._stored)
        keys = self._keys(columns)
        paths = partition_paths(columns, self.key_spec)
        paths = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
        partitions = paths.dictionary.to_pylist()
        codes = paths.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        slots = self.layout.slots_of_keys(keys, partitions, codes)
        return TaggedRecords(keys, partitions, codes, slots)

    def keys(self, columns: pa.Table | pa.RecordBatch) -> pa.StringArray:
        """Return the record keys alone; raise InputError if a key is missing."""
        names = list(dict.fromkeys(self.key_spec.record_key_fields))
        return self._keys(cast_batch(columns_at(columns, names), fields_at(self.schema, names)))

    def _keys(self, columns: pa.Table) -> pa.StringArray:
        keys = record_keys(columns, self.key_spec)
        return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys


def slot_codes(
    partitions: npt.NDArray[np.int64], slots: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """Combine partition number and slot into one number."""
    codes: npt.NDArray[np.int64] = (partitions.astype(np.int64) << _SLOT_BITS) | slots
    return codes
