"""Located records of an Arrow table, in this process: the tasks are threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa

from bucketlake.write.record_index.group_plan import GroupPlan
from bucketlake.write.record_index.index_writer import (
    PLACED_ENTRIES,
    ShardPlan,
    ShardResult,
    placed_entries,
)
from bucketlake.write.record_index.locate import LocateTask
from bucketlake.write.record_index.located import SLOT, Located, LookupResult, with_slots
from bucketlake.write.record_index.lookups import Lookup, LookupPlan
from bucketlake.write.record_index.placed import PlacedResults, PlacedTask
from bucketlake.write.tag import TaggedRecords
from bucketlake.write.write_plan import SlotPlan, SlotResult

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class LocatedArrow:
    """The results of all lookups, in memory.

    Attributes
    ----------
    lookups : list of Located
        In the order of the plan.
    threads : int
        Number of threads for the second stage.
    """

    lookups: list[Located]
    threads: int

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        tagged: TaggedRecords | None,
        plan: LookupPlan,
        task: LocateTask,
        threads: int,
    ) -> Self:
        """Locate the rows of a table; their order decides between equal ordering values."""
        known = tagged or task.tagger.tag(rows)
        numbers = plan.placement.numbers(known)
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(len(plan.lookups) + 1))

        def locate(lookup: Lookup) -> list[Located]:
            chosen = order[bounds[lookup.number] : bounds[lookup.number + 1]]
            own, place = rows.take(pa.array(chosen)), known.take(chosen)
            return list(task.locate([lookup], own, chosen, place))

        found = _in_threads(locate, plan.lookups, threads)
        return cls(found, threads)

    @property
    def results(self) -> list[LookupResult]:
        """What the lookups found."""
        return [located.result for located in self.lookups]

    def write(self, plan: GroupPlan, task: PlacedTask) -> PlacedResults:
        """Write every slot and every shard of the plan in several threads."""
        slots_of_task: dict[int, list[SlotPlan]] = defaultdict(list)
        for slot in plan.write.slots:
            slots_of_task[slot.task].append(slot)
        rows = _joined(
            with_slots(located.rows, plan.routes.slots(located.rows)) for located in self.lookups
        )
        tasks = np.array([slot.task for slot in plan.write.slots], np.int32)
        owners = tasks[rows[SLOT].to_numpy()]

        def write_slots(number: int) -> list[SlotResult]:
            own = rows.take(pa.array(np.flatnonzero(owners == number)))
            return list(task.write(slots_of_task[number], own))

        def write_shard(shard: ShardPlan) -> list[ShardResult]:
            return list(task.index_writer.write([shard], self._entries(plan, shard)))

        return PlacedResults(
            _in_threads(write_slots, sorted(slots_of_task), self.threads),
            _in_threads(write_shard, plan.shards, self.threads),
        )

    def close(self) -> None:
        """Drop the records."""
        self.lookups.clear()

    def _entries(self, plan: GroupPlan, shard: ShardPlan) -> pa.Table:
        own = [
            placed_entries(located.entries, plan.routes, shard.number)
            for number, located in zip(plan.shard_of_lookup, self.lookups, strict=True)
            if number == shard.number
        ]
        return pa.concat_tables([PLACED_ENTRIES.empty_table(), *own])


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _in_threads(
    run: Callable[[_Task], list[_Result]], tasks: Sequence[_Task], threads: int
) -> list[_Result]:
    with ThreadPoolExecutor(threads) as pool:
        return [result for results in pool.map(run, tasks) for result in results]
