"""Combines the records of a batch that have the same key, column by column, in their order.

Records are combined in pairs, then the results in pairs, and so on. So a key with a thousand
records takes ten steps. A record after a delete of its key begins a new row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.column_groups import ColumnGroups
from bucketlake.merge.combining import Combining, joined
from bucketlake.merge.incoming import (
    IncomingRecords,
    IntArray,
    codes_of_repeated_keys,
    order_of_repeated,
)

_WHAT = "records of one key in the batch"


def combine_duplicates(
    records: IncomingRecords, positions: IntArray | None, combining: Combining
) -> tuple[IncomingRecords, IntArray]:
    """Combine records with the same key to one record each.

    Parameters
    ----------
    records : IncomingRecords
        Any records of one partition.
    positions : ndarray of int64 or None
        Their positions in an ordered input, as for ``distinct_rows``.
    combining : Combining
        How columns are combined.

    Returns
    -------
    IncomingRecords
        Records with distinct keys, in undefined order.
    ndarray of int64
        For each of them, the position of the last record of its key.
    """
    codes = codes_of_repeated_keys(records.keys)
    if codes is None:
        return records, np.arange(len(records))
    is_repeated = np.bincount(codes)[codes] > 1
    repeated, alone = np.flatnonzero(is_repeated), np.flatnonzero(~is_repeated)
    order = order_of_repeated(records.take(repeated), codes[repeated], positions, repeated)
    ordered = repeated[order]
    held, held_codes, origins = records.take(ordered), codes[ordered], ordered
    if combining.ties and combining.groups is None:
        live = ~held.deleted
        at = np.flatnonzero((held_codes[1:] == held_codes[:-1]) & live[1:] & live[:-1])
        rows = held.columns
        combining.require_no_ties(rows.take(pa.array(at)), rows.take(pa.array(at + 1)), _WHAT)
    while True:
        is_first = np.append(True, held_codes[1:] != held_codes[:-1])
        starts = np.flatnonzero(is_first)
        place = np.arange(len(held_codes)) - np.repeat(starts, np.diff([*starts, len(is_first)]))
        lefts = np.flatnonzero((place % 2 == 0) & np.append(~is_first[1:], False))
        if len(lefts) == 0:
            break
        kept = np.flatnonzero(place % 2 == 0)
        at = np.searchsorted(kept, lefts)
        newer = kept.copy()
        newer[at] = lefts + 1
        pairs = _combined(held.take(lefts), held.take(lefts + 1), combining)
        held = _with(held.take(newer), at, pairs)
        held_codes, origins = held_codes[kept], origins[newer]
    return records.take(alone).followed_by(held), np.concatenate([alone, origins])


def _combined(
    older: IncomingRecords, newer: IncomingRecords, combining: Combining
) -> IncomingRecords:
    """Combine records pair by pair."""
    if combining.groups is not None:
        return _by_group(older, newer, combining, combining.groups)
    is_whole = newer.whole
    mixes = np.flatnonzero(~older.deleted & ~newer.deleted & ~is_whole)
    at = pa.array(mixes)
    mixed = combining.rows(older.columns.take(at), newer.columns.take(at), _WHAT)
    source = np.arange(len(newer))
    source[mixes] = len(newer) + np.arange(len(mixes))
    columns = joined(newer.columns, mixed).take(pa.array(source))
    if combining.fills_late:  # Hudi does not tell what came after a delete either.
        return replace(newer, columns=columns)
    begins = (is_whole | older.deleted | older.whole) & ~newer.deleted
    return replace(newer, columns=columns, is_whole=begins)


def _by_group(
    older: IncomingRecords, newer: IncomingRecords, combining: Combining, groups: ColumnGroups
) -> IncomingRecords:
    """Combine records of which the newer one has the greater ordering value, or is a delete."""
    erased, every = pc.coalesce(newer.erases, older.erases), np.ones(len(newer), np.bool_)
    counts, sides = ~older.deleted & ~newer.whole, (older.columns, newer.columns)
    combining.require_no_group_ties(*sides, counts & ~newer.deleted, erased, _WHAT)
    rows = groups.merged(*sides, (counts, every), every, erased)
    begins = newer.whole | older.whole | (older.deleted & older.is_reset)
    return replace(newer, columns=rows, is_whole=begins, erased=erased)


def _with(records: IncomingRecords, at: IntArray, changed: IncomingRecords) -> IncomingRecords:
    """Return records of which some are replaced."""
    source = np.arange(len(records))
    source[at] = len(records) + np.arange(len(at))
    return records.followed_by(changed).take(source)
