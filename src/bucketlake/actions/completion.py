"""Completing an instant: the only place where an instant becomes visible to readers.

All instants are completed here: commits, delta commits, replace commits, compactions, cleans,
rollbacks, restores and savepoints, also if one process finishes what another process began. So
everything that must exist before an instant is visible belongs into :func:`complete_instant`.
"""

from __future__ import annotations

from bucketlake.errors import CommitConflictError, CommitOutcomeUnknownError, StorageError
from bucketlake.flow.call import note
from bucketlake.metadata.changes import publish_change
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Outcome, Publication
from bucketlake.timeline.transitions import publish_completed


def finish(table: OpenTable, instant: InstantTime, action: Action, outcome: Outcome | None) -> bool:
    """Complete an instant if its outcome says so, whoever decided it; return whether it does.

    ``action`` is that of the pending instant. The errors are those of :func:`complete_instant`.
    """
    if outcome is None or outcome.publication is None:
        return False
    complete_instant(table, Instant(instant, action, State.INFLIGHT), outcome.publication)
    return True


def complete_instant(table: OpenTable, pending: Instant, publication: Publication) -> Instant:
    """Complete an instant, first in the metadata table; it is visible from then on.

    Any process may complete an instant again: the publication fixes the name and the bytes of the
    completed file.

    Parameters
    ----------
    table : OpenTable
    pending : Instant
        The pending instant. The action of a table service changes when it is completed.
    publication : Publication
        What to publish, from the outcome of the instant. A savepoint has no outcome; only the
        process that makes it completes it.

    Returns
    -------
    Instant
        The completed instant.

    Raises
    ------
    CommitConflictError
        If the inflight file is missing: a Hudi writer, which does not know outcomes, rolled the
        write back and deleted its data files.
    CommitOutcomeUnknownError
        If storage fails, so that the completed file may or may not exist.
    StorageError
        The same for a savepoint, which no other process completes.
    """
    try:
        if publication.metadata_commit is not None:
            _complete_metadata(table, pending, publication)
        completed = publish_completed(table, pending, publication)
    except StorageError as error:
        if publication.action is Action.SAVEPOINT:
            raise
        raise CommitOutcomeUnknownError(
            pending.requested_at,
            f"it is decided to be committed, but storage failed to publish it ({error}); "
            "the next write publishes it, do not retry",
        ) from error
    content = publication.metadata if completed.action in WRITES else b""
    note(lambda call: call.completed.update({completed.requested_at: content}))
    return completed


def _complete_metadata(table: OpenTable, pending: Instant, publication: Publication) -> None:
    """Complete the delta commit of the metadata table, unless that was turned off since.

    Whoever turns it off first completes the instants that are decided.
    """
    at, completed_at = pending.requested_at, publication.completed_at
    try:
        assert publication.metadata_commit is not None
        publish_change(table, at, completed_at, publication.metadata_commit)
    except CommitConflictError:
        found = load_timeline(table).pending(pending.action)
        if any(instant.requested_at == at for instant in found):
            raise
