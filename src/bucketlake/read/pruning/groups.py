"""Pruning by keys: the file slices that may hold one of some record keys.

A layout gives the slot of each key, and the groups of a slot that may hold it (RFC-29, "Query
Pruning"). What is not certain is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from bucketlake.index.layout import Layout, Slot, StoredKeys
from bucketlake.model.file_slice import FileSlice


def slices_of_keys(
    layout: Layout,
    slices: Sequence[FileSlice],
    keys: Sequence[str],
    stored: StoredKeys | None,
) -> list[FileSlice]:
    """Return the slices that may hold one of some keys: by slot, then by group.

    Groups of no slot that the layout knows are kept. Without ``stored`` all groups of a slot are.
    """
    wanted = layout.slots_of_literals({one.partition_path for one in slices}, keys)
    kept: list[FileSlice] = []
    of_slot: dict[Slot, list[FileSlice]] = defaultdict(list)
    for one in slices:
        slot = layout.slot_of_group(one.partition_path, one.file_id)
        if slot is None:
            kept.append(one)
        elif slot in wanted[one.partition_path]:
            of_slot[one.partition_path, slot].append(one)
    for held in of_slot.values():
        kept += held if stored is None else layout.groups_of_keys(held, keys, stored)
    chosen = {(one.partition_path, one.file_id) for one in kept}
    return [one for one in slices if (one.partition_path, one.file_id) in chosen]
