"""Restore plans and the metadata of completed restores, as Hudi stores them on the timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketlake.format.avro.timeline_records import decode_record, encode_record
from bucketlake.format.rollback_metadata import RollbackPlan, rollback_record
from bucketlake.model.file_name import InstantTime

_PLAN = "HoodieRestorePlan"
_METADATA = "HoodieRestoreMetadata"
_PLAN_VERSION = 2


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The instants that a restore undoes.

    Attributes
    ----------
    savepoint : InstantTime or None
        The newest commit after the restore; None in old plans.
    undone : tuple of (InstantTime, str)
        Requested time and action, in Hudi's spelling, of each instant to undo; newest first, which
        is the order of undoing.
    """

    savepoint: InstantTime | None
    undone: tuple[tuple[InstantTime, str], ...]


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """Encode a plan."""
    return encode_record(
        _PLAN,
        {
            "instantsToRollback": _infos(plan),
            "version": _PLAN_VERSION,
            "savepointToRestoreTimestamp": plan.savepoint,
        },
    )


def decode_restore_plan(data: bytes, path: str) -> RestorePlan:
    """Decode a plan; raise FormatError if the bytes are not a restore plan."""
    record = decode_record(data, path, _PLAN)
    savepoint = record["savepointToRestoreTimestamp"]
    undone = record["instantsToRollback"] or []
    return RestorePlan(
        InstantTime(savepoint) if savepoint else None,
        tuple((InstantTime(info["commitTime"]), info["action"]) for info in undone),
    )


def encode_restore(
    plan: RestorePlan,
    rollbacks: Mapping[InstantTime, RollbackPlan],
    root: str,
    *,
    started_at: InstantTime,
    duration_ms: int,
) -> bytes:
    """Encode the metadata of a restore, with the files that its rollbacks deleted."""
    held: Mapping[str, Sequence[object]] = {
        instant: [rollback_record(rollbacks[instant], root, started_at=started_at, duration_ms=0)]
        for instant, _ in plan.undone
        if instant in rollbacks
    }
    return encode_record(
        _METADATA,
        {
            "startRestoreTime": started_at,
            "timeTakenInMillis": duration_ms,
            "instantsToRollback": [instant for instant, _ in plan.undone],
            "hoodieRestoreMetadata": held,
            "version": 1,
            "restoreInstantInfo": _infos(plan),
        },
    )


def _infos(plan: RestorePlan) -> list[dict[str, str]]:
    return [{"commitTime": instant, "action": action} for instant, action in plan.undone]
