"""Outcomes: one small object per instant decides whether it is committed or rolled back.

The file name of a completed instant contains its completion time, and each attempt to publish uses
a new time. So put-if-absent on that file excludes nobody: a slow committer, and a writer that
meanwhile rolls its write back, would put different names, and both would succeed. The table would
then show a commit without files. Therefore a writer that wants to end instant ``T`` first puts its
claim, if absent, at a fixed path in bucketlake's extension folder. Only one claim wins:

- ``commit`` holds all that publishing needs (completion time, action, metadata). Any writer that
  finds it can finish the commit; publishing twice writes the same bytes to the same name.
- ``rollback`` forbids the commit forever.

The loser reads the winner's claim and executes it, or stops. Hudi does not know this object; only
the table lock protects from Hudi's rollback. The object of a commit is deleted when its instant is
archived; then the archive has the answer. The object of a rollback stays, because a task or a
committer may sleep for any time and must find it.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from bucketlake.config.paths_of_table import OUTCOME_FOLDER, require_instant
from bucketlake.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    StorageError,
)
from bucketlake.format.json_fields import parse_checked, parsing, render_checked
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage, read_if_there
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action

_ATTEMPTS = 2  # After a failed put the path is read; the put is repeated once if nothing is there.


@dataclass(frozen=True, slots=True)
class Publication:
    """The completed file of a commit: everything that is needed to publish it.

    Attributes
    ----------
    completed_at : InstantTime
        Completion time.
    action : Action
        Action of the completed file.
    metadata : bytes
        Content of the completed file.
    metadata_commit : bytes or None
        Content of the delta commit of the metadata table, which is published first under the same
        times; None if the table has no metadata table, or the instant does not change it.
    """

    completed_at: InstantTime
    action: Action
    metadata: bytes
    metadata_commit: bytes | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an instant ends: the claim that won.

    Attributes
    ----------
    claim : str
        Id of the winning claim.
    publication : Publication or None
        What to publish; None if the instant is rolled back.
    won : bool
        Whether the caller's claim won.
    """

    claim: str
    publication: Publication | None = None
    won: bool = False

    @property
    def is_rollback(self) -> bool:
        """Whether the instant is rolled back, and not committed."""
        return self.publication is None

    @property
    def completed_at(self) -> InstantTime:
        """Completion time of a commit."""
        assert self.publication is not None, self
        return self.publication.completed_at

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Self:
        """Parse the content of the object; raise FormatError if it is not an outcome."""
        with parsing(path, "the outcome of an instant as JSON", data):
            fields = parse_checked(data, path)
            committed = {"commit": True, "rollback": False}[fields["outcome"]]
            publication = _parse_publication(fields, path) if committed else None
            return cls(str(fields["claim"]), publication)

    def to_json(self) -> bytes:
        """Print the object's content."""
        fields = {"outcome": "rollback" if self.is_rollback else "commit"}
        if self.publication is not None:
            fields |= {
                "completedAt": self.publication.completed_at,
                "action": self.publication.action.value,
                "metadata": base64.b64encode(self.publication.metadata).decode(),
            }
            if self.publication.metadata_commit is not None:
                content = base64.b64encode(self.publication.metadata_commit).decode()
                fields["metadataCommit"] = content
        return render_checked(fields | {"claim": self.claim})


def _parse_publication(fields: dict[str, Any], path: str) -> Publication:
    completed_at = str(fields["completedAt"])
    require_instant(completed_at, path)
    metadata_commit = fields.get("metadataCommit")
    return Publication(
        InstantTime(completed_at),
        Action(fields["action"]),
        base64.b64decode(fields["metadata"], validate=True),
        None if metadata_commit is None else base64.b64decode(metadata_commit, validate=True),
    )


def claim_commit(storage: Storage, instant: InstantTime, publication: Publication) -> Outcome:
    """Claim that the instant is committed; return the outcome that won.

    Parameters
    ----------
    storage : Storage
    instant : InstantTime
        Requested time of the write.
    publication : Publication
        What to publish, if the claim wins.

    Raises
    ------
    CommitOutcomeUnknownError
        If storage fails and does not tell which claim it holds.
    """
    path = outcome_path(instant, publication.action)
    return _settle(storage, instant, path, Outcome(_new_claim_id(), publication))


