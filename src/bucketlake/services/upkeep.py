"""Upkeep after a commit: the services of a table that keeps itself up, run when they are due.

``bucketlake.upkeep=auto`` in the properties of a table asks every writer of bucketlake for it. What
is due is counted on the timeline, so a write that finds nothing due lists one folder more. The
services are those that users call, with their usual limits; several writers may run them at once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bucketlake.config.table_config import OFF, UPKEEP_MODES, check_keep_deletes
from bucketlake.config.table_keys import KEEP_DELETES, UPKEEP
from bucketlake.errors import CommitConflictError, ConfigError, ServiceWarning
from bucketlake.flow.stage import Engine
from bucketlake.index.setting import TableIndex, resolve_index
from bucketlake.model.arguments import check_texts
from bucketlake.model.names import one_of
from bucketlake.model.result import UpkeepStep, WriteResult
from bucketlake.model.retention import ArchivalLimits, Retention
from bucketlake.model.table_type import TableType
from bucketlake.services.resize.service import ResizeLimits
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import update_table_properties

COMPACT_EVERY = 5
"""Delta commits from one compaction to the next; Hudi's default."""

RESIZE_EVERY = 10
CLEAN_EVERY = 10
"""Commits from one resize, or clean, to the next."""

COMPACTED_BYTES_MAX = 1 << 30
"""Bytes that one compaction reads, so that it ends soon; the next one goes on."""

SECONDS_MAX = 60.0
"""No service begins later than this after the first one; what is left is due again."""

Run = Callable[[OpenTable, TableIndex | None, Engine], str]


def set_upkeep(table: OpenTable, mode: str) -> None:
    """Store whether writers keep the table up.

    Parameters
    ----------
    table : OpenTable
    mode : {"auto", "off"}

    Raises
    ------
    ConfigError
        If there is no such mode.
    """
    check_upkeep("mode", mode)
    _store(table, UPKEEP, None if mode == OFF else mode)


def set_keep_deletes(table: OpenTable, span: str) -> None:
    """Store how long deletes are remembered.

    Parameters
    ----------
    table : OpenTable
    span : str
        Such as ``7 days``.

    Raises
    ------
    ConfigError
        If it is no span of time, or the ordering of the table decides nothing.
    """
    check_texts(span=span)
    unset = replace(table.config, keep_deletes=None)
    check_keep_deletes(span, has_ordering=unset.keep_deletes_ms > 0)
    _store(table, KEEP_DELETES, span)


def _store(table: OpenTable, key: str, value: str | None) -> None:
    """Store an entry of the table's properties, or delete it."""

    def change(entries: dict[str, str]) -> Mapping[str, str]:
        others = {name: text for name, text in entries.items() if name != key}
        return others if value is None else {**others, key: value}

    with table.lock.held(table.storage):
        update_table_properties(table.storage, change, now_ms=table.clock.now_ms)


