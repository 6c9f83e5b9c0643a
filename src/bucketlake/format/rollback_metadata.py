"""Rollbacks, restores and savepoints, as Hudi stores their plans and metadata on the timeline.

Those of rollbacks contain absolute paths, with the address that their writer used. Only partition
and file name of a plan are used. So the plan of a moved table stays valid, and no plan leads out of
the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bucketlake.config.paths_of_table import require_data_names, require_data_place, require_instant
from bucketlake.errors import FormatError
from bucketlake.format.avro.timeline_records import Record, decode_record, encode_record
from bucketlake.model.file_name import BaseFileName, InstantTime, file_path

_PLAN = "HoodieRollbackPlan"
_METADATA = "HoodieRollbackMetadata"


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The instant that a rollback undoes, and the files to delete.

    Attributes
    ----------
    instant : InstantTime
        Requested time of the instant.
    action : str
        Action of the instant, in Hudi's spelling.
    files : mapping of str to tuple of str
        Names of the files to delete, by partition path.
    logs : mapping of str to tuple of str
        Names of log files whose blocks of the instant are cancelled, by partition path. Only plans
        of Hudi have them, in tables up to version 6.
    """

    instant: InstantTime
    action: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    logs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """Paths of the files to delete, relative to the table."""
        return _paths(self.files)

    @property
    def log_paths(self) -> list[str]:
        """Paths of the log files with cancelled blocks, relative to the table."""
        return _paths(self.logs)


def encode_rollback_plan(plan: RollbackPlan, root: str) -> bytes:
    """Encode a plan; files are absolute paths below ``root``."""
    requests = [
        {
            "partitionPath": partition,
            "fileId": _file_id(name),
            "latestBaseInstant": plan.instant,
            "filesToBeDeleted": [_absolute(root, partition, name)],
            "logBlocksToBeDeleted": {},
        }
        for partition, names in plan.files.items()
        for name in names
    ]
    return encode_record(
        _PLAN,
        {
            "instantToRollback": _instant_info(plan.instant, plan.action),
            "RollbackRequests": requests,
        },
    )


def decode_rollback_plan(data: bytes, path: str) -> RollbackPlan:
    """Decode a plan.

    Raises
    ------
    FormatError
        If the bytes are not a plan, or it names no instant, or a path outside of the data.
    """
    record = decode_record(data, path, _PLAN)
    undone = record["instantToRollback"]
    if undone is None:
        raise FormatError(path, "a rollback plan with the instant to roll back", "none")
    require_instant(undone["commitTime"] or "", path)
    requests = record["RollbackRequests"] or []
    return RollbackPlan(
        InstantTime(undone["commitTime"]),
        undone["action"],
        _names(((r["partitionPath"], r["filesToBeDeleted"]) for r in requests), path),
        _names(((r["partitionPath"], r["logBlocksToBeDeleted"] or ()) for r in requests), path),
    )


def _names(
    requests: Iterable[tuple[str | None, Iterable[str]]], path: str
) -> dict[str, tuple[str, ...]]:
    """Return the names of files by partition; raise FormatError for one outside of the data."""
    found: dict[str, list[str]] = {}
    for partition, texts in requests:
        for name in filter(None, (text.rpartition("/")[2] for text in texts)):
            require_data_place(partition or "", name, path)
            found.setdefault(partition or "", []).append(name)
    return {partition: tuple(names) for partition, names in found.items()}


def _paths(names: Mapping[str, Iterable[str]]) -> list[str]:
    return [file_path(partition, name) for partition, held in names.items() for name in held]


def encode_rollback(
    plan: RollbackPlan, root: str, *, started_at: InstantTime, duration_ms: int
) -> bytes:
    """Encode the metadata of a completed rollback."""
    record = rollback_record(plan, root, started_at=started_at, duration_ms=duration_ms)
    return encode_record(_METADATA, record)


