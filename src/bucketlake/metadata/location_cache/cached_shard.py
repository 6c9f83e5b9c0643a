"""A cached shard in memory: lookups in its parts, and the parts after a change.

Later parts replace entries of earlier parts. A part that has more than an eighth of the keys of the
part before is merged into it, so there are few parts, and a key is seldom written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.hashing.index_key import Positions, text_buffers
from bucketlake.hashing.texts import PADDING_BYTES, TextHashes, Texts, hash_texts
from bucketlake.metadata.location_cache.key_codes import KeyCodes, ShardChanges
from bucketlake.metadata.location_cache.part import (
    ABSENT,
    REMOVED,
    SEVERAL_LENGTHS,
    WINDOW,
    Codes,
    Offsets,
    Part,
    cells_of,
    find_rows,
    lookup_order,
    narrow_codes,
    wide_codes,
)
from bucketlake.metadata.record_index.locations import NOT_FOUND
from bucketlake.model.arrays import number_order

# ---- Building ------------------------------------------------------------------------------------
#
# Keys are first divided by the upper bits of their hashes into runs that the processor's cache
# holds, and later ordered by cell within each run. So no step reads or writes large memory at
# random.

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


# ---- Lookups and changes -------------------------------------------------------------------------

_SHARE = 8
_CHUNK_KEYS = 2**17


def find_codes(parts: Sequence[Part], keys: pa.Array) -> npt.NDArray[np.int32]:
    """Return the code of each key in the newest part that has the key, else ``NOT_FOUND``.

    Parameters
    ----------
    parts : sequence of Part
        The parts of a shard, oldest first.
    keys : pa.Array of text
        Keys, in any order.
    """
    texts = Texts.of_array(keys)
    hashes = hash_texts(texts)
    order = lookup_order(hashes)
    texts, hashes = texts.take(order), hashes[order]
    ordered = np.full(len(order), NOT_FOUND, np.int32)
    for part in parts:
        rows = find_rows(part, texts, hashes)
        hits = np.flatnonzero(rows != ABSENT)
        ordered[hits] = _as_found(part.codes.take(rows[hits]))
    codes = np.empty_like(ordered)
    codes[order] = ordered
    return codes


def changed_parts(parts: Sequence[Part], changes: ShardChanges) -> tuple[int, list[Part]]:
    """Change the parts of a shard as log files do.

    Returns
    -------
    int
        How many of the first parts stay.
    list of Part
        The part after them, if there is something to add.
    """
    keys = pa.concat_arrays([changes.put.keys, changes.removed])
    removals = np.full(len(changes.removed), REMOVED, np.uint32)
    codes = np.concatenate([changes.put.codes, removals])
    kept, count = len(parts), len(keys)
    if count == 0:
        return kept, []
    while kept and len(parts[kept - 1]) < _SHARE * count:
        kept -= 1
        count += len(parts[kept])
    is_first = kept == 0
    builder = PartBuilder(count)
    texts = Texts.of_array(keys)
    hashes = hash_texts(texts)
    stays = codes != REMOVED if is_first else np.ones(len(codes), np.bool_)
    builder.add(keys.filter(pa.array(stays)), hashes[stays], codes[stays])
    order = lookup_order(hashes)
    newer = [(texts.take(order), hashes[order])]
    for part in reversed(parts[kept:]):
        stays = np.ones(len(part), np.bool_)
        for newer_keys in newer:
            rows = find_rows(part, *newer_keys)
            stays[rows[rows != ABSENT]] = False
        if is_first:
            stays &= wide_codes(part.codes) != REMOVED
        newer.append(_add_part(builder, part, stays))
    return kept, [builder.finish(DENSE if is_first else SPARSE)]


def add_entries(builder: PartBuilder, entries: KeyCodes) -> None:
    """Add entries of a base file to a part."""
    builder.add(entries.keys, hash_texts(Texts.of_array(entries.keys)), entries.codes)


def _add_part(
    builder: PartBuilder, part: Part, is_kept: npt.NDArray[np.bool_]
) -> tuple[Texts, TextHashes]:
    """Add keys of a part; return all its keys and their hashes."""
    keys, codes = part.key_column(), wide_codes(part.codes)
    texts = part.keys_at(np.arange(len(part)))
    hashes = hash_texts(texts)
    for start in range(0, len(part), _CHUNK_KEYS):
        rows = slice(start, start + _CHUNK_KEYS)
        kept = is_kept[rows]
        chunk = keys.slice(start, _CHUNK_KEYS).filter(pa.array(kept))
        builder.add(chunk, hashes[rows][kept], codes[rows][kept])
    return texts, hashes


def _as_found(codes: Codes) -> npt.NDArray[np.int32]:
    """Return codes of found keys; a removed key is not found."""
    return wide_codes(codes).view(np.int32)  # All bits are set in REMOVED and in NOT_FOUND.
