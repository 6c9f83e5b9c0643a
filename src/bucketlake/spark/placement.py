"""Sending rows to tasks that the writer chooses, with the DataFrame API only.

``repartition(n, column)`` sends a row to task ``pmod(murmur3(column), n)``. If the column had task
numbers, their hashes would leave a third of the tasks empty and give others twice the rows. So each
task number is replaced by an integer that Spark's hash maps to it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SEED = np.uint32(42)  # The seed of Spark's hash partitioning.


def values_for_tasks(task_count: int) -> npt.NDArray[np.int32]:
    """Return, for each task, a 32-bit integer that ``repartition(task_count, …)`` sends to it.

    Parameters
    ----------
    task_count : int
        Number of tasks of the shuffle.

    Returns
    -------
    ndarray of int32, shape (task_count,)
        ``spark_hash(values)[i] mod task_count == i``.
    """
    values = np.zeros(task_count, np.int32)
    missing = task_count
    found = np.zeros(task_count, np.bool_)
    start, step = 0, max(1024, 8 * task_count)
    while missing:
        candidates = np.arange(start, start + step, dtype=np.int32)
        tasks = np.mod(spark_hash(candidates), task_count)
        first_tasks, first_places = np.unique(tasks, return_index=True)
        fresh = ~found[first_tasks]
        values[first_tasks[fresh]] = candidates[first_places[fresh]]
        found[first_tasks] = True
        missing = task_count - int(found.sum())
        start += step
    return values


def spark_hash(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return Spark SQL's ``hash()`` of 32-bit integers: Murmur3 (x86, 32 bits), seed 42."""
    with np.errstate(over="ignore"):
        block = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
        block = _rotate_left(block, 15) * np.uint32(0x1B873593)
        state = _rotate_left(_SEED ^ block, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(4)  # Length of the hashed value in bytes.
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        state ^= state >> np.uint32(16)
    return state.view(np.int32)


def _rotate_left(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
