"""Several file groups in a bucket: which group each key goes into (RFC-29, pattern 2).

A key that is stored stays in its group. The groups of its bucket are asked by their key ranges and
filters, and those that may hold it are read. New keys, in order, fill the newest group up to the
size; then the next group is opened. Where a bucket has one group with room for all that comes,
nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import IndexStateError
from bucketlake.format.key_range import in_key_range
from bucketlake.hashing.key_filter import key_hashes, may_contain
from bucketlake.index.bucket_hash import ORDINALS_MAX, new_file_id, ordinal_of_file_id
from bucketlake.index.layout import GroupChoice, GroupFacts, Slot, StoredKeys
from bucketlake.merge.records import IncomingRecords, IntArray, key_order
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice

_NOWHERE = -1
_STORED_SHARE = 0.5  # Of the bytes of records in memory: a guess where no stored row tells.


def choose_groups(
    slot: Slot,
    slices: Sequence[FileSlice],
    incoming: IncomingRecords,
    instant: InstantTime,
    stored: StoredKeys,
    size_bytes_max: int,
    *,
    appends: bool,
) -> list[GroupChoice]:
    """Choose the group of each incoming record of a bucket; see ``Layout.choose``.

    Raises
    ------
    IndexStateError
        If two groups hold one key, or the bucket has as many groups as file ids can number.
    """
    incoming_bytes = incoming.keys.nbytes + incoming.columns.nbytes
    if len(slices) == 1 and slices[0].size_bytes + incoming_bytes <= size_bytes_max:
        return [GroupChoice(slices[0].file_id, slices[0])]
    facts = [stored.facts(one) for one in slices]
    places = _locate(slot, slices, facts, incoming.keys, stored)
    if appends and slices:
        # As in a bucket of one group: a log keeps the delete of a key that may come later.
        places[(places == _NOWHERE) & incoming.deleted] = len(slices) - 1
    chosen = [np.flatnonzero(places == place) for place in range(len(slices))]
    new = np.flatnonzero((places == _NOWHERE) & ~incoming.deleted)
    new = new[key_order(incoming.keys.take(pa.array(new)))]
    row_bytes = _row_bytes(slices, facts, incoming_bytes, len(incoming))
    if slices:  # The newest group takes what it has room for.
        room = max(0, int((size_bytes_max - slices[-1].size_bytes) / row_bytes))
        chosen[-1] = np.sort(np.concatenate([chosen[-1], new[:room]]))
        new = new[room:]
    choices = [
        GroupChoice(one.file_id, one, rows)
        for one, rows in zip(slices, chosen, strict=True)
        if len(rows)
    ]
    rows_max = max(1, int(size_bytes_max / row_bytes))
    first = _next_ordinal(slices)
    for number, start in enumerate(range(0, len(new), rows_max)):
        ordinal = first + number
        if ordinal >= ORDINALS_MAX:
            raise IndexStateError(
                f"a bucket has at most {ORDINALS_MAX} file groups",
                f"bucket {slot[1]} of partition {slot[0]!r} needs another one",
                "rescale the partition to more buckets, or give a larger max_file_size",
            )
        file_id = new_file_id(instant, *slot, ordinal)
        choices.append(GroupChoice(file_id, None, np.sort(new[start : start + rows_max])))
    return choices


def groups_that_may_hold(
    slices: Sequence[FileSlice], keys: Sequence[str], stored: StoredKeys
) -> list[FileSlice]:
    """Return the groups of a bucket that may hold one of some keys, by range and filter.

    A group with log files may hold any key: logs have neither.
    """
    texts = pa.array(keys, pa.string())
    hashes = key_hashes(texts)
    every = np.arange(len(texts))
    return [
        one
        for one in slices
        if one.log_files or len(_candidates(stored.facts(one), texts, hashes, every))
    ]


def _locate(
    slot: Slot,
    slices: Sequence[FileSlice],
    facts: Sequence[GroupFacts],
    keys: pa.Array,
    stored: StoredKeys,
) -> npt.NDArray[np.int64]:
    """Return which slice holds each key, ``_NOWHERE`` for keys that none does."""
    places = np.full(len(keys), _NOWHERE, np.int64)
    hashes = key_hashes(keys) if slices else np.empty(0, np.uint32)
    every = np.arange(len(keys))
    for place, (one, told) in enumerate(zip(slices, facts, strict=True)):
        candidates = _candidates(told, keys, hashes, every)
        if one.base_file is not None and len(candidates):
            _mark(slot, slices, places, place, keys, candidates, stored.base_keys(one))
    if any(one.log_files for one in slices) and (places == _NOWHERE).any():
        # Keys may be in logs alone: of a table that had one group a bucket, or of another program.
        for place, one in enumerate(slices):
            if one.log_files:
                _mark(slot, slices, places, place, keys, every, stored.log_keys(one))
    return places


def _mark(
    slot: Slot,
    slices: Sequence[FileSlice],
    places: npt.NDArray[np.int64],
    place: int,
    keys: pa.Array,
    candidates: IntArray,
    held: Iterator[pa.Array],
) -> None:
    """Note a slice as the place of the candidates that are among the keys it holds."""
    wanted = keys.take(pa.array(candidates))
    for chunk in held:
        found = pc.index_in(wanted, value_set=chunk.cast(pa.string()))
        rows = candidates[np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))]
        twice = rows[(places[rows] != _NOWHERE) & (places[rows] != place)]
        if len(twice):
            row = int(twice[0])
            raise IndexStateError(
                "a key is in one file group of its bucket",
                f"key {keys[row].as_py()!r} of partition {slot[0]!r} is in two: "
                f"{slices[int(places[row])].file_id} and {slices[place].file_id}",
                "run repair, which writes the partition anew with one row a key",
            )
        places[rows] = place


def _candidates(
    facts: GroupFacts, keys: pa.Array, hashes: npt.NDArray[np.uint32], rows: IntArray
) -> IntArray:
    """Return the rows whose keys may be in the base file of a group."""
    if facts.rows == 0:
        return rows[:0]
    if facts.key_range is not None:
        inside = in_key_range(keys.take(pa.array(rows)), *facts.key_range)
        rows = rows[inside]
    if facts.key_filter is not None and len(rows):
        rows = rows[may_contain(facts.key_filter, hashes[rows])]
    return rows


def _row_bytes(
    slices: Sequence[FileSlice],
    facts: Sequence[GroupFacts],
    incoming_bytes: int,
    incoming_rows: int,
) -> float:
    """Return the stored bytes of a row, by the group with most rows, else by a guess.

    A file of few rows is nearly all footer.
    """
    based = [
        (told.rows, one.base_file.size_bytes)
        for one, told in zip(slices, facts, strict=True)
        if one.base_file is not None and told.rows
    ]
    if based:
        rows, size_bytes = max(based)
        return max(1.0, size_bytes / rows)
    return max(1.0, incoming_bytes / max(1, incoming_rows) * _STORED_SHARE)


def _next_ordinal(slices: Sequence[FileSlice]) -> int:
    numbered = [ordinal_of_file_id(one.file_id) for one in slices]
    return max([len(slices) - 1, *(n for n in numbered if n is not None)]) + 1
