"""Spreads work over tasks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def spread(weights: Sequence[int], task_count: int) -> list[int]:
    """Return a task for each weight: in descending order, each to the task with the least load."""
    loads = [(0, task) for task in range(task_count)]
    tasks = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda i: -weights[i]):
        load, task = heapq.heappop(loads)
        tasks[place] = task
        heapq.heappush(loads, (load + weights[place], task))
    return tasks
