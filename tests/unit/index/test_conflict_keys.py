"""Names of what commits wrote, removed or looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bucketlake.errors import FormatError
from bucketlake.index.conflict_keys import (
    ChangedShards,
    describe_key,
    key_of_group,
    key_of_shard,
    key_of_slot,
    looked_at_keys,
    looked_at_metadata,
    written_keys,
)
from bucketlake.model.file_name import FileId
from bucketlake.model.write_stat import CommitMetadata, WriteStat

BUCKET_3, NO_BUCKET = FileId("00000003-0000-4000-8000-000000000000-0"), FileId("873f4e8c-1dfb-0")
SHARDS = "bucketlake.index_shards"


def test_a_group_of_a_bucket_has_the_key_of_the_bucket_and_another_one_its_own() -> None:
    assert key_of_group("p", BUCKET_3) == key_of_slot("p", 3) == ("p", "00000003")
    assert key_of_group("p", NO_BUCKET) == ("p", NO_BUCKET)


def test_a_shard_has_its_partition_in_its_key_and_one_of_a_global_index_has_none() -> None:
    assert key_of_shard("p", 3) == ("p", "shard:3")
    assert key_of_shard(None, 3) == key_of_shard("", 3) == ("", "shard:3")


def test_a_key_is_described_by_bucket_group_or_shard() -> None:
    assert describe_key(key_of_slot("p", 12)) == "bucket 12 of partition 'p'"
    assert describe_key(("p", NO_BUCKET)) == f"file group {NO_BUCKET} of partition 'p'"
    of_shard = "new or deleted keys of index shard 3 of partition 'p'"
    assert describe_key(key_of_shard("p", 3)) == of_shard


def test_written_and_replaced_groups_have_keys_by_the_rule_of_the_layout() -> None:
    commit = CommitMetadata(
        "INSERT_OVERWRITE", {"p": (WriteStat(BUCKET_3, "p/f", "p"),)}, {}, {"q": (NO_BUCKET,)}
    )
    assert written_keys(commit) == {key_of_slot("p", 3), ("q", NO_BUCKET)}
    assert written_keys(commit, lambda path, group: (path, group[:4])) == {
        ("p", "0000"),
        ("q", "873f"),
    }


def test_groups_that_only_got_log_files_may_be_left_out() -> None:
    log = f"p/.{BUCKET_3}_20260101000000000.log.1_1-0-1"
    appended = WriteStat(BUCKET_3, log, "p")
    for stat, is_left_out in (
        (appended, True),
        (replace(appended, opens_group=True), False),
        (replace(appended, path=f"p/{BUCKET_3}_1-0-1_20260101000000000.parquet"), False),
    ):
        commit = CommitMetadata("UPSERT", {"p": (stat,)}, {}, {"q": (NO_BUCKET,)})
        left = {("q", NO_BUCKET)} | (set() if is_left_out else {key_of_slot("p", 3)})
        assert written_keys(commit, leaves_appended=True) == left
        assert written_keys(commit) == {key_of_slot("p", 3), ("q", NO_BUCKET)}


def test_changed_shards_are_read_as_they_were_written() -> None:
    changed = ChangedShards(
        frozenset({key_of_shard("p", 3), key_of_shard("a", 12)}), frozenset({key_of_shard(None, 0)})
    )
    entry = changed.to_metadata()
    assert json.loads(entry[SHARDS]) == [[["a", "shard:12"], ["p", "shard:3"]], [["", "shard:0"]]]
    assert ChangedShards.of_commit(CommitMetadata("UPSERT", {}, entry), "c") == changed
    assert ChangedShards.of_commit(CommitMetadata("UPSERT", {}), "c") is None


@pytest.mark.parametrize("text", ["[1", "{}", "[[]]", "[1, 2]", '[[["p"]], []]', "null"])
def test_changed_shards_that_cannot_be_read_name_the_commit(text: str) -> None:
    commit = CommitMetadata("UPSERT", {}, {SHARDS: text + " " * 100})
    with pytest.raises(FormatError) as caught:
        ChangedShards.of_commit(commit, "the commit")
    assert "the commit" in str(caught.value)
    assert SHARDS in str(caught.value)
    assert text in str(caught.value)
    assert " " * 80 not in str(caught.value)


@pytest.mark.parametrize("text", ["[1", "[]", '{"p": 1}', "null"])
def test_slots_that_were_looked_at_and_cannot_be_read_name_the_commit(text: str) -> None:
    entry = {"bucketlake.looked_at": text + " " * 100}
    with pytest.raises(FormatError) as caught:
        looked_at_keys(CommitMetadata("DELETE", {}, entry), "the commit")
    assert "the commit" in str(caught.value)
    assert "bucketlake.looked_at" in str(caught.value)
    assert text in str(caught.value)
    assert " " * 80 not in str(caught.value)


def test_what_a_commit_looked_at_is_read_as_it_was_written() -> None:
    keys = {key_of_slot("p", 12), key_of_slot("p", 3), ("q", NO_BUCKET), key_of_shard("p", 1)}
    entry = looked_at_metadata(keys)
    expected: dict[str, Any] = {"p": [3, 12, "shard:1"], "q": [NO_BUCKET]}
    assert json.loads(entry["bucketlake.looked_at"]) == expected
    assert looked_at_keys(CommitMetadata("DELETE", {}, entry), "c") == keys
    assert looked_at_metadata([]) == {}
    assert looked_at_keys(CommitMetadata("DELETE", {}), "c") == set()
