"""Tagging: the record key, partition path and slot of each incoming record.

Tagging is a pure function of the columns, so that the driver's count, the placement and the writing
task all see the same slots (RFC-29: partition first, then bucket). :class:`Tagger`, a small
picklable value, holds everything that a task needs for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.flow.stage import Groups, Int32Array
from bucketlake.index.layout import Layout, Slot, SlotArray
from bucketlake.model.arrays import one_array
from bucketlake.model.cast import require_valid
from bucketlake.model.field_path import columns_at, fields_at
from bucketlake.model.keys import KeySpec, record_keys
from bucketlake.model.partition_path import partition_paths
from bucketlake.model.schema import cast_batch

if TYPE_CHECKING:
    from bucketlake.write.tombstones import Tombstones

KEY = "_bucketlake_key"
"""Hidden column: the record key, unless a column of the records has the same text."""

PARTITION = "_bucketlake_partition"
"""Hidden column: the partition path."""

SLOT = "_bucketlake_slot"
"""Hidden column: the slot within the partition; in a task that writes, the slot's number."""

POSITION = "_bucketlake_position"
"""Hidden column: the position of a record in an input whose order decides between equals."""

EFFECT = "_bucketlake_effect"
"""Hidden column of the rows of a merge: what a row does, an ``Effect``."""

MOVED = "_bucketlake_moved"
"""Hidden column: whether the row deletes a key that moves to another partition."""

_HIDDEN = {KEY, PARTITION, SLOT, POSITION, MOVED}

SlotCounts = Mapping[Slot, int]
"""Incoming records by partition path and slot."""