def claim_rollback(
    storage: Storage, instant: InstantTime, action: Action = Action.COMMIT
) -> Outcome:
    """Claim that the instant is rolled back; return the outcome that won.

    ``action`` is the action of the instant; all actions that write data share one outcome.

    Raises
    ------
    CommitOutcomeUnknownError
        If storage fails and does not tell which claim it holds.
    """
    return _settle(storage, instant, outcome_path(instant, action), Outcome(_new_claim_id()))


def forbid_commit(storage: Storage, instant: InstantTime) -> None:
    """Overwrite the outcome of an instant with ``rollback``; a plan on the timeline undoes it.

    Otherwise another writer could publish the commit again from its outcome.
    """
    storage.put(outcome_path(instant), Outcome(_new_claim_id()).to_json())


def read_outcome(
    storage: Storage, instant: InstantTime, action: Action = Action.COMMIT
) -> Outcome | None:
    """Return the outcome of an instant; None if there is no claim yet."""
    return _read(storage, outcome_path(instant, action))


def is_rolled_back(storage: Storage, instant: InstantTime, action: Action = Action.COMMIT) -> bool:
    """Return whether an instant is rolled back and can never be committed."""
    outcome = read_outcome(storage, instant, action)
    return outcome is not None and outcome.is_rollback


def is_decided_commit(storage: Storage, instant: InstantTime) -> bool:
    """Return whether a write can never be rolled back by others; it may not be completed yet."""
    outcome = read_outcome(storage, instant)
    return outcome is not None and not outcome.is_rollback


def is_committed(storage: Storage, timeline: Timeline, instant: InstantTime) -> bool:
    """Return whether the rules and bucket counts that a commit saved are valid.

    For an instant older than the timeline, the outcome decides. A rolled-back writer that slept may
    save them after its rollback, for a moment.
    """
    if not timeline.is_completed(instant):
        return False
    return timeline.find_completed(instant) is not None or not is_rolled_back(storage, instant)


def delete_outcome(storage: Storage, instant: InstantTime) -> None:
    """Delete the outcome of an instant that is archived."""
    storage.delete(outcome_path(instant))


def old_commits(storage: Storage, before: InstantTime) -> Iterator[str]:
    """Yield the paths of outcomes of commits and plans that are older than an instant.

    Outcomes of rollbacks are never deleted. They are the smaller ones, so none is read.

    Parameters
    ----------
    storage : Storage
    before : InstantTime
        The first instant of the active timeline: all older commits are published and archived.
    """
    rollback_bytes = len(Outcome(_new_claim_id()).to_json())
    for stored in storage.list(OUTCOME_FOLDER, recursive=False):
        if stored.size_bytes > rollback_bytes and stored.name.partition(".")[0] < before:
            yield stored.path


def outcome_path(instant: InstantTime, action: Action = Action.COMMIT) -> str:
    """Return the path of the outcome of an instant, relative to the table.

    A time may be used again by another action when the first action has left the timeline. So plans
    of different actions have different paths.
    """
    kind = "" if action.writes_data else f".{action.value}"
    return f"{OUTCOME_FOLDER}/{instant}{kind}.json"


def _read(storage: Storage, path: str) -> Outcome | None:
    data = read_if_there(storage, path)
    return None if data is None else Outcome.from_json(data, path)


def _new_claim_id() -> str:
    return uuid.uuid4().hex


def _settle(storage: Storage, instant: InstantTime, path: str, claim: Outcome) -> Outcome:
    """Put the claim if there is none; return the claim that storage holds."""
    failures: list[StorageError] = []
    while len(failures) < _ATTEMPTS:
        try:
            storage.put_if_absent(path, claim.to_json())
            return replace(claim, won=True)
        except StorageError as failure:
            winner = _winner(storage, instant, path, failure)
            if winner is not None:
                # The existing object may be ours: a client repeats a put after a lost response.
                return replace(winner, won=winner.claim == claim.claim)
            failures.append(failure)
    raise _unknown(instant, path, failures[-1])


def _winner(
    storage: Storage, instant: InstantTime, path: str, failure: StorageError
) -> Outcome | None:
    try:
        winner = _read(storage, path)
    except StorageError as error:
        raise _unknown(instant, path, error) from error
    if winner is None and isinstance(failure, AlreadyExistsError):
        raise _unknown(instant, path, failure)  # Something deleted the outcome; nobody should.
    return winner


def _unknown(instant: InstantTime, path: str, error: StorageError) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        instant,
        f"storage does not tell whether it is committed or rolled back ({error}); "
        f"look at {path} and at the timeline before you retry",
    )
