"""The shards of a record-level index: their number, their names, and the shard of a key."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, IndexStateError, InputError
from bucketlake.metadata.record_index.shards import (
    GLOBAL_LIMITS,
    PARTITIONED_LIMITS,
    IndexShards,
    Shard,
    ShardLimits,
    rows_by_number,
)

FULL = 2**30 // 48  # Keys of a full shard.


@pytest.mark.parametrize(
    ("limits", "key_count", "shard_count"),
    [
        (GLOBAL_LIMITS, 30, 10),
        (PARTITIONED_LIMITS, 200_000, 1),
        (PARTITIONED_LIMITS, FULL - 1, 1),
        (PARTITIONED_LIMITS, FULL, 2),
        (PARTITIONED_LIMITS, 10**9, 10),
        (GLOBAL_LIMITS, 10 * FULL, 20),
        (ShardLimits(3, 3), 10**9, 3),
        (ShardLimits(1, 10), 3 * FULL // 2 + 1, 3),
        (ShardLimits(2, 4), 5 * FULL, 4),
    ],
)
def test_number_of_shards_follows_the_keys_within_limits(
    limits: ShardLimits, key_count: int, shard_count: int
) -> None:
    assert limits.shard_count(key_count) == shard_count


@pytest.mark.parametrize(("least", "most"), [(0, 3), (4, 3), (1, 10_001)])
def test_limits_that_no_name_could_tell_apart_are_refused(least: int, most: int) -> None:
    with pytest.raises(ConfigError, match="10000"):
        ShardLimits(least, most)


def test_groups_of_both_kinds_are_an_error_that_names_a_data_partition() -> None:
    file_ids = [Shard(0).file_id, Shard(0, "eu").file_id]
    with pytest.raises(IndexStateError, match="'eu' has shards of its own; rebuild"):
        IndexShards.of_file_ids(file_ids, "t")


@pytest.mark.parametrize("shards", [IndexShards(3), IndexShards(None, {"": 1, "e-u_": 2})])
def test_counts_are_those_of_the_file_groups(shards: IndexShards) -> None:
    file_ids = [shard.file_id for shard in shards.shards()]
    assert IndexShards.of_file_ids(file_ids, "t") == shards
    assert pickle.loads(pickle.dumps(shards)) == shards


def test_index_without_file_groups_is_partitioned() -> None:
    assert IndexShards.of_file_ids([], "t").is_partitioned


def test_new_data_partition_gets_shards_and_known_ones_keep_theirs() -> None:
    shards = IndexShards(None, {"eu": 2}).with_partitions(["eu", "us"], 3)
    assert (shards.count("eu"), shards.count("us"), shards.count("apac")) == (2, 3, 0)
    assert [shard.file_id for shard in shards.shards(["us"])] == [
        f"record-index-us-000{number}-0" for number in range(3)
    ]
    assert len(shards.shards()) == 5
    assert IndexShards(4).with_partitions(["us"], 3) == IndexShards(4)


def test_shard_of_a_global_index_is_the_same_in_every_data_partition() -> None:
    shards = IndexShards(10)
    keys = pa.array(["k000001", "polygenelubricants"])
    assert shards.numbers_of(keys, "eu").tolist() == shards.numbers_of(keys, "us").tolist()
    assert shards.shard(4, "eu") == Shard(4)
    assert shards.shard(4, "eu").file_id == "record-index-0004-0"


def test_data_partition_with_a_dot_has_no_shard_of_its_own() -> None:
    with pytest.raises(InputError, match=r"'v1\.2' has a dot.*use a global"):
        _ = Shard(0, "v1.2").file_id


def test_rows_by_number_of_no_rows_are_none() -> None:
    assert list(rows_by_number(np.empty(0, np.int32))) == []
