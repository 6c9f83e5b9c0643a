"""Commit or rollback, exactly one: one small object per instant that both sides must win.

A completed instant bears its completion time in its file name, and every attempt to publish draws
a new one. So put-if-absent on that file excludes nobody: a committer that stalled, and whoever
rolls its write back meanwhile, would put different names, and both would succeed; the table would
then show a commit whose files are gone. Hence whoever wants to end instant ``T`` first puts its
claim, if absent, at one fixed path in bucketlake's extension folder. Storage lets one claim in:

- ``commit`` holds everything that publishing needs (completion time, action, metadata), so anyone
  who finds it can finish the commit, and publishing twice writes the same bytes to the same name;
- ``rollback`` forbids the commit for good.

The loser reads the winner's claim and helps to carry it out, or stops. Real Hudi knows nothing of
the object; against its rollback only the table lock protects. A commit's object goes once its
instant is archived, and the archive answers from then on. A rollback's stays: a task or a committer
may sleep for any time, and must find it.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

from bucketlake.config.inner_path import require_instant
from bucketlake.config.layout import OUTCOME_FOLDER
from bucketlake.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    FormatError,
    ObjectNotFoundError,
    StorageError,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action

_ATTEMPTS = 2  # A put whose fate is unknown is looked up, and repeated once if it never arrived.


class OutcomeKind(Enum):
    """How an instant ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Publication:
    """The completed file of a commit: all that publishing it needs."""

    completed_at: InstantTime
    action: Action
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an instant ends, as the claim that won says.

    Attributes
    ----------
    claim : str
        Id of the winning claim.
    publication : Publication or None
        What to publish; None where the instant is rolled back.
    won : bool
        Whether the caller's own claim is the winner.
    """

    claim: str
    publication: Publication | None = None
    won: bool = False

    @property
    def kind(self) -> OutcomeKind:
        """Whether the instant is committed or rolled back."""
        return OutcomeKind.ROLLBACK if self.publication is None else OutcomeKind.COMMIT

    @property
    def completed_at(self) -> InstantTime:
        """Completion time of a commit."""
        assert self.publication is not None, self
        return self.publication.completed_at

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Self:
        """Parse the object's content; FormatError where it is not an outcome's."""
        try:
            fields = json.loads(data)
            committed = OutcomeKind(fields["outcome"]) is OutcomeKind.COMMIT
            return cls(
                str(fields["claim"]), _parse_publication(fields, path) if committed else None
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            found = f"{type(error).__name__} ({error}) in bytes {data[:32]!r}"
            raise FormatError(path, "the outcome of an instant as JSON", found) from error

    def to_json(self) -> bytes:
        """Print the object's content."""
        fields = {"outcome": self.kind.value}
        if self.publication is not None:
            fields |= {
                "completedAt": self.publication.completed_at,
                "action": self.publication.action.value,
                "metadata": base64.b64encode(self.publication.metadata).decode(),
            }
        return json.dumps(fields | {"claim": self.claim}).encode()


def _parse_publication(fields: dict[str, Any], path: str) -> Publication:
    completed_at = str(fields["completedAt"])
    require_instant(completed_at, path)
    return Publication(
        InstantTime(completed_at),
        Action(fields["action"]),
        base64.b64decode(fields["metadata"], validate=True),
    )


def claim_commit(
    storage: Storage,
    instant: InstantTime,
    completed_at: InstantTime,
    action: Action,
    metadata: bytes,
) -> Outcome:
    """Claim that the instant is committed, and return the outcome that won.

    Parameters
    ----------
    storage : Storage
    instant : InstantTime
        Requested time of the write.
    completed_at : InstantTime
        Completion time to publish under, if the claim wins.
    action : Action
        Action of the completed file.
    metadata : bytes
        Content of the completed file.

    Raises
    ------
    CommitOutcomeUnknownError
        If storage fails and does not tell which claim it holds.
    """
    publication = Publication(completed_at, action, metadata)
    path = outcome_path(instant, action)
    return _settle(storage, instant, path, Outcome(_new_claim_id(), publication))


def claim_rollback(
    storage: Storage, instant: InstantTime, action: Action = Action.COMMIT
) -> Outcome:
    """Claim that the instant is rolled back, and return the outcome that won.

    ``action`` is that of the instant; all that write data are one.

    Raises
    ------
    CommitOutcomeUnknownError
        If storage fails and does not tell which claim it holds.
    """
    return _settle(storage, instant, outcome_path(instant, action), Outcome(_new_claim_id()))


