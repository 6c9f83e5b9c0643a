"""Rollback plans and the metadata of completed rollbacks, as Hudi stores them on the timeline.

Both contain absolute paths, with the address that their writer used. Only partition and file name
of a plan are used. So the plan of a moved table stays valid, and no plan leads out of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bucketlake.config.inner_path import require_data_place, require_instant
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
        _PLAN, {"instantToRollback": _instant_info(plan), "RollbackRequests": requests}
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
        "instantsRollback": [_instant_info(plan)],
    }


def _instant_info(plan: RollbackPlan) -> Record:
    return {"commitTime": plan.instant, "action": plan.action}


def _absolute(root: str, partition: str, name: str) -> str:
    return f"{root.rstrip('/')}/{file_path(partition, name)}"


def _file_id(name: str) -> str:
    parsed = BaseFileName.from_file_name(name)
    return "" if parsed is None else parsed.file_id
