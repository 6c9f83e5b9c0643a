"""What happens between the steps of a write or service: sources and engines that call it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.flow.stage import Flow, GroupName, Stage, TaskPlan
from bucketlake.flow.threads import HERE, Threads
from bucketlake.model.table_type import Operation
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.tag import Tagger
from bucketlake.write.target import open_target
from bucketlake.write.write_plan import WritePlan


def nothing() -> None:
    """Do nothing."""


class InterruptedSource(ArrowSource):
    """Rows in one thread; something else happens after a step of their write.

    Parameters
    ----------
    rows : pa.Table
        The rows.
    counted, planned, written : callable
        What happens after the rows are counted, after their write is planned, after its tasks.
    """

    def __init__(
        self,
        rows: pa.Table,
        counted: Callable[[], object] = nothing,
        planned: Callable[[], object] = nothing,
        written: Callable[[], object] = nothing,
    ) -> None:
        super().__init__(rows, threads=1)
        self._counted, self._planned, self._written = counted, planned, written

    def pack(self, tagger: Tagger) -> PackedRecords:
        packed = super().pack(tagger)
        _ = packed.counts
        self._counted()
        given = packed.flow, packed.schema, packed.engine
        return _InterruptedRecords(*given, self._planned, self._written)


@dataclass(frozen=True)
class _InterruptedRecords(PackedRecords):
    planned: Callable[[], object] = nothing
    written: Callable[[], object] = nothing

    def write(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        self.planned()
        results = super().write(plan, task)
        self.written()
        return results


@dataclass(frozen=True)
class InterruptedEngine:
    """Threads; something else happens before and after a flow.

    Attributes
    ----------
    before : callable
        Gets the first work of the flow and its plans.
    after : callable
        What happens after the tasks of the last stage.
    engine : Threads
        Runs the tasks.
    """

    before: Callable[[Any, Sequence[Any]], object] = lambda *_: None
    after: Callable[[], object] = nothing
    engine: Threads = HERE
    in_memory: bool = True

    def start(self, work: Any, plans: Sequence[Any], sizes: Sequence[int]) -> Flow:
        self.before(work, plans)
        return _InterruptedFlow(self.engine.start(work, plans, sizes), self.after)


@dataclass(frozen=True)
class _InterruptedFlow:
    flow: Flow
    after: Callable[[], object]

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,
        tasks: Mapping[GroupName, int] | None = None,
    ) -> Flow:
        return _InterruptedFlow(self.flow.then(stage, plans, task_count, tasks), self.after)

    def kept(self) -> Flow:
        return _InterruptedFlow(self.flow.kept(), self.after)

    def results(self) -> list[Any]:
        results = self.flow.results()
        self.after()
        return results

    def close(self) -> None:
        self.flow.close()


def write_once(
    table: bl.Table,
    rows: pa.Table,
    operation: Operation = Operation.UPSERT,
    **steps: Callable[[], object],
) -> object:
    """Write rows; something else happens after a step, and a conflict is an error."""
    target = open_target(table_at(open_storage(table.path)), None)
    return write_records(target, operation, InterruptedSource(rows, **steps))


def overlapped(
    table: bl.Table,
    first: pa.Table,
    second: pa.Table,
    operation: Operation = Operation.UPSERT,
    *,
    then: Callable[[], object] = nothing,
    at: str = "planned",
) -> None:
    """Run two writes: the first one begins first, and commits when the other one has its files.

    Parameters
    ----------
    table : Table
    first, second : pa.Table
        Their rows.
    operation : Operation
        What the first one does.
    then : callable
        What happens between their commits.
    at : {"planned", "written"}
        Whether the second one begins before the tasks of the first one, or after them.
    """
    begun, goes_on = threading.Event(), threading.Event()

    def pause() -> None:
        begun.set()
        assert goes_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        earlier = pool.submit(write_once, table, first, operation, **{at: pause})

        def written() -> None:
            goes_on.set()
            earlier.result(60)
            then()

        try:
            assert begun.wait(60)
            write_once(table, second, written=written)
        finally:
            goes_on.set()
