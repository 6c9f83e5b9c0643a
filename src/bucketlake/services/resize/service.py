"""What all steps of a resize share."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.flow.stage import Engine
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.setting import TableIndex, require_rings
from bucketlake.model.table_type import TableType
from bucketlake.services.resize.limits import ResizeLimits
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.open_table import OpenTable


class OvertakenError(Exception):
    """Writers changed what a plan names; the plan is withdrawn, and made again."""


@dataclass(frozen=True, slots=True)
class ResizeService:
    """What all steps of a resize share."""

    table: OpenTable
    given: TableIndex | None
    limits: ResizeLimits
    engine: Engine

    @property
    def appends(self) -> bool:
        """Whether writes append log files."""
        return self.table.config.table_type is TableType.MERGE_ON_READ


def rings_of(service: ResizeService, timeline: Timeline) -> RingLayout:
    """Return the rings of the table at a point of its timeline."""
    return require_rings(service.table.storage, timeline, service.given).layout()
