"""The doctor: finding errors, leftovers and risks of a table.

A check is a function that gets the listed table and yields findings; :data:`CHECKS` lists the
checks. They change nothing. Files are listed before the timeline: a writer puts its instant on the
timeline before its files, so a file without an instant does not belong to a living writer. A file
that a check cannot read is a finding too, and the other checks continue.

Keys and whole files are read only on request, because this costs a scan
(``services/check/row_checks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from bucketlake.actions.tombstone_list import tombstone_files
from bucketlake.config.paths_of_table import (
    HEARTBEAT_FOLDER,
    MARKER_FOLDER,
    PROPERTIES_BACKUP_FILE,
    PROPERTIES_FILE,
)
from bucketlake.config.recorded_entries import require_recorded
from bucketlake.config.support import check_readable
from bucketlake.errors import (
    BucketLakeError,
    FormatError,
    ObjectNotFoundError,
    TimelineError,
    UnsupportedFeatureError,
)
from bucketlake.format.avro.tree import arrow_from_avro
from bucketlake.format.clustering_plan import ClusteringPlan
from bucketlake.index.hashing_config import (
    INITIAL_INSTANT,
    active_versions,
    committed_configs,
    config_path,
)
from bucketlake.index.recorded_counts import recorded_counts
from bucketlake.index.setting import TableIndex, without_records
from bucketlake.model.field_path import fields_at
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.check.examination import Examination, examine
from bucketlake.services.check.file_checks import FILE_CHECKS
from bucketlake.services.check.findings import (
    ALWAYS_CHECKED,
    MIN_AGE_SECONDS,
    ON_REQUEST,
    Finding,
    FindingKind,
    Findings,
    Severity,
)
from bucketlake.services.check.metadata_checks import METADATA_CHECKS, check_metadata_files
from bucketlake.services.check.row_checks import check_files, check_keys
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.commit_order import last_turn, stray_turns
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import UNDOING, WRITES, Instant, system_now_ms, told_future
from bucketlake.timeline.locks import lock_left_behind
from bucketlake.timeline.markers import marker_folder
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import old_commits
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.tombstones import read_tombstones

Check = Callable[[Examination], Iterator[Finding]]

_ORDER = list(Severity)


class CatalogCheck(Protocol):
    """Compares a table with the catalog in which it registers itself."""

    def check(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Find what a sync would change."""

    def mend(self, snapshot: Snapshot) -> None:
        """Sync the table."""


def diagnose(
    storage: Storage,
    given: TableIndex | None,
    *,
    keys: bool = False,
    files: bool = False,
    min_age_seconds: int = MIN_AGE_SECONDS,
    catalog: CatalogCheck | None = None,
    now_ms: Callable[[], int] = system_now_ms,
) -> Findings:
    """Run the checks of the doctor on a table.

    Parameters
    ----------
    storage : Storage
        Its root is the table's folder.
    given : TableIndex or None
        The index that the caller states.
    keys, files : bool
        Whether to read all keys, and all live files.
    min_age_seconds : int
        Smallest age of a leftover.
    catalog : CatalogCheck, optional
        Compares a table that registers itself with its catalog.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Returns
    -------
    Findings
        The most severe first, and what was checked.

    Raises
    ------
    TableNotFoundError
        If there is no table.
    UnsupportedFeatureError
        If the table cannot be read.
    """
    try:
        table = table_at(storage, now_ms=now_ms)
        _require_right_properties(table)
    except FormatError as error:
        broken = FindingKind.PROPERTIES_BROKEN
        rest = (*ALWAYS_CHECKED[1:], *ON_REQUEST)
        not_checked = [f"{name} (needs the properties)" for name in rest]
        finding = Finding(broken, error.problem, files=(PROPERTIES_FILE,))
        return Findings([finding], ALWAYS_CHECKED[:1], not_checked)
    check_readable(table.config, storage.root)
    examination = examine(table, given, min_age_ms=min_age_seconds * 1000)
    checks = [*CHECKS, *METADATA_CHECKS, *FILE_CHECKS]
    checks += [check_files, check_metadata_files] if files else []
    checks += [check_keys] if keys else []
    also = []
    if catalog is not None and table.config.sync is not None:
        checks.append(lambda table: catalog.check(table.snapshot))
        also = ["catalog"]
    found: dict[Finding, None] = {}  # Several checks may find the same broken file.
    for check in checks:
        try:
            found.update(dict.fromkeys(check(examination)))
        except FormatError as error:
            found[Finding(FindingKind.UNREADABLE, error.problem, files=(error.path,))] = None
        except (TimelineError, ObjectNotFoundError):  # Removed after the timeline was listed.
            continue
    asked = {"keys": keys, "files": files}
    not_checked = [
        f"{name}: {argument}" for name, argument in ON_REQUEST.items() if not asked[name]
    ]
    if min_age_seconds:
        not_checked.append(
            f"leftovers younger than {min_age_seconds} s: min_age_seconds=0 (--min-age 0)"
        )
    return Findings(
        sorted(found, key=lambda finding: _ORDER.index(finding.severity)),
        [*ALWAYS_CHECKED, *also, *(name for name, is_asked in asked.items() if is_asked)],
        not_checked,
    )


