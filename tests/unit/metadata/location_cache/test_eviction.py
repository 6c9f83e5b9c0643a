"""Which cached shards are dropped: the discussion's rule, and the byte budget."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bucketlake.metadata.location_cache import cache as cache_module
from bucketlake.metadata.location_cache.cache import (
    CachedSize,
    Checkpoint,
    EvictionPolicy,
    LocationCache,
    evict,
    plan_eviction,
)
from bucketlake.metadata.location_cache.refreshing import Served
from bucketlake.metadata.location_cache.shard_folder import LastUse, ShardFolder, shard_folders
from bucketlake.metadata.record_index.shards import IndexShards
from tests.cached_index import PlannedIndex, folder_of, look

LRU, CHECKPOINT = EvictionPolicy.LRU, EvictionPolicy.CHECKPOINT
QUERY = "q"


def cached(name: str, at: int, updated: int | None = None, query: str = QUERY) -> CachedSize:
    use = LastUse(at) if updated is None else LastUse(at, query, updated)
    return CachedSize(ShardFolder(Path(name)), 10, use)


def dropped(
    shards: list[CachedSize],
    bytes_max: int,
    policy: EvictionPolicy = LRU,
    checkpoint: Checkpoint | None = None,
) -> list[str]:
    plan = plan_eviction(shards, bytes_max, policy, checkpoint)
    return [str(each.folder.path) for each in plan]


def test_least_recently_used_shards_are_dropped_until_the_budget_holds() -> None:
    shards = [cached("a", 3), cached("b", 1), cached("c", 2)]
    assert dropped(shards, 30) == []
    assert dropped(shards, 29) == ["b"]
    assert dropped(shards, 10) == ["b", "c"]


def test_shard_whose_last_update_is_not_committed_is_kept_beyond_the_budget() -> None:
    shards = [cached("a", 1, updated=7), cached("b", 2, updated=6)]
    assert dropped(shards, 0, LRU, Checkpoint(QUERY, 7, 6)) == ["b"]
    assert dropped(shards, 0, LRU, Checkpoint(QUERY, 8, 7)) == ["a", "b"]


@pytest.mark.parametrize(
    ("updated", "checkpoint", "is_dropped"),
    [
        (None, Checkpoint(QUERY, 5, 4), True),  # Read, and never updated.
        (5, Checkpoint(QUERY, 5, 4), False),  # Updated in this checkpoint.
        (4, Checkpoint(QUERY, 5, 4), True),  # Updated before, and that is committed.
        (4, Checkpoint(QUERY, 6, 3), False),  # Updated before, and that is not committed.
        (5, Checkpoint("other", 5, 4), True),  # Numbers of another query say nothing.
    ],
)
def test_rule_of_the_discussion_drops_what_is_not_updated_and_committed(
    updated: int | None, checkpoint: Checkpoint, is_dropped: bool
) -> None:
    shards = [cached("a", 1, updated)]
    assert dropped(shards, 10**9, CHECKPOINT, checkpoint) == (["a"] if is_dropped else [])


def test_batch_writes_without_a_query_protect_no_shard() -> None:
    assert dropped([cached("a", 1, updated=7)], 0) == ["a"]


def shards_on_disk(tmp_path: Path, count: int) -> tuple[LocationCache, PlannedIndex]:
    names = [f"p{number}" for number in range(count)]
    index = PlannedIndex(IndexShards(None, dict.fromkeys(names, 1)))
    index.commit({(name, "f"): [f"k{n}" for n in range(500)] for name in names})
    return LocationCache(str(tmp_path / "cache")), index


def test_budget_holds_on_disk_and_the_shard_in_use_stays(tmp_path: Path) -> None:
    roomy, index = shards_on_disk(tmp_path, 4)
    reader = index.open()
    slices = index.slices(reader)
    for place, held in enumerate(slices[:3]):
        look(roomy, reader, held, ["k1", "new"])
        used = folder_of(roomy, reader, held) / "used"
        os.utime(used, ns=(place, place))
    size = ShardFolder(folder_of(roomy, reader, slices[0])).size_bytes()
    tight = LocationCache(roomy.folder, int(2.5 * size))
    look(tight, reader, slices[3], ["k1", "new"])
    left = {folder.path for folder in shard_folders(tight.root)}
    assert left == {folder_of(tight, reader, held) for held in slices[2:]}
    look(LocationCache(roomy.folder, 1), reader, slices[0], ["k1"])
    assert folder_of(roomy, reader, slices[0]).exists()


def test_shards_to_drop_are_looked_for_by_what_is_written_and_not_by_the_size_of_the_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roomy, index = shards_on_disk(tmp_path, 1)
    looked: list[int] = []

    def noted(*_: object) -> None:
        looked.append(1)

    monkeypatch.setattr(cache_module, "evict", noted)
    monkeypatch.setattr(cache_module.random, "random", lambda: 0.5)
    reader = index.open()
    (held,) = index.slices(reader)
    look(roomy, reader, held, ["k1"])
    assert not looked, "a shard is far smaller than the budget"
    folder = ShardFolder(folder_of(roomy, reader, held))
    tight = LocationCache(roomy.folder, 10 * folder.size_bytes())
    folder.remove()
    assert look(tight, reader, held, ["k1"]).served is Served.BUILT
    assert len(looked) == 1
    index.commit({("p0", "f"): ["one more"]})
    reader = index.open()
    found = look(tight, reader, index.slices(reader)[0], ["one more"])
    assert found.served is Served.EXTENDED
    assert len(looked) == 1


def test_a_checkpoint_drops_shards_of_the_table_without_new_keys_once_the_next_batch_begins(
    tmp_path: Path,
) -> None:
    lru, index = shards_on_disk(tmp_path, 3)
    cache = LocationCache(lru.folder, policy=CHECKPOINT)
    reader = index.open()
    growing, updated, idle = index.slices(reader)
    of_other_table = ShardFolder.of(cache.root, "another table", growing.file_id)
    of_other_table.path.mkdir(parents=True)
    for batch in range(1, 4):
        checkpoint = Checkpoint(QUERY, batch, batch - 1)
        served = look(cache, reader, growing, ["k1", "new"], checkpoint).served
        expected = Served.AS_IT_WAS if batch > 1 else Served.BUILT
        assert served is expected, "a shard that gets keys in each batch stays"
        served = look(cache, reader, updated, ["k1"], checkpoint).served
        assert served is Served.BUILT, "a shard without new keys is dropped after the batch"
        if batch == 1:
            look(cache, reader, idle, ["k1", "new"], checkpoint)
        assert folder_of(cache, reader, idle).exists() == (batch < 3), "two batches without a key"
    assert of_other_table.path.exists()


def test_keys_that_are_not_found_mark_the_shard_as_updated(tmp_path: Path) -> None:
    cache, index = shards_on_disk(tmp_path, 2)
    reader = index.open()
    with_new, without = index.slices(reader)
    checkpoint = Checkpoint(QUERY, 3, 2)
    look(cache, reader, with_new, ["k1", "new"], checkpoint)
    look(cache, reader, without, ["k1"], checkpoint)
    _, last_use = ShardFolder(folder_of(cache, reader, with_new)).size_and_use()
    assert last_use.checkpoint == 3
    evict(shard_folders(cache.root), cache.bytes_max, CHECKPOINT, checkpoint)
    assert folder_of(cache, reader, with_new).exists()
    assert not folder_of(cache, reader, without).exists()
    look(cache, reader, without, ["k1", "new"])
