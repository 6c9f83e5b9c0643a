"""What a write under a record-level index did, for its commit, and the conflicts of its keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bucketlake.actions.commit import CommitView
from bucketlake.errors import CommitConflictError
from bucketlake.index.conflict_keys import ChangedShards, ConflictKey, describe_key
from bucketlake.model.write_stat import WriteStat
from bucketlake.write.write_plan import SlotResult, WritePlan


class SharedGroupsError(Exception):
    """Buckets hold keys of several shards, so a write cannot go shard by shard.

    Attributes
    ----------
    partitions : set of str
        Partitions with such buckets.
    """

    def __init__(self, partitions: Collection[str]) -> None:
        super().__init__(partitions)
        self.partitions = partitions


@dataclass(frozen=True, slots=True)
class IndexedResult:
    """What a write under a record-level index did, for its commit.

    Attributes
    ----------
    plan : WritePlan
        The slots, and the replaced groups.
    slots : list of SlotResult
        A result for each slot.
    index_files : tuple of WriteStat
        Log files of the index, relative to the metadata table.
    changed : ChangedShards
        Shards whose entries it changed.
    looked_at : set of ConflictKey
        Shards in which it found no entry of a key to delete.
    inserted : int
        Records with keys that the index did not have.
    looked_up : int
        Keys that were looked up in the index.
    from_cache : int
        Those of them that the caches of hosts answered.
    ignored : int
        Records that lost to a stored row of another partition by their ordering value.
    """

    plan: WritePlan
    slots: list[SlotResult]
    index_files: tuple[WriteStat, ...]
    changed: ChangedShards
    looked_at: frozenset[ConflictKey] = frozenset()
    inserted: int = 0
    looked_up: int = 0
    from_cache: int = 0
    ignored: int = 0

    def require_alone(self, partitions: frozenset[str] | None, view: CommitView) -> None:
        """Raise CommitConflictError if another commit changed keys that the write did not find.

        Parameters
        ----------
        partitions : set of str, or None
            Partitions of the batch; None in a global index.
        view : CommitView
            The state right before the commit.

        Notes
        -----
        A commit of another program does not name its new keys, so it may have added any key to its
        partitions.
        """
        own = self.changed.added | self.looked_at
        if not own:
            return
        for instant, commit in view.since:
            if commit.compacted or commit.resizes:
                continue
            other = ChangedShards.of_commit(commit, instant)
            if other is None and (partitions is None or commit.partitions & partitions):
                raise CommitConflictError(
                    view.write.instant,
                    f"instant {instant} of another program may have added the same keys meanwhile; "
                    "retry the write",
                )
            common = frozenset() if other is None else own & other.added
            if common:
                raise CommitConflictError(
                    view.write.instant,
                    f"instant {instant} changed {describe_key(min(common))} meanwhile; retry the "
                    "write",
                )