def _require_right_properties(table: OpenTable) -> None:
    """Raise FormatError if the properties contradict the newest commit; other checks need them."""
    try:
        commit = load_timeline(table).schema_commit(table.storage)
    except BucketLakeError:
        return  # Another check finds it.
    if commit is not None:
        require_recorded(table.config, commit.extra, table.storage.root)


def _properties_backup(table: Examination) -> Iterator[Finding]:
    stored = table.storage.stat(PROPERTIES_BACKUP_FILE)
    if stored is not None and table.is_old(stored):
        yield Finding(
            FindingKind.PROPERTIES_BACKUP,
            "an update of hoodie.properties died half-way; the file or its backup is valid",
            files=(PROPERTIES_BACKUP_FILE,),
        )


def _future(table: Examination) -> Iterator[Finding]:
    future = table.opened.clock.future_of(table.timeline)
    if future:
        yield Finding(
            FindingKind.CLOCK_AHEAD,
            f"{told_future(future)}; reads as of a time before them leave them out, and later "
            "instants follow them",
        )


def _pending(table: Examination) -> Iterator[Finding]:
    for pending in table.timeline.pending(*WRITES, *UNDOING):
        at = pending.requested_at
        if table.is_old_instant(at) and not _lives(table, at):
            yield Finding(
                FindingKind.PENDING_DEAD,
                f"the {pending.action.value} of instant {at} is pending, and its writer is dead",
            )


def _clusterings(table: Examination) -> Iterator[Finding]:
    """Find clusterings that forbid writes: all but resizes of hash rings."""
    for pending, plan in _clustering_plans(table):
        if not plan.is_resize:
            yield Finding(
                FindingKind.PENDING_OF_HUDI,
                f"a clustering of Hudi is pending (instant {pending.requested_at}); bucketlake "
                "does not write while it is pending",
            )


def _clustering_plans(table: Examination) -> Iterator[tuple[Instant, ClusteringPlan]]:
    for pending in table.timeline.pending_clusterings():
        with suppress(ObjectNotFoundError):  # It was withdrawn since the listing.
            yield pending, table.timeline.read_clustering_plan(table.storage, pending)


def _plans(table: Examination) -> Iterator[Finding]:
    """Find plans of compactions and clusterings with missing files: nobody can execute them."""
    timeline, storage = table.timeline, table.storage
    for pending in timeline.pending_compactions():
        with suppress(ObjectNotFoundError):
            slices = timeline.read_compaction_plan(storage, pending)
            yield from _missing_in_plan(table, pending, slices)
    for pending, plan in _clustering_plans(table):
        yield from _missing_in_plan(table, pending, plan.slices)


def _missing_in_plan(
    table: Examination, pending: Instant, slices: Iterable[FileSlice]
) -> Iterator[Finding]:
    for planned in slices:
        missing = [f for f in planned.paths if table.storage.stat(f) is None]
        if missing and pending in load_timeline(table.opened).pending():  # Nobody ended it since.
            yield Finding(
                FindingKind.PLAN_BROKEN,
                f"the pending {pending.action.value} {pending.requested_at} names missing files",
                planned.partition_path,
                tuple(missing),
            )


def _markers(table: Examination) -> Iterator[Finding]:
    for instant in sorted(table.instants_below(MARKER_FOLDER) - table.pending):
        yield Finding(
            FindingKind.LEFTOVER_MARKERS,
            f"instant {instant} has ended, but its markers still exist",
            files=(marker_folder(instant),),
        )


