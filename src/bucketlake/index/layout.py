"""The interface between the index kinds and the rest of bucketlake: a layout.

A *kind* is the value that a user passes (``SimpleBucket``). A *layout* is a kind at a pinned
instant: its rules and bucket counts are resolved, and it is a small picklable value. A *slot* is
the part of a partition that one task owns: a set of keys, in whatever files they are stored. A slot
is an integer in memory, and has a name on disk and in messages. Readers, writers, services and
checks call the layout. They do not know how a key finds its slot, how many file groups a slot has,
or what a file id means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.hashing.directory import Suffix
from bucketlake.index.conflict_keys import ConflictKey, key_of_group
from bucketlake.index.key_rule import KeyRule
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import LogCopy

if TYPE_CHECKING:
    from bucketlake.slices.stored_keys import StoredKeyReader

SlotArray: TypeAlias = npt.NDArray[np.int32]

Slot: TypeAlias = tuple[str, int]
"""Partition path and slot."""


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """What one write does to one slot, or to a part of it; sent to the task that writes it.

    A look-up of keys is planned as such, too: its slots are shards of the index.

    Attributes
    ----------
    partition_path, slot
        The slot.
    slices : tuple of FileSlice
        Live slices of its file groups, oldest group first; empty if the slot is new, or if the
        write replaces its content.
    records : int
        Number of incoming records that the driver counted, or ``UNCOUNTED``; for a part, its equal
        share of the number.
    number : int
        Position in the plan, unique among the slots and parts of the write.
    task : int
        The task that writes the slot.
    part, part_count : int
        Which part this is, from 0, and into how many a slot without stored rows is cut; 1 where it
        is not cut.
    elsewhere : tuple of FileSlice
        Live slices in which another rule would put keys of the slot.
    """

    partition_path: str
    slot: int
    slices: tuple[FileSlice, ...]
    records: int
    number: int
    task: int = 0
    part: int = 0
    part_count: int = 1
    elsewhere: tuple[FileSlice, ...] = ()

    @property
    def key(self) -> Slot:
        """Partition path and slot."""
        return self.partition_path, self.slot

    @property
    def is_cut(self) -> bool:
        """Whether this is a part of the slot."""
        return self.part_count > 1


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """A file group of a slot, and the incoming records that go into it.

    Attributes
    ----------
    file_id : FileId
        The group.
    file_slice : FileSlice or None
        The live slice of the group; None for a new group.
    rows : ndarray of int64 or None
        Positions of its records among the incoming records; None for all of them.
    log_version : int
        Version in the name of the log file, if the records go into a log file.
    log_copy : LogCopy or None
        The log file that repeats these records, while the slot is resized.
    """

    file_id: FileId
    file_slice: FileSlice | None
    rows: npt.NDArray[np.int64] | None = None
    log_version: int = 1
    log_copy: LogCopy | None = None


@dataclass(frozen=True, slots=True)
class DamagedGroups:
    """File groups that contradict a layout: a group of no slot, or too many groups of one slot.

    ``problem`` is a sentence for people.
    """

    partition_path: str
    slices: tuple[FileSlice, ...]
    problem: str
    is_surplus: bool = False


@dataclass(frozen=True, slots=True)
class StrayedKeys:
    """Keys of a file group that belong to another slot.

    Attributes
    ----------
    count : int
        Number of such keys.
    key : str
        The first of them.
    held_in, belongs_to : str
        The slot that holds the key, and the slot to which it belongs, in words.
    rule : KeyRule or None
        The rule of the table, if all these keys are where the other rule puts them.
    """

    count: int
    key: str
    held_in: str
    belongs_to: str
    rule: KeyRule | None = None


@dataclass(frozen=True, slots=True)
class Layout(ABC):
    """An index kind at a pinned instant; a small picklable value.

    What a kind does not say is: a slot has one file group, keys are not looked up, nothing is kept
    for partitions, and rows must be shuffled to get into another layout.

    Attributes
    ----------
    key_rule : KeyRule or None
        Which fields of a key are hashed; None if a key does not choose the slot, and before the
        index is that of a table.
    """

    key_rule: KeyRule | None = field(default=None, kw_only=True)

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """Record key fields that choose the slot; none if the key does not choose it."""
        assert self.key_rule is not None, "the index of a table has the table's rule"
        return self.key_rule.hash_fields

    @property
    def two_rules(self) -> KeyRule | None:
        """The rule of keys in a table that has another one, too; None if it has one rule."""
        return self.key_rule if self.key_rule is not None and self.key_rule.has_other else None

    def by_other_rule(self) -> Self:
        """Return the layout by the other rule; only if there are ``two_rules``."""
        assert self.key_rule is not None, "there are two rules"
        return replace(self, key_rule=self.key_rule.other)

    def slots_elsewhere(
        self, keys: pa.Array, partitions: Sequence[str], codes: npt.NDArray[np.int32]
    ) -> SlotArray | None:
        """Return the slot of each key by the other rule of the table's version.

        None if both rules are the same for all keys. The arguments are those of
        :meth:`slots_of_keys`.
        """
        if self.two_rules is None or not pc.any(pc.match_substring(keys, ":")).as_py():
            return None
        return self.by_other_rule().slots_of_keys(keys, partitions, codes)

    @property
    def looks_up(self) -> bool:
        """Whether a slot may have several file groups, so that keys are looked up in them.

        Base files then get a filter of their keys.
        """
        return False

    @property
    def locates(self) -> bool:
        """Whether a write looks its keys up in the record-level index before it places records.

        Then the slots of its plan are file groups (``write/record_index/locate.py``).
        """
        return False

    def pinned(self, partitions: Collection[str], *, creates: bool) -> Layout:
        """Return the layout with the state of some partitions, so that tasks need not load it.

        Parameters
        ----------
        partitions : collection of str
            Paths of the partitions that a write touches.
        creates : bool
            Whether partitions without a state get their first one. It is the same whoever makes
            it, and stays if the write is rolled back.

        Raises
        ------
        CommitConflictError
            If another writer gave a partition another first state meanwhile.
        """
        return self

    def renewed(self, partitions: Collection[str], instant: InstantTime) -> Layout:
        """Return the layout after an overwrite of whole partitions by an instant.

        The slots of keys are the same, but their file groups are new.
        """
        return self

    def fixed_groups(self, partitions: Collection[str]) -> Collection[tuple[str, FileId]]:
        """Return the file groups, with their partitions, that slots have before any record.

        None for kinds that name a file group when they open it.
        """
        return ()

    @property
    def unpinned(self) -> Layout:
        """The layout for the tasks of a write: without what only its plan needs."""
        return self

    @abstractmethod
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
            Partition of each key, as a position in ``partitions``.
        """

    @abstractmethod
    def slots_of_literals(
        self, partitions: Collection[str], keys: Sequence[str]
    ) -> dict[str, frozenset[int]]:
        """Return, for each partition, the slots that can hold one of the record keys."""

    @abstractmethod
    def slot_count(self, partition_path: str) -> int:
        """Return the number of slots of a partition, including slots without records."""

    def parts_max(self, size_bytes: int) -> int:
        """Return into how many parts a slot without stored rows may be cut.

        Parameters
        ----------
        size_bytes : int
            Bytes that the incoming records of the slot will take in files, estimated.

        Returns
        -------
        int
            1 where the slot has one file group; else so many that each part fills a group.
        """
        return 1

    def slot_of_group(self, partition_path: str, file_id: FileId) -> int | None:
        """Return the slot of a file group; None if the group may hold any key."""
        return None

    @abstractmethod
    def bucket_number(self, partition_path: str, file_id: FileId) -> int | None:
        """Return the number of the bucket that a file group is, or belongs to; None without one."""

    @abstractmethod
    def slot_text(self, slot: int) -> str:
        """Return a slot in words, for messages: ``bucket 3``."""

    @property
    @abstractmethod
    def slots_text(self) -> str:
        """What slots are, for messages: ``buckets``."""

    def hash_range(self, partition_path: str, slot: int) -> tuple[int, int] | None:
        """Return the hash range of a slot, start excluded and end included; None without ranges."""
        return None

    def hash_suffix(self, partition_path: str, slot: int) -> Suffix | None:
        """Return the last bits of the hashes of a slot; None without a directory."""
        return None

    @abstractmethod
    def conflict_key(self, partition_path: str, slot: int) -> ConflictKey:
        """Return the name by which the slot is compared with what other commits wrote."""

    def conflict_key_of_group(self, partition_path: str, file_id: FileId) -> ConflictKey:
        """Return the name by which a file group, also of another commit, is compared."""
        return key_of_group(partition_path, file_id)

    def is_kept_by(
        self, newer: Layout, partition_path: str, slots: Collection[int], *, appends: bool
    ) -> bool:
        """Return whether the table's layout at a later time still serves what was written.

        Parameters
        ----------
        newer : Layout
            The same kind at a later point of the timeline.
        partition_path : str
            A partition.
        slots : collection of int
            Its slots into which records were written, or in which keys were looked for.
        appends : bool
            Whether groups that exist got log files (merge-on-read).
        """
        return self.setting_of(partition_path) == newer.setting_of(partition_path)

    def served_resizes(
        self, slots: Mapping[str, Collection[int]]
    ) -> dict[InstantTime, set[ConflictKey]]:
        """Return the resizes that a write to some slots serves, so they do not conflict.

        Each has the conflict keys of the file groups that take the slots over when it completes.
        """
        return {}

    @abstractmethod
    def setting_of(self, partition_path: str) -> str:
        """Return in words how the partition's keys find their groups, such as ``4 buckets``.

        Two layouts with the same words put each key of the partition into the same slot.
        """

    @abstractmethod
    def live_slots(self, slices: Collection[FileSlice]) -> dict[Slot, tuple[FileSlice, ...]]:
        """Return the slices of each slot, oldest group first, and check them.

        Raises
        ------
        IndexStateError
            If a group belongs to no slot, or a slot has too many groups.
        """

    def damaged_groups(self, slices: Collection[FileSlice]) -> Iterator[DamagedGroups]:
        """Find the groups for which :meth:`live_slots` raises an error."""
        return iter(())

    def strayed_keys(
        self, keys: pa.Array | pa.ChunkedArray, partition_path: str, file_id: FileId
    ) -> StrayedKeys | None:
        """Find keys of a file group that belong to another slot; None if there are none.

        A key may be where the other rule puts it, as long as no rule is decided.
        """
        held_in, rule = self.slot_of_group(partition_path, file_id), None
        if held_in is None:
            return None
        slots = self.slots_of_keys(keys, [partition_path], np.zeros(len(keys), np.int32))
        wrong = np.flatnonzero(slots != held_in)
        if len(wrong) and self.two_rules is not None:
            codes = np.zeros(len(wrong), np.int32)
            strayed = keys.take(pa.array(wrong))
            other = self.slots_elsewhere(strayed, [partition_path], codes)
            by_other = np.zeros(len(wrong), np.bool_) if other is None else other == held_in
            if not self.two_rules.is_decided:
                wrong = wrong[~by_other]
            elif by_other.all():
                rule = self.two_rules
        if not len(wrong):
            return None
        first = int(wrong[0])
        return StrayedKeys(
            len(wrong),
            str(keys[first].as_py()),
            self.slot_text(held_in),
            self.slot_text(int(slots[first])),
            rule,
        )

    @abstractmethod
    def choose(
        self,
        plan: SlotPlan,
        incoming: IncomingRecords,
        instant: InstantTime,
        stored: StoredKeyReader,
        *,
        appends: bool,
    ) -> list[GroupChoice]:
        """Choose the file group of each incoming record; open new groups where needed.

        The result depends only on the arguments, so that two attempts of a task choose the same
        groups.

        Parameters
        ----------
        plan : SlotPlan
            The slot that the task owns, or the part of it. Parts of one slot open different groups.
        incoming : IncomingRecords
            Its records, with distinct keys.
        instant : InstantTime
            The instant of the write; ids of new groups are derived from it.
        stored : StoredKeyReader
            Reads the keys of slices.
        appends : bool
            Whether existing groups get log files (merge-on-read).
        """

    def groups_of_keys(
        self, slices: Sequence[FileSlice], keys: Sequence[str], stored: StoredKeyReader
    ) -> list[FileSlice]:
        """Return the groups of a slot that may hold one of the keys."""
        return [*slices]

    def parts_of_move(self, new: Layout, partition_path: str) -> int | None:
        """Return in how many parts rows move to another layout; None if they must be shuffled.

        The part of a slot is its number modulo this count. The slots of a part in this layout hold
        exactly the rows of the slots of that part in the new layout.
        """
        return None
