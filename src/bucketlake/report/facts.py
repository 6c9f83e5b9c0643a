"""What a report shows: results of the calls of a table, all for one pinned state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bucketlake.read.buckets import Buckets
from bucketlake.read.history import TimelineEntry
from bucketlake.read.overview import TableOverview
from bucketlake.services.advice.advice import AdviceList
from bucketlake.services.check.findings import Findings


@dataclass(frozen=True, slots=True)
class TableReport:
    """The facts of a report.

    Attributes
    ----------
    overview : TableOverview
    buckets : Buckets
        What ``Table.buckets`` returns.
    timeline : sequence of TimelineEntry
        What ``Table.timeline`` returns.
    findings : Findings
        What ``Table.doctor`` returns.
    advice : AdviceList
        What ``Table.advise`` returns.
    zone : str
        Time zone of the timeline, in words.
    made_at : datetime
        When the facts were read.
    """

    overview: TableOverview
    buckets: Buckets
    timeline: Sequence[TimelineEntry]
    findings: Findings
    advice: AdviceList
    zone: str
    made_at: datetime