def rollback_record(
    plan: RollbackPlan, root: str, *, started_at: InstantTime, duration_ms: int
) -> Record:
    """Return the metadata as a record; the metadata of a restore contains such records."""
    partitions: dict[str, Record] = {
        partition: {
            "partitionPath": partition,
            "successDeleteFiles": [_absolute(root, partition, name) for name in names],
            "failedDeleteFiles": [],
            "rollbackLogFiles": {},
            "logFilesFromFailedCommit": {},
        }
        for partition, names in plan.files.items()
    }
    return {
        "startRollbackTime": started_at,
        "timeTakenInMillis": duration_ms,
        "totalFilesDeleted": len(plan.paths),
        "commitsRollback": [plan.instant],
        "partitionMetadata": partitions,
        "version": 1,
        "instantsRollback": [_instant_info(plan.instant, plan.action)],
    }


def _instant_info(instant: InstantTime, action: str) -> Record:
    return {"commitTime": instant, "action": action}


def _absolute(root: str, partition: str, name: str) -> str:
    return f"{root.rstrip('/')}/{file_path(partition, name)}"


def _file_id(name: str) -> str:
    parsed = BaseFileName.from_file_name(name)
    return "" if parsed is None else parsed.file_id


# ---- Restores ------------------------------------------------------------------------------------

_RESTORE_PLAN = "HoodieRestorePlan"
_RESTORE = "HoodieRestoreMetadata"
_RESTORE_PLAN_VERSION = 2


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
        _RESTORE_PLAN,
        {
            "instantsToRollback": _infos(plan),
            "version": _RESTORE_PLAN_VERSION,
            "savepointToRestoreTimestamp": plan.savepoint,
        },
    )


def decode_restore_plan(data: bytes, path: str) -> RestorePlan:
    """Decode a plan; raise FormatError if the bytes are no restore plan, or name no instants."""
    record = decode_record(data, path, _RESTORE_PLAN)
    savepoint = record["savepointToRestoreTimestamp"]
    undone = record["instantsToRollback"] or []
    for instant in filter(None, [savepoint, *(info["commitTime"] for info in undone)]):
        require_instant(instant, path)
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
        _RESTORE,
        {
            "startRestoreTime": started_at,
            "timeTakenInMillis": duration_ms,
            "instantsToRollback": [instant for instant, _ in plan.undone],
            "hoodieRestoreMetadata": held,
            "version": 1,
            "restoreInstantInfo": _infos(plan),
        },
    )


def _infos(plan: RestorePlan) -> list[Record]:
    return [_instant_info(*undone) for undone in plan.undone]


# ---- Savepoints ----------------------------------------------------------------------------------

_SAVEPOINT = "HoodieSavepointMetadata"


def encode_savepoint(files: Mapping[str, Sequence[str]], *, at_ms: int, comment: str) -> bytes:
    """Encode the metadata of a savepoint.

    Parameters
    ----------
    files : mapping of str to sequence of str
        Names of the files that the savepoint holds, by partition path.
    at_ms : int
        When it was made, in milliseconds since 1970 UTC.
    comment : str
        Its purpose.
    """
    partitions = {
        partition: {"partitionPath": partition, "savepointDataFile": list(names)}
        for partition, names in files.items()
    }
    return encode_record(
        _SAVEPOINT,
        {
            "savepointedBy": "",
            "savepointedAt": at_ms,
            "comments": comment,
            "partitionMetadata": partitions,
            "version": 1,
        },
    )


def decode_savepoint(data: bytes, path: str) -> dict[str, tuple[str, ...]]:
    """Decode the names of the files that a savepoint holds, by partition path.

    Raises
    ------
    FormatError
        If the bytes are not a savepoint's metadata, or name something that is no data file.
    """
    record = decode_record(data, path, _SAVEPOINT)
    files = {
        partition: tuple(name.rpartition("/")[2] for name in held["savepointDataFile"])
        for partition, held in (record["partitionMetadata"] or {}).items()
    }
    require_data_names(files, path)
    return files
