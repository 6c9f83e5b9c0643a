"""Which cached shards are dropped.

The rule of the dynamic bucket index (Hudi's discussion 18514) makes a shard *eligible*: the
streaming query that last added keys to it has committed since, and added none. A shard to which no
query adds keys is always eligible. A byte budget then drops the eligible shards that were used
least recently. The cache has committed entries only, so a dropped shard costs time and nothing
else.

The policy of the discussion drops all eligible shards of the table when a checkpoint ends. A task
does not see that end, so the first lookup of the next batch applies the rule, for the checkpoint
before (:attr:`Checkpoint.before`): a shard that gets keys in each batch stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from bucketlake.metadata.location_cache.shard_folder import LastUse, ShardFolder


class EvictionPolicy(Enum):
    """When eligible shards are dropped."""

    LRU = "lru"
    """While the cache exceeds its budget, the least recently used first."""

    CHECKPOINT = "checkpoint"
    """All shards of the table, when a checkpoint ends; a byte budget holds as well."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress of a streaming query.

    Attributes
    ----------
    query : str
        Name of the query.
    current : int
        The batch that is being written.
    succeeded : int
        The last batch that is committed; -1 before the first.
    """

    query: str
    current: int
    succeeded: int = -1

    @property
    def before(self) -> Checkpoint:
        """The checkpoint before, as it was when it ended."""
        return Checkpoint(self.query, self.current - 1, self.succeeded - 1)


@dataclass(frozen=True, slots=True)
class CachedSize:
    """A cached shard, as the eviction sees it."""

    folder: ShardFolder
    size_bytes: int
    last_use: LastUse


def plan_eviction(
    cached: Sequence[CachedSize],
    bytes_max: int,
    policy: EvictionPolicy = EvictionPolicy.LRU,
    checkpoint: Checkpoint | None = None,
) -> list[CachedSize]:
    """Return the shards to drop.

    Parameters
    ----------
    cached : sequence of CachedSize
        All cached shards that are not in use.
    bytes_max : int
        The budget. It is exceeded if too few shards are eligible.
    policy : EvictionPolicy
        Whether shards within the budget are dropped too.
    checkpoint : Checkpoint, optional
        Progress of the query that writes. Updates by other queries protect no shard.
    """
    eligible = [each for each in cached if _is_eligible(each.last_use, checkpoint)]
    if policy is EvictionPolicy.CHECKPOINT and checkpoint is not None:
        # Another task fills a shard that was never used, and notes its use afterwards.
        return [each for each in eligible if each.last_use.at_ns]
    dropped, left = [], sum(each.size_bytes for each in cached)
    for each in sorted(eligible, key=lambda each: each.last_use.at_ns):
        if left <= bytes_max:
            break
        dropped.append(each)
        left -= each.size_bytes
    return dropped


def evict(
    folders: Iterable[ShardFolder],
    bytes_max: int,
    policy: EvictionPolicy = EvictionPolicy.LRU,
    checkpoint: Checkpoint | None = None,
    in_use: ShardFolder | None = None,
) -> None:
    """Drop some of the cached shards."""
    cached = [CachedSize(folder, *folder.size_and_use()) for folder in folders if folder != in_use]
    if in_use is not None:
        bytes_max -= in_use.size_bytes()
    for each in plan_eviction(cached, bytes_max, policy, checkpoint):
        each.folder.remove()


def _is_eligible(last_use: LastUse, checkpoint: Checkpoint | None) -> bool:
    if checkpoint is None or last_use.query != checkpoint.query:
        return True
    return last_use.checkpoint <= checkpoint.succeeded
