"""The two rules of hashed keys (``index/key_rule.py``), compared with the files of a table.

Only a write of keys that the rules put into different buckets looks: at the buckets of its keys by
either rule, and at nothing else of the table. If the rule is not decided, the first such write
follows a key that it finds there, and stores the rule. Later, tasks raise an error for a stored key
that would be stored a second time, in the other bucket (``write/adopt.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from bucketlake.index.layout import Layout
from bucketlake.index.stored_setting import store_key_rule
from bucketlake.model.arrays import one_array
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.write.target import Target
from bucketlake.write.write_plan import Elsewhere

Chosen = TypeVar("Chosen", bound=Layout)


def decided(target: Target, elsewhere: Elsewhere, slices: Sequence[FileSlice]) -> Target:
    """Return the table of a write with its rule, which the write stores if it needs one.

    Parameters
    ----------
    target : Target
        The table.
    elsewhere : mapping of (partition path, slot) to slots
        The slots of the batch's keys that have another slot by the other rule.
    slices : sequence of FileSlice
        Live slices of the partitions of the batch.
    """
    layout = target.layout
    if layout.two_rules is None or layout.two_rules.is_decided or not elsewhere:
        return target
    near = {(path, slot) for (path, own), others in elsewhere.items() for slot in (own, *others)}
    slots = (layout.slot_of_group(held.partition_path, held.file_id) for held in slices)
    beside = [
        held
        for held, slot in zip(slices, slots, strict=True)
        if slot is not None and (held.partition_path, slot) in near
    ]
    target = as_stored(target, beside)
    rule = target.layout.two_rules
    assert rule is not None, "a table of two rules"
    index = target.index.with_key_rule(replace(rule, is_decided=True))
    return replace(target, index=index, stored=store_key_rule(target.storage, rule.splits))


def as_stored(target: Target, slices: Sequence[FileSlice]) -> Target:
    """Return a table with the rule that its files show; see :func:`by_files`."""
    found = by_files(target.layout, target.snapshot, slices)
    return replace(target, index=target.index.with_key_rule(found.key_rule))


def by_files(layout: Chosen, snapshot: Snapshot, slices: Sequence[FileSlice]) -> Chosen:
    """Return the layout by the rule of the first stored key that tells the rules apart.

    Slices without such a key, and a rule that is decided, leave the layout as it is.
    """
    if layout.two_rules is None or layout.two_rules.is_decided:
        return layout
    by_other = next((told[2] for told in telling_keys(layout, snapshot, slices)), False)
    return layout.by_other_rule() if by_other else layout


def telling_keys(
    layout: Layout, snapshot: Snapshot, slices: Sequence[FileSlice]
) -> Iterator[tuple[str, str, bool]]:
    """Yield stored keys that tell the rules apart; of a chunk of rows one for each rule.

    With each come the path of its file, and whether its writer followed the other rule.
    """
    if not slices:
        return
    reader = SliceReader.of_snapshot(snapshot)
    for held in slices:
        own = layout.slot_of_group(held.partition_path, held.file_id)
        for chunk in reader.read(held, [RECORD_KEY]):
            keys = one_array(chunk[RECORD_KEY])
            place = [held.partition_path], np.zeros(len(keys), np.int32)
            others = layout.slots_elsewhere(keys, *place)
            if others is None:
                continue
            slots = layout.slots_of_keys(keys, *place)
            for by_other, at in ((False, slots), (True, others)):
                rows = np.flatnonzero((slots != others) & (at == own))
                if len(rows):
                    yield str(keys[int(rows[0])].as_py()), held.paths[0], by_other
