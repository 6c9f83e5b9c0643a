"""Engines that let something happen while a service runs its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bucketlake.flow.stage import Flow, Stage, TaskPlan
from bucketlake.flow.threads import HERE

Hook = Callable[[], object] | None


@dataclass(frozen=True)
class Between:
    """Threads of this process; something happens before the tasks of a flow, or after them.

    Attributes
    ----------
    before, after : callable or None
        What happens.
    """

    before: Hook = None
    after: Hook = None
    in_memory: bool = True

    def start(self, stage: Stage, plans: Sequence[Any], sizes: Sequence[int]) -> Flow:
        if self.before is not None:
            self.before()
        return _Flow(HERE.start(stage, plans, sizes), self.after)


class _Flow:
    """A flow that ends with a call."""

    def __init__(self, flow: Flow, after: Hook) -> None:
        self._flow, self._after = flow, after
        self.close = flow.close

    def then(self, stage: Stage, plans: Sequence[TaskPlan], task_count: int) -> Flow:
        return _Flow(self._flow.then(stage, plans, task_count), self._after)

    def kept(self) -> Flow:
        return _Flow(self._flow.kept(), self._after)

    def results(self) -> list[Any]:
        results = self._flow.results()
        if self._after is not None:
            self._after()
        return results
