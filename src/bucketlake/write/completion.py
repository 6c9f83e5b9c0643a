"""One door: the only place where an instant becomes completed, hence visible to readers.

Every instant passes it: commits, delta commits, replace commits, compactions, cleans, rollbacks,
restores and savepoints, also where one process finishes what another process began. So whatever has
to be in place before an instant is visible belongs into :func:`complete_instant`.
"""

from __future__ import annotations

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitOutcomeUnknownError, StorageError
from bucketlake.storage.base import Storage
from bucketlake.timeline.instant import Action, Instant
from bucketlake.timeline.outcome import Publication
from bucketlake.timeline.transitions import publish_completed


def complete_instant(
    storage: Storage, config: TableConfig, pending: Instant, publication: Publication
) -> Instant:
    """Complete an instant; it is visible from then on.

    Completing an instant again is harmless, whoever does it: the publication fixes the name and
    the bytes of the completed file.

    Parameters
    ----------
    storage, config
        The table.
    pending : Instant
        The instant as it was begun. The action of a table service changes when it is completed.
    publication : Publication
        What is published: from the outcome that was won for the instant. A savepoint has no
        outcome, and its maker decides alone.

    Returns
    -------
    Instant
        The completed instant.

    Raises
    ------
    CommitConflictError
        If the inflight file is gone: a Hudi writer, which knows no outcomes, rolled the write
        back, and its data files with it.
    CommitOutcomeUnknownError
        If storage fails, and does not tell whether the completed file is there.
    StorageError
        The same for a savepoint, which nobody but its maker completes.
    """
    try:
        return publish_completed(storage, config, pending, publication)
    except StorageError as error:
        if publication.action is Action.SAVEPOINT:
            raise
        raise CommitOutcomeUnknownError(
            pending.requested_at,
            f"it is decided to be committed, but storage failed to publish it ({error}); "
            "the next write publishes it, do not retry",
        ) from error
