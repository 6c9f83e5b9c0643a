"""Tables pinned at a time."""

from __future__ import annotations

from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import OpenTable


def snapshot_as_of(table: OpenTable, as_of: str | None) -> Snapshot:
    """Pin a table at a time; None for now."""
    return load_snapshot(table, None if as_of is None else load_timeline(table).as_of(as_of))
