"""Restore plans and the metadata of completed restores, as Hudi keeps them on the timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketlake.format.avro.records import decode_record, encode_record
from bucketlake.format.rollback_metadata import RollbackPlan, rollback_record
from bucketlake.model.file_name import InstantTime

_PLAN = "HoodieRestorePlan"
_METADATA = "HoodieRestoreMetadata"
_PLAN_VERSION = 2


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore undoes.

    Attributes
    ----------
    savepoint : InstantTime or None
        The commit that is the newest afterwards; None in plans of old.
    undone : tuple of (InstantTime, str)
        Requested time and action, in Hudi's spelling, of each instant that goes; in the order in
        which they do, newest first.
    """

    savepoint: InstantTime | None
    undone: tuple[tuple[InstantTime, str], ...]


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """Write a plan."""
    return encode_record(
        _PLAN,
        {
            "instantsToRollback": _infos(plan),
            "version": _PLAN_VERSION,
            "savepointToRestoreTimestamp": plan.savepoint,
        },
    )


def decode_restore_plan(data: bytes, path: str) -> RestorePlan:
    """Read a plan; FormatError where the bytes are not one's."""
    record = decode_record(data, path, _PLAN)
    savepoint = record["savepointToRestoreTimestamp"]
    undone = record["instantsToRollback"] or []
    return RestorePlan(
        InstantTime(savepoint) if savepoint else None,
        tuple((InstantTime(one["commitTime"]), one["action"]) for one in undone),
    )


def encode_restore(
    plan: RestorePlan,
    rollbacks: Mapping[InstantTime, RollbackPlan],
    root: str,
    *,
    started_at: InstantTime,
    duration_ms: int,
) -> bytes:
    """Write the metadata of a restore, with what each of its rollbacks deleted."""
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
