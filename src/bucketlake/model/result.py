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
    """

    instant: InstantTime | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    file_groups: int = 0
