"""How many shards of the index a write opens for a new data partition, and which are shared.

A partition keeps its number of shards, so it is chosen when little is known. The rows that the
batch brings to the partition tell most. A stream opens a new day with few rows, so a day like the
days before is recognised by what the newest commits wrote. Only the driver chooses; two writers
that choose differently conflict (``IndexUpkeep.require_same_index``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.errors import TimelineError
from bucketlake.metadata.record_index.pinned_index import PinnedIndex
from bucketlake.metadata.record_index.shards import ShardsBySize
from bucketlake.read.snapshot import Snapshot
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

COMMITS_MAX = 8
"""Number of commits that are looked at: more than pass between two compactions, as a rule, because
those of a merge-on-read table write few rows otherwise."""


def with_new_shards(
    index: PinnedIndex, rule: ShardsBySize, rows: Mapping[str, int], snapshot: Snapshot
) -> PinnedIndex:
    """Return a pinned index with the shards that new data partitions get.

    Parameters
    ----------
    index : PinnedIndex
        The index.
    rule : ShardsBySize
        How many shards a new partition gets.
    rows : mapping of str to int
        Rows of the batch by data partition.
    snapshot : Snapshot
        The pinned data table.
    """
    counts = {path: rule.shard_count(rows.get(path, 0)) for path in index.new_partitions}
    if rule.of_small != rule.of_large and rule.of_small in counts.values():
        least = rule.shard_count(rows_of_another_partition(snapshot.storage, snapshot.timeline))
        counts = {path: max(count, least) for path, count in counts.items()}
    return index.with_new(counts)


def rows_of_another_partition(storage: Storage, timeline: Timeline) -> int:
    """Return the most rows that one of the newest commits wrote in one partition.

    In a copy-on-write table these are all rows of the buckets that the commit rewrote. The cost
    follows the size of a few commits, and not the table.
    """
    newest = timeline.completed_commits()[-COMMITS_MAX:]
    try:
        commits = timeline.read_commits(storage, newest)
    except TimelineError:  # One was rolled back meanwhile, and any number of shards is right.
        return 0
    return max(
        (
            sum(stat.record_count for stat in stats)
            for _, commit in commits
            for stats in commit.write_stats.values()
        ),
        default=0,
    )


# ---- Notes of partitions whose buckets hold keys of several shards -------------------------------
#
# Buckets that bucketlake filled hold keys of one shard each. Other programs, and conversions from
# other kinds, do not keep to that. A write that finds such a partition notes it here, so that later
# writes do not try again (``by_shard.py``). A note only chooses how a write works, never what it
# writes: a partition without a note is checked by the tasks.

SHARED_FOLDER = f"{EXTENSION_FOLDER}/shared_groups"


def note_shared_groups(storage: Storage, partitions: Collection[str]) -> None:
    """Note partitions that have buckets with keys of several shards."""
    for path in sorted(partitions):
        storage.put(f"{SHARED_FOLDER}/{_name(path)}", path.encode())


def have_shared_groups(storage: Storage, partitions: Collection[str]) -> bool:
    """Return whether one of some partitions was noted."""
    noted = {stored.path.rpartition("/")[2] for stored in storage.list(SHARED_FOLDER)}
    return bool(noted) and not noted.isdisjoint(map(_name, partitions))


def _name(partition_path: str) -> str:
    return hashlib.sha256(partition_path.encode()).hexdigest()[:32]