_SLOT_BITS = np.int64(32)
_COUNTED_MAX = 1 << 16  # Codes up to here are counted, greater ones are sorted.


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

    @classmethod
    def of_slots(cls, slots: Collection[Slot]) -> Self:
        """Return the locations of records without keys, one for each slot."""
        paths = list(dict.fromkeys(path for path, _ in slots))
        codes = {path: code for code, path in enumerate(paths)}
        return cls(
            pa.nulls(len(slots), pa.string()),
            paths,
            np.array([codes[path] for path, _ in slots], np.int32),
            np.array([slot for _, slot in slots], np.int32),
        )

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

    def joined(self, shard_counts: Mapping[str, int]) -> TaggedRecords:
        """Return the same records with the slots of partitions that have fewer slots.

        Parameters
        ----------
        shard_counts : mapping of str to int
            Number of slots of each partition that is wanted; it divides the number of slots that
            the tags are of.
        """
        of_path = np.array([shard_counts.get(path, 1) for path in self.partitions], np.int32)
        slots: SlotArray = self.slots % of_path[self.partition_codes]
        return replace(self, slots=slots)

    def groups(self) -> Groups:
        """Return the slots that have records, and the slot of each record."""
        width = int(self.slots.max(initial=0)) + 1
        found, numbers = _distinct(self.partition_codes.astype(np.int64) * width + self.slots)
        return Groups([(self.partitions[n // width], n % width) for n in found.tolist()], numbers)


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
    tombstones : Tombstones or None
        Deletes that records meet before they are written; None if the write remembers none.
    """

    key_spec: KeySpec
    layout: Layout
    schema: pa.Schema
    tombstones: Tombstones | None = None

    @property
    def columns(self) -> list[str]:
        """Paths of the fields that tagging reads, without repetition."""
        names = (*self.key_spec.record_key_fields, *self.key_spec.partition_fields)
        return list(dict.fromkeys(names))

    def counted(self, names: Collection[str]) -> list[str]:
        """Return the fields on which it depends whether and where a record counts.

        ``names`` are the columns of the records.
        """
        more = () if self.tombstones is None else self.tombstones.looked_at(names)
        return list(dict.fromkeys((*self.columns, *more)))

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
        stored = fields_at(self.schema, self.columns)
        columns = cast_batch(columns_at(columns, self.columns), stored)
        keys = one_array(record_keys(columns, self.key_spec))
        paths = one_array(partition_paths(columns, self.key_spec))
        partitions = paths.dictionary.to_pylist()
        codes = paths.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        slots = self.layout.slots_of_keys(keys, partitions, codes)
        return TaggedRecords(keys, partitions, codes, slots)

    def elsewhere(self, tagged: TaggedRecords) -> dict[Slot, set[int]]:
        """Return the slots with keys that another rule puts elsewhere, and where it puts them."""
        place = tagged.partitions, tagged.partition_codes
        others = self.layout.slots_elsewhere(tagged.keys, *place)
        found: dict[Slot, set[int]] = defaultdict(set)
        if others is not None:
            rows = np.flatnonzero(others != tagged.slots)
            places = (tagged.partition_codes[rows], tagged.slots[rows], others[rows])
            for code, slot, other in np.unique(np.stack(places), axis=1).T.tolist():
                found[tagged.partitions[code], slot].add(other)
        return found

    def with_tags(self, rows: pa.Table, tagged: TaggedRecords) -> pa.Table:
        """Return rows with their tags as hidden columns, which travel with them."""
        partitions = pa.DictionaryArray.from_arrays(
            pa.array(tagged.partition_codes), pa.array(tagged.partitions, pa.string())
        )
        rows = rows.append_column(PARTITION, partitions)
        rows = rows.append_column(SLOT, pa.array(tagged.slots))
        return rows if self.key_column(rows.schema) else rows.append_column(KEY, tagged.keys)

    def no_rows(self, schema: pa.Schema) -> pa.Table:
        """Return a table of such records with tags, and without rows."""
        nothing = np.empty(0, np.int32)
        return self.with_tags(
            schema.empty_table(), TaggedRecords(pa.array([], pa.string()), [], nothing, nothing)
        )

    def no_numbered_rows(self, schema: pa.Schema) -> pa.Table:
        """Return a table of such records with numbers of slots, and without rows."""
        return with_numbers(self.no_rows(schema), np.empty(0, np.int64))

    def key_column(self, schema: pa.Schema) -> str | None:
        """Return the column of records that has the text of their key; None if there is none."""
        fields = self.key_spec.record_key_fields
        if len(fields) > 1 or self.key_spec.has_composite_keys:
            return None
        (name,) = fields
        for columns in (schema, self.schema):  # A field inside a column is in neither.
            at = columns.get_field_index(name)
            if at < 0 or columns.field(at).type != pa.string():
                return None
        return name

    def keys_of(self, rows: pa.Table) -> pa.StringArray:
        """Return the record keys of rows with hidden columns."""
        name = KEY if KEY in rows.column_names else self.key_column(rows.schema)
        return one_array(rows[name])

    def tags_of(self, rows: pa.Table) -> TaggedRecords:
        """Return the tags of rows with hidden columns."""
        paths = rows[PARTITION].unify_dictionaries().combine_chunks()
        return TaggedRecords(
            self.keys_of(rows),
            paths.dictionary.to_pylist(),
            paths.indices.to_numpy(),
            rows[SLOT].to_numpy(),
        )


def slot_codes(
    partitions: npt.NDArray[np.int64], slots: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """Combine partition number and slot into one number."""
    codes: npt.NDArray[np.int64] = (partitions.astype(np.int64) << _SLOT_BITS) | slots
    return codes


def _distinct(codes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Int32Array]:
    """Return the distinct codes in order, and the position of each code among them."""
    greatest = int(codes.max(initial=0))
    if greatest > _COUNTED_MAX:
        found, positions = np.unique(codes, return_inverse=True)
        return found, positions.astype(np.int32)
    is_there = np.bincount(codes, minlength=greatest + 1) > 0
    return np.flatnonzero(is_there), (np.cumsum(is_there, dtype=np.int32) - 1)[codes]


def with_numbers(rows: pa.Table, numbers: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Return records with the numbers of their slots in a plan, in place of what chose them."""
    names = {PARTITION, SLOT}.intersection(rows.column_names)
    return rows.drop_columns(sorted(names)).append_column(SLOT, pa.array(numbers.astype(np.int32)))


def positions_of(rows: pa.Table) -> npt.NDArray[np.int64] | None:
    """Return the positions of rows in an ordered input; None for an input without order."""
    return rows[POSITION].to_numpy() if POSITION in rows.column_names else None


def without_tags(rows: pa.Table) -> pa.Table:
    """Return rows without hidden columns."""
    return rows.drop_columns([name for name in rows.column_names if name in _HIDDEN])


# ---- The check that a task got the records that the first pass over the input counted ------------

UNCOUNTED = -1
"""In place of a number of records or keys that is not known before they arrive."""


def require_count(slot: Slot, counted: int, found: int) -> None:
    """Raise IndexStateError if other records arrived for a slot than were counted."""
    if counted not in (found, UNCOUNTED):
        what = f"{counted} records for slot {slot[1]} of partition {slot[0]!r}"
        raise input_changed(what, f"{found} arrived")


def input_changed(counted: str, arrived: str) -> IndexStateError:
    """Return the error that tasks got other records or keys than were counted before."""
    return IndexStateError(
        f"the first pass over the input counted {counted}",
        f"{arrived}: the input changed between two evaluations of it",
        "write from a stable input, or cache it to storage first",
    )
