"""The seam between the kinds of index and the rest: what a layout answers.

A *kind* is what a user hands in (``SimpleBucket``). A *layout* is a kind at a pinned instant: rules
and counts are resolved, and it is a small picklable value. A *slot* is what one task owns in a
partition: a set of keys, whatever files hold them. It is an integer in memory, and has a name on
disk and in messages. Readers, writers, services and checks ask the layout; none of them knows how
a key finds its slot, how many file groups a slot has, or what a file id says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.merge.records import IncomingRecords
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice

SlotArray: TypeAlias = npt.NDArray[np.int32]

Slot: TypeAlias = tuple[str, int]
"""Partition path and slot."""


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """A file group of a slot, and the incoming records that go into it.

    Attributes
    ----------
    file_id : FileId
        The group.
    file_slice : FileSlice or None
        What the group holds; None for a new group.
    rows : ndarray of int64 or None
        Positions of its records among the incoming ones; None for all of them.
    """

    file_id: FileId
    file_slice: FileSlice | None
    rows: npt.NDArray[np.int64] | None = None


class Damage(Enum):
    """What can be wrong with the file groups of a layout."""

    UNKNOWN_GROUP = "unknown_group"  # No key leads to the group.
    SURPLUS_GROUPS = "surplus_groups"  # A slot has more groups than the layout allows.


@dataclass(frozen=True, slots=True)
class DamagedGroups:
    """File groups that contradict a layout; ``problem`` is a sentence for people."""

    damage: Damage
    partition_path: str
    slices: tuple[FileSlice, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class StrayedKeys:
    """Keys of a file group that belong to another slot.

    Attributes
    ----------
    count : int
        How many.
    key : str
        The first of them.
    held_in, belongs_to : str
        The slot that holds it, and its own, in words.
    """

    count: int
    key: str
    held_in: str
    belongs_to: str


@dataclass(frozen=True, slots=True)
class Moves:
    """How rows of one partition go from one layout to another, in independent parts.

    The slots of a part of the old layout hold exactly the rows of the slots of that part of the
    new one.

    Attributes
    ----------
    part_of_old, part_of_new : mapping of int to int
        Part of each slot.
    """

    part_of_old: Mapping[int, int]
    part_of_new: Mapping[int, int]


class StoredKeys(Protocol):
    """Reads the keys of stored file groups; handed to a layout by the writing task."""

    def facts(self, file_slice: FileSlice) -> GroupFacts:
        """Return what the footer of the newest base file tells; the cost is one footer."""
        ...

    def base_keys(self, file_slice: FileSlice) -> Iterator[pa.Array]:
        """Yield the keys of the base file."""
        ...

    def log_keys(self, file_slice: FileSlice) -> Iterator[pa.Array]:
        """Yield the keys that the log files name."""
        ...


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the base file of a group tells of its keys.

    Attributes
    ----------
    rows : int
        Rows of the base file, 0 without one.
    key_range : (str, str) or None
        Smallest and largest key; None where the file does not tell.
    key_filter : bytes or None
        A bloom filter of the keys (``hashing/key_filter.py``); None where the file has none.
    """

    rows: int
    key_range: tuple[str, str] | None = None
    key_filter: bytes | None = None


class Layout(Protocol):
    """An index kind at a pinned instant; a small picklable value."""

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """Record key fields that choose the slot; none for all of them."""
        ...

    @property
    def looks_up(self) -> bool:
        """Whether a slot may have several groups, and keys are looked up in them.

        Base files then get a filter of their keys.
        """
        ...

    def slots_of_keys(
        self, keys: pa.Array, partitions: Sequence[str], codes: npt.NDArray[np.int32]
    ) -> SlotArray:
        """Return the slot of each key.

        Parameters
        ----------
        keys : pa.StringArray, shape (n_keys,)
            Record keys.
        partitions : sequence of str
            Distinct partition paths.
        codes : ndarray of int32, shape (n_keys,)
            Positions in ``partitions``.
        """
        ...

    def slots_of_literals(
        self, partitions: Collection[str], keys: Sequence[str]
    ) -> dict[str, frozenset[int]]:
        """Return, for each partition, the slots that can hold any of some record keys."""
        ...

    def slot_count(self, partition_path: str) -> int:
        """Return how many slots a partition has, whether or not they hold records."""
        ...

    def slot_of_group(self, partition_path: str, file_id: FileId) -> int | None:
        """Return the slot whose keys a group holds; None where it may hold any key."""
        ...

    def slot_text(self, slot: int) -> str:
        """Return a slot in words, for messages: ``bucket 3``."""
        ...

    def setting_of(self, partition_path: str) -> str:
        """Say in words by what a partition's keys find their groups, such as ``4 buckets``.

        Two layouts that say the same put each key of the partition into the same slot.
        """
        ...

    def live_slots(self, slices: Collection[FileSlice]) -> dict[Slot, tuple[FileSlice, ...]]:
        """Return the slices of each slot, oldest group first, and check them.

        Raises
        ------
        IndexStateError
            If a group belongs to no slot, or a slot has more groups than it may.
        """
        ...

    def damaged_groups(self, slices: Collection[FileSlice]) -> Iterator[DamagedGroups]:
        """Find what :meth:`live_slots` raises for."""
        ...

    def strayed_keys(
        self, keys: pa.Array | pa.ChunkedArray, partition_path: str, file_id: FileId
    ) -> StrayedKeys | None:
        """Find keys of a file group that belong to another slot; None where there are none."""
        ...

    def choose(
        self,
        slot: Slot,
        slices: Sequence[FileSlice],
        incoming: IncomingRecords,
        instant: InstantTime,
        stored: StoredKeys,
        *,
        appends: bool,
    ) -> list[GroupChoice]:
        """Choose the file group of each incoming record; open new groups where needed.

        A pure function of its arguments, so that two attempts of a task choose the same.

        Parameters
        ----------
        slot : (str, int)
            The slot that the task owns.
        slices : sequence of FileSlice
            The slot's live slices, as :meth:`live_slots` orders them.
        incoming : IncomingRecords
            Distinct keys of the slot.
        instant : InstantTime
            The write; ids of new groups derive from it.
        stored : StoredKeys
            Reads the keys of slices.
        appends : bool
            Whether groups that exist get log files (merge-on-read).
        """
        ...

    def groups_of_keys(
        self, slices: Sequence[FileSlice], keys: Sequence[str], stored: StoredKeys
    ) -> list[FileSlice]:
        """Return which groups of one slot may hold one of some keys of the slot."""
        ...

    def moves_to(self, new: Layout, partition_path: str) -> Moves | None:
        """Return how rows go to another layout in place; None where they must be shuffled."""
        ...
