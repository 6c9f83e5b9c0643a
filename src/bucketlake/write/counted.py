"""The check that a task got the records that the first pass over the input counted."""

from __future__ import annotations

from bucketlake.errors import IndexStateError
from bucketlake.index.layout import Slot

UNCOUNTED = -1
"""In place of a number of records or keys that is not known before they arrive."""

INPUT_CHANGED = "the input changed between two evaluations of it"
STABLE_INPUT = "write from a stable input, or cache it to storage first"


def require_count(slot: Slot, counted: int, found: int) -> None:
    """Raise IndexStateError if other records arrived for a slot than were counted."""
    if counted not in (found, UNCOUNTED):
        raise IndexStateError(
            f"the first pass over the input counted {counted} records for slot {slot[1]} "
            f"of partition {slot[0]!r}",
            f"{found} arrived: {INPUT_CHANGED}",
            STABLE_INPUT,
        )
