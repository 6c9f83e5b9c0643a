"""Adopting a table that another program began: checking the index that the caller states.

A wrong bucket count maps the key of a stored record to another bucket, and the next upsert would
write the record a second time. So the first write of bucketlake compares the keys of some base
files in the touched partitions with the slot of their file. Later, a file of another program is
checked completely when it is merged (``write/group_writer.py``). A task that
writes also refuses a key that is stored where the other rule of hashed keys puts it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import IndexStateError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.key_rule import KeyRule
from bucketlake.index.layout import Layout, SlotPlan
from bucketlake.model.file_name import FileId
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.storage.base import Storage

FILES_CHECKED_MAX = 16


def require_matching_index(storage: Storage, slices: Sequence[FileSlice], layout: Layout) -> None:
    """Check an index against stored keys.

    Raises
    ------
    IndexStateError
        If a stored key belongs to another slot than its file; the error names the key.
    """
    layout.live_slots(slices)
    based = [s for s in slices if s.base_file is not None]
    step = max(1, len(based) // FILES_CHECKED_MAX)
    for file_slice in based[::step][:FILES_CHECKED_MAX]:
        _check_file(storage, file_slice, layout)


def _check_file(storage: Storage, file_slice: FileSlice, layout: Layout) -> None:
    assert file_slice.base_file is not None
    path = file_slice.base_file.path
    with BaseFileReader(storage, path) as reader:
        for chunk in reader.iter_chunks([RECORD_KEY], rows_max=131_072):
            require_own_keys(
                chunk[RECORD_KEY], file_slice.partition_path, file_slice.file_id, layout, path
            )


def require_own_keys(
    keys: pa.Array | pa.ChunkedArray,
    partition_path: str,
    file_id: FileId,
    layout: Layout,
    path: str,
) -> None:
    """Raise IndexStateError if stored keys of a file belong to another slot than the file."""
    strayed = layout.strayed_keys(keys, partition_path, file_id)
    if strayed is not None and strayed.rule is not None:
        places = strayed.held_in, strayed.belongs_to
        told = contradiction(strayed.rule, strayed.key, path, *places)
        raise IndexStateError(*told, ONE_RULE)
    if strayed is not None:
        raise IndexStateError(
            f"under {layout.setting_of(partition_path)} record key {strayed.key!r} belongs to "
            f"{strayed.belongs_to}",
            f"{path} holds it in {strayed.held_in}",
            "all writers of a table must use one bucket count and the same hash fields: open it "
            "with those of its Hudi writers, or overwrite the partition with its own rows",
        )


# ---- The error for a key that is stored where the other rule of hashed keys puts it --------------
#
# ``index/key_rule.py`` has the rules, ``write/key_rule_check.py`` finds that of a table.

ONE_RULE = (
    "let only writers of one rule write to the table, and move the keys with "
    "table.repair(check_keys=True) (bucketlake repair --check-keys --run)"
)


def require_one_rule(layout: Layout, reader: SliceReader, plan: SlotPlan, keys: pa.Array) -> None:
    """Raise IndexStateError if a key to write is stored where the other rule puts it."""
    rule = layout.two_rules
    assert rule is not None, "the slots of keys depend on the rule"
    wanted = keys.filter(pc.match_substring(keys, ":"))
    for held in plan.elsewhere:
        for chunk in reader.read(held, [RECORD_KEY]):
            stored = chunk[RECORD_KEY]
            found = stored.filter(pc.is_in(stored.cast(wanted.type), value_set=wanted))
            if len(found):
                slot = layout.slot_of_group(held.partition_path, held.file_id)
                assert slot is not None, "the slice is of a slot"
                key, path = str(found[0].as_py()), held.paths[0]
                places = layout.slot_text(slot), layout.slot_text(plan.slot)
                raise IndexStateError(*contradiction(rule, key, path, *places), ONE_RULE)


def contradiction(
    rule: KeyRule, key: str, path: str, held_in: str, belongs_to: str
) -> tuple[str, str]:
    """Return in words what the rule of a table says about a key, and what a file shows."""
    return (
        f"in this table a key {rule.text}: record key {key!r} belongs to {belongs_to}",
        f"{path} holds it in {held_in}, where it belongs if a key {rule.other.text}",
    )
