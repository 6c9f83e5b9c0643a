"""Several file groups in a bucket: which group each key goes into (RFC-29, pattern 2).

A stored key stays in its group. Key ranges and filters tell which groups of the bucket may hold the
key, and only these groups are read. New keys, sorted, fill the newest group up to the maximum file
size; then the next group is opened. If a bucket has one group with room for all incoming records,
no key is looked up. A bucket without stored rows may be cut into parts, each with its own groups;
later writes find these groups in the bucket like any others.
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
from bucketlake.index.layout import GroupChoice, GroupFacts, Slot, SlotPart, StoredKeys
from bucketlake.merge.incoming import IncomingRecords, IntArray, key_order
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice

_NOWHERE = -1
_STORED_SHARE = 0.5  # Stored bytes per byte in memory: a guess for a bucket without base files.


def choose_groups(
    slot: Slot,
    slices: Sequence[FileSlice],
    incoming: IncomingRecords,
    instant: InstantTime,
    stored: StoredKeys,
    size_bytes_max: int,
    *,
    appends: bool,
    part: SlotPart,
) -> list[GroupChoice]:
    """Choose the group of each incoming record of a bucket; see ``Layout.choose``.

    Raises
    ------
    IndexStateError
        If two groups hold the same key, or the bucket needs more groups than file ids can number.
    """
    incoming_bytes = incoming.keys.nbytes + incoming.columns.nbytes
    if len(slices) == 1 and slices[0].size_bytes + incoming_bytes <= size_bytes_max:
        return [GroupChoice(slices[0].file_id, slices[0])]
    places, facts = _locate(slot, slices, incoming.keys, stored)
    if appends and slices:
        # As in a bucket with one group, a log keeps a delete whose key may be written later.
        places[(places == _NOWHERE) & incoming.deleted] = len(slices) - 1
    chosen = [np.flatnonzero(places == place) for place in range(len(slices))]
    new = np.flatnonzero((places == _NOWHERE) & ~incoming.deleted)
    new = new[key_order(incoming.keys.take(pa.array(new)))]
    row_bytes = _row_bytes(slices, facts, incoming_bytes, len(incoming))
    if slices:  # The newest group takes as many new keys as it has room for.
        room = max(0, int((size_bytes_max - slices[-1].size_bytes) / row_bytes))
        chosen[-1] = np.sort(np.concatenate([chosen[-1], new[:room]]))
        new = new[room:]
    choices = [
        GroupChoice(file_slice.file_id, file_slice, rows)
        for file_slice, rows in zip(slices, chosen, strict=True)
        if len(rows)
    ]
    rows_max = max(1, int(size_bytes_max / row_bytes))
    # Part p of k opens the groups p, p + k, p + 2k …, so no two parts open the same group.
    first = _next_ordinal(slices) + part.number
    for number, start in enumerate(range(0, len(new), rows_max)):
        ordinal = first + number * part.count
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
    """Return the groups of a bucket that may hold one of the keys, by key range and filter.

    A group with log files may hold any key, because log files have no key range and no filter.
    """
    texts = pa.array(keys, pa.string())
    hashes = key_hashes(texts)
    every = np.arange(len(texts))
    found = []
    for file_slice in slices:
        if not file_slice.log_files:
            with stored.open_base(file_slice) as (facts, _):
                if not len(_candidates(facts, texts, hashes, every)):
                    continue
        found.append(file_slice)
    return found


def _locate(
    slot: Slot, slices: Sequence[FileSlice], keys: pa.Array, stored: StoredKeys
) -> tuple[npt.NDArray[np.int64], list[GroupFacts]]:
    """Return the position of the slice that holds each key, and the facts of each slice.

    The position is ``_NOWHERE`` if no slice holds the key.
    """
    places = np.full(len(keys), _NOWHERE, np.int64)
    facts: list[GroupFacts] = []
    hashes = key_hashes(keys) if slices else np.empty(0, np.uint32)
    every = np.arange(len(keys))
    for place, file_slice in enumerate(slices):
        with stored.open_base(file_slice) as (slice_facts, held):
            facts.append(slice_facts)
            candidates = _candidates(slice_facts, keys, hashes, every)
            if len(candidates):
                _mark(slot, slices, places, place, keys, candidates, held)
    if any(file_slice.log_files for file_slice in slices) and (places == _NOWHERE).any():
        # A key may be only in a log: written by another program, or while a bucket had one group.
        for place, file_slice in enumerate(slices):
            if file_slice.log_files:
                _mark(slot, slices, places, place, keys, every, stored.log_keys(file_slice))
    return places, facts


def _mark(
    slot: Slot,
    slices: Sequence[FileSlice],
    places: npt.NDArray[np.int64],
    place: int,
    keys: pa.Array,
    candidates: IntArray,
    held: Iterator[pa.Array],
) -> None:
    """Set ``place`` for the candidates whose keys are in the slice, whose keys are ``held``."""
    wanted = keys.take(pa.array(candidates))
    for chunk in held:
        # Looking the chunk up among the candidates is faster: the hash table is the smaller one.
        found = pc.index_in(chunk.cast(pa.string()), value_set=wanted).drop_null()
        rows = candidates[found.to_numpy()]
        twice = rows[(places[rows] != _NOWHERE) & (places[rows] != place)]
        if len(twice):
            row = int(twice[0])
            raise IndexStateError(
                "a key is in one file group of its bucket",
                f"key {keys[row].as_py()!r} of partition {slot[0]!r} is in two file groups: "
                f"{slices[int(places[row])].file_id} and {slices[place].file_id}",
                "rewrite the partition, one row per key, with table.repair(check_keys=True) "
                "(bucketlake repair --check-keys --run)",
            )
        places[rows] = place


def _candidates(
    facts: GroupFacts, keys: pa.Array, hashes: npt.NDArray[np.uint32], rows: IntArray
) -> IntArray:
    """Return the rows whose keys may be in the base file of a group."""
    if facts.rows == 0:
        return rows[:0]
    if facts.key_filter is not None:
        rows = rows[may_contain(facts.key_filter, hashes[rows])]
    if facts.key_range is not None and len(rows):
        rows = rows[in_key_range(keys.take(pa.array(rows)), *facts.key_range)]
    return rows


def _row_bytes(
    slices: Sequence[FileSlice],
    facts: Sequence[GroupFacts],
    incoming_bytes: int,
    incoming_rows: int,
) -> float:
    """Return the stored bytes per row, from the group with most rows, else a guess.

    A file with few rows would mislead, because it is mostly footer.
    """
    based = [
        (slice_facts.rows, file_slice.base_file.size_bytes)
        for file_slice, slice_facts in zip(slices, facts, strict=True)
        if file_slice.base_file is not None and slice_facts.rows
    ]
    if based:
        rows, size_bytes = max(based)
        return max(1.0, size_bytes / rows)
    return max(1.0, incoming_bytes / max(1, incoming_rows) * _STORED_SHARE)


def _next_ordinal(slices: Sequence[FileSlice]) -> int:
    numbered = [ordinal_of_file_id(file_slice.file_id) for file_slice in slices]
    return max([len(slices) - 1, *(n for n in numbered if n is not None)]) + 1
