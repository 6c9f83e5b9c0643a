"""Pruning by keys: the file slices that may hold one of the record keys.

A layout returns the slot of each key, and the file groups of the slot that may hold the key
(RFC-29, "Query Pruning"). If a slice may hold a key, it is kept.
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
    """Return the slices that may hold one of the keys: by slot, then by file group.

    File groups without a slot are kept. Without ``stored``, all file groups of a slot are kept.
    """
    wanted = layout.slots_of_literals({file_slice.partition_path for file_slice in slices}, keys)
    kept: list[FileSlice] = []
    of_slot: dict[Slot, list[FileSlice]] = defaultdict(list)
    for file_slice in slices:
        partition = file_slice.partition_path
        slot = layout.slot_of_group(partition, file_slice.file_id)
        if slot is None:
            kept.append(file_slice)
        elif slot in wanted[partition]:
            of_slot[partition, slot].append(file_slice)
    for held in of_slot.values():
        kept += held if stored is None else layout.groups_of_keys(held, keys, stored)
    chosen = {(file_slice.partition_path, file_slice.file_id) for file_slice in kept}
    return [
        file_slice
        for file_slice in slices
        if (file_slice.partition_path, file_slice.file_id) in chosen
    ]
