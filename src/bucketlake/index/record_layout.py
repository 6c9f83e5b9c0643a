"""The layout of the record-level index: a key is where the index of the metadata table says.

A file group may hold any key of its partition, and the index knows which key is where
(``metadata/record_index/locations.py``). So a write has two stages: it locates its records, and
then places them (``write/record_index/locate.py``, ``write/record_index/group_plan.py``). It
opens the index and hands its shards to the layout, which reads no metadata table itself. For the
rest of bucketlake, a partition is one slot with any number of file groups. In the plan of a
write, each slot is one file group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.index.conflict_keys import ConflictKey
from bucketlake.index.groups_for_new_keys import Filling, OwnBuckets, owner_of_group
from bucketlake.index.layout import GroupChoice, Layout, Slot, SlotArray, SlotPlan
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.metadata.record_index.shards import IndexShards, ShardsBySize
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped

if TYPE_CHECKING:
    from bucketlake.slices.stored_keys import StoredKeyReader


@dataclass(frozen=True, slots=True)
class RecordLayout(Layout):
    """The record-level index at a pinned instant; see :class:`bucketlake.index.layout.Layout`.

    Attributes
    ----------
    partitioned : bool
        Whether each partition has an index of its own; else keys are unique in the whole table.
    filling : Filling
        Says which groups get new keys.
    new_shards : ShardsBySize
        How many shards a new partition gets in a partitioned index.
    shards : IndexShards or None
        The shards of the index for the partitions of a write, which opened it.
    """

    locates = True
    hash_fields = ()
    slots_text = "file groups of the partition"

    partitioned: bool
    filling: Filling
    new_shards: ShardsBySize
    shards: IndexShards | None = None

    @property
    def unpinned(self) -> RecordLayout:
        """The layout without shards: small enough for the tasks of a write."""
        return replace(self, shards=None)

    @property
    def shards_have_groups(self) -> bool:
        """Whether each shard has file groups of its own, so that a write may go shard by shard."""
        return self.partitioned and isinstance(self.filling, OwnBuckets)

    def slots_of_keys(
        self, keys: pa.Array, partitions: Sequence[str], codes: npt.NDArray[np.int32]
    ) -> SlotArray:
        """Return slot 0 for each key, since a partition is one slot; or the shard of each key.

        The tag is the shard of a large partition; a small one has fewer shards.
        """
        if self.shards_have_groups:
            return shards_of_keys(keys, self.new_shards.of_large)
        return np.zeros(len(keys), np.int32)

    def slots_of_literals(
        self, partitions: Collection[str], keys: Sequence[str]
    ) -> dict[str, frozenset[int]]:
        """Return slot 0 of each partition."""
        return {path: frozenset({0}) for path in partitions}

    def slot_count(self, partition_path: str) -> int:
        """Return 1."""
        return 1

    def bucket_number(self, partition_path: str, file_id: FileId) -> int | None:
        """Return the number of a dynamic bucket; None without buckets, and for other groups."""
        return self.filling.bucket_number(file_id)

    def slot_text(self, slot: int) -> str:
        """Return a slot in words."""
        return "the partition"

    def conflict_key(self, partition_path: str, slot: int) -> ConflictKey:
        """Return the key of a partition, which no commit has: writes touch groups and shards."""
        return partition_path, ""

    def conflict_key_of_group(self, partition_path: str, file_id: FileId) -> ConflictKey:
        """Return the key of a file group: its whole id, also if it looks like a bucket."""
        return partition_path, file_id

    def setting_of(self, partition_path: str) -> str:
        """Return the kind of index in words."""
        return f"a {'partitioned' if self.partitioned else 'global'} record-level index"

    def live_slots(self, slices: Collection[FileSlice]) -> dict[Slot, tuple[FileSlice, ...]]:
        """Return all slices of each partition; any file group is right."""
        slices_of = grouped((held.partition_path, held) for held in slices)
        return {(path, 0): tuple(own) for path, own in slices_of.items()}

    def live_shards(self, slices: Collection[FileSlice]) -> dict[Slot, tuple[FileSlice, ...]]:
        """Return the slices of each shard, for a plan whose slots are shards."""
        shards = self.shards
        assert shards is not None, "only a plan has slices of shards"

        def slot_of(held: FileSlice) -> Slot:
            path = held.partition_path
            return path, owner_of_group(held.file_id, shards.count(path))

        slices_of = grouped((slot_of(held), held) for held in slices)
        return {slot: tuple(own) for slot, own in slices_of.items()}

    def choose(
        self,
        plan: SlotPlan,
        incoming: IncomingRecords,
        instant: InstantTime,
        stored: StoredKeyReader,
        *,
        appends: bool,
    ) -> list[GroupChoice]:
        """Choose the file group of a slot in the plan of a write; the plan has decided it."""
        assert not plan.is_cut, "a file group is not cut"
        if plan.slices:
            (only,) = plan.slices
            return [GroupChoice(only.file_id, only)]
        return [GroupChoice(self.filling.new_group_id(instant, *plan.key), None)]


def located(layout: Layout) -> RecordLayout:
    """Return a layout that locates records (``Layout.locates``) as what it is."""
    assert isinstance(layout, RecordLayout), layout
    return layout