def forbid_commit(storage: Storage, instant: InstantTime) -> None:
    """Say ``rollback`` of an instant that a plan on the timeline undoes, whatever stood there.

    A commit that was published would otherwise be published again from its own outcome.
    """
    storage.put(outcome_path(instant), Outcome(_new_claim_id()).to_json())


def read_outcome(
    storage: Storage, instant: InstantTime, action: Action = Action.COMMIT
) -> Outcome | None:
    """Return the outcome of an instant; None where neither side has claimed it yet."""
    return _read(storage, outcome_path(instant, action))


def is_rolled_back(storage: Storage, instant: InstantTime, action: Action = Action.COMMIT) -> bool:
    """Tell whether an instant can never be committed any more, or was taken back."""
    outcome = read_outcome(storage, instant, action)
    return outcome is not None and outcome.kind is OutcomeKind.ROLLBACK


def is_committed(storage: Storage, timeline: Timeline, instant: InstantTime) -> bool:
    """Tell whether what a commit saved beside its files counts.

    Of an instant that is older than the timeline its outcome tells: one that was rolled back
    leaves something for a moment when its writer, which slept, wakes up.
    """
    if not timeline.is_completed(instant):
        return False
    return timeline.find_completed(instant) is not None or not is_rolled_back(storage, instant)


def delete_outcome(storage: Storage, instant: InstantTime) -> None:
    """Forget the outcome of an instant that is in the archive."""
    storage.delete(outcome_path(instant))


def old_commits(storage: Storage, before: InstantTime) -> Iterator[str]:
    """Yield the paths of the outcomes of commits, and of plans, that are older than an instant.

    Parameters
    ----------
    storage : Storage
    before : InstantTime
        The first of the active timeline, so that older ones are published and archived, by
        whomever. Those of rollbacks stay for good.
    """
    for stored in storage.list(OUTCOME_FOLDER, recursive=False):
        if stored.path.rpartition("/")[2].partition(".")[0] < before:
            outcome = _read(storage, stored.path)
            if outcome is not None and outcome.kind is OutcomeKind.COMMIT:
                yield stored.path


def outcome_path(instant: InstantTime, action: Action = Action.COMMIT) -> str:
    """Return where the outcome of an instant lies, relative to the table.

    A time may be used again, by another action, once the first one is off the timeline. So what
    became of a plan of one kind says nothing of others.
    """
    kind = "" if action.writes_data else f".{action.value}"
    return f"{OUTCOME_FOLDER}/{instant}{kind}.json"


def _read(storage: Storage, path: str) -> Outcome | None:
    try:
        return Outcome.from_json(storage.read(path), path)
    except ObjectNotFoundError:
        return None


def _new_claim_id() -> str:
    return uuid.uuid4().hex


def _settle(storage: Storage, instant: InstantTime, path: str, claim: Outcome) -> Outcome:
    """Put the claim unless there is one, and learn from storage whose claim it holds."""
    failures: list[StorageError] = []
    while len(failures) < _ATTEMPTS:
        failure = _put_claim(storage, path, claim)
        if failure is None:
            return replace(claim, won=True)
        winner = _winner(storage, instant, path, failure)
        if winner is not None:
            # "Already exists" may be our own put: clients repeat a request whose answer was lost.
            return replace(winner, won=winner.claim == claim.claim)
        failures.append(failure)
    raise _unknown(instant, path, failures[-1])


def _put_claim(storage: Storage, path: str, claim: Outcome) -> StorageError | None:
    try:
        storage.put_if_absent(path, claim.to_json())
    except StorageError as error:
        return error
    return None


def _winner(
    storage: Storage, instant: InstantTime, path: str, failure: StorageError
) -> Outcome | None:
    try:
        winner = _read(storage, path)
    except StorageError as error:
        raise _unknown(instant, path, error) from error
    if winner is None and isinstance(failure, AlreadyExistsError):
        raise _unknown(instant, path, failure)  # Somebody deleted it, against the rule above.
    return winner


def _unknown(instant: InstantTime, path: str, error: StorageError) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        instant,
        f"storage does not tell whether it is committed or rolled back ({error}); "
        f"look at {path} and at the timeline before any retry",
    )