def check_upkeep(argument: str, mode: str) -> None:
    """Raise ConfigError for a mode that does not exist."""
    check_texts(**{argument: mode})
    if mode not in UPKEEP_MODES:
        raise ConfigError(argument, mode, one_of(mode, UPKEEP_MODES))


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long a service of a table has waited, in commits.

    Attributes
    ----------
    service : str
        ``compact``, ``resize``, ``clean`` or ``archive``: the method of ``Table``, and the command.
    commits : int
        Commits since the service ran; for an archival, commits of the active timeline.
    first : int
        So many commits make it due.
    again : int
        And then so many further ones, where it found nothing to do.
    """

    service: str
    commits: int
    first: int
    again: int

    @property
    def is_due(self) -> bool:
        """Whether the service should run."""
        return self.commits >= self.first

    @property
    def is_time(self) -> bool:
        """Whether a write runs it: not after each further commit where it finds nothing."""
        return self.is_due and (self.commits - self.first) % self.again == 0


def waiting_services(
    table: OpenTable, timeline: Timeline, given: TableIndex | None
) -> tuple[Waiting, ...]:
    """Return the services that a table has, and how long each has waited.

    Parameters
    ----------
    table : OpenTable
    timeline : Timeline
        Its timeline.
    given : TableIndex or None
        What the caller knows of the index.
    """
    found = (_waited(service, table, timeline, given) for service in _RUNS)
    return tuple(waiting for waiting in found if waiting is not None)


def kept_up(
    result: WriteResult,
    open_table: Callable[[], OpenTable],
    given: TableIndex | None,
    engine: Engine,
) -> WriteResult:
    """Run what is due after a commit, and return its result with what was done.

    An error of a service is told in the result and by a warning: the rows are committed.

    Parameters
    ----------
    result : WriteResult
        The result of the write.
    open_table : callable
        Opens the table as it is now.
    given : TableIndex or None
        What the caller knows of the index.
    engine : Engine
        Compacts and resizes.
    """
    steps: list[UpkeepStep] = []
    started = time.monotonic()
    seen: tuple[OpenTable, Timeline] | None = None  # As it was after the last service.
    for service, run in _RUNS.items() if result.instant is not None else ():
        begun = time.monotonic()
        if begun - started > SECONDS_MAX:
            break
        done, error = "", None
        try:
            if seen is None:
                table = open_table()
                seen = table, load_timeline(table)
            table, timeline = seen
            waiting = _waited(service, table, timeline, given)
            if waiting is not None and waiting.is_time:
                seen = None
                done = run(table, given, engine)
        except CommitConflictError:
            done = "another process does it"
        except Exception as problem:  # Also errors of Spark.
            error = str(problem)
            warnings.warn(
                f"the rows are committed (instant {result.instant}), but the upkeep after it "
                f"failed: {service}: {error}; the next writes try again",
                ServiceWarning,
                stacklevel=4,
            )
        if done or error:
            steps.append(UpkeepStep(service, round(time.monotonic() - begun, 3), done, error))
    return replace(result, upkeep=tuple(steps)) if steps else result


def _waited(
    service: str, table: OpenTable, timeline: Timeline, given: TableIndex | None
) -> Waiting | None:
    """Return how long a service has waited; None if the table has no such service."""
    commits = timeline.completed_commits()
    if service == "compact":
        if table.config.table_type is not TableType.MERGE_ON_READ:
            return None
        since = _later(commits, lambda instant: instant.action is Action.COMMIT)
        deltas = sum(instant.action is Action.DELTA_COMMIT for instant in since)
        return Waiting(service, deltas, COMPACT_EVERY, COMPACT_EVERY)
    if service == "resize":
        index = resolve_index(table, timeline, given)
        if index is None or index.resized is None:
            return None
        since = _later(commits, lambda instant: instant.action is Action.REPLACE_COMMIT)
        return Waiting(service, len(since), RESIZE_EVERY, RESIZE_EVERY)
    if service == "clean":
        since = _later(timeline.completed(), lambda instant: instant.action is Action.CLEAN)
        writes = sum(instant.action.writes_data for instant in since)
        return Waiting(service, writes, CLEAN_EVERY, CLEAN_EVERY)
    return Waiting(service, len(commits), ArchivalLimits().keep_max + 1, 1)


def _later(instants: Sequence[Instant], is_last: Callable[[Instant], bool]) -> Sequence[Instant]:
    """Return the instants after the last one of a kind; all if there is none."""
    ends = [place for place, instant in enumerate(instants) if is_last(instant)]
    return instants[ends[-1] + 1 :] if ends else instants


def _compact(table: OpenTable, _given: TableIndex | None, engine: Engine) -> str:
    from bucketlake.services.compaction import CompactionLimits, compact

    report = compact(table, CompactionLimits(max_bytes=COMPACTED_BYTES_MAX), engine)
    return _told(len(report.slices), "file group compacted", "file groups compacted")


def _resize(table: OpenTable, given: TableIndex | None, engine: Engine) -> str:
    from bucketlake.services.resize.execution import resize

    report = resize(table, given, ResizeLimits(), engine)
    return _told(len(report.buckets), "split or merge", "splits and merges")


def _clean(table: OpenTable, _given: TableIndex | None, _engine: Engine) -> str:
    from bucketlake.services.cleaning import clean

    report = clean(table, Retention())
    return _told(sum(each.files for each in report.partitions), "file deleted", "files deleted")


def _archive(table: OpenTable, _given: TableIndex | None, _engine: Engine) -> str:
    from bucketlake.services.archival import archive

    report = archive(table, ArchivalLimits())
    return _told(len(report.instants), "instant archived", "instants archived")


_RUNS: Mapping[str, Run] = {
    "compact": _compact,
    "resize": _resize,
    "clean": _clean,
    "archive": _archive,
}


def _told(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}" if count else ""
