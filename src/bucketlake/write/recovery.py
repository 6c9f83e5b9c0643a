"""Recovery from failed writes: what every write does first with what earlier ones left behind.

A pending write whose outcome is ``commit`` is finished, since its driver may have died between
winning the outcome and publishing; any other pending write is rolled back once this writer has won
``rollback`` for it. Files are found by their markers. Markers of an instant that is no longer on
the timeline belong to tasks that wrote after a rollback; their files go too.

One writer at a time is assumed here, as with Hudi's eager policy: a live writer whose pending
write is rolled back fails at its commit and publishes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.config.layout import MARKER_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.index.hashing_config import config_path
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archived import archived_completion_times
from bucketlake.timeline.instant import Action, Instant
from bucketlake.timeline.markers import delete_markers, read_markers
from bucketlake.timeline.outcome import OutcomeKind, claim_rollback, read_outcome
from bucketlake.timeline.transitions import complete, remove_pending
from bucketlake.write.commit import PendingWrite

_WRITES = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


@dataclass(frozen=True, slots=True)
class SettledWrites:
    """What became of the failed writes found on a table."""

    finished: tuple[InstantTime, ...] = ()
    rolled_back: tuple[InstantTime, ...] = ()


def settle_failed_writes(
    storage: Storage, config: TableConfig, timeline: Timeline
) -> tuple[Timeline, SettledWrites]:
    """Finish or roll back every pending write, and sweep up after late tasks.

    Parameters
    ----------
    storage, config, timeline
        The table, and its timeline as just loaded.

    Returns
    -------
    (Timeline, SettledWrites)
        The timeline afterwards, and what was done.
    """
    for instant in timeline.pending():
        _require_harmless(instant, storage)
    finished, rolled_back = [], []
    for instant in timeline.pending():
        if instant.action not in _WRITES:
            continue
        if _settle(storage, config, instant.requested_at, instant.action):
            finished.append(instant.requested_at)
        else:
            rolled_back.append(instant.requested_at)
    settled = SettledWrites(tuple(finished), tuple(rolled_back))
    if finished or rolled_back:
        timeline = load_timeline(storage, config)
    _sweep(storage, config)
    return timeline, settled


def _settle(storage: Storage, config: TableConfig, instant: InstantTime, action: Action) -> bool:
    """Finish or roll back one pending write; True where it was finished."""
    outcome = claim_rollback(storage, instant)
    if outcome.kind is OutcomeKind.COMMIT:
        complete(storage, config, instant, action, outcome)
        delete_markers(storage, instant)
        return True
    if instant in {i.requested_at for i in load_timeline(storage, config).completed()}:
        return True  # A writer that knows no outcomes completed it while this one decided.
    _delete_marked_files(storage, instant)
    if action is Action.REPLACE_COMMIT:
        # Of a rescale (RFC-89). Once its instant is gone, a version that stayed would count.
        storage.delete(config_path(instant))
    remove_pending(storage, config, instant, action)
    return False


def roll_back_own(write: PendingWrite) -> None:
    """Roll back a write of this process that failed, unless its commit was decided already."""
    _settle(write.storage, write.config, write.instant, write.action)


def _sweep(storage: Storage, config: TableConfig) -> None:
    """Delete files and markers of writes that were rolled back before a task of theirs ended."""
    instants = [InstantTime(f.rpartition("/")[2]) for f in storage.list_folders(MARKER_FOLDER)]
    if not instants:
        return
    # Listed after the markers: a live write is on the timeline before it has any.
    timeline = load_timeline(storage, config)
    pending = {i.requested_at for i in timeline.pending()}
    completed = {i.requested_at for i in timeline.completed()}
    for instant in instants:
        if instant in completed:
            delete_markers(storage, instant)
        elif instant not in pending and _is_rolled_back(storage, config, timeline, instant):
            _delete_marked_files(storage, instant)


def _is_rolled_back(
    storage: Storage, config: TableConfig, timeline: Timeline, instant: InstantTime
) -> bool:
    outcome = read_outcome(storage, instant)
    if outcome is not None and outcome.kind is OutcomeKind.ROLLBACK:
        return True
    # Hudi knows no outcomes: what it rolled back is neither on the timeline nor in the archive.
    # Of what is older than the timeline nothing is certain, and it is left alone.
    return (
        timeline.start is not None
        and instant > timeline.start
        and instant not in archived_completion_times(storage, config, since=instant, until=instant)
    )


def _delete_marked_files(storage: Storage, instant: InstantTime) -> None:
    for marker in read_markers(storage, instant):
        storage.delete(marker.data_path)
    delete_markers(storage, instant)


def _require_harmless(instant: Instant, storage: Storage) -> None:
    # Of a commit that Hudi is rolling back, settling would lose track of the files, or publish it
    # again; and after a commit of ours Hudi could not finish the rollback, nor write ever again.
    if instant.action in {Action.CLUSTERING, Action.RESTORE, Action.ROLLBACK}:
        is_rollback = instant.action is Action.ROLLBACK
        raise UnsupportedFeatureError(
            f"writing while a {instant.action.value} of another program is pending "
            f"(instant {instant.requested_at})",
            storage.root,
            "let Hudi finish it first" + (": its next write does" if is_rollback else ""),
        )
