"""What a write reports to its caller."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.model.file_name import InstantTime


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Counts of one committed write.

    Attributes
    ----------
    instant : InstantTime or None
        Requested time of the commit; None where there was nothing to write.
    inserted, updated, deleted : int
        Records that came, changed and went. A record that lost by its ordering value counts
        nowhere.
    file_groups : int
        File groups written or replaced.
    """

    instant: InstantTime | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    file_groups: int = 0
