"""The layout of a hash ring: when a write is still right after a resize, and where records go."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.hashing.xx_hash import hash_ring_keys
from bucketlake.index.layout import GroupChoice, SlotPlan
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import PendingResize, pending_resizes
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.model.file_name import InstantTime
from bucketlake.slices.stored_keys import StoredKeyReader
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at
from tests.ring_tables import MERGE_ALL, SPLIT_ALL, make_table, rows
from tests.table_index import of_table

NOW = InstantTime("20991231000000000")
KEYS = pa.array([f"k{number}" for number in range(50)])


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    made = make_table(new_path())
    made.upsert(rows(range(50)))
    return made


def layout_of(table: bl.Table) -> RingLayout:
    """Return the layout of a write that pins the table now."""
    storage = open_storage(table.path)
    timeline = load_timeline(table_at(storage))
    layout = of_table(bl.ConsistentBucket(2).bound(storage, timeline)).layout()
    return layout.pinned(["a"], creates=False)


def kept(
    before: RingLayout, table: bl.Table, *, appends: bool, slots: list[int] | None = None
) -> bool:
    wanted = [0, 1] if slots is None else slots
    return before.is_kept_by(layout_of(table), "a", wanted, appends=appends)


def planned(table: bl.Table, **limits: object) -> PendingResize:
    """Plan a resize, and return it."""
    table.resize(schedule_only=True, **limits)  # type: ignore[arg-type]
    storage = open_storage(table.path)
    timeline = load_timeline(table_at(storage))
    [resize] = pending_resizes(storage, timeline)
    return resize


def carry_out(table: bl.Table) -> None:
    """Carry out what is planned, and plan nothing more."""
    assert table.resize(max_file_size=1 << 40, merge_threshold=0.0).instants


# ---- Is a write still right? --------------------------------------------------------------------


@pytest.mark.parametrize("appends", [True, False])
def test_a_write_is_kept_where_only_other_writes_completed(
    table: bl.Table, *, appends: bool
) -> None:
    before = layout_of(table)
    table.upsert(rows(range(10), 1))
    assert kept(before, table, appends=appends)


@pytest.mark.parametrize("appends", [True, False])
def test_a_plan_that_appeared_during_a_write_concerns_log_files_of_its_nodes_alone(
    table: bl.Table, *, appends: bool
) -> None:
    before = layout_of(table)
    resize = planned(table, max_groups=1, **SPLIT_ALL)
    [group] = resize.groups
    [split] = [before.slot_of_group("a", file_id) for file_id in group.file_ids]
    assert split is not None
    # A write of base files knows nothing of plans: the resize finds what it changed.
    assert kept(before, table, appends=appends, slots=[split]) is not appends
    assert kept(before, table, appends=appends, slots=[1 - split])


def test_a_write_that_knew_the_plan_is_kept_while_it_is_pending_and_after_it(
    table: bl.Table,
) -> None:
    planned(table, **SPLIT_ALL)
    before = layout_of(table)
    assert kept(before, table, appends=True)
    carry_out(table)
    assert kept(before, table, appends=True)
    assert not kept(before, table, appends=False)


def test_a_write_that_knew_a_plan_is_not_kept_once_the_next_one_has_begun(
    table: bl.Table,
) -> None:
    planned(table, **SPLIT_ALL)
    before = layout_of(table)
    carry_out(table)
    planned(table, **SPLIT_ALL)
    assert not kept(before, table, appends=True)
    carry_out(table)
    assert not kept(before, table, appends=True)


def test_a_write_that_knew_a_plan_is_kept_if_the_plan_was_withdrawn(table: bl.Table) -> None:
    resize = planned(table, **SPLIT_ALL)
    before = layout_of(table)
    table.rollback(resize.instant)
    assert kept(before, table, appends=True)


@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize("limits", [SPLIT_ALL, MERGE_ALL], ids=["split", "merge"])
def test_a_resize_during_a_write_that_knew_nothing_of_it_repeats_the_write(
    table: bl.Table, limits: dict[str, object], *, appends: bool
) -> None:
    before = layout_of(table)
    table.resize(**limits)  # type: ignore[arg-type]
    assert not kept(before, table, appends=appends)


def test_an_overwrite_is_kept_only_if_the_ring_is_that_which_it_renewed(table: bl.Table) -> None:
    renewed = layout_of(table).renewed(["a"], NOW)
    table.upsert(rows(range(10), 1))
    planned(table, **SPLIT_ALL)  # It fails at its completion.
    assert kept(renewed, table, appends=True)
    carry_out(table)
    assert not kept(renewed, table, appends=True)


# ---- Where records go ---------------------------------------------------------------------------


def choose(layout: RingLayout, slot: int, keys: pa.Array, *, appends: bool) -> list[GroupChoice]:
    nothing = np.zeros(len(keys), bool)
    incoming = IncomingRecords(keys, pa.table({"id": keys}), (), nothing, nothing)
    stored = cast(StoredKeyReader, None)  # Nothing is looked up.
    plan = SlotPlan("a", slot, (), len(keys), 0)
    return layout.choose(plan, incoming, NOW, stored, appends=appends)


def keys_of(layout: RingLayout, slot: int) -> pa.Array:
    return KEYS.filter(pa.array(layout.state("a").ring.locate(hash_ring_keys(KEYS, ())) == slot))


def test_records_of_a_node_that_stays_go_into_its_group(table: bl.Table) -> None:
    layout = layout_of(table)
    for slot in (0, 1):
        [choice] = choose(layout, slot, keys_of(layout, slot), appends=True)
        assert choice.file_id == layout.state("a").file_id(slot)
        assert (choice.rows, choice.log_version, choice.log_copy) == (None, 1, None)


def test_records_of_a_node_that_is_split_go_into_a_log_file_for_each_child(
    table: bl.Table,
) -> None:
    resize = planned(table, **SPLIT_ALL)
    layout = layout_of(table)
    for slot in (0, 1):
        keys, file_id = keys_of(layout, slot), layout.state("a").file_id(slot)
        group = resize.find(file_id)
        assert group is not None
        choices = choose(layout, slot, keys, appends=True)
        assert [choice.log_version for choice in choices] == [*range(1, len(choices) + 1)]
        assert {choice.file_id for choice in choices} == {file_id}
        shared = np.concatenate([choice.rows for choice in choices if choice.rows is not None])
        assert sorted(shared.tolist()) == [*range(len(keys))]
        for choice in choices:
            copy = choice.log_copy
            assert copy is not None
            assert choice.rows is not None
            assert (copy.resize, copy.number) == (resize.instant, 0)
            places = group.new_ring.locate(hash_ring_keys(keys.take(pa.array(choice.rows)), ()))
            assert {group.new_file_ids[place] for place in places} == {copy.file_id}


def test_records_of_nodes_that_are_merged_go_into_one_copy_numbered_by_their_node(
    table: bl.Table,
) -> None:
    resize = planned(table, **MERGE_ALL)
    layout = layout_of(table)
    [group] = resize.groups
    copies = set()
    for slot in (0, 1):
        [choice] = choose(layout, slot, keys_of(layout, slot), appends=True)
        assert choice.log_copy is not None
        assert group.file_ids[choice.log_copy.number] == choice.file_id
        copies.add((choice.log_copy.file_id, choice.log_copy.number))
    [new] = group.new_file_ids
    assert copies == {(new, 0), (new, 1)}


def test_a_child_without_a_record_gets_no_log_file(table: bl.Table) -> None:
    planned(table, **SPLIT_ALL)
    layout = layout_of(table)
    [choice] = choose(layout, 0, keys_of(layout, 0)[:1], appends=True)
    assert choice.rows is not None
    assert choice.rows.tolist() == [0]


def test_a_write_of_base_files_ignores_the_plan(table: bl.Table) -> None:
    planned(table, **SPLIT_ALL)
    layout = layout_of(table)
    [choice] = choose(layout, 0, keys_of(layout, 0), appends=False)
    assert (choice.rows, choice.log_copy) == (None, None)
