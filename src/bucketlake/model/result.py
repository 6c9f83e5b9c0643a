"""The result of a write."""

from __future__ import annotations

from dataclasses import dataclass, field

from bucketlake.model.file_name import InstantTime
from bucketlake.model.shown import NONE_TEXT, Shown

_UNKNOWN = {NONE_TEXT: "unknown"}


@dataclass(frozen=True, slots=True)
class UpkeepStep:
    """A service that ran after a commit, because the table keeps itself up.

    Attributes
    ----------
    service : {"compact", "resize", "clean", "archive"}
        The service.
    seconds : float
        How long it took.
    done : str
        What it did, in words.
    error : str or None
        Why it failed; the next writes try again.
    """

    service: str
    seconds: float
    done: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WriteResult(Shown):
    """Counts of one write; ``read(since=result)`` continues after its commit.

    Attributes
    ----------
    instant : InstantTime or None
        Requested time of the commit; None if the write changed nothing, and so made no commit: it
        had no rows, a delete found none of its keys, or every record lost by its ordering value.
    inserted, updated : int or None
        Records with new keys, and with keys that the table had. A record that lost by its ordering
        value is not counted. None if it is unknown: in a merge-on-read table, a log file of a
        bucket index is written without a look at stored keys. A record-level index knows them, but
        cannot tell which updates will lose, and takes a key for stored that was deleted after the
        last compaction.
    deleted : int or None
        Records that were deleted. None if log files have deletes of a bucket index, which do not
        tell whether the table had their keys.
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
    written : int
        Records that were inserted or updated: the sum of both, also if they are unknown.
    completed_at : InstantTime or None
        Completion time of the commit; None without a commit.
    ignored : int or None
        Records that lost to a stored record by their ordering value. None if it is unknown, because
        log files are written without a look at stored records. Of several records of the batch with
        one key, one counts.
    skipped : bool
        Whether the batch of a stream was skipped, because it is committed already.
    upkeep : tuple of UpkeepStep
        Services that ran after the commit, and did something or failed; see
        :meth:`Table.set_upkeep`.
    """

    instant: InstantTime | None
    inserted: int | None = field(default=0, metadata=_UNKNOWN)
    updated: int | None = field(default=0, metadata=_UNKNOWN)
    deleted: int | None = field(default=0, metadata=_UNKNOWN)
    file_groups: int = 0
    looked_up: int | None = None
    from_cache: int | None = None
    from_table: int | None = None
    written: int = 0
    completed_at: InstantTime | None = None
    ignored: int | None = field(default=0, metadata=_UNKNOWN)
    skipped: bool = False
    upkeep: tuple[UpkeepStep, ...] = ()
