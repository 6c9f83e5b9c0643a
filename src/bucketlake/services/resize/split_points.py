"""Where to split the range of a node: in equal parts, or by its keys (RFC-42)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bucketlake.hashing.xx_hash import RING_SIZE, hash_ring_keys
from bucketlake.index.ring_state import RingState
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.services.resize.candidates import SplitPoints

_EIGHTHS = 8


def split_points(
    reader: SliceReader, state: RingState, hash_fields: tuple[str, ...], policy: str
) -> SplitPoints:
    """Return what gives the values at which a node is split.

    Parameters
    ----------
    reader : SliceReader
        Reads the keys of a node if nobody counted them.
    state : RingState
        The ring.
    hash_fields : tuple of str
        Record key fields that choose the node.
    policy : {"middle", "balanced"}
        Equal parts of the range, or equal numbers of keys. Where keys are too few, or all of one
        hash, a balanced split falls back to equal parts.
    """

    def equal(value: int, parts: int) -> Sequence[int] | None:
        if parts > 2:
            return state.ring.even_points(value, parts)
        middle = state.ring.middle(value)
        return None if middle is None else [middle]

    def balanced(file_slice: FileSlice, value: int, parts: int) -> Sequence[int] | None:
        start = state.ring.range_of(value).start
        stats = state.metadata.stats.get(file_slice.file_id.removesuffix("-0"))
        if stats is not None and _EIGHTHS % parts == 0:
            step = _EIGHTHS // parts
            points = [stats.quantiles[step * part - 1] - 1 for part in range(1, parts)]
        else:
            points = _points_of_keys(reader, file_slice, hash_fields, start, parts)
        points = [point % RING_SIZE for point in points]
        return points if state.ring.can_split(value, points) else equal(value, parts)

    def points_of(file_slice: FileSlice, value: int, parts: int) -> Sequence[int] | None:
        if policy == "balanced":
            return balanced(file_slice, value, parts)
        return equal(value, parts)

    return points_of


def _points_of_keys(
    reader: SliceReader,
    file_slice: FileSlice,
    hash_fields: tuple[str, ...],
    start: int,
    parts: int,
) -> list[int]:
    """Return the greatest hash of each part but the last, of parts with equal numbers of keys."""
    hashes = [
        hash_ring_keys(chunk[RECORD_KEY], hash_fields)
        for chunk in reader.read(file_slice, [RECORD_KEY])
    ]
    found = np.concatenate(hashes) if hashes else np.empty(0, np.int32)
    if len(found) < parts:
        return []
    distances = np.sort((found.astype(np.int64) - start - 1) % RING_SIZE)
    places = len(found) * np.arange(1, parts) // parts - 1
    return [int(distance) + start + 1 for distance in distances[places]]
