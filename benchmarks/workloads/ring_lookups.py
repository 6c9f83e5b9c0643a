"""How many keys or hashes a second find their bucket, on one core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common.rows import KEY_PREFIX, DataSet
from benchmarks.systems.engine_free import EngineFree, rates
from bucketlake.hashing.ring import Ring, initial_ring
from bucketlake.hashing.xx_hash import RING_HASH_MAX, hash_ring_keys

NODE_COUNT = 10_000
KEYS, ROUNDS = 1_000_000, 7
STEPS = ("hash_keys", "ring_even", "ring_random", "binary_search", "modulo")


class RingLookups(EngineFree):
    """Lookups of the same random hashes in each way."""

    def __init__(self) -> None:
        super().__init__(
            nodes=NODE_COUNT,
            keys=f"{KEYS}, of 20 characters",
            rate=f"median of {ROUNDS} runs, by the processor time of the thread",
        )
        random = np.random.default_rng(1)
        self._hashes = random.integers(0, RING_HASH_MAX, KEYS, np.int32, endpoint=True)
        values = np.unique(random.integers(0, RING_HASH_MAX, 2 * NODE_COUNT, np.int32))
        values = np.sort(random.permutation(values)[:NODE_COUNT])
        self._even = initial_ring("", NODE_COUNT)
        self._random = Ring(values, tuple(map(str, range(NODE_COUNT))))
        numbers = pa.array(random.integers(0, 10**16, KEYS)).cast(pa.string())
        self._keys = pc.binary_join_element_wise(KEY_PREFIX, pc.utf8_lpad(numbers, 16, "0"), "")

    def hash_keys(self, _data: DataSet, _table: Path) -> None:
        """Hash keys for the ring."""
        self._measure(lambda: hash_ring_keys(self._keys))

    def ring_even(self, _data: DataSet, _table: Path) -> None:
        """Find the nodes on a ring as a new table has it."""
        self._measure(lambda: self._even.locate(self._hashes))

    def ring_random(self, _data: DataSet, _table: Path) -> None:
        """Find the nodes on a ring whose nodes lie at random."""
        self._measure(lambda: self._random.locate(self._hashes))

    def binary_search(self, _data: DataSet, _table: Path) -> None:
        """Find the same nodes by binary search."""
        self._measure(lambda: np.searchsorted(self._random.values, self._hashes))

    def modulo(self, _data: DataSet, _table: Path) -> None:
        """Find buckets as the simple bucket index does."""
        self._measure(lambda: self._hashes % np.int32(NODE_COUNT))

    def _measure(self, work: Callable[[], object]) -> None:
        work()
        self.seen = rates(work, KEYS, ROUNDS)
