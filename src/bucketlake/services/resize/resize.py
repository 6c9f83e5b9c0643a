"""Resizing buckets of hash rings while the table is written (RFC-42).

A resize is a clustering on the timeline, which Hudi can carry out, and the other way round. A plan
names file slices, and the nodes that take their place. From then on writes serve the ring before
the resize and the ring after it (``index/ring_layout.py``), so neither they nor readers wait. Rows
do not change.

On merge-on-read tables the slices are read as the plan names them: records of later writes have
copies in the new groups. On copy-on-write tables a write replaces the base file of a group, so a
group may be another one when the resize completes. Then the plan is withdrawn and made again. After
three rounds writers of these groups wait for the resize, as they wait for another writer.

A write of a program that knows no resize makes no copies. The resize finds that before it
completes, and is made again, too.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from bucketlake.actions.progress import LOGGER
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.actions.rollback import withdraw_resize
from bucketlake.config.support import check_writable
from bucketlake.errors import CommitConflictError
from bucketlake.flow.stage import Engine
from bucketlake.index.setting import TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.services.resize.execution import carry_out, carry_out_pending
from bucketlake.services.resize.planning import described, is_resize_due, schedule, worth_it
from bucketlake.services.resize.service import (
    OvertakenError,
    ResizeLimits,
    ResizeReport,
    ResizeService,
)
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import OpenTable

ROUNDS_MAX = 10
ROUNDS_BESIDE_WRITERS = 3
"""Rounds of a copy-on-write table in which writers do not wait for the resize."""


def resize(
    table: OpenTable,
    index: TableIndex | None,
    limits: ResizeLimits,
    engine: Engine,
    *,
    schedule_only: bool = False,
    dry_run: bool = False,
) -> ResizeReport:
    """Carry out what is planned, then plan a resize and carry it out.

    Parameters
    ----------
    table : OpenTable
    index : TableIndex or None
        What the caller knows of the index.
    limits : ResizeLimits
        What to split and merge.
    engine : Engine
        Has an engine do it.
    schedule_only : bool
        Whether to leave the new plan to another process.
    dry_run : bool
        Whether to return only what would be planned.

    Raises
    ------
    ConfigError
        If the index of the table has no rings.
    IndexStateError
        If a ring is broken, or a file group is not on its ring.
    CommitConflictError
        If writers that know no resize changed the groups in each of ten rounds.
    UnsupportedFeatureError
        If the table cannot be written.
    """
    check_writable(table.config, table.storage.root)
    timeline = load_timeline(table)
    service = ResizeService(table, index, limits, engine)
    if dry_run:
        if not is_resize_due(service, timeline):
            return ResizeReport(())
        chosen, left = worth_it(service, timeline)
        return ResizeReport(described(service, timeline, chosen), left)
    settle_failed_writes(table, timeline)
    done = [] if schedule_only else carry_out_pending(service)
    if not is_resize_due(service, load_timeline(table)):
        return ResizeReport((), instants=tuple(done))
    report = _plan_and_carry_out(service, schedule_only=schedule_only)
    return replace(report, instants=(*done, *report.instants))


def _plan_and_carry_out(service: ResizeService, *, schedule_only: bool) -> ResizeReport:
    """Plan a resize and carry it out, again and again while writers overtake it."""
    overtaken: InstantTime | None = None
    with ExitStack() as holds:  # Heartbeats of plans for which writers wait.
        for number in range(ROUNDS_MAX):
            is_held = not service.appends and number >= ROUNDS_BESIDE_WRITERS
            if overtaken is not None and not is_held:
                withdraw_resize(service.table, overtaken)
                overtaken = None
            before = holds.pop_all()  # Writers wait for the old plan until the new one holds them.
            with before, service.table.lock.held(service.table.storage) as require_held:
                plan = schedule(service, require_held, overtaken, holds if is_held else None)
            if overtaken is not None:
                withdraw_resize(service.table, overtaken)
                overtaken = None
            if plan is None:
                return ResizeReport(())
            instant, chosen, left, timeline = plan
            report = ResizeReport(described(service, timeline, chosen), left, (), instant)
            if schedule_only:
                return report
            try:
                carry_out(service, instant, is_held=is_held)
            except OvertakenError as error:
                LOGGER.info("resize %s: %s; it is planned again", instant, error)
                overtaken = instant
            else:
                return replace(report, instants=(instant,))
    withdraw_resize(service.table, instant)
    raise CommitConflictError(
        instant,
        f"writers changed the buckets in each of {ROUNDS_MAX} rounds of this resize; let writers "
        "of other programs pause, or configure a lock that they share with bucketlake",
    )
