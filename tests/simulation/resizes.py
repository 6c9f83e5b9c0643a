"""Resizes of hash rings for the simulation, and a reader that goes by file names alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from bucketlake.flow.threads import Threads
from bucketlake.format.log_block import read_log_blocks
from bucketlake.index.hashing_config import INITIAL_INSTANT
from bucketlake.index.ring_kind import ExtendibleBucket, RingKind
from bucketlake.index.rings import stored_versions
from bucketlake.index.setting import TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.resize.execution import resize
from bucketlake.services.resize.service import ResizeLimits, ResizeReport
from bucketlake.slices.file_system_view import list_partitions
from bucketlake.storage.base import Storage
from bucketlake.timeline.instant import UNDOING
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.target import Target
from tests.conformance.kinds import FULL_BYTES


def has_rings(index: TableIndex) -> bool:
    """Return whether tables of an index are resized, and not rescaled."""
    return isinstance(index, RingKind)


def drawn_limits(drawn: random.Random, index: TableIndex) -> ResizeLimits:
    """Draw limits: sometimes all buckets are split, sometimes all are merged, sometimes both."""
    limits = ResizeLimits(
        max_file_size=drawn.choice([1, 1, FULL_BYTES, 2 * FULL_BYTES, 1 << 30]),
        split_into=drawn.choice([2, 2, 3]),
        split_at=drawn.choice(["middle", "balanced"]),
        max_groups=drawn.choice([None, None, 1, 2]),
    )
    if isinstance(index, ExtendibleBucket):  # Its buckets split in halves.
        return replace(limits, split_into=2, split_at="middle")
    return limits


def resize_one_by_one(
    target: Target,
    limits: ResizeLimits,
    *,
    schedule_only: bool = False,
) -> ResizeReport:
    """Resize a table in this thread, one job after the other."""
    return resize(
        target.table,
        target.index,
        limits,
        Threads(1),
        schedule_only=schedule_only,
    )


def require_committed_blocks(storage: Storage, story: Callable[[str], str]) -> None:
    """Check that a reader that goes by file names sees only blocks of committed writes.

    bucketlake skips a block of a write that is not committed. Hudi does not look since table
    version 8, and a copy for a resize has the resize's instant in its name. While a commit is
    rolled back, its copies may be there for longer than the commit.
    """
    snapshot = load_snapshot(table_at(storage))
    if any(pending.action in UNDOING for pending in snapshot.timeline.pending()):
        return
    for file_slice in snapshot.all_slices():
        for file in file_slice.log_files:
            for block in read_log_blocks(storage, file.path, file.size_bytes):
                is_committed = snapshot.timeline.is_completed(block.instant)
                assert is_committed, story(f"{file.path} shows {block.instant}, not committed")


def require_settled_copies(
    storage: Storage, completed: set[InstantTime], story: Callable[[str], str]
) -> None:
    """Check that copies for resizes, seen or hidden, are of completed writes."""
    for files in list_partitions(storage).values():
        for file in files:
            if ".log." not in file.path or file.path.endswith(".cdc"):
                continue
            for block in read_log_blocks(storage, file.path, file.size_bytes):
                assert block.instant in completed, story(f"{file.path} is left over")


def require_settled_rings(
    storage: Storage, completed: set[InstantTime], story: Callable[[str], str]
) -> None:
    """Check that the versions of all rings are of completed commits, or of pending resizes."""
    for version in stored_versions(storage):
        is_known = version.instant in completed | {INITIAL_INSTANT}
        assert is_known, story(f"{version.stored.path} is left over")
