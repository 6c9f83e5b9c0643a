"""Writing the entries of one shard of the record-level index, in a task.

A write puts an entry for each new key, and removes the entries of keys that are certain to be gone:
those of deletes that no ordering value can reject, and of overwritten partitions. All changes of a
shard are in one log file. As for data files (``write/group_writer.py``), its name and its bytes
follow from the plan and the keys, a marker is written before it, and it is published only while the
instant is pending.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.metadata.index_entries import GoneKeys, NewKeys
from bucketlake.metadata.index_shards import Shard
from bucketlake.metadata.record_locations import RecordIndexReader
from bucketlake.metadata.table import MetadataSlice
from bucketlake.model.file_name import FileId
from bucketlake.model.write_stat import WriteStat
from bucketlake.write.counted import INPUT_CHANGED, STABLE_INPUT
from bucketlake.write.index_log import IndexLogWriter
from bucketlake.write.located import KEY, NO_RANK, RANK, SLOT, Routes
from bucketlake.write.lookups import slice_of_text, text_of_slice

SHARD = "_bucketlake_shard"
"""Position of a key's shard among the plans of shards."""

GONE = -1
"""In place of the slot of a key whose entry is removed."""

PLACED_ENTRIES = pa.schema([(KEY, pa.string()), (SLOT, pa.int32()), (SHARD, pa.int32())])
"""Keys whose entries change, on the way to the tasks of their shards."""

_TASK = 1  # Part of the write token; 0 is that of files that the driver writes.


@dataclass(frozen=True, slots=True)
class NewGroupKeys:
    """The file group of new keys, and its slot."""

    slot: int
    partition_path: str
    file_id: FileId


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """How a write changes one shard; sent to the task that writes its log file.

    Attributes
    ----------
    number : int
        Position among the plans of shards.
    shard : Shard
        The shard.
    groups : tuple of NewGroupKeys
        The file groups that may get new keys of the shard.
    new, gone : int
        Number of new keys, and of keys that a delete removes.
    opens : bool
        Whether the shard is new.
    stored : MetadataSlice or None
        The entries of the shard, if some are removed with their partition.
    replaced : tuple of str, or None
        Partitions whose entries are removed; None for all.
    task : int
        The task that writes the log file.
    """

    number: int
    shard: Shard
    groups: tuple[NewGroupKeys, ...]
    new: int
    gone: int
    opens: bool = False
    stored: MetadataSlice | None = None
    replaced: tuple[str, ...] | None = ()
    task: int = 0

    def to_text(self) -> str:
        """Print as JSON."""
        groups = [[group.slot, group.partition_path, group.file_id] for group in self.groups]
        stored = None if self.stored is None else text_of_slice(self.stored)
        shard = [self.shard.number, self.shard.data_partition]
        facts = [self.number, shard, groups, self.new, self.gone, self.opens]
        return json.dumps([*facts, stored, self.replaced, self.task])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what :meth:`to_text` printed."""
        number, shard, groups, new, gone, opens, stored, replaced, task = json.loads(text)
        return cls(
            number,
            Shard(*shard),
            tuple(NewGroupKeys(*group) for group in groups),
            new,
            gone,
            opens,
            None if stored is None else slice_of_text(stored),
            None if replaced is None else tuple(replaced),
            task,
        )


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What a task did to a shard; sent to the driver.

    Attributes
    ----------
    number : int
        Position among the plans of shards.
    stat : WriteStat or None
        The log file, relative to the metadata table; None if no entry changed.
    """

    number: int
    stat: WriteStat | None

    def to_text(self) -> str:
        """Print as JSON."""
        return json.dumps([self.number, None if self.stat is None else self.stat.to_facts()])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what :meth:`to_text` printed."""
        number, facts = json.loads(text)
        return cls(number, None if facts is None else WriteStat.from_facts(facts))


def placed_entries(entries: pa.Table, routes: Routes, shard: int) -> pa.Table:
    """Return changed keys of a shard with the slots of new keys; columns ``PLACED_ENTRIES``."""
    ranks = entries[RANK].to_numpy()
    slots = np.where(ranks == NO_RANK, np.int32(GONE), routes.slots(entries))
    columns = [entries[KEY], pa.array(slots), pa.array(np.full(len(slots), shard, np.int32))]
    return pa.Table.from_arrays(columns, schema=PLACED_ENTRIES)


@dataclass(frozen=True, slots=True)
class IndexWriter:
    """Writes log files of shards; a picklable value that all tasks of a write share.

    Attributes
    ----------
    index : RecordIndexReader
        The pinned index.
    logs : IndexLogWriter
        Writes log files.
    """

    index: RecordIndexReader
    logs: IndexLogWriter

    def write(self, plans: Iterable[ShardPlan], entries: pa.Table) -> Iterator[ShardResult]:
        """Write the log files of a task's shards; yield the result of each shard.

        Parameters
        ----------
        plans : iterable of ShardPlan
            The shards that the task owns.
        entries : pa.Table
            Their changed keys, in any order, in columns ``PLACED_ENTRIES``.
        """
        numbers = entries[SHARD].to_numpy()
        for plan in sorted(plans, key=lambda plan: plan.number):
            own = entries.take(pa.array(np.flatnonzero(numbers == plan.number)))
            yield ShardResult(plan.number, self._write(plan, own))

    def _write(self, plan: ShardPlan, entries: pa.Table) -> WriteStat | None:
        keys, slots = entries[KEY].combine_chunks(), entries[SLOT].to_numpy()
        gone = keys.take(pa.array(np.flatnonzero(slots == GONE)))
        _require_counted(plan, len(keys) - len(gone), len(gone))
        if plan.opens:
            self.logs.open(plan.shard)
        new = [
            NewKeys(
                keys.take(pa.array(np.flatnonzero(slots == group.slot))),
                group.partition_path,
                group.file_id,
            )
            for group in plan.groups
        ]
        partition = plan.shard.data_partition or ""
        removed = [GoneKeys(gone, partition), GoneKeys(self._replaced(plan), partition)]
        stats = self.logs.write(_TASK, new, removed)
        assert len(stats) <= 1, "keys of another shard"
        return stats[0] if stats else None

    def _replaced(self, plan: ShardPlan) -> pa.Array:
        """Return the keys whose entries go with their partition, unless the write puts them."""
        if plan.stored is None:
            return pa.array([], pa.string())
        held = self.index.read_slice(plan.stored)
        is_gone = [
            plan.replaced is None or location.partition_path in plan.replaced
            for location in held.locations
        ]
        rows = np.flatnonzero(np.array([*is_gone, False])[held.codes])
        return held.keys.take(pa.array(rows))


def _require_counted(plan: ShardPlan, new: int, gone: int) -> None:
    if (new, gone) != (plan.new, plan.gone):
        raise IndexStateError(
            f"the first stage counted {plan.new} new and {plan.gone} deleted keys of shard "
            f"{plan.shard.file_id}",
            f"{new} and {gone} arrived: {INPUT_CHANGED}",
            STABLE_INPUT,
        )
