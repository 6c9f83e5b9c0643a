"""What the seam hides: nothing outside ``index/`` knows how a key finds its file group."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketlake
from bucketlake.errors import BucketOutOfRangeError, FormatError, IndexStateError
from bucketlake.index.bucket_hash import assign_buckets, new_file_id, ordinal_of_file_id
from bucketlake.index.bucket_layout import bucket_numbers
from bucketlake.index.conflict_keys import (
    describe_key,
    key_of_group,
    key_of_slot,
    looked_at_keys,
    looked_at_metadata,
    written_keys,
)
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.setting import INDEX_KINDS
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from tests.architecture import asks_for_kinds, kinds_and_layouts, names_used
from tests.table_index import of_table

SOURCE = Path(bucketlake.__file__).parent
T = InstantTime("20260101000000000")
HIDDEN = {"assign_buckets", "bucket_of_file_id", "new_file_id", "count_of"}


def slice_of(file_id: str, partition: str = "p", size_bytes: int = 10) -> FileSlice:
    name = BaseFileName(FileId(file_id), "1-0-1", T)
    return FileSlice(partition, FileId(file_id), T, DataFile(partition, name, size_bytes))


def cuts_ids(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that cut eight characters off what is named an id."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            upper = node.slice.upper
            is_cut = isinstance(upper, ast.Constant) and upper.value == 8
            if is_cut and any("id" in name for name in names_used(node.value)):
                yield node.lineno


ADVICE = SOURCE / "services" / "advice"  # It compares counts, as people do who choose one.
OUTSIDE = sorted(
    path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "index"
)


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_outside_the_index_room_knows_how_a_key_finds_its_group(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert path.parent == ADVICE or not HIDDEN & {*names_used(tree)}
    assert [*asks_for_kinds(tree)] == []
    assert [*cuts_ids(tree)] == []


def test_the_check_of_the_seam_finds_what_it_looks_for() -> None:
    tree = ast.parse("if isinstance(x, A | SimpleBucket): y = x.file_id[:8] + x.count_of('p')")
    assert (len([*asks_for_kinds(tree)]), len([*cuts_ids(tree)])) == (1, 1)
    assert HIDDEN & {*names_used(tree)} == {"count_of"}
    assert {kind.__name__ for kind in INDEX_KINDS} <= kinds_and_layouts()


@given(st.lists(st.text(max_size=6), max_size=30), st.lists(st.sampled_from("abc"), min_size=1))
def test_slots_follow_from_key_and_partition_alone(keys: list[str], paths: list[str]) -> None:
    layout = of_table(PartitionBucket({"a": 3, "b": 7}, default=2)).layout()
    partitions = sorted(set(paths))
    codes = np.array([partitions.index(paths[i % len(paths)]) for i in range(len(keys))], np.int32)
    slots = layout.slots_of_keys(pa.array(keys, pa.string()), partitions, codes).tolist()
    for key, code, slot in zip(keys, codes, slots, strict=True):
        assert slot == assign_buckets([key], layout.slot_count(partitions[code]), ["id"])[0]
        assert slot in layout.slots_of_literals([partitions[code]], [key])[partitions[code]]
        group = new_file_id(T, partitions[code], slot)
        assert layout.slot_of_group(partitions[code], group) == slot
        assert layout.strayed_keys(pa.array([key]), partitions[code], group) is None


def test_a_layout_survives_pickling_and_says_its_setting() -> None:
    layout = PartitionBucket({"a": 1}, default=4, max_file_size=100).layout()
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert layout.setting_of("a") == "1 bucket of several file groups"
    assert layout.setting_of("b") == "4 buckets of several file groups"
    assert SimpleBucket(2).layout().setting_of("x") == "2 buckets"


def test_groups_that_contradict_a_layout_are_refused_and_described() -> None:
    layout = SimpleBucket(2).layout()
    good, twice = slice_of(new_file_id(T, "p", 0)), slice_of(new_file_id(T, "q", 0))
    high, foreign = slice_of(new_file_id(T, "p", 2)), slice_of("873f4e8c-1dfb-4f0c-9d8e-0")
    assert layout.live_slots([good]) == {("p", 0): (good,)}
    with pytest.raises(BucketOutOfRangeError):
        layout.live_slots([high])
    with pytest.raises(IndexStateError, match="873f4e8c"):
        layout.live_slots([foreign])
    with pytest.raises(IndexStateError, match="has two for bucket 0"):
        layout.live_slots([good, twice])
    found = [*layout.damaged_groups([good, twice, high, foreign])]
    assert [one.slices for one in found if one.is_surplus] == [(good, twice)]
    assert [one.slices for one in found if not one.is_surplus] == [(high,), (foreign,)]
    assert [*SimpleBucket(2, max_file_size=9).layout().damaged_groups([good, twice])] == []


def test_the_oldest_group_of_a_bucket_comes_first() -> None:
    layout = SimpleBucket(1, max_file_size=9).layout()
    first = slice_of(new_file_id(T, "p", 0))
    numbered = [slice_of(new_file_id(T, "p", 0, ordinal)) for ordinal in (0, 9, 10, 9999)]
    assert layout.live_slots([numbered[3], numbered[1], first, numbered[2], numbered[0]]) == {
        ("p", 0): (first, *numbered)
    }
    assert ordinal_of_file_id(first.file_id) is None


def test_random_ids_are_no_buckets_unless_all_of_them_look_so() -> None:
    bucket, uuid = slice_of(new_file_id(T, "p", 3)), slice_of("873f4e8c-1dfb-4f0c-9d8e-0")
    looks_so = slice_of("12345678-1dfb-4f0c-9d8e-0")
    assert bucket_numbers(None, [bucket]) == {bucket.file_id: 3}
    assert bucket_numbers(None, [looks_so, uuid]) == {}
    assert bucket_numbers(SimpleBucket(4).layout(), [bucket, uuid]) == {bucket.file_id: 3}


def test_keys_of_a_foreign_commit_are_made_of_its_file_ids() -> None:
    written = (WriteStat(FileId("00000007-x-0"), "p/f", "p"),)
    replaced = {"q": (FileId("00000001-y-0"), FileId("873f4e8c-1dfb-0"))}
    commit = CommitMetadata("UPSERT", {"p": written}, {}, replaced)
    assert written_keys(commit) == {
        key_of_slot("p", 7),
        key_of_slot("q", 1),
        ("q", "873f4e8c-1dfb-0"),
    }
    assert describe_key(key_of_group("q", "873f4e8c-1dfb-0")) == (
        "file group 873f4e8c-1dfb-0 of partition 'q'"
    )


def test_slots_that_a_commit_looked_at_are_read_in_the_form_of_earlier_releases() -> None:
    keys = {key_of_slot("p", 3), key_of_slot("p", 12), ("q", "873f4e8c-1dfb-0")}
    extra = looked_at_metadata(keys)
    assert extra == {"bucketlake.looked_at": '{"p": [3, 12], "q": ["873f4e8c-1dfb-0"]}'}
    assert looked_at_keys(CommitMetadata("DELETE", {}, extra), "c") == keys
    earlier = {"bucketlake.looked_at": '{"p": [3]}'}
    assert looked_at_keys(CommitMetadata("DELETE", {}, earlier), "c") == {key_of_slot("p", 3)}
    with pytest.raises(FormatError, match="slots by partition"):
        looked_at_keys(CommitMetadata("DELETE", {}, {"bucketlake.looked_at": "[1"}), "c")
