"""Located records: rows of a batch with the place of their key in a record-level index.

The task of a lookup adds the columns of this module. The driver then knows how many records each
file group gets and how many keys are new, and decides where new keys go. Its decision is a list of
cuts: the new keys of a lookup and partition, sorted, have ranks, and from some rank on they go into
the next group. So :class:`Routes`, a few numbers, gives each record its slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.model.file_name import FileId
from bucketlake.write.tag import KEY

LOCATED, ENTRIES = "located", "entries"
"""The channels of located records, and of keys whose entries in the index change."""

LOOKUP = "_bucketlake_lookup"
"""Number of the lookup that located a record."""

PLACE = "_bucketlake_place"
"""Position among the groups that the lookup found; for a new key ``-1 - partition``."""

RANK = "_bucketlake_rank"
"""Rank of a new key among the sorted new keys of its lookup and partition; else -1."""

NO_RANK = -1

_RANK_BITS = np.int64(32)

ENTRY_ROWS = pa.schema(
    [(KEY, pa.string()), (LOOKUP, pa.int32()), (PLACE, pa.int32()), (RANK, pa.int32())]
)
"""Keys whose entries in the index a write changes: new keys by rank, and gone keys, without one."""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """What a lookup found; sent to the driver.

    Attributes
    ----------
    number : int
        Position of the lookup in the plan.
    records : int
        Number of records that the task received for it.
    groups : tuple of (str, FileId, int)
        Stored groups of the records: partition path, file id, number of records.
    new : tuple of (int, int)
        New keys: position of the partition in the plan, number of keys.
    gone : int
        Keys that are certain to be gone after the write.
    unknown : int
        Deletes that were dropped, because the index does not have their keys.
    looked_up : int
        Keys that were looked up in the index; 0 if the index has no shard for them yet.
    from_cache : int
        Those of them that the cache of the host answered. It differs between two attempts of a
        task, so nothing that is written may follow from it.
    ignored : int
        Records that lost to a stored row of another partition by their ordering value.
    moved : int
        Records whose key leaves another partition.
    """

    number: int
    records: int
    groups: tuple[tuple[str, FileId, int], ...]
    new: tuple[tuple[int, int], ...]
    gone: int
    unknown: int
    looked_up: int = 0
    from_cache: int = 0
    ignored: int = 0
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """From which rank on the new keys of a lookup and partition go into a slot.

    Attributes
    ----------
    lookup, partition : int
        Positions in the plan of lookups.
    rank : int
        The first rank.
    slot : int
        Position in the plan of the write.
    """

    lookup: int
    partition: int
    rank: int
    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Gives each located record its slot; small enough to travel with the task's code.

    Attributes
    ----------
    first_place : ndarray of int32, shape (n_lookups,)
        Where the groups of each lookup begin in ``slot_of_place``.
    slot_of_place : ndarray of int32
        The slot of each group of each lookup.
    partition_count : int
        Number of partitions in the plan of lookups.
    cut_codes : ndarray of int64, ascending
        Lookup, partition and rank of each cut as one number.
    cut_slots : ndarray of int32
        The slot of each cut.
    """

    first_place: npt.NDArray[np.int32]
    slot_of_place: npt.NDArray[np.int32]
    partition_count: int
    cut_codes: npt.NDArray[np.int64]
    cut_slots: npt.NDArray[np.int32]

    @classmethod
    def of(
        cls, slots_of_lookups: Sequence[Sequence[int]], partition_count: int, cuts: Sequence[Cut]
    ) -> Self:
        """Return routes.

        Parameters
        ----------
        slots_of_lookups : sequence of sequence of int
            For each lookup, the slot of each group that it found.
        partition_count : int
            Number of partitions in the plan of lookups.
        cuts : sequence of Cut
            The cuts, in any order.
        """
        sizes = np.array([len(slots) for slots in slots_of_lookups], np.int32)
        flat = [slot for slots in slots_of_lookups for slot in slots]
        ordered = sorted(cuts, key=lambda cut: (cut.lookup, cut.partition, cut.rank))
        pools = np.array(
            [cut.lookup * partition_count + cut.partition for cut in ordered], np.int64
        )
        ranks = np.array([cut.rank for cut in ordered], np.int64)
        return cls(
            (np.cumsum(sizes) - sizes).astype(np.int32),
            np.array(flat, np.int32),
            partition_count,
            (pools << _RANK_BITS) | ranks,
            np.array([cut.slot for cut in ordered], np.int32),
        )

    def slots(self, located: pa.Table) -> npt.NDArray[np.int32]:
        """Return the slot of each row that has ``LOOKUP``, ``PLACE`` and ``RANK``."""
        lookups, places, ranks = (located[name].to_numpy() for name in (LOOKUP, PLACE, RANK))
        slots = np.empty(len(lookups), np.int32)
        stored = np.flatnonzero(places >= 0)
        slots[stored] = self.slot_of_place[self.first_place[lookups[stored]] + places[stored]]
        new = np.flatnonzero(places < 0)
        if len(new):
            pools = lookups[new].astype(np.int64) * self.partition_count - 1 - places[new]
            codes = (pools << _RANK_BITS) | ranks[new]
            slots[new] = self.cut_slots[np.searchsorted(self.cut_codes, codes, side="right") - 1]
        return slots
