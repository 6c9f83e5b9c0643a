"""The result of a write."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.model.file_name import InstantTime
from bucketlake.model.shown import Shown


@dataclass(frozen=True, slots=True)
class WriteResult(Shown):
    """Counts of one committed write.

    Attributes
    ----------
    instant : InstantTime or None
        Requested time of the commit; None if there was nothing to write.
    inserted, updated, deleted : int
        Numbers of records. A record that lost by its ordering value is not counted.
    file_groups : int
        File groups written or replaced.
    looked_up : int or None
        Keys of the batch that were looked up in the record-level index. Keys of a partition that is
        new to the index are not looked up. None if the kind of index looks nothing up.
    from_cache : int or None
        Those of them that were answered from the local disk of an executor, see
        ``docs/how-to/dynamic-buckets.md``. Tables under :class:`RecordIndex` have no such cache.
    from_table : int or None
        Those of them that were answered by reading the index in the table: the cache did not have
        their shard, or could not be used. ``looked_up`` is the sum of both.
    """

    instant: InstantTime | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    file_groups: int = 0
    looked_up: int | None = None
    from_cache: int | None = None
    from_table: int | None = None
