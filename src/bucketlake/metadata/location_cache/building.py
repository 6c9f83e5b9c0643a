"""Building parts of the location cache from keys that arrive in batches.

Keys are first divided by the upper bits of their hashes into runs that the processor's cache holds,
and later ordered by cell within each run. So no step reads or writes large memory at random.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.hashing.java_hash import Positions, text_buffers
from bucketlake.hashing.texts import PADDING_BYTES, TextHashes
from bucketlake.metadata.location_cache.part import (
    SEVERAL_LENGTHS,
    WINDOW,
    Offsets,
    Part,
    cells_of,
    narrow_codes,
)
from bucketlake.model.number_order import number_order

WideCodes: TypeAlias = npt.NDArray[np.uint32]

DENSE, SPARSE = 4.0, 0.5
"""Keys per cell: of the first part, which has most keys, and of later parts.

A directory takes four bytes for each cell. That of a sparse part is larger, and ends most lookups
of keys that the part does not have. Where each part has at most an eighth of the keys of the part
before, all parts together take less than eight bytes for each key.
"""

_RUN_KEYS = 2**16
_RUNS_MAX = 2**8


@dataclass(frozen=True, slots=True, eq=False)
class PartBuilder:
    """Collects distinct keys and builds a part of them.

    Attributes
    ----------
    expected_count : int
        About how many keys will come; more or fewer keys cost speed.
    """

    expected_count: int
    _runs: dict[int, list[_Batch]] = field(default_factory=dict)

    def add(self, keys: pa.LargeStringArray, hashes: TextHashes, codes: WideCodes) -> None:
        """Add keys with their hashes, and a number for each key."""
        run_count = min(max(self.expected_count // _RUN_KEYS, 1), _RUNS_MAX)
        if run_count == 1 or len(keys) == 0:
            self._runs.setdefault(0, []).append(_Batch(keys, hashes, codes))
            return
        runs = cells_of(hashes, run_count).astype(np.uint16)
        order = np.argsort(runs, kind="stable")
        ends = np.cumsum(np.bincount(runs, minlength=run_count)).tolist()
        ordered = _Batch(keys, hashes, codes).take(order)
        start = 0
        for run, end in enumerate(ends):
            if end > start:
                self._runs.setdefault(run, []).append(ordered.slice(start, end))
            start = end

    def finish(self, keys_per_cell: float) -> Part:
        """Build the part; ``keys_per_cell`` is ``DENSE`` or ``SPARSE``."""
        batches = [batch for run in self._runs.values() for batch in run]
        count = sum(len(batch.keys) for batch in batches)
        assert count < 2**32 - WINDOW, "rows are numbers of 32 bits"
        size = sum(batch.size_bytes() for batch in batches)
        cell_count = max(int(count / keys_per_cell), 1)
        counts = np.zeros(cell_count + 1, np.uint32)
        fingerprints = np.zeros(count + WINDOW, np.uint32)
        codes = np.empty(count, np.uint32)
        length = _common_length(batches)
        offset_count = count + 1 if length == SEVERAL_LENGTHS else 0
        offsets: Offsets = np.zeros(offset_count, np.uint32)
        if size >= 2**32:
            offsets = np.zeros(offset_count, np.uint64)
        data = np.zeros(size + PADDING_BYTES, np.uint8)
        row = at = 0
        for run in sorted(self._runs):
            batch = _joined(self._runs.pop(run))
            cells = cells_of(batch.hashes, cell_count)
            first, last = int(cells.min(initial=cell_count)), int(cells.max(initial=0))
            batch = batch.take(number_order(cells - first))
            rows = slice(row, row + len(batch.keys))
            if row < rows.stop:
                counts[first + 1 : last + 2] += np.bincount(cells - first).astype(np.uint32)
            fingerprints[rows] = batch.hashes.astype(np.uint32)
            codes[rows] = batch.codes
            text, bounds = text_buffers(batch.keys)
            start, end = int(bounds[0]), int(bounds[-1])
            data[at : at + end - start] = text[start:end]
            if offset_count:
                offsets[row + 1 : rows.stop + 1] = bounds[1:] - start + at
            row, at = rows.stop, at + end - start
        np.cumsum(counts, out=counts)
        return Part(counts, fingerprints, narrow_codes(codes), offsets, data, length)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    keys: pa.LargeStringArray
    hashes: TextHashes
    codes: WideCodes

    def take(self, rows: Positions) -> _Batch:
        return _Batch(self.keys.take(pa.array(rows)), self.hashes[rows], self.codes[rows])

    def slice(self, start: int, end: int) -> _Batch:
        keys = self.keys.slice(start, end - start)
        return _Batch(keys, self.hashes[start:end], self.codes[start:end])

    def size_bytes(self) -> int:
        _, offsets = text_buffers(self.keys)
        return int(offsets[-1] - offsets[0])


def _joined(batches: list[_Batch]) -> _Batch:
    return _Batch(
        pa.concat_arrays([batch.keys for batch in batches]),
        np.concatenate([batch.hashes for batch in batches]),
        np.concatenate([batch.codes for batch in batches]),
    )


def _common_length(batches: list[_Batch]) -> int:
    """Return the length of all keys, or ``SEVERAL_LENGTHS``."""
    limits = [pc.min_max(pc.binary_length(batch.keys)) for batch in batches]
    found = {limit[name].as_py() for limit in limits for name in ("min", "max")} - {None}
    if len(found) > 1:
        return SEVERAL_LENGTHS
    return int(found.pop()) if found else 0
