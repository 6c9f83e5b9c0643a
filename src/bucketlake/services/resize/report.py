"""What a resize does, or has done."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.model.file_name import InstantTime
from bucketlake.model.shown import Shown


@dataclass(frozen=True, slots=True)
class ResizedBuckets:
    """A split or a merge.

    Attributes
    ----------
    partition_path : str
        The partition.
    action : {"split", "merge"}
        What is done.
    file_ids : tuple of str
        The file groups that are rewritten.
    size_bytes : int
        Their bytes.
    old_ranges, new_ranges : tuple of (int, int)
        Ranges of hash values before and after: start, which is excluded, and end; none for a
        directory.
    old_suffixes, new_suffixes : tuple of str
        For a directory, the last bits of the hash values before and after; ``*`` for all hashes.
    """

    partition_path: str
    action: str
    file_ids: tuple[str, ...]
    size_bytes: int
    old_ranges: tuple[tuple[int, int], ...]
    new_ranges: tuple[tuple[int, int], ...]
    old_suffixes: tuple[str, ...] = ()
    new_suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizeReport(Shown):
    """What a resize does, or has done.

    Attributes
    ----------
    buckets : tuple of ResizedBuckets
        Splits and merges of the new plan; none if the table is in balance.
    left : int
        Further splits and merges that the limits leave to the next resize.
    instants : tuple of InstantTime
        Resizes that were completed, also those that were planned before; none for a dry run.
    scheduled : InstantTime or None
        The plan that was put on the timeline; None if there was nothing to do.
    """

    buckets: tuple[ResizedBuckets, ...]
    left: int = 0
    instants: tuple[InstantTime, ...] = ()
    scheduled: InstantTime | None = None
