"""A cached shard in memory: lookups in its parts, and the parts after a change.

Later parts replace entries of earlier parts. A part that has more than an eighth of the keys of the
part before is merged into it, so there are few parts, and a key is seldom written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.texts import TextHashes, Texts, hash_texts
from bucketlake.metadata.location_cache.building import DENSE, SPARSE, PartBuilder
from bucketlake.metadata.location_cache.key_codes import KeyCodes, ShardChanges
from bucketlake.metadata.location_cache.part import (
    ABSENT,
    REMOVED,
    Codes,
    Part,
    find_rows,
    lookup_order,
    wide_codes,
)
from bucketlake.metadata.record_index.locations import NOT_FOUND

_SHARE = 8
_CHUNK_KEYS = 2**17


@dataclass(frozen=True, slots=True, eq=False)
class Replaced:
    """Parts after a change.

    Attributes
    ----------
    kept : int
        How many of the first parts stay.
    added : list of Part
        The part after them, if there is something to add.
    """

    kept: int
    added: list[Part]


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


def changed_parts(parts: Sequence[Part], changes: ShardChanges) -> Replaced:
    """Return the parts of a shard after the changes of log files."""
    keys = pa.concat_arrays([changes.put.keys, changes.removed])
    removals = np.full(len(changes.removed), REMOVED, np.uint32)
    codes = np.concatenate([changes.put.codes, removals])
    kept, count = len(parts), len(keys)
    if count == 0:
        return Replaced(kept, [])
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
    return Replaced(kept, [builder.finish(DENSE if is_first else SPARSE)])


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