def _heartbeats(table: Examination) -> Iterator[Finding]:
    for instant in sorted(table.instants_below(HEARTBEAT_FOLDER) - table.pending):
        if not _lives(table, instant):
            yield Finding(
                FindingKind.LEFTOVER_HEARTBEAT,
                f"the heartbeat of instant {instant}, which is not pending, still exists",
                files=(f"{HEARTBEAT_FOLDER}/{instant}",),
            )


def _lock(table: Examination) -> Iterator[Finding]:
    path = lock_left_behind(table.storage, table.opened.clock.now_ms(), table.min_age_ms)
    # A running writer may hold the lock for any time.
    if path is not None and not any(_lives(table, instant) for instant in table.pending):
        yield Finding(
            FindingKind.LEFTOVER_LOCK,
            "a lock is older than any commit takes, and blocks the writers that use it",
            files=(path,),
        )


def _lives(table: Examination, instant: InstantTime) -> bool:
    return is_alive(table.storage, instant, table.opened.clock.now_ms)


def _outcomes(table: Examination) -> Iterator[Finding]:
    """Find outcomes of commits before the active timeline; outcomes of rollbacks stay forever."""
    for path in sorted(old_commits(table.storage, table.timeline.start or InstantTime(""))):
        instant = path.rpartition("/")[2].partition(".")[0]
        if instant not in table.pending:
            yield Finding(
                FindingKind.LEFTOVER_OUTCOME,
                f"the outcome of instant {instant}, older than the timeline, still exists",
                files=(path,),
            )


def _turns(table: Examination) -> Iterator[Finding]:
    last_turn(table.storage)  # Raises if writers cannot take turns any more.
    stray = tuple(stray_turns(table.storage))
    if stray:
        yield Finding(
            FindingKind.LEFTOVER_TURN, f"{len(stray)} turns of old commits still exist", files=stray
        )


def _rules(table: Examination) -> Iterator[Finding]:
    """Find versions of partition rules that no commit wrote: Hudi uses them nevertheless."""
    committed_configs(table.storage, table.timeline)  # Raises if a version cannot be read.
    known = {instant.requested_at for instant in table.timeline.instants} | {INITIAL_INSTANT}
    for instant in active_versions(table.storage):
        is_committed = instant in known or table.timeline.is_completed(instant)
        if not is_committed and table.timeline.start and table.is_old_instant(instant):
            yield Finding(
                FindingKind.RULES_OUT_OF_STEP,
                f"Hudi uses the rules of instant {instant}, but the timeline has no commit with "
                "this time",
                files=(config_path(instant),),
            )


def _counts(table: Examination) -> Iterator[Finding]:
    """Find partitions whose recorded count differs from the rules; Hudi knows only the rules."""
    if table.index is None:
        return
    used, by_rules = table.index.layout(), without_records(table.index).layout()
    live = {file_slice.partition_path for file_slice in table.slices}
    for path, held in sorted(recorded_counts(table.storage, table.timeline).items()):
        count = used.slot_count(path)
        if path in live and held.count == count != by_rules.slot_count(path):
            yield Finding(
                FindingKind.COUNT_OUT_OF_STEP,
                f"the partition has {count} buckets, but the rules, which Hudi uses, give "
                f"{by_rules.slot_count(path)}",
                partition=path,
            )


def _deletes(table: Examination) -> Iterator[Finding]:
    """Find files of remembered deletes that are gone; one that cannot be read raises."""
    for file in tombstone_files(table.opened, table.timeline):
        try:
            ordering = fields_at(table.snapshot.readable_schema, table.config.ordering_fields)
            read_tombstones(table.storage, file, ordering, partitions=())
        except ObjectNotFoundError as error:
            yield Finding(
                FindingKind.DELETES_LOST,
                f"{file.rows} remembered deletes are lost, so writes stop until they are too old",
                files=(error.path,),
            )


def _schema(table: Examination) -> Iterator[Finding]:
    text = table.snapshot.schema_text
    try:
        if text is not None:
            arrow_from_avro(text)
    except (FormatError, UnsupportedFeatureError) as error:
        what = error.problem if isinstance(error, FormatError) else error
        yield Finding(FindingKind.SCHEMA_UNFIT, f"the table's schema is not understood: {what}")


CHECKS: tuple[Check, ...] = (
    _properties_backup,
    _future,
    _pending,
    _clusterings,
    _plans,
    _markers,
    _heartbeats,
    _lock,
    _outcomes,
    _turns,
    _rules,
    _counts,
    _deletes,
    _schema,
)
